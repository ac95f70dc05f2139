//! Where jobs are looked up.
//!
//! A source knows the jobs of one user on this node. It reads and judges nothing else: which job
//! a login joins is [`crate`]'s to decide.

mod flux;
pub mod processes;
mod registry;
pub(crate) mod slurm;

use std::time::Instant;

use crate::records::{Note, Record};
use protocol::{JobId, Placement, SourceName};
use thiserror::Error;

pub use flux::{FluxId, FluxSource, account_uid};
pub use registry::RegistrySource;
pub use slurm::SlurmSource;

/// One place where jobs are looked up.
pub trait Source {
    /// Its name in configuration, protocol and log.
    fn name(&self) -> SourceName;

    /// The running jobs of `uid` on this node, and what else the source knows about them. A source
    /// that waits for others does so no longer than to `deadline`.
    /// Fails: [`SourceError`]; a user without jobs is none.
    fn jobs(&self, uid: u32, deadline: Instant) -> Result<Found, SourceError>;
}

/// What evidence and log call the place of this job.
#[must_use]
pub fn shown(placement: &Placement, job: &JobId) -> String {
    match placement {
        Placement::Cgroup { path, .. } | Placement::Unit { path, .. } => path.to_string(),
        Placement::Extern { spool, node } => format!("{spool}/{node}_{job}"),
    }
}

/// A running job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Its id, in the source's canonical form.
    pub id: JobId,
    /// When it started, in seconds since the epoch; 0 where nobody knows.
    pub started: i64,
    /// When it ends, in seconds since the epoch, where the source knows it.
    pub ends: Option<i64>,
    /// Where its logins go.
    pub placement: Placement,
    /// The record that says which devices are its own; a scheduler's job may do without.
    pub record: Option<Record>,
}

impl Job {
    /// Whether a name that was given for a job means this one. Flux has several notations, and
    /// people write the one that they have.
    pub fn goes_by(&self, name: &JobId) -> bool {
        let of_flux = matches!(self.placement, Placement::Unit { .. });
        self.id == *name || (of_flux && FluxId::job(name.as_str()).as_ref() == Some(&self.id))
    }
}

/// The job that a name means: the one of this very id, or else the one that goes by it.
pub fn meant<'a>(jobs: &'a [Job], name: &JobId) -> Option<&'a Job> {
    let exactly = jobs.iter().find(|job| job.id == *name);
    exactly.or_else(|| jobs.iter().find(|job| job.goes_by(name)))
}

/// A record that adds devices to a job of a scheduler's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addition {
    /// The record.
    pub record: Record,
    /// What there is to say where no scheduler has the job.
    pub otherwise: String,
}

/// What a source knows about one user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The running jobs.
    pub jobs: Vec<Job>,
    /// Records that place no login themselves; they add devices to jobs of a scheduler's.
    pub additions: Vec<Addition>,
    /// Jobs that are about to run, and take no logins yet.
    pub starting: Vec<JobId>,
    /// Jobs that take none any more.
    pub ending: Vec<JobId>,
    /// The jobs that ended and of whose end there is a note, however old.
    pub ended: Vec<(JobId, Note)>,
    /// Jobs of which there is a record that cannot be used. What a scheduler knows of such a job is
    /// not all that was said about it.
    pub unusable: Vec<JobId>,
    /// What may stand for a running job and cannot be used: file and cause.
    pub broken: Vec<String>,
    /// What may stand for a running job and did not answer in time.
    pub silent: Vec<String>,
    /// What did not answer in time and stands for other users' jobs.
    pub foreign: Vec<String>,
    /// What else was found and is not used: file and cause.
    pub skipped: Vec<String>,
    /// Where it looked, and what there was.
    pub seen: Vec<String>,
}

/// Why a source does not answer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SourceError {
    /// What the source looks at is not on this node; it has no jobs. The text says what is missing.
    #[error("{0}")]
    Absent(String),
    /// The source is there and cannot be read.
    #[error("{0}")]
    Failed(String),
}
