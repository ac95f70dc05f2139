//! The cgroup v2 hierarchy: where it is mounted, a job's place in it, and the move there; and what
//! a scheduler on cgroup v1 does to a login ([`v1`]).
//!
//! Everything is done on descriptors that were opened once, component by component from the
//! mount, so that checks, stamp, filter and move are about one and the same directory.

#![forbid(unsafe_code)]

mod dir;
mod enter;
mod leaf;
mod membership;
mod place;
mod stamp;
pub mod v1;

pub use dir::Dir;
pub use enter::{Origin, enter, stands_in};
pub use leaf::{Leaf, LeafKind, event, frozen_level};
pub use membership::Membership;
pub use place::{Mount, Place};
pub use stamp::{MADE, PinMark, Stamp};
pub(crate) use stamp::{STAMP, is_marked, mark};

use crate::kernel::failed::Failed;
use std::fmt;

/// Result of this layer.
pub type Result<T> = std::result::Result<T, Error>;

/// An operation, the object it was done on, and why it failed.
#[derive(Debug)]
pub enum Error {
    /// A system call failed.
    System(Failed),
    /// No cgroup v2 hierarchy at `/sys/fs/cgroup` or `/sys/fs/cgroup/unified`.
    NotMounted,
    /// The cgroup is there but cannot take a login.
    Unfit {
        /// The cgroup.
        object: String,
        /// In what way it is unfit.
        why: &'static str,
    },
    /// A file of the kernel's interface does not read as documented.
    Malformed {
        /// The file.
        object: String,
    },
    /// The login is not where it should be.
    Elsewhere {
        /// Where it should be.
        wanted: String,
        /// Where `/proc/self/cgroup` says it is.
        found: String,
    },
}

impl Error {
    /// The kernel's answer, where a system call failed.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::System(failed) => failed.source.raw_os_error(),
            _ => None,
        }
    }

    /// Whether the kernel said that the cgroup is gone or going.
    pub fn is_gone(&self) -> bool {
        matches!(self.errno(), Some(libc::ENOENT | libc::ENODEV))
    }
}

impl From<Failed> for Error {
    fn from(failed: Failed) -> Self {
        Self::System(failed)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System(failed) => failed.fmt(f),
            Self::NotMounted => f.write_str("no cgroup v2 hierarchy is mounted"),
            Self::Unfit { object, why } => write!(f, "cgroup {object} {why}"),
            Self::Malformed { object } => write!(f, "read {object}: not as documented"),
            Self::Elsewhere { wanted, found } => {
                write!(f, "the login should be in {wanted} and is in {found}")
            }
        }
    }
}

impl std::error::Error for Error {}
