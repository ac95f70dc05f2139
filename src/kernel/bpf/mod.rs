//! Generates, loads and attaches device filters: `BPF_PROG_TYPE_CGROUP_DEVICE` programs.
//!
//! [`generate`] turns an allowlist into instructions. `program` loads programs and reads those of a cgroup.
//! `compose` decides which may be attached where, attaches them under a lock and verifies the result.

mod compose;
pub mod generate;
mod program;

use crate::OperationError;
use crate::cgroup::{self, Dir};
use std::io;
use thiserror::Error;

pub use compose::{
    AttachScope, AttachTarget, Confinement, Obstacle, OldFilter, confine, predict_containment,
};
pub use generate::{INSN_BYTES, Insn, allow_rules};
pub use program::is_ours;
pub use program::{AttachMode, CgroupPrograms, Program, query_effective};

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
    fn obstacle(leaf: &Dir, why: Obstacle) -> Self {
        Self::Obstacle { object: leaf.path().to_owned(), why }
    }
}

impl From<cgroup::Error> for Error {
    fn from(error: cgroup::Error) -> Self {
        match error {
            cgroup::Error::System(failed) => Self::System(failed),
            error => {
                OperationError::new("look at", "cgroup", io::Error::other(error.to_string())).into()
            }
        }
    }
}
