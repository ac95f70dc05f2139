//! Operates on one cgroup by a descriptor of its directory, and reads and sets our marks on it.
//!
//! Marks are extended attributes of the namespace `trusted` (xattr(7)). Only root can set or see them, and they
//! end with the directory.

use super::{Error, Result};
use crate::sys::file::{open_beneath, read_record, read_to_end};
use crate::{OperationError, sys};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat};
use nix::sys::stat::{FileStat, Mode, fstat, fstatat, futimens, mkdirat};
use nix::sys::time::TimeSpec;
use nix::unistd::{UnlinkatFlags, unlinkat};
use protocol::JobId;
use std::ffi::{CStr, OsStr, OsString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::rc::Rc;
use std::{fmt, fs, io};

/// Maximum bytes of a file: some millions of process numbers.
const FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// File with the processes of a cgroup. A process moves by writing to it.
const PROCS: &str = "cgroup.procs";

/// A cgroup's directory, open for reading, and its path below the mount. Clones share the descriptor.
#[derive(Clone, Debug)]
pub struct Dir {
    fd: Rc<OwnedFd>,
    path: String,
}

impl AsFd for Dir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Dir {
    /// Wraps a directory. `path` is its path below the mount, empty for the root.
    pub fn new(fd: OwnedFd, path: impl Into<String>) -> Self {
        Self {
            fd: fd.into(),
            path: path.into(),
        }
    }

    /// The path below the mount, which begins with `/`. A component that is not UTF-8 is shown with
    /// replacements, so the path cannot be opened then.
    pub fn path(&self) -> &str {
        if self.path.is_empty() {
            "/"
        } else {
            &self.path
        }
    }

    /// Describes the failure of an operation on a file or child of this cgroup; with an empty name, on the
    /// cgroup itself.
    pub fn failed(
        &self,
        operation: &'static str,
        file: &str,
        error: impl Into<io::Error>,
    ) -> Error {
        OperationError::new(operation, self.path_of(file), error).into()
    }

    /// The path of a file or child of this cgroup, for messages; with an empty name, of the cgroup itself.
    fn path_of(&self, file: &str) -> String {
        if file.is_empty() {
            self.path().to_owned()
        } else {
            format!("{}/{file}", self.path)
        }
    }

    /// Opens a child, never through a link or a mount point.
    ///
    /// # Errors
    ///
    /// As [`open_beneath`].
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

    /// Returns file system and inode. Two descriptors with the same identity are the same cgroup.
    ///
    /// # Errors
    ///
    /// As `fstat(2)`.
    pub fn identity(&self) -> Result<(u64, u64)> {
        self.stat().map(|stat| (stat.st_dev, stat.st_ino))
    }

    /// The uid of the directory's owner.
    ///
    /// # Errors
    ///
    /// As `fstat(2)`.
    pub fn owner(&self) -> Result<u32> {
        self.stat().map(|stat| stat.st_uid)
    }

    /// Reads when the directory was changed last, in seconds and nanoseconds since the epoch: by the kernel with each
    /// child that was made or removed, or by [`Dir::touch`].
    ///
    /// # Errors
    ///
    /// As `fstat(2)`.
    pub fn changed_at(&self) -> Result<(i64, i64)> {
        self.stat().map(|stat| (stat.st_mtime, stat.st_mtime_nsec))
    }

    /// Makes the present the time at which the directory was changed last.
    ///
    /// # Errors
    ///
    /// As `futimens(3)`.
    pub fn touch(&self) -> Result<()> {
        futimens(self, &TimeSpec::UTIME_OMIT, &TimeSpec::UTIME_NOW)
            .map_err(|errno| self.failed("touch", "", errno))
    }

    /// Tells whether the cgroup has children: its directory has two links more than it has children. `true` on a
    /// file system that counts no links.
    ///
    /// # Errors
    ///
    /// As `fstat(2)`.
    pub fn has_children(&self) -> Result<bool> {
        self.stat().map(|stat| stat.st_nlink != 2)
    }

    /// Returns whether a child has children, as [`Dir::has_children`] does, without opening it.
    ///
    /// # Errors
    ///
    /// As `fstatat(2)`.
    pub fn child_has_children(&self, name: &OsStr) -> Result<bool> {
        fstatat(self, name, AtFlags::AT_SYMLINK_NOFOLLOW)
            .map(|stat| stat.st_nlink != 2)
            .map_err(|errno| self.failed("stat", &name.to_string_lossy(), errno))
    }

    /// Lists the names of the children, in no order. The owner of the directory chooses them: they have any
    /// byte but `/` and a newline (`cgroup_mkdir` in `kernel/cgroup/cgroup.c`).
    ///
    /// # Errors
    ///
    /// As `open(2)` and `getdents(2)`.
    pub fn children(&self) -> Result<Vec<OsString>> {
        // Open it by a path: nix 0.30 leaks the descriptor if fdopendir(3) fails.
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

    /// Opens the cgroup that contains this one, or contained it when it was removed. The caller must not use it
    /// for the root of the mount.
    ///
    /// # Errors
    ///
    /// As `open(2)`.
    pub fn parent(&self) -> Result<Self> {
        let path = self
            .path()
            .rsplit_once('/')
            .map_or("", |(parent, _)| parent);
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let fd = openat(self, "..", flags, Mode::empty())
            .map_err(|errno| self.failed("open", "..", errno))?;
        Ok(Self::new(fd, path))
    }

    /// Reads a file of the interface to its end, up to 64 MiB: `cgroup.procs` has a line for every process.
    /// Returns `None` for a file that an existing cgroup does not have. A cgroup exists as long as it has
    /// `cgroup.procs`.
    ///
    /// # Errors
    ///
    /// `ENODEV` or `ENOENT` for a cgroup that is gone; [`Error::UnexpectedState`] for a text that is not UTF-8;
    /// `EOPNOTSUPP` for `cgroup.procs` of a threaded cgroup.
    pub fn read(&self, file: &str) -> Result<Option<String>> {
        let fd = match self.open_file(file) {
            Ok(fd) => fd,
            Err(Errno::ENOENT) => match fstatat(self, PROCS, AtFlags::AT_SYMLINK_NOFOLLOW) {
                Ok(_) => return Ok(None),
                Err(errno) => return Err(self.failed("stat", PROCS, errno)),
            },
            Err(errno) => return Err(self.failed("open", file, errno)),
        };
        // `cgroup.procs` has a record for each process, so that its end has to be read too; every other file is one
        // record.
        let read = if file == PROCS {
            read_to_end
        } else {
            read_record
        };
        let bytes = read(fd, FILE_BYTES_MAX).map_err(|error| self.failed("read", file, error))?;
        let malformed = |_| Error::malformed(&self.path_of(file));
        String::from_utf8(bytes).map(Some).map_err(malformed)
    }

    fn open_file(&self, file: &str) -> nix::Result<OwnedFd> {
        let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
        openat(self, file, flags, Mode::empty())
    }

    /// Opens the list of the processes right in the cgroup, to read it in parts.
    ///
    /// # Errors
    ///
    /// `ENOENT` or `ENODEV` for a cgroup that is gone.
    pub(super) fn open_process_list(&self) -> Result<ProcessList<'_>> {
        let fd = self.open_file(PROCS);
        Ok(ProcessList {
            dir: self,
            fd: fd.map_err(|errno| self.failed("open", PROCS, errno))?,
            cut_number: Vec::new(),
        })
    }

    /// Writes an interface file of the cgroup.
    ///
    /// # Errors
    ///
    /// As `open(2)` and `write(2)`; `ENOENT` if the kernel has no such file, or the cgroup is gone.
    pub fn write(&self, file: &str, text: &str) -> Result<()> {
        // With O_NONBLOCK a write to `memory.max` does not wait until the cgroup's memory fits, from Linux 6.16 on.
        let flags = OFlag::O_WRONLY | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        let fd = openat(self, file, flags, Mode::empty())
            .map_err(|errno| self.failed("open", file, errno))?;
        let written = nix::unistd::write(&fd, text.as_bytes());
        written
            .map(drop)
            .map_err(|errno| self.failed("write", file, errno))
    }

    /// Tells whether the children of this cgroup have a controller (cgroup-v2.rst, "Enabling and Disabling").
    ///
    /// # Errors
    ///
    /// As [`Dir::read`].
    pub fn enables_controller(&self, controller: &str) -> Result<bool> {
        let enabled = self.read("cgroup.subtree_control")?.unwrap_or_default();
        Ok(enabled.split_whitespace().any(|name| name == controller))
    }

    /// Opens `cgroup.procs` for writing.
    ///
    /// # Errors
    ///
    /// `ENOENT` or `ENODEV` for a cgroup that is gone.
    pub fn open_procs(&self) -> Result<OwnedFd> {
        openat(
            self,
            PROCS,
            OFlag::O_WRONLY | OFlag::O_CLOEXEC,
            Mode::empty(),
        )
        .map_err(|errno| self.failed("open", PROCS, errno))
    }

    /// Makes a child; returns `false` if a child of that name exists already.
    ///
    /// # Errors
    ///
    /// As `mkdirat(2)`; `EAGAIN` past `cgroup.max.descendants`.
    pub fn make_child(&self, name: &str) -> Result<bool> {
        match mkdirat(self, name, Mode::from_bits_truncate(0o755)) {
            Ok(()) => Ok(true),
            Err(Errno::EEXIST) => Ok(false),
            Err(errno) => Err(self.failed("mkdir", name, errno)),
        }
    }

    /// Removes an empty child, unless it is gone already.
    ///
    /// # Errors
    ///
    /// `EBUSY` for a child with processes or children.
    pub fn remove_child(&self, name: impl AsRef<OsStr>) -> Result<()> {
        let name = name.as_ref();
        match unlinkat(self, name, UnlinkatFlags::RemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => Ok(()),
            Err(errno) => Err(self.failed("rmdir", &name.to_string_lossy(), errno)),
        }
    }
}

/// Bytes of one part of a list of processes: some 70 numbers.
const LIST_PART_BYTES: usize = 512;

/// The list of the processes right in a cgroup. The kernel makes only those lines that are read, for which it takes
/// a third of the time that a look at the process takes.
#[derive(Debug)]
pub(super) struct ProcessList<'a> {
    dir: &'a Dir,
    fd: OwnedFd,
    /// The beginning of a number at the end of the last part.
    cut_number: Vec<u8>,
}

