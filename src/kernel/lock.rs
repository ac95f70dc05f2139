//! Locks that allow one writer at a time, and one keeper for each leaf.
//!
//! A lock is an open-file-description lock on one byte of a file that only root can open. The byte's offset
//! identifies the object: a cgroup's inode, so that jobs do not wait for each other, or a number that is no inode,
//! for the registry and for notices. No user can take such a lock, as any user could take one on the cgroup's own directory.

use crate::OperationError;
use crate::trust::Trust;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl, open};
use nix::sys::stat::{Mode, fstat};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

const RUN_DIR: &str = "/run/job-adopt";
/// Path of the lock file, which the first lock after the node's start makes.
pub const LOCK_FILE: &str = "/run/job-adopt/lock";
const KEEPERS_FILE: &str = "/run/job-adopt/keepers";
/// Pause between two tries. A holder needs a few milliseconds.
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(1);

/// A lock on one byte of [`LOCK_FILE`], held until it is dropped. It excludes every other open file, also of the
/// same process (fcntl(2), "Open file description locks").
#[derive(Debug)]
pub struct Lock {
    _file: OwnedFd,
}

impl Lock {
    /// Offset of the byte that protects writing to the registry.
    pub const REGISTRY_OFFSET: u64 = 0;
    /// Offset of the byte that keeps two runs of `job-adopt notify` apart.
    pub const NOTICES_OFFSET: u64 = u64::MAX >> 2;

    /// Takes the lock on the byte at `offset`.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::TimedOut`] at the deadline; `EPERM` for a lock file that is not root's alone.
    pub fn take(offset: u64, deadline: Instant) -> Result<Self, OperationError> {
        let file = open_root_only(LOCK_FILE)?;
        let range = byte_range(offset);
        let failed = |error: io::Error| OperationError::new("lock", LOCK_FILE, error);
        loop {
            if try_lock(&file, &range).map_err(|errno| failed(errno.into()))? {
                return Ok(Self { _file: file });
            }
            if Instant::now() >= deadline {
                let cause = "held by others until the deadline";
                return Err(failed(io::Error::new(io::ErrorKind::TimedOut, cause)));
            }
            std::thread::sleep(LOCK_POLL_INTERVAL);
        }
    }
}

/// Opens the keepers' lock file. A keeper locks the byte at its leaf's inode number until it exits.
///
/// The lock belongs to the open file, which a keeper inherits at its start (fcntl(2), "Open file description
/// locks").
///
/// # Errors
///
/// `EPERM` for a file that is not root's alone; as `open(2)`.
pub fn open_keepers_file() -> Result<OwnedFd, OperationError> {
    open_root_only(KEEPERS_FILE)
}

/// Tells whether a keeper has locked the byte of the leaf with this inode.
///
/// # Errors
///
/// As `fcntl(2)`.
pub fn has_keeper(keepers: &OwnedFd, leaf: u64) -> Result<bool, OperationError> {
    let mut range = byte_range(leaf);
    fcntl(keepers, FcntlArg::F_OFD_GETLK(&mut range))
        .map_err(|errno| OperationError::new("look at lock", KEEPERS_FILE, errno))?;
    Ok(range.l_type != libc::F_UNLCK as libc::c_short)
}

/// The write lock on the byte at `offset`. Offsets of the kernel are signed, so the upper two bits do not count; inode
/// numbers of cgroups are far smaller.
pub fn byte_range(offset: u64) -> libc::flock {
    libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: i64::try_from(offset & (i64::MAX as u64 >> 1)).unwrap_or(0),
        l_len: 1,
        l_pid: 0,
    }
}

/// Tries to take a lock; returns whether it was taken. `false` if another open file has it, or if a signal
/// interrupted the call.
///
/// # Errors
///
/// As `fcntl(2)`.
pub fn try_lock(file: &OwnedFd, range: &libc::flock) -> nix::Result<bool> {
    match fcntl(file, FcntlArg::F_OFD_SETLK(range)) {
        Ok(_) => Ok(true),
        Err(Errno::EAGAIN | Errno::EACCES | Errno::EINTR) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// Opens a lock file for reading and writing, and makes it, with its directory, if it is missing.
///
/// # Errors
///
/// `EPERM` for a file of another account, or one that group or others may open; as `open(2)`; a directory that cannot
/// be made or trusted.
fn open_root_only(path: &'static str) -> Result<OwnedFd, OperationError> {
    let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let mode = Mode::S_IRUSR | Mode::S_IWUSR;
    let file = match open(path, flags, mode) {
        Err(Errno::ENOENT) => {
            // tmpfiles.d usually makes this directory. The helper must be able to search it.
            let result = Trust::root().make_dir(Path::new(RUN_DIR));
            result
                .map_err(|error| OperationError::new("make", RUN_DIR, io::Error::other(error)))?;
            open(path, flags, mode)
        }
        result => result,
    }
    .map_err(|errno| OperationError::new("open", path, errno))?;
    let stat = fstat(&file).map_err(|errno| OperationError::new("stat", path, errno))?;
    if stat.st_uid != 0 || stat.st_mode & 0o077 != 0 {
        return Err(OperationError::new("open", path, Errno::EPERM));
    }
    Ok(file)
}
