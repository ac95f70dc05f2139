//! A job's cgroup and every cgroup above it.

use super::{Dir, Error, Result};
use crate::plan::CgroupPath;
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use nix::sys::statfs::{CGROUP2_SUPER_MAGIC, fstatfs};
use std::path::Path;

/// Where a cgroup v2 hierarchy is looked for, in this order: unified, then hybrid.
const MOUNTS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];

/// The root of the cgroup v2 hierarchy.
#[derive(Debug)]
pub struct Mount {
    root: Dir,
    at: &'static str,
}

impl Mount {
    /// Opens the mount.
    ///
    /// # Errors
    /// [`Error::NotMounted`] where neither place is a cgroup v2 file system.
    pub fn open() -> Result<Self> {
        Self::below(Path::new("/"))
    }

    /// Opens the mount of a node whose root is `root`. A link in the last component is none.
    ///
    /// # Errors
    /// As [`Mount::open`].
    pub fn below(root: &Path) -> Result<Self> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        for at in MOUNTS {
            let fd = match open(&root.join(at.trim_start_matches('/')), flags, Mode::empty()) {
                Ok(fd) => fd,
                Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => continue,
                Err(errno) => return Err(Error::system("open", at, errno)),
            };
            let stat = fstatfs(&fd).map_err(|errno| Error::system("statfs", at, errno))?;
            if stat.filesystem_type() == CGROUP2_SUPER_MAGIC {
                return Ok(Self { root: Dir::new(fd, ""), at });
            }
        }
        Err(Error::NotMounted)
    }

    /// Where it is mounted, as seen from the node's root.
    #[must_use]
    pub fn path(&self) -> &'static str {
        self.at
    }

    /// The root's directory.
    #[must_use]
    pub fn root(&self) -> &Dir {
        &self.root
    }

    /// Opens a cgroup and all its ancestors.
    ///
    /// # Errors
    /// As [`Dir::child`] for the first component that cannot be opened.
    pub fn place(self, path: &CgroupPath) -> Result<Place> {
        let mut levels = vec![self.root];
        for name in path.relative().split('/') {
            let below = match levels.last() {
                Some(above) => above.child(name)?,
                None => return Err(Error::NotMounted),
            };
            levels.push(below);
        }
        levels.reverse();
        Ok(Place { levels })
    }
}

/// A cgroup with its ancestors, each opened below the one above it.
#[derive(Debug)]
pub struct Place {
    /// The cgroup itself first, the root last; never empty.
    levels: Vec<Dir>,
}

impl Place {
    /// The cgroup itself first, then every ancestor up to the root of the mount.
    #[must_use]
    pub fn levels(&self) -> &[Dir] {
        &self.levels
    }

    /// The cgroup itself.
    ///
    /// # Errors
    /// Never in practice: a place has its cgroup.
    pub fn dir(&self) -> Result<&Dir> {
        self.levels.first().ok_or(Error::NotMounted)
    }

    /// The root of the mount.
    ///
    /// # Errors
    /// Never in practice.
    pub fn root(&self) -> Result<&Dir> {
        self.levels.last().ok_or(Error::NotMounted)
    }

    /// The place of a child of this cgroup.
    pub(super) fn below(mut self, child: Dir) -> Self {
        self.levels.insert(0, child);
        self
    }

    /// The place of the cgroup above.
    pub(super) fn above(mut self) -> Self {
        self.levels.remove(0);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trust::tests::Scratch;
    use std::os::unix::fs::symlink;

    fn is_none(scratch: &Scratch) -> bool {
        matches!(Mount::below(scratch.path()), Err(Error::NotMounted))
    }

    #[test]
    fn a_plain_directory_is_no_mount() {
        let scratch = Scratch::new();
        assert!(is_none(&scratch));
        scratch.dir("sys/fs/cgroup/unified");
        assert!(is_none(&scratch));
    }

    /// Can only fail on a node that has one to link to.
    #[test]
    fn a_link_to_a_mount_is_none() {
        for mount in MOUNTS {
            let scratch = Scratch::new();
            scratch.dir("sys/fs/cgroup");
            symlink(mount, scratch.path().join("sys/fs/cgroup/unified")).unwrap();
            assert!(is_none(&scratch), "{mount}");
        }
    }
}
