//! One thing that `check` looked at.

use serde::Serialize;

/// How grave it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Severity {
    /// As it should be.
    Fine,
    /// Worth knowing; nothing is open and nobody is locked out.
    Note,
    /// A way past the confinement stays open, or something is weaker than it looks.
    Warning,
    /// Logins will be refused, or admitted outside of their jobs.
    Error,
    /// It could not be told.
    Unknown,
}

/// One thing that was looked at: what, how it is, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    /// How grave it is.
    pub(super) severity: Severity,
    /// A stable name of the check, as `pam-session` or `kernel-device-filter`.
    pub(super) check: &'static str,
    /// What it is about: a file and line, a unit, a user.
    pub(super) object: String,
    /// How it is, in one sentence.
    pub(super) text: String,
    /// What to do; empty where nothing is to be done.
    pub(super) remedy: String,
}
