//! Reads files that only root can have written.
//!
//! Records and configuration decide who may log in and which devices a login sees. So each file is checked by
//! its open descriptor: it must be a regular file with one name and of limited size, and root must own it and
//! all directories above it, without write access for others. No symbolic link is followed, so the checked
//! path is the path that is read.

use crate::mounts::is_memory_file_system;
use crate::sys::file::{open_beneath, read_file_status, read_regular};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, open, openat};
use nix::sys::stat::{FchmodatFlags, Mode, SFlag, fchmodat, fstat, mkdirat};
use thiserror::Error;

/// The root directory of the first process, in its mounts (proc_pid_root(5)).
pub(crate) const NODE_ROOT: &str = "/proc/1/root";

/// The accounts that may own files, and the directory from which on this is checked.
#[derive(Clone, Debug)]
pub struct Trust {
    owner: u32,
    other: Option<u32>,
    anchor: PathBuf,
    mount_points: MountPoints,
}

/// The treatment of mount points in a trusted directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MountPoints {
    /// Paths lead through them: only root can mount anything there.
    Cross,
    /// They are refused before the file system that is mounted there is asked for anything.
    Refuse,
}

impl Trust {
    /// Requires that root owns everything from `/` on.
    pub fn root() -> Self {
        let mount_points = MountPoints::Cross;
        Self {
            owner: 0,
            other: None,
            anchor: PathBuf::from("/"),
            mount_points,
        }
    }

    /// Requires that root owns everything that the first process has at `/proc/1/root`: the node's own files, also for a
    /// process in other mounts.
    pub fn node() -> Self {
        Self {
            anchor: PathBuf::from(NODE_ROOT),
            ..Self::root()
        }
    }

    /// Requires that `owner` owns everything below `anchor`. The anchor and the directories above it are not
    /// checked.
    pub fn below(anchor: &Path, owner: u32) -> Self {
        let mount_points = MountPoints::Cross;
        Self {
            owner,
            other: None,
            anchor: anchor.to_owned(),
            mount_points,
        }
    }

    /// Trusts files of the account `uid` as well.
    pub fn or_owned_by(self, uid: u32) -> Self {
        Self {
            other: Some(uid),
            ..self
        }
    }

    /// The uid of the trusted account: 0 except in tests.
    pub fn owner(&self) -> u32 {
        self.owner
    }

    /// Opens a directory after checking it and every directory above it.
    ///
    /// # Errors
    ///
    /// [`TrustError`] for the first directory that is missing, a link, of another account, or writable by
    /// others; [`Distrust::OutsideAnchor`] for a path outside of the anchor or with `..`.
    pub fn dir(&self, path: &Path) -> Result<TrustedDir, TrustError> {
        let outside = || TrustError::new(path, Distrust::OutsideAnchor);
        let relative = path.strip_prefix(&self.anchor).map_err(|_| outside())?;
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let anchor = open(&self.anchor, flags, Mode::empty())
            .map_err(|errno| TrustError::new(&self.anchor, Distrust::Open(errno)))?;
        let mut dir = TrustedDir {
            trust: self.clone(),
            dir: anchor,
            path: self.anchor.clone(),
        };
        // The caller answers for any other anchor.
        if self.anchor == Path::new("/") || self.anchor == Path::new(NODE_ROOT) {
            dir.check()?;
        }
        for component in relative.components() {
            let Component::Normal(name) = component else {
                return Err(outside());
            };
            dir = dir.dir(Path::new(name))?;
        }
        Ok(dir)
    }

    /// Opens a directory as [`Trust::dir`] does, and makes missing directories. All accounts can search and
    /// list these, whatever the umask is.
    ///
    /// # Errors
    ///
    /// As [`Trust::dir`]; [`Distrust::Cannot`] for a directory that cannot be made.
    pub fn make_dir(&self, path: &Path) -> Result<TrustedDir, TrustError> {
        let missing = match self.dir(path) {
            Err(error) if error.is_missing() => error,
            result => return result,
        };
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(missing);
        };
        let parent = self.make_dir(parent)?;
        let is_new = match mkdirat(&parent, name, Mode::from_bits_truncate(DIR_MODE)) {
            Ok(()) => true,
            // Another process has made it meanwhile.
            Err(Errno::EEXIST) => false,
            Err(errno) => return Err(TrustError::from_error("mkdir", path, errno)),
        };
        let dir = parent.dir(Path::new(name))?;
        if is_new {
            set_mode(&dir, DIR_MODE)
                .map_err(|errno| TrustError::from_error("chmod", path, errno))?;
        }
        Ok(dir)
    }

    /// Reads a file of at most `bytes_max` bytes after checking it and every directory above it.
    ///
    /// # Errors
    ///
    /// As [`Trust::dir`] and [`TrustedDir::read`].
    pub fn read(&self, path: &Path, bytes_max: u64) -> Result<Vec<u8>, TrustError> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(TrustError::new(path, Distrust::OutsideAnchor));
        };
        self.dir(parent)?.read(Path::new(name), bytes_max)
    }

    /// Checks owner and mode of a file. `shown` is its path in messages.
    ///
    /// # Errors
    ///
    /// [`Distrust::WrongOwner`] and [`Distrust::Writable`].
    pub fn check_owner(&self, uid: u32, mode: u32, shown: &Path) -> Result<(), TrustError> {
        if uid != self.owner && Some(uid) != self.other {
            return Err(TrustError::new(shown, Distrust::WrongOwner(uid)));
        }
        // The group bits are the mask of an access control list: they show its write grants.
        if mode & 0o022 != 0 {
            return Err(TrustError::new(shown, Distrust::Writable(mode & 0o7777)));
        }
        Ok(())
    }
}

