//! Judges one login in ordered steps: ask the unprivileged half, check its reply, confine, move,
//! verify. Runs as root inside sshd.
//!
//! `account` admits or refuses, and moves nothing. `session` moves the login into the job, or rolls
//! back all changes but two: a filter belongs to the job and stays, and so does the directory for
//! the user's choice of a job. Neither depends on PAM: the input is the facts of a login in a
//! [`Request`](protocol::Request), the output an [`Outcome`] with the texts for user and log.

#![forbid(unsafe_code)]

mod ask;
mod auth_lines;
mod error;
mod job;
mod namespaces;
mod probe;
mod ruling;
mod settings;
#[cfg(test)]
#[path = "../testing.rs"]
mod testing;
mod text;
mod undo;

pub use ask::{Account, ask_helper};
pub use auth_lines::AuthLines;
pub use error::Failure;
pub use job::{Job, JoinResult, LeafJob, LeafLimit, OwnerProof};
pub use kernel::log::{Line, Severity};
pub use namespaces::{JobNamespaces, end_process};
pub use ruling::{
    LoginContext, Outcome, Ruling, decision_line, judge_login, misconfiguration_outcome,
};
pub use settings::{Action, ArgumentOrigin, OFF_SWITCH_PATH, Settings, is_off};
pub use undo::Environment;

use kernel::log::{self, Log};
use std::time::{Duration, Instant};

/// Returns this node's name if the admin sets none: the host name up to its first dot.
pub fn node_name() -> String {
    let name = nix::unistd::gethostname().unwrap_or_default();
    let name = name.to_string_lossy();
    name.split('.').next().unwrap_or_default().to_owned()
}

/// Writes lines under the service's name, as sshd itself does, and with the prefix of pam_syslog(3), which log
/// readers know.
pub fn write_log(open: Option<&Log>, lines: &[Line], min: Severity, service: &str, phase: &str) {
    let prefix = format!("pam_job_adopt({service}:{phase}): ");
    match open {
        Some(open) => open.write(lines, min, service, &prefix),
        None => log::write(lines, min, service, &prefix),
    }
}

/// The time for a whole phase, from its first step to its last.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    start: Instant,
    deadline: Instant,
}

impl Budget {
    /// Starts a budget now.
    pub fn start(length: Duration) -> Self {
        let start = Instant::now();
        Self { start, deadline: start + length }
    }

    /// Returns the time at which it is used up.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Returns the remaining time.
    pub fn remaining(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// Returns the elapsed milliseconds.
    pub fn elapsed_ms(&self) -> u128 {
        self.start.elapsed().as_millis()
    }
}
