//! One cgroup, by a descriptor of its directory.

use super::{Error, Result};
use crate::kernel::Failed;
use crate::kernel::sys::file::{open_beneath, read_to_end};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat};
use nix::sys::stat::{FileStat, Mode, fstat, fstatat, mkdirat};
use nix::unistd::{UnlinkatFlags, unlinkat};
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// Longest file that is read: some millions of process numbers.
const FILE_MAX: u64 = 64 * 1024 * 1024;
/// The file by which every cgroup but the root tells its processes, and takes them.
const PROCS: &str = "cgroup.procs";

/// A cgroup's directory, open for reading, and its path below the mount.
#[derive(Debug)]
pub struct Dir {
    fd: OwnedFd,
    path: String,
}

impl AsFd for Dir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Dir {
    /// The directory behind `fd`, whose path below the mount is `path` (empty for the root).
    pub(crate) fn new(fd: OwnedFd, path: impl Into<String>) -> Self {
        Self { fd, path: path.into() }
    }

    /// Path below the mount, `/` in front. A component of it that is no UTF-8 is shown, and cannot
    /// be opened by it.
    pub fn path(&self) -> &str {
        if self.path.is_empty() { "/" } else { &self.path }
    }

    /// Another descriptor of the same directory.
    /// Errors: `EMFILE` when there are too many.
    pub fn try_clone(&self) -> Result<Self> {
        let fd = self.fd.try_clone().map_err(|error| self.failed("dup", "", error))?;
        Ok(Self::new(fd, self.path.clone()))
    }

    /// That an operation on a file, or child, of this cgroup failed; on the cgroup itself where
    /// that has no name.
    pub(crate) fn failed(
        &self,
        operation: &'static str,
        file: &str,
        error: impl Into<io::Error>,
    ) -> Error {
        Failed::new(operation, self.path_of(file), error).into()
    }

    fn path_of(&self, file: &str) -> String {
        if file.is_empty() { self.path().to_owned() } else { format!("{}/{file}", self.path) }
    }

    /// Opens a child, never through a link or a mount point.
    /// Errors: as [`open_beneath`].
    pub fn child(&self, name: impl AsRef<OsStr>) -> Result<Self> {
        let name = name.as_ref();
        let shown = name.to_string_lossy();
        match open_beneath(self, Path::new(name), OFlag::O_RDONLY | OFlag::O_DIRECTORY) {
            Ok(fd) => Ok(Self::new(fd, self.path_of(&shown))),
            Err(errno) => Err(self.failed("open", &shown, errno)),
        }
    }

    fn stat(&self) -> Result<FileStat> {
        fstat(self).map_err(|errno| self.failed("stat", "", errno))
    }

    /// File system and inode: two descriptors of one identity are one cgroup.
    pub fn identity(&self) -> Result<(u64, u64)> {
        self.stat().map(|stat| (stat.st_dev, stat.st_ino))
    }

    /// Whether there is any child: a cgroup's directory has two links more than it has children.
    pub fn has_children(&self) -> Result<bool> {
        self.stat().map(|stat| stat.st_nlink > 2)
    }

    /// Reads a file of the interface to its end, up to 64 MiB: `cgroup.procs` has a line for every
    /// process. `None` where the cgroup is there, which `cgroup.procs` tells, and has no such file.
    /// Errors: `ENODEV` when the cgroup is gone; [`Error::Wrong`] for what is no UTF-8;
    /// `EOPNOTSUPP` for `cgroup.procs` of a threaded cgroup.
    pub fn read(&self, file: &str) -> Result<Option<String>> {
        let fd = match openat(self, file, OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty()) {
            Ok(fd) => fd,
            Err(Errno::ENOENT) => match fstatat(self, PROCS, AtFlags::AT_SYMLINK_NOFOLLOW) {
                Ok(_) => return Ok(None),
                Err(errno) => return Err(self.failed("stat", PROCS, errno)),
            },
            Err(errno) => return Err(self.failed("open", file, errno)),
        };
        let bytes = read_to_end(fd, FILE_MAX).map_err(|error| self.failed("read", file, error))?;
        let malformed = |_| Error::malformed(&self.path_of(file));
        String::from_utf8(bytes).map(Some).map_err(malformed)
    }

    /// Opens `cgroup.procs` for writing.
    /// Errors: `ENOENT` or `ENODEV` when the cgroup is gone.
    pub fn open_procs(&self) -> Result<OwnedFd> {
        openat(self, PROCS, OFlag::O_WRONLY | OFlag::O_CLOEXEC, Mode::empty())
            .map_err(|errno| self.failed("open", PROCS, errno))
    }

    /// Makes a child; `false` when there is one of that name already.
    /// Errors: as `mkdirat(2)`; `EAGAIN` past `cgroup.max.descendants`.
    pub fn make_child(&self, name: &str) -> Result<bool> {
        match mkdirat(self, name, Mode::from_bits_truncate(0o755)) {
            Ok(()) => Ok(true),
            Err(Errno::EEXIST) => Ok(false),
            Err(errno) => Err(self.failed("mkdir", name, errno)),
        }
    }

    /// Removes an empty child; one that is gone already is no failure.
    /// Errors: `EBUSY` when it has processes or children.
    pub fn remove_child(&self, name: impl AsRef<OsStr>) -> Result<()> {
        let name = name.as_ref();
        match unlinkat(self, name, UnlinkatFlags::RemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => Ok(()),
            Err(errno) => Err(self.failed("rmdir", &name.to_string_lossy(), errno)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::trust::tests::Scratch;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn a_long_list_is_read_to_its_end() {
        let scratch = Scratch::new();
        let text: String = (1..2000).map(|pid| format!("{pid}\n")).collect();
        scratch.file("cgroup.procs", &text);
        let dir = Dir::new(std::fs::File::open(scratch.path()).unwrap().into(), "/a");
        assert_eq!(dir.read("cgroup.procs").unwrap().as_deref(), Some(text.as_str()));
        assert_eq!(dir.read("cgroup.none").unwrap(), None);
    }

    #[test]
    fn a_child_of_any_name_is_found() {
        let scratch = Scratch::new();
        let name = OsStr::from_bytes(b"a\xff");
        std::fs::create_dir(scratch.path().join(name)).unwrap();
        let dir = Dir::new(std::fs::File::open(scratch.path()).unwrap().into(), "/a");
        assert_eq!(dir.children().unwrap(), [name]);
        assert_eq!(dir.child(name).unwrap().path(), "/a/a\u{fffd}");
        assert!(dir.child("..").is_err());
    }
}
