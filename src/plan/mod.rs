//! The boundary between the unprivileged and the privileged half.
//!
//! A [`Request`] goes in on the helper's standard input, a [`Reply`] comes out on its standard
//! output, both as RFC 38 key-values in a fixed order of keys. Everything that crosses is decoded
//! strictly: a key that is missing, doubled, unknown or out of place refuses the login.

#![forbid(unsafe_code)]

mod allowlist;
mod device_rule;
mod environment;
mod kv;
mod name;
mod placement;
mod probe;
mod reason;
mod reply;
mod request;

pub use allowlist::{Allowlist, MAX_ENTRIES};
pub(crate) use device_rule::decimal;
pub use device_rule::{Access, DeviceRule, DeviceType, MAJOR_MAX, MINOR_MAX, RuleError};
pub use environment::{ENVIRONMENT_MAX, MAX_VARIABLES, Variable, VariableError, Variables};
pub use kv::{DecodeError, Reader, Writer};
pub use name::{AbsolutePath, CgroupPath, JobId, LeafName, NameError, NodeName, is_within};
pub use placement::Placement;
pub use probe::{MAX_PROBES, Probe, ProbeError};
pub use reason::Reason;
pub use reply::{Containment, Plan, REPLY_MAX, Refusal, Reply, Rule, SourceName, Stack, Verdict};
pub use request::{Phase, Request, Several};

/// Version that both sides of the boundary state; different versions refuse the login.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// What both halves say when the other is of another version; the version is between the first
/// words and the last.
pub(crate) const SPEAKS_TO: &str =
    concat!(" speaks to version ", env!("CARGO_PKG_VERSION"), " of pam_job_adopt");
