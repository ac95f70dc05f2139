//! One login, as ordered steps: ask the unprivileged half, check what it says, confine, move,
//! verify. Runs as root inside sshd.
//!
//! `account` admits or refuses and changes nothing; `session` takes the login into the job, or
//! leaves everything as it was. Neither knows of PAM: facts of the login go in, an [`Outcome`]
//! with the texts for user and log comes out.

#![forbid(unsafe_code)]

mod adopt;
mod ask;
mod claim;
mod decision;
mod environment;
mod error;
mod executable;
mod flux;
mod login;
mod probe;
mod ruling;
mod settings;
mod site;
mod slurm;
mod target;
mod text;
mod undo;
mod visit;

pub use crate::log::{Line, Severity};
pub use decision::decision_line;
pub use environment::Environment;
pub use error::{Failure, Fault};
pub use flux::{FluxFailure, policy};
pub use login::{Login, node_name};
pub use ruling::{Outcome, Ruling, judge, misconfigured};
pub use settings::{Account, Action, Settings};
pub use slurm::SlurmFailure;
pub use target::{Foreseen, Target};
pub use text::{Words, refusal_text};
pub use visit::Visit;

use std::time::{Duration, Instant};

/// The time that a whole phase has, from its first step to its last.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    start: Instant,
    deadline: Instant,
}

impl Budget {
    /// A budget that starts now.
    #[must_use]
    pub fn start(length: Duration) -> Self {
        let start = Instant::now();
        Self { start, deadline: start + length }
    }

    /// When it is used up.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// What is left of it.
    #[must_use]
    pub fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// Milliseconds used so far.
    #[must_use]
    pub fn used_ms(&self) -> u128 {
        self.start.elapsed().as_millis()
    }
}
