//! One writer of a job's filters at a time.
//!
//! An open-file-description lock on one byte of a root-only file, whose offset is the cgroup's
//! inode: jobs do not wait for each other, and no user can hold it, as anyone could hold a lock
//! on the cgroup's own directory.

use super::{Error, Result};
use crate::cgroup::Dir;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl, open};
use nix::sys::stat::{Mode, fstat};
use nix::unistd::mkdir;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

const RUN_DIR: &str = "/run/job-adopt";
const LOCK_FILE: &str = "/run/job-adopt/lock";
/// Pause between two tries; a holder is done within a few milliseconds.
const PAUSE: Duration = Duration::from_millis(1);

/// The lock on one cgroup's filters, held until it is dropped.
#[derive(Debug)]
pub(super) struct Lock {
    _file: OwnedFd,
}

impl Lock {
    /// Takes the lock.
    ///
    /// # Errors
    /// [`Error::Locked`] at the deadline; [`Error::System`] for a lock file that is not root's.
    pub(super) fn take(dir: &Dir, deadline: Instant) -> Result<Self> {
        let inode = dir.identity().map_err(|error| {
            Error::system("identify", dir.path(), std::io::Error::other(error.to_string()))
        })?;
        let file = open_lock_file()?;
        let range = libc::flock {
            l_type: libc::F_WRLCK as libc::c_short,
            l_whence: libc::SEEK_SET as libc::c_short,
            l_start: i64::try_from(inode.1 & (i64::MAX as u64 >> 1)).unwrap_or(0),
            l_len: 1,
            l_pid: 0,
        };
        loop {
            match fcntl(&file, FcntlArg::F_OFD_SETLK(&range)) {
                Ok(_) => return Ok(Self { _file: file }),
                Err(Errno::EAGAIN | Errno::EACCES | Errno::EINTR) => {}
                Err(errno) => return Err(Error::system("lock", LOCK_FILE, errno)),
            }
            if Instant::now() >= deadline {
                return Err(Error::Locked { object: LOCK_FILE.into() });
            }
            std::thread::sleep(PAUSE);
        }
    }
}

fn open_lock_file() -> Result<OwnedFd> {
    let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let mode = Mode::S_IRUSR | Mode::S_IWUSR;
    let file = match open(LOCK_FILE, flags, mode) {
        Err(Errno::ENOENT) => {
            // Usually tmpfiles.d has made it.
            match mkdir(RUN_DIR, Mode::from_bits_truncate(0o755)) {
                Ok(()) | Err(Errno::EEXIST) => {}
                Err(errno) => return Err(Error::system("mkdir", RUN_DIR, errno)),
            }
            open(LOCK_FILE, flags, mode)
        }
        result => result,
    }
    .map_err(|errno| Error::system("open", LOCK_FILE, errno))?;
    let stat = fstat(&file).map_err(|errno| Error::system("stat", LOCK_FILE, errno))?;
    if stat.st_uid != 0 || stat.st_mode & 0o077 != 0 {
        return Err(Error::system("open", LOCK_FILE, Errno::EPERM));
    }
    Ok(file)
}