/// A checked directory. Its descriptor stays on it whatever happens to the path.
#[derive(Debug)]
pub struct TrustedDir {
    pub(crate) trust: Trust,
    pub(crate) dir: OwnedFd,
    pub(crate) path: PathBuf,
}

impl AsFd for TrustedDir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }
}

impl TrustedDir {
    /// The path by which this directory was opened, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens and checks a directory in this one.
    ///
    /// # Errors
    ///
    /// As [`Trust::dir`].
    pub fn dir(&self, name: &Path) -> Result<Self, TrustError> {
        let path = self.path.join(name);
        let dir = self.open(name, OFlag::O_PATH | OFlag::O_DIRECTORY, &path)?;
        let child = Self {
            trust: self.trust.clone(),
            dir,
            path,
        };
        child.check()?;
        Ok(child)
    }

    /// Opens and checks the directory of an account in this one, such as `/run/user/UID`, by its uid. Root and
    /// the account may own what is in it.
    ///
    /// The account may mount a file system there that never answers, and a call to it would block this process.
    /// So the directory must be on the mount of this one or in memory (tmpfs), which only root mounts. The rest
    /// must be on the same mount.
    ///
    /// # Errors
    ///
    /// [`Distrust::Mounted`] for another mount; as [`Trust::dir`].
    pub fn dir_of_account(&self, uid: u32) -> Result<Self, TrustError> {
        let name = uid.to_string();
        let path = self.path.join(&name);
        let failed = |error| TrustError::from_error("look at mount of", &path, error);
        // This opens the directory that is mounted there, but calls no file system.
        let dir = open_below(
            &self.dir,
            Path::new(&name),
            OFlag::O_PATH | OFlag::O_DIRECTORY,
            &path,
        )?;
        let status = read_file_status(dir.as_fd()).map_err(failed)?;
        let above = read_file_status(self.as_fd()).map_err(failed)?;
        if status.mount != above.mount
            && !is_memory_file_system(status.file_system).map_err(failed)?
        {
            return Err(TrustError::new(&path, Distrust::Mounted));
        }
        let other = Some(self.trust.owner);
        let mount_points = MountPoints::Refuse;
        let trust = Trust {
            owner: uid,
            other,
            mount_points,
            ..self.trust.clone()
        };
        let child = Self { trust, dir, path };
        child.check()?;
        Ok(child)
    }

    /// Opens a file or directory in this one and follows no symbolic link. `shown` is its path in messages.
    ///
    /// # Errors
    ///
    /// [`Distrust::Mounted`] for a mount point, if these are refused here; else [`Distrust::Open`].
    fn open(&self, name: &Path, flags: OFlag, shown: &Path) -> Result<OwnedFd, TrustError> {
        if self.trust.mount_points == MountPoints::Cross {
            return open_below(&self.dir, name, flags, shown);
        }
        open_beneath(&self.dir, name, flags).map_err(|errno| {
            let is_mounted = errno == Errno::EXDEV;
            let cause = if is_mounted {
                Distrust::Mounted
            } else {
                Distrust::Open(errno)
            };
            TrustError::new(shown, cause)
        })
    }

    /// Checks owner and mode of the directory itself ([`Trust::check_owner`]).
    fn check(&self) -> Result<(), TrustError> {
        let stat =
            fstat(&self.dir).map_err(|errno| TrustError::new(&self.path, Distrust::Open(errno)))?;
        self.trust
            .check_owner(stat.st_uid, stat.st_mode, &self.path)
    }