impl ProcessList<'_> {
    /// Reads the next numbers, as this pid namespace has them (0 for a process outside of it); none at the end of the
    /// list.
    ///
    /// # Errors
    ///
    /// `ENODEV` for a cgroup that is gone; `EOPNOTSUPP` for a threaded cgroup.
    pub(super) fn read_part(&mut self) -> Result<Vec<i32>> {
        let mut buffer = [0; LIST_PART_BYTES];
        let length = nix::unistd::read(&self.fd, &mut buffer)
            .map_err(|errno| self.dir.failed("read", PROCS, errno))?;
        let mut text = std::mem::take(&mut self.cut_number);
        text.extend(buffer.iter().take(length));
        // What follows the last whole line belongs to the next part.
        let end = text.iter().rposition(|byte| *byte == b'\n');
        self.cut_number = text.split_off(end.map_or(0, |end| end + 1));
        let malformed = |_| Error::malformed(&self.dir.path_of(PROCS));
        let numbers = String::from_utf8(text).map_err(malformed)?;
        Ok(numbers
            .lines()
            .filter_map(|line| line.parse().ok())
            .collect())
    }
}

/// Attribute with the [`Stamp`] of a job.
pub const STAMP_XATTR: &CStr = c"trusted.job_adopt";
/// Attribute with the id of the pin that we have attached.
const PIN_XATTR: &CStr = c"trusted.job_adopt_pin";
/// Attribute with the [`super::Occupants`] of a job.
pub const OCCUPANTS_XATTR: &CStr = c"trusted.job_adopt_uids";
/// Attribute with the path of the job's mount namespace ([`read_namespace_path`]).
pub const NAMESPACE_XATTR: &CStr = c"trusted.job_adopt_namespace";

