//! Refusals of logins.

use protocol::{Reason, Refusal};

/// A refused login: what the user is told, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoginRefusal {
    /// The reason for the user, with the jobs and the device that its text names.
    pub refusal: Refusal,
    /// The cause for the log. The user never sees it.
    pub cause: String,
}

/// Makes a refusal that names no job and no device.
pub(super) fn refusal(reason: Reason) -> Refusal {
    Refusal {
        reason,
        jobs: Vec::new(),
        ended: None,
        device: String::new(),
    }
}
