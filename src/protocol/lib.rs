//! Defines the messages between the privileged and the unprivileged half.
//!
//! The module writes a [`Request`] to the helper's standard input. The helper writes a [`Reply`] to its
//! standard output. Both are RFC 38 key-values in a fixed order. Decoding is strict: a key that is missing,
//! doubled, unknown or out of place refuses the login.

#![forbid(unsafe_code)]

mod allowlist;
mod environment;
mod message;
mod schema;
#[cfg(test)]
mod tests;

pub use allowlist::{
    ALLOWLIST_ENTRIES_MAX, Access, Allowlist, DeviceRule, DeviceType, MAJOR_MAX, MINOR_MAX,
    PROBES_MAX, Probe,
};
pub use environment::{ENVIRONMENT_BYTES_MAX, Variable, Variables};
pub use message::{
    ChoiceRule, Containment, LimitKey, LoginLimits, Phase, Placement, Plan, REPLY_BYTES_MAX,
    Reason, Refusal, Reply, Request, SessionLine, SeveralJobsPolicy, SourceName, Verdict,
};
pub use schema::is_within;
pub use schema::parse_decimal;
pub use schema::{AbsolutePath, CgroupPath, DecodeError, InvalidText, JobId, LeafName, NodeName};

/// Message that a keeper sends once it holds its lock.
pub const KEEPER_READY: &[u8] = b"ready";
/// Message that tells a keeper that a login has joined its leaf.
pub const KEEPER_STAY: &[u8] = b"keep";
/// Version of this build, with a checksum of the protocol's source. Halves of different versions refuse
/// the login.
pub const VERSION: &str = env!("BUILD");
/// End of the refusal of another version: the sender's version stands before it, this build's is in it.
pub const VERSION_MISMATCH: &str =
    concat!(" speaks to version ", env!("BUILD"), " of pam_job_adopt");
