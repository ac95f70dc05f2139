//! Reading what only root can have written.
//!
//! Records and configuration decide who may log in and which devices they see, so each file is
//! believed only after the kernel has been asked about the open descriptor: a regular file, owned
//! by root, writable by nobody else, with one name, of bounded size, below directories of which
//! the same holds. No symbolic link is followed, so a path that was checked is the path that was
//! read.

use crate::sys::file::read_to_end;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, open, openat};
use nix::sys::stat::{FchmodatFlags, Mode, SFlag, fchmodat, fstat, mkdirat};
use thiserror::Error;

/// Who has to own a file, and from which directory on.
#[derive(Clone, Debug)]
pub struct Trust {
    owner: u32,
    other: Option<u32>,
    anchor: PathBuf,
}

impl Trust {
    /// Everything from `/` on must be root's.
    pub fn root() -> Self {
        Self { owner: 0, other: None, anchor: PathBuf::from("/") }
    }

    /// Everything below `anchor` must be `owner`'s; `anchor` and what is above it are taken as
    /// they are.
    pub fn below(anchor: &Path, owner: u32) -> Self {
        Self { owner, other: None, anchor: anchor.to_owned() }
    }

    /// The same, but that what belongs to `uid` is believed as well.
    pub fn or_owned_by(self, uid: u32) -> Self {
        Self { other: Some(uid), ..self }
    }

    /// Whose files are believed: root, but in a test.
    pub fn owner(&self) -> u32 {
        self.owner
    }

    /// Opens a directory after checking it and every directory on the way.
    /// Errors: [`TrustError`] names the first directory that is missing, a link, someone else's, or
    /// writable by others; also a path outside the anchor or with `..` in it.
    pub fn dir(&self, path: &Path) -> Result<TrustedDir, TrustError> {
        let outside = || TrustError::new(path, Distrust::Outside);
        let relative = path.strip_prefix(&self.anchor).map_err(|_| outside())?;
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let anchor = open(&self.anchor, flags, Mode::empty())
            .map_err(|errno| TrustError::new(&self.anchor, Distrust::Open(errno)))?;
        let mut dir = TrustedDir { trust: self.clone(), dir: anchor, path: self.anchor.clone() };
        if self.anchor == Path::new("/") {
            dir.check()?;
        }
        for component in relative.components() {
            let Component::Normal(name) = component else { return Err(outside()) };
            dir = dir.dir(Path::new(name))?;
        }
        Ok(dir)
    }

    /// Opens a directory as [`Trust::dir`] does, and makes it and those above it where they are
    /// missing, for everybody to get through, whatever our caller's umask is.
    pub fn make_dir(&self, path: &Path) -> Result<TrustedDir, TrustError> {
        let missing = match self.dir(path) {
            Err(error) if error.is_missing() => error,
            found => return found,
        };
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(missing);
        };
        let parent = self.make_dir(parent)?;
        let made = mkdirat(&parent, name, Mode::from_bits_truncate(DIR_MODE));
        let dir = parent.dir(Path::new(name))?;
        match made {
            Ok(()) => set_mode(&dir, DIR_MODE)
                .map_err(|errno| TrustError::cannot("chmod", path, errno))?,
            Err(Errno::EEXIST) => {}
            Err(errno) => return Err(TrustError::cannot("mkdir", path, errno)),
        }
        Ok(dir)
    }

    /// Reads a file of at most `limit` bytes after checking it and every directory on the way.
    pub fn read(&self, path: &Path, limit: u64) -> Result<Vec<u8>, TrustError> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(TrustError::new(path, Distrust::Outside));
        };
        self.dir(parent)?.read(Path::new(name), limit)
    }

    /// Checks owner and mode of what is shown by this path.
    ///
    /// # Errors
    /// [`Distrust::Owner`] and [`Distrust::Writable`].
    pub fn check_owner(&self, uid: u32, mode: u32, shown: &Path) -> Result<(), TrustError> {
        if uid != self.owner && Some(uid) != self.other {
            return Err(TrustError::new(shown, Distrust::Owner(uid)));
        }
        // A write grant by an access control list shows in the group bits, which are its mask.
        if mode & 0o022 != 0 {
            return Err(TrustError::new(shown, Distrust::Writable(mode & 0o7777)));
        }
        Ok(())
    }
}

