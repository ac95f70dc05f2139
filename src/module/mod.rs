//! One login, as ordered steps: ask the unprivileged half, check what it says, confine, move,
//! verify. Runs as root inside sshd.
//!
//! `account` admits or refuses and changes nothing; `session` takes the login into the job, or
//! leaves everything as it was. Neither knows of PAM: facts of the login go in, an [`Outcome`]
//! with the texts for user and log comes out.

mod ask;
mod environment;
mod error;
mod job;
pub mod pam;
mod probe;
mod ruling;
mod settings;
mod text;
mod undo;

pub use crate::kernel::log::{Line, Severity};
pub(crate) use ask::ask;
pub(crate) use environment::Environment;
pub(crate) use error::Failure;
pub(crate) use job::{Cgroups, Job, Joined};
pub(crate) use ruling::{Means, judge};
pub use ruling::{Outcome, Ruling, decision_line, misconfigured};
pub use settings::{Action, OFF, Settings, is_off};

use crate::protocol::Phase;
use std::time::{Duration, Instant};

/// The facts of one login, as PAM tells them. Texts that it does not tell are empty.
#[derive(Clone, Debug)]
pub struct Login {
    /// Which phase it is in.
    pub phase: Phase,
    /// `PAM_USER`.
    pub user: String,
    /// Numeric user id, never 0.
    pub uid: u32,
    /// `PAM_SERVICE`.
    pub service: String,
    /// `PAM_RHOST`.
    pub rhost: String,
    /// PAM's `SSH_CONNECTION`.
    pub ssh_connection: String,
    /// Name of this node.
    pub node: String,
}

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
