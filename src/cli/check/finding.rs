//! One thing that `check` looked at.

use serde::Serialize;
use std::fmt::Display;

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

/// The stable name of a check. Each is a constant of this type, by which tests/manual.rs knows it
/// and looks for its entry in job-adopt(1).
pub(super) type Check = &'static str;

/// One thing that was looked at: what, how it is, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    /// How grave it is.
    pub(super) severity: Severity,
    /// A stable name of the check, as `pam-session` or `kernel-device-filter`.
    pub(super) check: Check,
    /// What it is about: a file and line, a unit, a user.
    pub(super) object: String,
    /// How it is, in one sentence.
    pub(super) text: String,
    /// What to do; empty where nothing is to be done.
    pub(super) remedy: String,
}

impl Finding {
    /// As it should be.
    pub(super) fn fine(check: Check, object: impl Display, text: impl Display) -> Self {
        Self::new(Severity::Fine, check, object, text, "")
    }

    /// Worth knowing.
    pub(super) fn note(
        check: Check,
        object: impl Display,
        text: impl Display,
        remedy: impl Display,
    ) -> Self {
        Self::new(Severity::Note, check, object, text, remedy)
    }

    /// A way past the confinement.
    pub(super) fn warning(
        check: Check,
        object: impl Display,
        text: impl Display,
        remedy: impl Display,
    ) -> Self {
        Self::new(Severity::Warning, check, object, text, remedy)
    }

    /// Logins are refused, or admitted outside of their jobs.
    pub(super) fn error(
        check: Check,
        object: impl Display,
        text: impl Display,
        remedy: impl Display,
    ) -> Self {
        Self::new(Severity::Error, check, object, text, remedy)
    }

    /// It cannot be told.
    pub(super) fn unknown(
        check: Check,
        object: impl Display,
        text: impl Display,
        remedy: impl Display,
    ) -> Self {
        Self::new(Severity::Unknown, check, object, text, remedy)
    }

    fn new(
        severity: Severity,
        check: Check,
        object: impl Display,
        text: impl Display,
        remedy: impl Display,
    ) -> Self {
        let (object, text, remedy) = (object.to_string(), text.to_string(), remedy.to_string());
        Self { severity, check, object, text, remedy }
    }
}
