//! Sources of jobs: the registry, Slurm and Flux.
//!
//! A source finds the jobs of one user on this node. It decides nothing: `crate::login` chooses the
//! job that a login joins.

mod doubt;
mod flux;
pub mod processes;
mod registry;
pub(crate) mod slurm;

use crate::clock::Deadline;
use crate::jobs::Job;
use crate::jobs::records::{Note, Record};
use protocol::{JobId, SourceName};
use thiserror::Error;

pub use doubt::{Doubt, JobsOfUsers, PossibleOwners};
pub use flux::{FluxSource, account_uid};
pub use registry::RegistrySource;
pub use slurm::{AskedDaemons, SlurmSource, Sought, parse_socket_name};

/// A source of jobs.
pub trait Source {
    /// Its name in configuration, protocol and log.
    fn name(&self) -> SourceName;

    /// The running jobs of `uid` on this node, and all else that the source knows of the
    /// user. A source that waits for others stops at `deadline`.
    ///
    /// # Errors
    ///
    /// [`SourceError`] if the source is absent or cannot be read; a user without jobs is no error.
    fn jobs(&self, uid: u32, deadline: Deadline) -> Result<SourceReport, SourceError>;
}

/// A record that adds devices to a scheduler's job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addition {
    /// The record.
    pub record: Record,
    /// The text for the log if no scheduler has the job.
    pub absence_cause: String,
}

/// A running job that no login can join, since a daemon of its scheduler is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DaemonlessJob {
    /// Its id.
    pub id: JobId,
    /// The text for the log.
    pub cause: String,
}

/// All that a source knows about one user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceReport {
    /// The running jobs.
    pub jobs: Vec<Job>,
    /// Records that place no login themselves; they add devices to a scheduler's jobs.
    pub additions: Vec<Addition>,
    /// Jobs that are starting, and accept no logins yet.
    pub starting: Vec<JobId>,
    /// Running jobs whose daemon for logins is gone.
    pub daemonless: Vec<DaemonlessJob>,
    /// Jobs that are ending, and accept no logins any more.
    pub ending: Vec<JobId>,
    /// The jobs that ended, with their notes, of whatever age.
    pub ended: Vec<(JobId, Note)>,
    /// Jobs with a record that cannot be used: a scheduler's view of such a job is incomplete.
    pub unusable: Vec<JobId>,
    /// Files that may stand for a running job and cannot be used: path and cause.
    pub broken: Vec<String>,
    /// Daemons and units that may have a running job of the user and did not answer in time.
    pub silent: Vec<String>,
    /// Files, daemons and units that cannot be used and have other users' jobs.
    pub foreign: Vec<String>,
    /// All else that is not used: path and cause.
    pub skipped: Vec<String>,
    /// Summaries of the places that the source read.
    pub seen: Vec<String>,
}

/// Reason why a source cannot report.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SourceError {
    /// The scheduler or registry is not on this node, so there are no jobs. The text names what is
    /// missing.
    #[error("{0}")]
    Absent(String),
    /// The registry is empty, and no job was registered since the node started. Logins treat it
    /// like an absent one.
    #[error("{0}")]
    Unused(String),
    /// The source exists and cannot be read.
    #[error("{0}")]
    Failed(String),
}
