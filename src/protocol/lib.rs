//! Defines the messages between the privileged and the unprivileged half.
//!
//! The module writes a [`Request`] to the helper's standard input. The helper writes a [`Reply`] to its
//! standard output. Both are RFC 38 key-values in a fixed order. Decoding is strict: a key that is missing,
//! doubled, unknown or out of place refuses the login.

#![forbid(unsafe_code)]

mod allowlist;
mod environment;
mod message;
mod names;
mod schema;
#[cfg(test)]
mod tests;
mod words;

pub use allowlist::{
    ALLOWLIST_ENTRIES_MAX, Access, Allowlist, DeviceRule, DeviceType, MAJOR_MAX, MINOR_MAX,
    PROBES_MAX, Probe,
};
pub use environment::{ENVIRONMENT_BYTES_MAX, Variable, Variables};
pub use message::{
    Containment, LimitKey, LimitValue, LoginLimits, Placement, Plan, REPLY_BYTES_MAX, Refusal,
    Reply, Request, Verdict,
};
pub use names::{AbsolutePath, CgroupPath, JobId, LeafName, NodeName, is_within, parse_decimal};
pub use schema::{DecodeError, InvalidText};
pub use words::{
    ChoiceRule, Decision, Phase, Reason, Scheduler, SessionLine, SeveralJobsPolicy, SourceName,
};

/// Message that a keeper sends to the module once it holds its lock, one packet of its socket.
pub const KEEPER_READY: &[u8] = b"ready";
/// Message that tells a keeper that a login has joined its leaf, one packet: this text, and the grace of the job's end
/// in seconds as one byte. Without it the login has failed.
pub const KEEPER_STAY: &[u8] = b"keep";
/// Longest time that programs of logins have to save at the end of their job.
pub const END_GRACE_SECONDS_MAX: u8 = 60;
/// Version of this build as in `Cargo.toml`, with a checksum of the protocol's source. Halves of different versions refuse
/// the login.
pub const VERSION: &str = env!("BUILD");
/// End of the refusal of another version: the sender's version stands before it, this build's is in it.
pub const VERSION_MISMATCH: &str =
    concat!(" speaks to version ", env!("BUILD"), " of pam_job_adopt");