/// The owner and id of a cgroup's job, in the form `uid:id`. `register` sets it, and `unregister` removes it
/// before anything else. So a stamp also shows that the job is not over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Numeric user id of the job's owner.
    pub uid: u32,
    /// Id of the job, as in its record.
    pub job: JobId,
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.uid, self.job)
    }
}

impl Stamp {
    /// Reads a directory's stamp; `None` if it has none.
    ///
    /// # Errors
    ///
    /// As `fgetxattr(2)`; [`Error::UnexpectedState`] for a stamp that does not have the form `uid:id`.
    pub fn read(dir: &Dir) -> Result<Option<Self>> {
        let Some(value) = read_xattr(dir, STAMP_XATTR)? else {
            return Ok(None);
        };
        let malformed = || Error::malformed(&format!("stamp of {}", dir.path()));
        let text = String::from_utf8(value).map_err(|_| malformed())?;
        let (uid, job) = text.split_once(':').ok_or_else(malformed)?;
        let stamp = Self {
            uid: uid.parse().map_err(|_| malformed())?,
            job: job.parse().map_err(|_| malformed())?,
        };
        if stamp.to_string() == text {
            Ok(Some(stamp))
        } else {
            Err(malformed())
        }
    }

    /// Requires that a directory has exactly this stamp.
    ///
    /// # Errors
    ///
    /// [`Error::UnexpectedState`] without a stamp or with another one; as [`Stamp::read`].
    pub fn require(&self, dir: &Dir) -> Result<()> {
        let why = match Self::read(dir)? {
            Some(stamp) if stamp == *self => return Ok(()),
            Some(_) => "is stamped for another job",
            None => "is not stamped for a job",
        };
        Err(Error::unfit(dir.path(), why))
    }
}

