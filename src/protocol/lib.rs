//! The boundary between the unprivileged and the privileged half.
//!
//! A [`Request`] goes in on the helper's standard input, a [`Reply`] comes out on its standard
//! output, both as RFC 38 key-values in a fixed order of keys. Everything that crosses is decoded
//! strictly: a key that is missing, doubled, unknown or out of place refuses the login.

#![forbid(unsafe_code)]

mod allowlist;
mod environment;
mod message;
mod schema;
#[cfg(test)]
mod tests;

pub use allowlist::{
    Access, Allowlist, DeviceRule, DeviceType, MAJOR_MAX, MAX_ENTRIES, MAX_PROBES, MINOR_MAX, Probe,
};
pub use environment::{ENVIRONMENT_MAX, Variable, Variables};
pub use message::{
    Containment, Phase, Placement, Plan, REPLY_MAX, Reason, Refusal, Reply, Request, Rule, Several,
    SourceName, Stack, Verdict,
};
pub use schema::decimal;
pub use schema::is_within;
pub use schema::{AbsolutePath, CgroupPath, DecodeError, Invalid, JobId, LeafName, NodeName};

/// What a keeper says once it holds the lock and waits.
pub const READY: &[u8] = b"ready";
/// What a keeper is told once a login is in the leaf for good.
pub const KEEP: &[u8] = b"keep";
/// What replaces what was removed from the configuration and from the PAM line alike.
pub const CDI_ENV: &str = "was removed; logins are given the variables that the key env names, and \
                           pam_env can set others";
/// As [`CDI_ENV`].
pub const CDI_GIDS: &str = "was removed; pam_group can add groups, and an auth line of this module \
                            does nothing";
/// What both sides state, with a checksum of their source; different versions refuse the login.
pub const VERSION: &str = env!("BUILD");
/// What both halves say when the other is of another version; the version is between the first
/// words and the last.
pub const SPEAKS_TO: &str = concat!(" speaks to version ", env!("BUILD"), " of pam_job_adopt");
