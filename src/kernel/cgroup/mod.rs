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
pub use enter::{Entry, Origin, stands_in};
pub use leaf::{Leaf, LeafKind, event, frozen_level};
pub use membership::Membership;
pub use place::{Mount, Place};
pub(crate) use stamp::STAMP;
pub use stamp::{Mark, PinMark, Stamp};

use crate::kernel::failed::Failed;
use std::fmt;
use std::io;

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
    pub(crate) fn system(
        operation: &'static str,
        object: impl Into<String>,
        source: impl Into<io::Error>,
    ) -> Self {
        Self::System(Failed::new(operation, object, source))
    }

    /// Whether the kernel said that the cgroup is gone or going.
    pub fn is_gone(&self) -> bool {
        match self {
            Self::System(failed) => {
                matches!(failed.source.raw_os_error(), Some(libc::ENOENT | libc::ENODEV))
            }
            _ => false,
        }
    }

    /// Whether the kernel said that a cgroup of this kind has no such thing: a threaded one has no
    /// list of processes.
    pub fn is_unsupported(&self) -> bool {
        match self {
            Self::System(failed) => failed.source.raw_os_error() == Some(libc::EOPNOTSUPP),
            _ => false,
        }
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