/// A directory that has been checked; the descriptor stays on it whatever happens to its path.
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
    /// The path by which it was opened, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens and checks a directory in this one.
    pub fn dir(&self, name: &Path) -> Result<Self, TrustError> {
        let path = self.path.join(name);
        let dir = open_below(&self.dir, name, OFlag::O_PATH | OFlag::O_DIRECTORY, &path)?;
        let found = Self { trust: self.trust.clone(), dir, path };
        found.check()?;
        Ok(found)
    }

    fn check(&self) -> Result<(), TrustError> {
        let stat =
            fstat(&self.dir).map_err(|errno| TrustError::new(&self.path, Distrust::Open(errno)))?;
        self.trust.check_owner(stat.st_uid, stat.st_mode, &self.path)
    }

    /// Reads a file of at most `limit` bytes in this directory.
    /// Errors: [`TrustError`] where it is missing, a link, no regular file, someone else's,
    /// writable by others, has a second name, or is larger.
    pub fn read(&self, name: &Path, limit: u64) -> Result<Vec<u8>, TrustError> {
        let path = self.path.join(name);
        let distrust = |why| TrustError::new(&path, why);
        // Without O_NONBLOCK, opening a FIFO that somebody left here would wait for its writer.
        let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
        let file = open_below(&self.dir, name, flags, &path)?;
        let stat = fstat(&file).map_err(|errno| TrustError::cannot("read", &path, errno))?;
        if stat.st_mode & SFlag::S_IFMT.bits() != SFlag::S_IFREG.bits() {
            return Err(distrust(Distrust::NotRegular));
        }
        self.trust.check_owner(stat.st_uid, stat.st_mode, &path)?;
        if stat.st_nlink != 1 {
            return Err(distrust(Distrust::Links(stat.st_nlink)));
        }
        read_to_end(file, limit).map_err(|error| match error.raw_os_error() {
            Some(libc::EFBIG) => distrust(Distrust::TooLarge(limit)),
            _ => TrustError::cannot("read", &path, error),
        })
    }
}

/// Mode of the directories that are made here.
const DIR_MODE: u32 = 0o755;

/// Sets the mode of what was only found (`O_PATH`), which `fchmod(2)` refuses.
pub(crate) fn set_mode(fd: &impl AsFd, mode: u32) -> nix::Result<()> {
    let path = format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd());
    let mode = Mode::from_bits_truncate(mode);
    fchmodat(AT_FDCWD, path.as_str(), mode, FchmodatFlags::FollowSymlink)
}

pub(crate) fn open_below(
    dir: &OwnedFd,
    name: &Path,
    flags: OFlag,
    shown: &Path,
) -> Result<OwnedFd, TrustError> {
    openat(dir, name, flags | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC, Mode::empty())
        .map_err(|errno| TrustError::new(shown, Distrust::Open(errno)))
}

/// A file or directory that is not believed, and the cause.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{}: {cause}", path.display())]
pub struct TrustError {
    path: PathBuf,
    cause: Distrust,
}

/// What is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[allow(missing_docs, reason = "each says it")]
pub enum Distrust {
    /// It cannot be opened or listed; `ELOOP` and `ENOTDIR` are what a symbolic link answers.
    #[error("{}", cannot_open(*.0))]
    Open(Errno),
    #[error("not an absolute path without ..")]
    Outside,
    #[error("not a regular file")]
    NotRegular,
    #[error("owned by uid {0}")]
    Owner(u32),
    #[error("writable by others (mode {0:04o})")]
    Writable(u32),
    /// It has this many names; a second one may lie in a directory of someone else's.
    #[error("has {0} names")]
    Links(nix::libc::nlink_t),
    #[error("larger than {0} bytes")]
    TooLarge(u64),
    #[error("holds more than {0} names")]
    Crowded(usize),
    #[error("a file system is mounted there")]
    Mounted,
    /// It has this mode, by which others may write it, or the helper not read what is made in it.
    #[error("has mode {0:04o}")]
    Mode(u32),
    #[error("holds no {0}")]
    Lacks(&'static str),
    #[error("cannot {operation}: {}", errno.desc())]
    Cannot { operation: &'static str, errno: Errno },
}

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
    /// Names the file or directory, and why it is not believed.
    pub fn new(path: &Path, cause: Distrust) -> Self {
        Self { path: path.to_owned(), cause }
    }

    /// That this operation on it failed.
    pub fn cannot(what: &'static str, path: &Path, error: impl Into<io::Error>) -> Self {
        let errno = Errno::from_raw(error.into().raw_os_error().unwrap_or(0));
        Self::new(path, Distrust::Cannot { operation: what, errno })
    }

    /// The file or directory at fault.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What is wrong with it.
    pub fn cause(&self) -> &Distrust {
        &self.cause
    }

    /// Whether it is simply not there.
    pub fn is_missing(&self) -> bool {
        self.cause == Distrust::Open(Errno::ENOENT)
    }
}

#[cfg(test)]
mod tests;
