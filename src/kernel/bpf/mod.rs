//! Device filters: `BPF_PROG_TYPE_CGROUP_DEVICE` programs.
//!
//! [`generate`] turns an allowlist into instructions, `program` reads and loads, and `compose` decides
//! what may be attached where, attaches under a lock and proves the result.

mod compose;
pub mod generate;
mod program;

use crate::Failed;
use crate::cgroup::{self, Dir};
use std::io;
use thiserror::Error;

pub use compose::{Branch, Confinement, Obstacle, Reach, confine, foresee};
pub use generate::{INSN_LEN, Insn, allow_rules};
pub use program::is_ours;
pub use program::{Attached, Level, Program, effective};

/// Result of this layer.
pub type Result<T> = std::result::Result<T, Error>;

/// An operation, the cgroup or program it was done on, and why it failed.
#[derive(Debug, Error)]
pub enum Error {
    /// A command of `bpf(2)`, or a step around it, failed.
    #[error(transparent)]
    System(#[from] Failed),
    /// What the job needs does not hold.
    #[error("confine {object}: {why}")]
    Obstacle {
        /// The leaf.
        object: String,
        /// Why not.
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
            error => Failed::new("look at", "cgroup", io::Error::other(error.to_string())).into(),
        }
    }
}
