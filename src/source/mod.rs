//! Where jobs are looked up.
//!
//! A source knows the jobs of one user on this node. It reads and judges nothing else: which job
//! a login joins is [`crate::resolve`]'s to decide.

#![forbid(unsafe_code)]

mod registry;

use std::fmt;

use crate::plan::{CgroupPath, JobId, LeafName, SourceName};
use crate::registry::Record;

pub use registry::RegistrySource;

/// One place where jobs are looked up.
pub trait Source {
    /// Its name in configuration, protocol and log.
    fn name(&self) -> SourceName;

    /// The running jobs of `uid` on this node, and what else the source knows about them.
    ///
    /// # Errors
    /// [`SourceError`]; a user without jobs is none.
    fn jobs(&self, uid: u32) -> Result<Found, SourceError>;
}

/// A running job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Its id, in the source's canonical form.
    pub id: JobId,
    /// Where it was found.
    pub source: SourceName,
    /// When it started, in seconds since the epoch; 0 where nobody knows.
    pub started: i64,
    /// When it ends, in seconds since the epoch, where the source knows it.
    pub ends: Option<i64>,
    /// Its cgroup.
    pub cgroup: CgroupPath,
    /// The child that its logins go to, where one is named.
    pub leaf: Option<LeafName>,
    /// The record that says which devices are its own.
    pub record: Record,
}

/// A job that is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedJob {
    /// Its id.
    pub id: JobId,
    /// When it ended, in seconds since the epoch.
    pub ended: i64,
}

/// What a source knows about one user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The running jobs.
    pub jobs: Vec<Job>,
    /// The jobs that ended and of whose end there is a note, however old.
    pub ended: Vec<EndedJob>,
    /// What may stand for a running job and cannot be used: file and cause.
    pub broken: Vec<String>,
    /// What else was found and is not used: file and cause.
    pub skipped: Vec<String>,
}

/// Why a source does not answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceError {
    /// What the source looks at is not on this node; it has no jobs. The text says what is missing.
    Absent(String),
    /// The source is there and cannot be read.
    Failed(String),
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent(what) | Self::Failed(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for SourceError {}
