//! Refusals and replies without texts for the user.

use protocol::{Reason, Refusal, Reply, SessionLine, Verdict};

/// Makes a refusal that names no job and no device.
pub(super) fn refusal(reason: Reason) -> Refusal {
    Refusal { reason, jobs: Vec::new(), ended: None, device: String::new() }
}

/// Makes a reply without texts for the user, and with an unchecked stack.
pub(super) fn reply(verdict: Verdict, detail: String) -> Reply {
    Reply {
        stack: SessionLine::Unchecked,
        auth_fault: "was not examined".to_owned(),
        detail,
        warnings: Vec::new(),
        hint: String::new(),
        message: String::new(),
        verdict,
    }
}
