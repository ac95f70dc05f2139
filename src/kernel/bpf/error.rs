//! The failures of operations on a cgroup's filters.

use crate::OperationError;
use crate::cgroup::{self, Dir};
use std::io;
use thiserror::Error;

/// Result of an operation on filters.
pub type Result<T> = std::result::Result<T, Error>;

/// The failure of an operation on a cgroup's filters.
#[derive(Debug, Error)]
pub enum Error {
    /// A command of `bpf(2)`, or a step around it, failed.
    #[error(transparent)]
    System(#[from] OperationError),
    /// The required containment does not hold.
    #[error("confine {object}: {why}")]
    Obstacle {
        /// Path of the leaf.
        object: String,
        /// Reason.
        why: Obstacle,
    },
}

impl Error {
    /// Describes the obstacle to the containment of a leaf.
    pub(super) fn obstacle(leaf: &Dir, why: Obstacle) -> Self {
        Self::Obstacle {
            object: leaf.path().to_owned(),
            why,
        }
    }
}

impl From<cgroup::Error> for Error {
    /// Converts an error of a cgroup on which filters are read or attached.
    fn from(error: cgroup::Error) -> Self {
        match error {
            cgroup::Error::System(failed) => Self::System(failed),
            error => {
                OperationError::new("look at", "cgroup", io::Error::other(error.to_string())).into()
            }
        }
    }
}

/// The reason why the required containment does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Obstacle {
    /// The scheduler should constrain the job, but has no filter there.
    #[error("the scheduler's device filter is not in force")]
    NothingInForce,
    /// A filter with flags 0 is at or above the leaf: the kernel allows no other filter.
    #[error("a filter attached with flags 0 lets no other be added")]
    Exclusive,
    /// A filter with flags 0 at the job does not run at the leaf.
    #[error("the filter attached with flags 0 does not run here")]
    ExclusiveSkipped,
    /// The job's own cgroup has an `ALLOW_OVERRIDE` filter, beside which ours cannot be attached: a child
    /// leaf is needed, and then a new decision.
    #[error(
        "an ALLOW_OVERRIDE filter of its own lets no other be added: a child has to take logins"
    )]
    NeedChild,
    /// The leaf, a child of the job's cgroup, has an `ALLOW_OVERRIDE` filter: no pin can be attached there.
    #[error("an ALLOW_OVERRIDE filter of its own lets no other be added")]
    LeafOverridden,
    /// This program must run at the leaf and does not, although every step succeeded.
    #[error("program {0} is not in force there")]
    NotEffective(u32),
    /// Other programs have changed filters in every round, or our older filter may not be replaced.
    #[error("others keep changing the filters there")]
    ChangedByOthers,
}
