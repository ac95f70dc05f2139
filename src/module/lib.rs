//! One login, as ordered steps: ask the unprivileged half, check what it says, confine, move,
//! verify. Runs as root inside sshd.
//!
//! `account` admits or refuses and changes nothing; `session` takes the login into the job, or
//! leaves everything as it was. Neither knows of PAM: the facts of a login go in, as the
//! [`Request`](protocol::Request) has them; an [`Outcome`] with the texts for user and log
//! comes out.

#![forbid(unsafe_code)]

mod ask;
mod error;
mod job;
mod probe;
mod ruling;
mod settings;
mod text;
mod undo;

pub use ask::{Account, ask};
pub use error::Failure;
pub use job::{Cgroups, Job, Joined, Owner};
pub use kernel::log::{Line, Severity};
pub use ruling::{Means, Outcome, Ruling, decision_line, judge, misconfigured};
pub use settings::{Action, OFF, Settings, is_off};
pub use undo::Environment;

use std::time::{Duration, Instant};

/// This node's name where the admin gives none: the host name up to its first dot.
pub fn node_name() -> String {
    let name = nix::unistd::gethostname().unwrap_or_default();
    let name = name.to_string_lossy();
    name.split('.').next().unwrap_or_default().to_owned()
}

/// The time that a whole phase has, from its first step to its last.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    start: Instant,
    deadline: Instant,
}

impl Budget {
    /// A budget that starts now.
    pub fn start(length: Duration) -> Self {
        let start = Instant::now();
        Self { start, deadline: start + length }
    }

    /// When it is used up.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// What is left of it.
    pub fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// Milliseconds used so far.
    pub fn used_ms(&self) -> u128 {
        self.start.elapsed().as_millis()
    }
}
