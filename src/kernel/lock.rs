//! One writer at a time, and one keeper for each leaf.
//!
//! An open-file-description lock on one byte of a root-only file. What the byte stands for is its
//! offset: a cgroup's inode for that cgroup, so that jobs do not wait for each other, and 0, which
//! is no inode, for the registry. No user can hold it, as anyone could hold a lock on the cgroup's
//! own directory.

use crate::Failed;
use crate::trust::Trust;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl, open};
use nix::sys::stat::{Mode, fstat};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

const RUN_DIR: &str = "/run/job-adopt";
const LOCK_FILE: &str = "/run/job-adopt/lock";
const KEEPERS_FILE: &str = "/run/job-adopt/keepers";
/// Pause between two tries; a holder is done within a few milliseconds.
const PAUSE: Duration = Duration::from_millis(1);

/// A lock, held until it is dropped.
#[derive(Debug)]
pub struct Lock {
    _file: OwnedFd,
}

impl Lock {
    /// The byte for writing to the registry.
    pub const REGISTRY: u64 = 0;

    /// Takes the lock on the byte at `offset`.
    /// Errors: `TimedOut` at the deadline; `EPERM` for a lock file
    /// that is not root's alone.
    pub fn take(offset: u64, deadline: Instant) -> Result<Self, Failed> {
        let file = open_root_only(LOCK_FILE)?;
        let range = byte(offset);
        loop {
            if set(&file, &range).map_err(|errno| Failed::new("lock", LOCK_FILE, errno))? {
                return Ok(Self { _file: file });
            }
            if Instant::now() >= deadline {
                let why =
                    io::Error::new(io::ErrorKind::TimedOut, "held by others until the deadline");
                return Err(Failed::new("lock", LOCK_FILE, why));
            }
            std::thread::sleep(PAUSE);
        }
    }
}

/// The file in which each keeper holds the byte of its leaf for as long as it lives: so whoever
/// sees the byte held knows that there is one. The lock goes by the open file, which a keeper is
/// given when it is started (fcntl(2), "Open file description locks").
/// Errors: `EPERM` for a file that is not root's alone.
pub fn keepers() -> Result<OwnedFd, Failed> {
    open_root_only(KEEPERS_FILE)
}

/// Whether some keeper holds the byte of the leaf with this inode.
pub fn is_kept(keepers: &OwnedFd, leaf: u64) -> Result<bool, Failed> {
    let mut range = byte(leaf);
    fcntl(keepers, FcntlArg::F_OFD_GETLK(&mut range))
        .map_err(|errno| Failed::new("look at lock", KEEPERS_FILE, errno))?;
    Ok(range.l_type != libc::F_UNLCK as libc::c_short)
}

/// The lock on this byte, for a writer.
pub fn byte(offset: u64) -> libc::flock {
    libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: i64::try_from(offset & (i64::MAX as u64 >> 1)).unwrap_or(0),
        l_len: 1,
        l_pid: 0,
    }
}

/// Takes the lock; `false` where another open file has it.
pub fn set(file: &OwnedFd, range: &libc::flock) -> nix::Result<bool> {
    match fcntl(file, FcntlArg::F_OFD_SETLK(range)) {
        Ok(_) => Ok(true),
        Err(Errno::EAGAIN | Errno::EACCES | Errno::EINTR) => Ok(false),
        Err(errno) => Err(errno),
    }
}

fn open_root_only(path: &'static str) -> Result<OwnedFd, Failed> {
    let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let mode = Mode::S_IRUSR | Mode::S_IWUSR;
    let file = match open(path, flags, mode) {
        Err(Errno::ENOENT) => {
            // Usually tmpfiles.d has made it. The helper must get through it.
            let made = Trust::root().make_dir(Path::new(RUN_DIR));
            made.map_err(|error| Failed::new("make", RUN_DIR, io::Error::other(error)))?;
            open(path, flags, mode)
        }
        result => result,
    }
    .map_err(|errno| Failed::new("open", path, errno))?;
    let stat = fstat(&file).map_err(|errno| Failed::new("stat", path, errno))?;
    if stat.st_uid != 0 || stat.st_mode & 0o077 != 0 {
        return Err(Failed::new("open", path, Errno::EPERM));
    }
    Ok(file)
}
