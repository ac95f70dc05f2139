//! Device filters: `BPF_PROG_TYPE_CGROUP_DEVICE` programs.
//!
//! The pure part: [`generate`] turns an allowlist into instructions ([`insn`]), and `compose`
//! decides what may be attached where. The rest carries that out: `program` reads and loads,
//! `confine` attaches under a lock and proves the result.

#![forbid(unsafe_code)]

mod compose;
mod confine;
pub mod generate;
pub mod insn;
mod program;

use crate::kernel::cgroup;
use crate::kernel::failed::Failed;
use std::io;
use thiserror::Error;

pub use compose::{Obstacle, Reach};
pub use confine::{Branch, Confinement, confine, foresee};
pub use generate::{allow, allow_rules};
pub use insn::{INSN_LEN, Insn};
pub(crate) use program::is_ours;
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

impl From<cgroup::Error> for Error {
    fn from(error: cgroup::Error) -> Self {
        match error {
            cgroup::Error::System(failed) => Self::System(failed),
            error => Failed::new("look at", "cgroup", io::Error::other(error.to_string())).into(),
        }
    }
}
