//! What can fail with filters.

use super::compose::Obstacle;
use crate::failed::Failed;
use crate::lock::LockError;
use std::fmt;
use std::io;

/// Result of this layer.
pub type Result<T> = std::result::Result<T, Error>;

/// An operation, the cgroup or program it was done on, and why it failed.
#[derive(Debug)]
pub enum Error {
    /// A command of `bpf(2)`, or a step around it, failed.
    System(Failed),
    /// The verifier refused our program.
    Verifier {
        /// The kernel's answer.
        source: io::Error,
        /// The end of the verifier's log.
        log: String,
    },
    /// The composition rules leave no way to enforce what the job needs.
    Obstacle {
        /// The leaf.
        object: String,
        /// Which rule.
        why: Obstacle,
    },
    /// After all was done, a filter that has to run at the leaf does not.
    NotEffective {
        /// The leaf.
        object: String,
        /// Id of the program.
        program: u32,
    },
    /// Filters were changed by others as fast as we looked.
    Unsettled {
        /// The leaf.
        object: String,
    },
    /// The lock was not to be had in time.
    Locked {
        /// The lock file.
        object: String,
    },
}

impl Error {
    pub(crate) fn system(
        operation: &'static str,
        object: impl Into<String>,
        source: impl Into<io::Error>,
    ) -> Self {
        Self::System(Failed::new(operation, object, source))
    }
}

impl From<LockError> for Error {
    fn from(error: LockError) -> Self {
        match error {
            LockError::System(failed) => Self::System(failed),
            LockError::Held { object } => Self::Locked { object: object.into() },
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System(failed) => failed.fmt(f),
            Self::Verifier { source, log } => write!(f, "load device filter: {source}: {log}"),
            Self::Obstacle { object, why } => write!(f, "confine {object}: {why}"),
            Self::NotEffective { object, program } => {
                write!(f, "confine {object}: program {program} is not in force there")
            }
            Self::Unsettled { object } => {
                write!(f, "confine {object}: others keep changing the filters there")
            }
            Self::Locked { object } => {
                write!(f, "lock {object}: held by others until the deadline")
            }
        }
    }
}

impl std::error::Error for Error {}
