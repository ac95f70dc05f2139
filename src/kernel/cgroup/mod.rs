//! The cgroup v2 hierarchy: where it is mounted, a job's place in it, and the move there; and what
//! a scheduler on cgroup v1 does to a login ([`v1`]).
//!
//! Everything is done on descriptors that were opened once, component by component from the
//! mount, so that checks, stamp, filter and move are about one and the same directory.

#![forbid(unsafe_code)]

mod dir;
mod enter;
mod membership;
mod place;
mod stamp;
pub mod v1;

pub use dir::Dir;
pub use enter::{Origin, enter, stands_in};
pub use membership::Membership;
pub use place::{Mount, Mounted, Place, choose, event, frozen_level};
pub use stamp::{MADE, Stamp, namespace, pin};
pub(crate) use stamp::{NAMESPACE, STAMP, is_marked, mark, mark_pin};

use crate::kernel::failed::Failed;
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
    /// The cgroup is there but cannot take a login.
    #[error("cgroup {object} {why}")]
    Unfit {
        /// The cgroup.
        object: String,
        /// In what way it is unfit.
        why: &'static str,
    },
    /// A file of the kernel's interface does not read as documented.
    #[error("read {0}: not as documented")]
    Malformed(String),
    /// The login is not where it should be.
    #[error("the login should be in {wanted} and is in {found}")]
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
