//! One cgroup, by a descriptor of its directory, and the marks of ours on that: extended attributes of
//! the namespace `trusted` (xattr(7)), which only root can set or see, and which live and die with it.

use super::{Error, Result};
use crate::sys::file::{open_beneath, read_to_end};
use crate::{Failed, sys};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat};
use nix::sys::stat::{FileStat, Mode, fstat, fstatat, mkdirat};
use nix::unistd::{UnlinkatFlags, unlinkat};
use protocol::JobId;
use std::ffi::{CStr, OsStr, OsString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::{fmt, fs, io};

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
    pub fn new(fd: OwnedFd, path: impl Into<String>) -> Self {
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
    pub fn failed(
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

    /// Returns the uid of the directory's owner.
    pub fn owner(&self) -> Result<u32> {
        self.stat().map(|stat| stat.st_uid)
    }

    /// Whether there is any child: a cgroup's directory has two links more than it has children.
    pub fn has_children(&self) -> Result<bool> {
        self.stat().map(|stat| stat.st_nlink > 2)
    }

    /// Names of the children, in no order. Whoever owns the directory chooses them: any byte but
    /// `/` and a newline (`cgroup_mkdir` in `kernel/cgroup/cgroup.c`).
    pub fn children(&self) -> Result<Vec<OsString>> {
        // By a path: where fdopendir(3) fails, nix 0.30 keeps the descriptor open.
        let path = format!("/proc/self/fd/{}", self.as_fd().as_raw_fd());
        let failed = |error: io::Error| self.failed("list", "", error);
        let mut names = Vec::new();
        for entry in fs::read_dir(path).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            if entry.file_type().map_err(failed)?.is_dir() {
                names.push(entry.file_name());
            }
        }
        Ok(names)
    }

    /// Opens the cgroup that this one is in, or was in when it was removed. The root of the mount has
    /// none, and is not for this.
    pub fn parent(&self) -> Result<Self> {
        let path = self.path().rsplit_once('/').map_or("", |(parent, _)| parent);
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let fd = openat(self, "..", flags, Mode::empty())
            .map_err(|errno| self.failed("open", "..", errno))?;
        Ok(Self::new(fd, path))
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

/// Name of the mark that says whose job a cgroup is ([`Stamp`]).
pub const STAMP: &CStr = c"trusted.job_adopt";
const PIN: &CStr = c"trusted.job_adopt_pin";
/// What [`super::Occupants`] are noted as.
pub const OCCUPANTS: &CStr = c"trusted.job_adopt_uids";
/// Name of the mark that says by what the job's namespace is found ([`namespace`]).
pub const NAMESPACE: &CStr = c"trusted.job_adopt_namespace";

/// Whose job a cgroup is: `uid:id`. Set by `register`, withdrawn first of all by `unregister`, so
/// a stamp that stands also says that the job is not over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The owner's numeric user id.
    pub uid: u32,
    /// The job.
    pub job: JobId,
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.uid, self.job)
    }
}

impl Stamp {
    /// Reads a directory's stamp; `None` when it has none.
    /// Errors: as `fgetxattr(2)`; [`Error::Wrong`] for a stamp that is not of the form
    /// `uid:id`.
    pub fn read(dir: &Dir) -> Result<Option<Self>> {
        let Some(value) = get(dir, STAMP)? else { return Ok(None) };
        let malformed = || Error::malformed(&format!("stamp of {}", dir.path()));
        let text = String::from_utf8(value).map_err(|_| malformed())?;
        let (uid, job) = text.split_once(':').ok_or_else(malformed)?;
        let stamp = Self {
            uid: uid.parse().map_err(|_| malformed())?,
            job: job.parse().map_err(|_| malformed())?,
        };
        if stamp.to_string() == text { Ok(Some(stamp)) } else { Err(malformed()) }
    }

    /// Refuses a directory that does not carry exactly this stamp.
    /// Errors: [`Error::Wrong`] without a stamp or with another one, else as [`Stamp::read`].
    pub fn require(&self, dir: &Dir) -> Result<()> {
        let why = match Self::read(dir)? {
            Some(found) if found == *self => return Ok(()),
            Some(_) => "is stamped for another job",
            None => "is not stamped for a job",
        };
        Err(Error::unfit(dir.path(), why))
    }
}

/// Name of the mark "this directory was made by us", which lets us empty and remove it.
pub const MADE: &CStr = c"trusted.job_adopt_made";

/// Marks a directory; a mark that stands already is no failure.
pub fn mark(dir: &Dir, name: &CStr) -> Result<()> {
    match sys::file::set_xattr(dir.as_fd(), name, b"1", libc::XATTR_CREATE) {
        Err(error) if error.raw_os_error() != Some(libc::EEXIST) => {
            Err(dir.failed("mark", "", error))
        }
        _ => Ok(()),
    }
}

/// Whether a directory has a mark of this name.
pub fn is_marked(dir: &Dir, name: &CStr) -> Result<bool> {
    get(dir, name).map(|value| value.is_some())
}

/// The id of the pin that we attached to a cgroup; `None` without one. A pin is a copy of somebody
/// else's filter, and its program looks the same, so the id is kept in an attribute.
pub fn pin(dir: &Dir) -> Result<Option<u32>> {
    let value = get(dir, PIN)?;
    Ok(value.and_then(|value| std::str::from_utf8(&value).ok()?.parse().ok()))
}

/// Marks a pin, in place of the last one.
pub(crate) fn mark_pin(dir: &Dir, id: u32) -> Result<()> {
    sys::file::set_xattr(dir.as_fd(), PIN, id.to_string().as_bytes(), 0)
        .map_err(|error| dir.failed("mark", "", error))
}

/// Reads the path of the mount namespace that the job's logins join; `None` without one.
pub fn namespace(dir: &Dir) -> Result<Option<String>> {
    let malformed = |_| Error::malformed(&format!("namespace of {}", dir.path()));
    get(dir, NAMESPACE)?.map(|value| String::from_utf8(value).map_err(malformed)).transpose()
}

pub(super) fn get(dir: &Dir, name: &CStr) -> Result<Option<Vec<u8>>> {
    match sys::file::get_xattr(dir.as_fd(), name) {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.raw_os_error() == Some(libc::ENODATA) => Ok(None),
        Err(error) => Err(dir.failed("read mark of", "", error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;
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
