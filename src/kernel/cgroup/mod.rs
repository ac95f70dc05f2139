//! The cgroup v2 hierarchy: where it is mounted, a job's place in it, and the move there; and what
//! a scheduler on cgroup v1 does to a login ([`v1`]).
//!
//! Everything is done on descriptors that were opened once, component by component from the
//! mount, so that checks, stamp, filter and move are about one and the same directory.

mod dir;
mod membership;
mod occupants;
mod place;
mod subtree;
pub mod v1;

pub(crate) use dir::mark_pin;
pub use dir::{Dir, MADE, NAMESPACE, OCCUPANTS, STAMP, Stamp, is_marked, mark, namespace, pin};
pub use membership::{Membership, Origin, enter, stands_in};
pub use occupants::Occupants;
pub use place::{Mount, Mounted, Place, choose, event, frozen_level};
pub use subtree::{Found, own_processes, processes, unless_gone, walk};

use crate::Failed;
use thiserror::Error;

/// Result of this layer.
pub type Result<T> = std::result::Result<T, Error>;

/// An operation, the object it was done on, and why it failed.
#[derive(Debug, Error)]
pub enum Error {
    /// A system call failed.
    #[error(transparent)]
    System(#[from] Failed),
    /// No cgroup v2 hierarchy at `/sys/fs/cgroup` or `/sys/fs/cgroup/unified`.
    #[error("no cgroup v2 hierarchy is mounted")]
    NotMounted,
    /// Something there is not as it must be; the words for it.
    #[error("{0}")]
    Wrong(String),
}

impl Error {
    /// The cgroup is there but cannot take a login.
    pub fn unfit(cgroup: &str, why: &str) -> Self {
        Self::Wrong(format!("cgroup {cgroup} {why}"))
    }

    /// A file of the kernel's interface does not read as documented.
    pub(crate) fn malformed(what: &str) -> Self {
        Self::Wrong(format!("read {what}: not as documented"))
    }

    /// The login is not where it should be, says `/proc/self/cgroup`.
    pub fn elsewhere(wanted: &str, found: &str) -> Self {
        Self::Wrong(format!("the login should be in {wanted} and is in {found}"))
    }

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
