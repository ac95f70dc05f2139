//! Finds a job's cgroups, moves logins into them, and verifies the move: in the cgroup v2 hierarchy, and for
//! schedulers on cgroup v1 ([`v1`]).
//!
//! All operations use descriptors that were opened once, component by component from the mount. So checks,
//! stamp, filter and move apply to the same directory.

mod cpuset;
mod dir;
mod hierarchy;
mod membership;
mod occupants;
mod origin;
mod subtree;
pub mod v1;

pub use cpuset::Cpuset;
pub(crate) use dir::store_pinned_program_id;
pub use dir::{
    Dir, MADE_XATTR, NAMESPACE_XATTR, OCCUPANTS_XATTR, STAMP_XATTR, Stamp, has_mark,
    pinned_program_id, read_namespace_path, set_mark,
};
pub use hierarchy::{
    CgroupChain, Mount, MountInfo, choose_leaf, find_frozen, read_event, takes_processes,
};
pub use membership::Membership;
pub use occupants::Occupants;
pub use origin::{Origin, enter, verify_in_leaf};
pub use subtree::{
    Listing, find_lowest_limit, ignore_gone, list_own_processes, list_processes, walk,
    walk_selected,
};

use crate::OperationError;
use thiserror::Error;

/// Result of an operation on cgroups.
pub type Result<T> = std::result::Result<T, Error>;

/// The failure of an operation on cgroups.
#[derive(Debug, Error)]
pub enum Error {
    /// A system call failed.
    #[error(transparent)]
    System(#[from] OperationError),
    /// No cgroup v2 hierarchy is at `/sys/fs/cgroup` or `/sys/fs/cgroup/unified`.
    #[error("no cgroup v2 hierarchy is mounted")]
    NotMounted,
    /// A cgroup, file or process is in an unexpected state, which the text describes.
    #[error("{0}")]
    UnexpectedState(String),
}

impl Error {
    /// Describes a cgroup that cannot take a login.
    pub fn unfit(cgroup: &str, why: &str) -> Self {
        Self::UnexpectedState(format!("cgroup {cgroup} {why}"))
    }

    /// Describes a file of the kernel's interface that is not as documented.
    pub(crate) fn malformed(file: &str) -> Self {
        Self::UnexpectedState(format!("read {file}: not as documented"))
    }

    /// Describes a login that `/proc/self/cgroup` shows in another cgroup.
    pub fn elsewhere(expected: &str, actual: &str) -> Self {
        Self::UnexpectedState(format!(
            "the login should be in {expected} and is in {actual}"
        ))
    }

    /// The kernel's error if a system call failed.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::System(failed) => failed.source.raw_os_error(),
            _ => None,
        }
    }

    /// Tells whether the cgroup is gone or being removed.
    pub fn is_gone(&self) -> bool {
        matches!(self.errno(), Some(libc::ENOENT | libc::ENODEV))
    }
}