    /// Reads a file of at most `bytes_max` bytes in this directory.
    ///
    /// # Errors
    ///
    /// [`TrustError`] for a file that is missing, a link, no regular file, of another account, writable by
    /// others, or larger, or that has a second name.
    pub fn read(&self, name: &Path, bytes_max: u64) -> Result<Vec<u8>, TrustError> {
        let path = self.path.join(name);
        let distrust = |cause| TrustError::new(&path, cause);
        // Without O_NONBLOCK, opening a FIFO would wait for its writer.
        let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
        let file = self.open(name, flags, &path)?;
        let stat = fstat(&file).map_err(|errno| TrustError::from_error("read", &path, errno))?;
        if stat.st_mode & SFlag::S_IFMT.bits() != SFlag::S_IFREG.bits() {
            return Err(distrust(Distrust::NotRegular));
        }
        self.trust.check_owner(stat.st_uid, stat.st_mode, &path)?;
        if stat.st_nlink != 1 {
            return Err(distrust(Distrust::SeveralNames(stat.st_nlink)));
        }
        let length = u64::try_from(stat.st_size).unwrap_or_default();
        read_regular(file, length, bytes_max).map_err(|error| match error.raw_os_error() {
            Some(libc::EFBIG) => distrust(Distrust::TooLarge(bytes_max)),
            _ => TrustError::from_error("read", &path, error),
        })
    }
}

/// Mode of the directories that [`Trust::make_dir`] makes.
const DIR_MODE: u32 = 0o755;

/// Sets the mode of a file that was opened with `O_PATH`: `fchmod(2)` refuses its descriptor.
pub(crate) fn set_mode(fd: &impl AsFd, mode: u32) -> nix::Result<()> {
    let path = format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd());
    let mode = Mode::from_bits_truncate(mode);
    fchmodat(AT_FDCWD, path.as_str(), mode, FchmodatFlags::FollowSymlink)
}

/// Opens a file or directory in `dir`. A symbolic link as its name is not followed, and mount points are crossed.
/// `shown` is its path in messages.
///
/// # Errors
///
/// [`Distrust::Open`] with the error of `openat(2)`.
pub(crate) fn open_below(
    dir: &OwnedFd,
    name: &Path,
    flags: OFlag,
    shown: &Path,
) -> Result<OwnedFd, TrustError> {
    openat(
        dir,
        name,
        flags | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC,
        Mode::empty(),
    )
    .map_err(|errno| TrustError::new(shown, Distrust::Open(errno)))
}

/// A file or directory that is not trusted, and the cause.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{}: {cause}", path.display())]
pub struct TrustError {
    path: PathBuf,
    cause: Distrust,
}

/// The reason why a file or directory is not trusted.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[allow(missing_docs, reason = "the message of each variant describes it")]
pub enum Distrust {
    /// The file cannot be opened or listed. A symbolic link gives `ELOOP` or `ENOTDIR`.
    #[error("{}", cannot_open(*.0))]
    Open(Errno),
    #[error("not an absolute path without ..")]
    OutsideAnchor,
    #[error("not a regular file")]
    NotRegular,
    #[error("owned by uid {0}")]
    WrongOwner(u32),
    #[error("writable by others (mode {0:04o})")]
    Writable(u32),
    /// The file has this many names. A second name may be in a directory of another account.
    #[error("has {0} names")]
    SeveralNames(nix::libc::nlink_t),
    #[error("larger than {0} bytes")]
    TooLarge(u64),
    #[error("holds more than {0} names")]
    TooManyNames(usize),
    #[error("a file system is mounted there")]
    Mounted,
    /// With this mode others may write the directory, or the helper cannot read new files in it.
    #[error("has mode {0:04o}")]
    WrongMode(u32),
    #[error("holds no {0}")]
    MissingContent(&'static str),
    #[error("cannot {operation}: {}", errno.desc())]
    Cannot {
        operation: &'static str,
        errno: Errno,
    },
}

/// Describes why a file could not be opened. For some errors it says what the admin can look for.
fn cannot_open(errno: Errno) -> String {
    match errno {
        Errno::ELOOP | Errno::ENOTDIR => {
            "a symbolic link, which is not followed, or no directory".to_owned()
        }
        Errno::EACCES => {
            "cannot open: Permission denied; jobs are looked up as the user job-adopt, \
                          which must be able to read it"
                .to_owned()
        }
        errno => format!("cannot open: {}", errno.desc()),
    }
}

impl TrustError {
    /// Describes a file or directory and the cause.
    pub fn new(path: &Path, cause: Distrust) -> Self {
        Self {
            path: path.to_owned(),
            cause,
        }
    }

    /// Describes the failure of an operation on a file or directory.
    pub fn from_error(operation: &'static str, path: &Path, error: impl Into<io::Error>) -> Self {
        let errno = Errno::from_raw(error.into().raw_os_error().unwrap_or(0));
        Self::new(path, Distrust::Cannot { operation, errno })
    }

    /// The path of the file or directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The cause.
    pub fn cause(&self) -> &Distrust {
        &self.cause
    }

    /// Tells whether the file or directory does not exist.
    pub fn is_missing(&self) -> bool {
        self.cause == Distrust::Open(Errno::ENOENT)
    }
}

#[cfg(test)]
mod tests;
