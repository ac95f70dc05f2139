//! What the child that runs the stack tells, one line of JSON each.

use serde::{Deserialize, Serialize};

/// A call of libpam's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Step {
    Start,
    Account,
    Credentials,
    Open,
    Close,
    Delete,
}

impl Step {
    /// What it is called in a report.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Start => "pam_start",
            Self::Account => "account",
            Self::Credentials => "pam_setcred (establish)",
            Self::Open => "session",
            Self::Close => "close of the session",
            Self::Delete => "pam_setcred (delete)",
        }
    }
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Event {
    /// A call has begun.
    Began(Step),
    /// A module said this to the user.
    Said(String),
    /// A call has returned.
    Answered {
        /// Which.
        step: Step,
        /// Whether with `PAM_SUCCESS`.
        fine: bool,
        /// libpam's words for the code.
        words: String,
    },
    /// The session is open: what the login is in, and what holds there.
    Stands(Place),
    /// Something could not be looked at or done.
    Trouble(String),
}

/// Where a login is, and what holds there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Place {
    /// Its cgroups: of every hierarchy the path, that of cgroup v2 first.
    pub(super) cgroups: Vec<String>,
    /// The filters that are in force: name, whose, and where.
    pub(super) filters: Vec<String>,
    /// Of the guarded device nodes that are there, those that the filters let be opened.
    pub(super) opens: Vec<String>,
    /// Those that they refuse.
    pub(super) refuses: Vec<String>,
    /// Those of which it cannot be told.
    pub(super) unclear: Vec<String>,
    /// Limits that are others than before.
    pub(super) limits: Vec<String>,
}