/// Attribute of a directory that we have made, and may therefore empty and remove.
pub const MADE_XATTR: &CStr = c"trusted.job_adopt_made";

/// Marks a directory, unless it has the mark already.
///
/// # Errors
///
/// As `fsetxattr(2)`.
pub fn set_mark(dir: &Dir, name: &CStr) -> Result<()> {
    match sys::file::set_xattr(dir.as_fd(), name, b"1", libc::XATTR_CREATE) {
        Err(error) if error.raw_os_error() != Some(libc::EEXIST) => {
            Err(dir.failed("mark", "", error))
        }
        _ => Ok(()),
    }
}

/// Tells whether a directory has a mark of this name.
///
/// # Errors
///
/// As `fgetxattr(2)`.
pub fn has_mark(dir: &Dir, name: &CStr) -> Result<bool> {
    read_xattr(dir, name).map(|value| value.is_some())
}

/// The recorded id of the pin that we have attached to a cgroup; `None` without a pin, for a record that is no number,
/// and for a caller without `CAP_SYS_ADMIN`. The program may be gone. A pin is a second attachment of another's
/// program and has its name, so an attribute records the id.
///
/// # Errors
///
/// As `fgetxattr(2)`.
pub fn pinned_program_id(dir: &Dir) -> Result<Option<u32>> {
    let value = read_xattr(dir, PIN_XATTR)?;
    Ok(value.and_then(|value| std::str::from_utf8(&value).ok()?.parse().ok()))
}

/// Records the id of a pin, which replaces the last one.
pub(crate) fn store_pinned_program_id(dir: &Dir, id: u32) -> Result<()> {
    sys::file::set_xattr(dir.as_fd(), PIN_XATTR, id.to_string().as_bytes(), 0)
        .map_err(|error| dir.failed("mark", "", error))
}

/// Reads the path of the mount namespace that the job's logins join; `None` if they join none.
///
/// # Errors
///
/// As `fgetxattr(2)`; [`Error::UnexpectedState`] for a path that is not UTF-8.
pub fn read_namespace_path(dir: &Dir) -> Result<Option<String>> {
    let malformed = |_| Error::malformed(&format!("namespace of {}", dir.path()));
    let value = read_xattr(dir, NAMESPACE_XATTR)?;
    value
        .map(|value| String::from_utf8(value).map_err(malformed))
        .transpose()
}

/// Reads an attribute; `None` if the directory does not have it.
pub(super) fn read_xattr(dir: &Dir, name: &CStr) -> Result<Option<Vec<u8>>> {
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
    fn long_list_is_read_to_its_end() {
        let scratch = Scratch::new();
        let text: String = (1..2000).map(|pid| format!("{pid}\n")).collect();
        scratch.file("cgroup.procs", &text);
        let dir = Dir::new(std::fs::File::open(scratch.path()).unwrap().into(), "/a");
        assert_eq!(
            dir.read("cgroup.procs").unwrap().as_deref(),
            Some(text.as_str())
        );
        assert_eq!(dir.read("cgroup.none").unwrap(), None);
    }

    #[test]
    fn list_of_processes_is_read_in_parts() {
        let scratch = Scratch::new();
        let expected: Vec<i32> = (1..400).chain(99_990..100_400).collect();
        let text: String = expected.iter().map(|pid| format!("{pid}\n")).collect();
        scratch.file("cgroup.procs", &text);
        let dir = Dir::new(std::fs::File::open(scratch.path()).unwrap().into(), "/a");
        let mut list = dir.open_process_list().unwrap();
        let mut pids = list.read_part().unwrap();
        assert!(pids.len() < 200, "{} at once", pids.len());
        loop {
            let part = list.read_part().unwrap();
            if part.is_empty() {
                break;
            }
            pids.extend(part);
        }
        assert_eq!(pids, expected);
    }

    #[test]
    fn child_with_non_utf8_name_is_found() {
        let scratch = Scratch::new();
        let name = OsStr::from_bytes(b"a\xff");
        std::fs::create_dir(scratch.path().join(name)).unwrap();
        let dir = Dir::new(std::fs::File::open(scratch.path()).unwrap().into(), "/a");
        assert_eq!(dir.children().unwrap(), [name]);
        assert_eq!(dir.child(name).unwrap().path(), "/a/a\u{fffd}");
        assert!(dir.child("..").is_err());
    }
}
