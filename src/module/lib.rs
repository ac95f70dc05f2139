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
mod budget;
mod context;
mod decide;
mod error;
mod job;
mod keeper;
mod log;
mod login;
mod namespaces;
mod probe;
mod report;
mod settings;
#[cfg(test)]
#[path = "../testing.rs"]
mod testing;
mod text;
mod undo;
mod variables;

pub use ask::{Account, ask_helper};
pub use auth_lines::AuthLines;
pub use budget::Budget;
pub use context::LoginContext;
pub use decide::Ruling;
pub use error::Failure;
pub use job::{Job, JoinResult, LeafJob, LeafLimit, OwnerProof};
pub use kernel::log::{Line, Severity};
pub use log::{decision_line, write_log};
pub use login::{Prediction, judge_login, predict_login};
pub use namespaces::{JobNamespaces, end_process};
pub use report::{Outcome, misconfiguration_outcome};
pub use settings::{Action, ArgumentOrigin, OFF_SWITCH_PATH, Settings, is_off};
pub use variables::Environment;

/// Returns this node's name if the admin sets none: the host name up to its first dot.
pub fn node_name() -> String {
    let name = nix::unistd::gethostname().unwrap_or_default();
    let name = name.to_string_lossy();
    name.split('.').next().unwrap_or_default().to_owned()
}
