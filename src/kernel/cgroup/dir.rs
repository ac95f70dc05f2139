//! One cgroup, by a descriptor of its directory.

use super::{Error, Result};
use crate::kernel::sys;
use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{Mode, fstat, mkdirat};
use nix::unistd::{UnlinkatFlags, read, unlinkat};
use std::ffi::{CString, OsStr};
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

/// Most bytes of a file of the cgroup interface that matters here: less than a page.
const FILE_MAX: usize = 4096;
/// Longest file that is read to its end: some millions of process numbers.
const WHOLE_MAX: u64 = 64 * 1024 * 1024;
/// How often a racing rename is met with another try.
const RACE_TRIES: usize = 8;

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
        let fd = self.fd.try_clone().map_err(|error| Error::system("dup", self.path(), error))?;
        Ok(Self::new(fd, self.path.clone()))
    }

    /// Opens a child, never through a link or a mount point.
    /// Errors: as `openat2(2)`; a child that is a link is `ELOOP` or `ENOTDIR`.
    pub fn child(&self, name: impl AsRef<OsStr>) -> Result<Self> {
        let name = name.as_ref();
        let path = format!("{}/{}", self.path, name.to_string_lossy());
        let c_name = CString::new(name.as_bytes())
            .map_err(|_| Error::system("open", &path, Errno::EINVAL))?;
        for _ in 0..RACE_TRIES {
            match sys::file::open_dir_beneath(self.as_fd(), &c_name) {
                Ok(fd) => return Ok(Self::new(fd, path)),
                Err(error) => match error.raw_os_error() {
                    Some(libc::EAGAIN) => {}
                    // Before Linux 5.6, and under seccomp filters that do not know the call.
                    Some(libc::ENOSYS | libc::EPERM) => return self.child_without_links(name),
                    _ => return Err(Error::system("open", path, error)),
                },
            }
        }
        Err(Error::system("open", path, Errno::EAGAIN))
    }

    /// [`Dir::child`] where `openat2(2)` is not to be had: one component, no link followed, and
    /// still the same file system.
    fn child_without_links(&self, name: &OsStr) -> Result<Self> {
        let path = format!("{}/{}", self.path, name.to_string_lossy());
        if matches!(name.as_bytes(), b"" | b"." | b"..") || name.as_bytes().contains(&b'/') {
            return Err(Error::system("open", path, Errno::EINVAL));
        }
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let fd = openat(self, name, flags, Mode::empty())
            .map_err(|errno| Error::system("open", &path, errno))?;
        let child = Self::new(fd, path);
        if child.identity()?.0 != self.identity()?.0 {
            return Err(Error::system("open", child.path, Errno::EXDEV));
        }
        Ok(child)
    }

    /// File system and inode: two descriptors of one identity are one cgroup.
    pub fn identity(&self) -> Result<(u64, u64)> {
        let stat = fstat(self).map_err(|errno| Error::system("stat", self.path(), errno))?;
        Ok((stat.st_dev, stat.st_ino))
    }

    /// Reads a short file of the interface by one `read(2)`; `None` where the kernel has no such
    /// file. What grows with the job, such as `cgroup.procs`, is for [`Dir::read_all`].
    /// Errors: `ENODEV` when the cgroup is gone; [`Error::Malformed`] for what is no UTF-8 or too
    /// long.
    pub fn read(&self, file: &str) -> Result<Option<String>> {
        let Some(fd) = self.open_file(file)? else { return Ok(None) };
        let object = || format!("{}/{file}", self.path);
        let mut bytes = [0; FILE_MAX];
        let length =
            read(&fd, &mut bytes).map_err(|errno| Error::system("read", object(), errno))?;
        let malformed = || Error::Malformed { object: object() };
        // Such a file arrives in one piece, up to a page.
        let text =
            bytes.get(..length).filter(|text| text.len() < FILE_MAX).ok_or_else(malformed)?;
        String::from_utf8(text.to_vec()).map(Some).map_err(|_| malformed())
    }

    /// Reads a file of the interface to its end, up to 64 MiB, in as many pieces as the kernel
    /// gives it: `cgroup.procs` has a line for every process. `None` where there is no such file.
    /// Errors: as [`Dir::read`]; `EOPNOTSUPP` for `cgroup.procs` of a threaded cgroup.
    pub fn read_all(&self, file: &str) -> Result<Option<String>> {
        let Some(fd) = self.open_file(file)? else { return Ok(None) };
        let object = || format!("{}/{file}", self.path);
        let mut bytes = Vec::new();
        std::fs::File::from(fd)
            .take(WHOLE_MAX)
            .read_to_end(&mut bytes)
            .map_err(|error| Error::system("read", object(), error))?;
        let malformed = || Error::Malformed { object: object() };
        if bytes.len() as u64 == WHOLE_MAX {
            return Err(malformed());
        }
        String::from_utf8(bytes).map(Some).map_err(|_| malformed())
    }

    fn open_file(&self, file: &str) -> Result<Option<OwnedFd>> {
        match openat(self, file, OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty()) {
            Ok(fd) => Ok(Some(fd)),
            Err(Errno::ENOENT) if self.exists()? => Ok(None),
            Err(errno) => Err(Error::system("open", format!("{}/{file}", self.path), errno)),
        }
    }

    /// Whether the cgroup is still there: every cgroup but the root has `cgroup.procs`.
    fn exists(&self) -> Result<bool> {
        let flags = nix::fcntl::AtFlags::AT_SYMLINK_NOFOLLOW;
        match nix::sys::stat::fstatat(self, "cgroup.procs", flags) {
            Ok(_) => Ok(true),
            Err(errno) => Err(Error::system("stat", format!("{}/cgroup.procs", self.path), errno)),
        }
    }

    /// Opens `cgroup.procs` for writing.
    /// Errors: `ENOENT` or `ENODEV` when the cgroup is gone.
    pub fn open_procs(&self) -> Result<OwnedFd> {
        let flags = OFlag::O_WRONLY | OFlag::O_CLOEXEC;
        openat(self, "cgroup.procs", flags, Mode::empty())
            .map_err(|errno| Error::system("open", format!("{}/cgroup.procs", self.path), errno))
    }

    /// Makes a child; `false` when there is one of that name already.
    /// Errors: as `mkdirat(2)`; `EAGAIN` past `cgroup.max.descendants`.
    pub fn make_child(&self, name: &str) -> Result<bool> {
        let mode = Mode::from_bits_truncate(0o755);
        match mkdirat(self, name, mode) {
            Ok(()) => Ok(true),
            Err(Errno::EEXIST) => Ok(false),
            Err(errno) => Err(Error::system("mkdir", format!("{}/{name}", self.path), errno)),
        }
    }

    /// Removes an empty child; one that is gone already is no failure.
    /// Errors: `EBUSY` when it has processes or children.
    pub fn remove_child(&self, name: impl AsRef<OsStr>) -> Result<()> {
        let name = name.as_ref();
        match unlinkat(self, name, UnlinkatFlags::RemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => Ok(()),
            Err(errno) => {
                let object = format!("{}/{}", self.path, name.to_string_lossy());
                Err(Error::system("rmdir", object, errno))
            }
        }
    }

    /// Whether there is any child: a cgroup's directory has two links more than it has children.
    pub fn has_children(&self) -> Result<bool> {
        let stat = fstat(self).map_err(|errno| Error::system("stat", self.path(), errno))?;
        Ok(stat.st_nlink > 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::trust::tests::Scratch;

    #[test]
    fn a_long_list_is_read_to_its_end() {
        let scratch = Scratch::new();
        let text: String = (1..2000).map(|pid| format!("{pid}\n")).collect();
        scratch.file("cgroup.procs", &text);
        let dir = Dir::new(std::fs::File::open(scratch.path()).unwrap().into(), "/a");
        assert_eq!(dir.read_all("cgroup.procs").unwrap().as_deref(), Some(text.as_str()));
        assert!(matches!(dir.read("cgroup.procs"), Err(Error::Malformed { .. })));
        assert_eq!(dir.read_all("cgroup.none").unwrap(), None);
    }

    #[test]
    fn a_child_of_any_name_is_found() {
        let scratch = Scratch::new();
        let name = OsStr::from_bytes(b"a\xff");
        std::fs::create_dir(scratch.path().join(name)).unwrap();
        let dir = Dir::new(std::fs::File::open(scratch.path()).unwrap().into(), "/a");
        assert_eq!(dir.children().unwrap(), [name]);
        for child in [dir.child(name), dir.child_without_links(name)] {
            assert_eq!(child.unwrap().path(), "/a/a\u{fffd}");
        }
        assert!(dir.child_without_links(OsStr::new("..")).is_err());
    }
}
