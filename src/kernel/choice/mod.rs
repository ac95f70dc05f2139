//! The job that a user wants the next logins to join, of several on this node (`job-adopt use`).
//!
//! The choice is the text of one file in a directory that is the user's own, so nothing in it is
//! believed but that this user wants it: it chooses among the user's running jobs, and anything else
//! is left unused.
//!
//! | who | does what |
//! |---|---|
//! | root, in sshd | makes the directory: owner the user, group the helper's, mode 02750 |
//! | the user | writes the file, and replaces it by rename |
//! | user `job-adopt` | reads it, with care |
//!
//! A user may mount a file system of their own over what is theirs and leave whoever looks there
//! without an answer. So the directory and the file are held by descriptors that open nothing
//! (`O_PATH`), and are used only where they lie on the mount that root's directory lies on.

#![forbid(unsafe_code)]

use std::fmt;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, openat};
use nix::sys::stat::{FchmodatFlags, Mode, SFlag, fchmodat, mkdirat};
use nix::unistd::{Gid, Uid, fchownat};

use crate::kernel::failed::Failed;
use crate::kernel::sys::file::{Facts, facts};
use crate::kernel::trust::{Trust, TrustError, TrustedDir};

/// Where the directories of users are.
pub const DIR: &str = "/run/job-adopt/use";

/// Name of the file in it.
pub const FILE: &str = "job";

/// Mode of a user's directory: what the user makes in it has the group of it, and others see
/// nothing.
pub(crate) const USER_MODE: u32 = 0o2750;
/// Mode of the directories above the users'.
const BASE_MODE: u32 = 0o755;

/// The choices of all users of a node.
#[derive(Clone, Debug)]
pub struct Choices {
    pub(crate) dir: PathBuf,
    pub(crate) trust: Trust,
}

/// The directory of one user.
pub(crate) struct UserDir {
    pub(crate) fd: OwnedFd,
    pub(crate) path: PathBuf,
    pub(crate) facts: Facts,
}

impl Choices {
    /// The choices of this node.
    pub fn here() -> Self {
        Self::below(Path::new("/"), Trust::root())
    }

    /// Those of a node whose files lie below `root` and are believed as `trust` says.
    pub fn below(root: &Path, trust: Trust) -> Self {
        Self { dir: root.join(DIR.trim_start_matches('/')), trust }
    }

    /// The directory of one user.
    pub fn user_dir(&self, uid: u32) -> PathBuf {
        self.dir.join(uid.to_string())
    }

    /// Finds the directory of a user in `base`; `None` where there is none.
    pub(crate) fn find(&self, base: &TrustedDir, uid: u32) -> Result<Option<UserDir>, ChoiceError> {
        let path = self.user_dir(uid);
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let fd = match openat(base, uid.to_string().as_str(), flags, Mode::empty()) {
            Ok(fd) => fd,
            Err(Errno::ENOENT) => return Ok(None),
            Err(Errno::ENOTDIR) => return Err(ChoiceError::Wrong(path, Wrong::NoDirectory)),
            Err(errno) => return Err(system("open", &path, errno)),
        };
        let dir = UserDir { facts: facts_of(&fd, &path)?, fd, path };
        if dir.facts.mount != facts_of(base, base.path())?.mount {
            return Err(ChoiceError::Wrong(dir.path, Wrong::Mounted));
        }
        Ok(Some(dir))
    }
}

impl Choices {
    /// Makes the directory of a user, whose choices the group `group` may read, and those above it
    /// where they are missing. One that is there is as good as made; of one that is the user's own,
    /// group and mode are set right. Any number of logins may do so at once.
    /// Errors: [`ChoiceError`]; what is there and is neither root's nor the user's own stays as it
    /// is.
    pub fn make(&self, uid: u32, group: u32) -> Result<(), ChoiceError> {
        let base = self.base(&self.dir)?;
        let dir = match self.find(&base, uid)? {
            Some(dir) => dir,
            None => {
                let path = self.user_dir(uid);
                // Nobody's but root's until it is as it should be.
                match mkdirat(&base, uid.to_string().as_str(), Mode::S_IRWXU) {
                    Ok(()) | Err(Errno::EEXIST) => {}
                    Err(errno) => return Err(system("mkdir", &path, errno)),
                }
                self.find(&base, uid)?.ok_or_else(|| system("open", &path, Errno::ENOENT))?
            }
        };
        dir.hand_over(uid, group, self.trust.owner())
    }

    /// Opens a directory of root's, and makes it and those above it where they are missing.
    fn base(&self, path: &Path) -> Result<TrustedDir, ChoiceError> {
        let missing = match self.trust.dir(path) {
            Ok(dir) => return Ok(dir),
            Err(error) if error.is_missing() => ChoiceError::Distrusted(error),
            Err(error) => return Err(ChoiceError::Distrusted(error)),
        };
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(missing);
        };
        let parent = self.base(parent)?;
        let made = mkdirat(&parent, name, Mode::from_bits_truncate(BASE_MODE));
        let dir = parent.dir(Path::new(name)).map_err(ChoiceError::Distrusted)?;
        match made {
            // The helper has to get through it, whatever our caller's umask is.
            Ok(()) => set_mode(&dir, BASE_MODE).map_err(|errno| system("chmod", path, errno))?,
            Err(Errno::EEXIST) => {}
            Err(errno) => return Err(system("mkdir", path, errno)),
        }
        Ok(dir)
    }
}

impl UserDir {
    /// Gives it to the user. That comes last, so that one that is the maker's was not finished.
    fn hand_over(self, uid: u32, group: u32, maker: u32) -> Result<(), ChoiceError> {
        let facts = &self.facts;
        if facts.uid != uid && facts.uid != maker {
            return Err(ChoiceError::Wrong(self.path, Wrong::Owner(facts.uid)));
        }
        if (facts.uid, facts.gid, permissions(facts)) == (uid, group, USER_MODE) {
            return Ok(());
        }
        set_mode(&self.fd, USER_MODE).map_err(|errno| system("chmod", &self.path, errno))?;
        let (uid, group) = (Uid::from_raw(uid), Gid::from_raw(group));
        fchownat(&self.fd, "", Some(uid), Some(group), AtFlags::AT_EMPTY_PATH)
            .map_err(|errno| system("chown", &self.path, errno))
    }
}

/// Sets the mode of what was only found (`O_PATH`), which `fchmod(2)` refuses.
fn set_mode(fd: &impl AsFd, mode: u32) -> nix::Result<()> {
    let path = format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd());
    let mode = Mode::from_bits_truncate(mode);
    fchmodat(AT_FDCWD, path.as_str(), mode, FchmodatFlags::FollowSymlink)
}

pub(crate) fn facts_of(fd: &impl AsFd, path: &Path) -> Result<Facts, ChoiceError> {
    let failed = |error| ChoiceError::System(Failed::new("stat", path.to_string_lossy(), error));
    facts(fd.as_fd()).map_err(failed)
}

pub(crate) fn permissions(facts: &Facts) -> u32 {
    facts.mode & !SFlag::S_IFMT.bits()
}

pub(crate) fn system(operation: &'static str, path: &Path, errno: Errno) -> ChoiceError {
    ChoiceError::System(Failed::new(operation, path.to_string_lossy(), errno))
}

/// What stands between a user and their choice.
#[derive(Debug)]
pub enum ChoiceError {
    /// A system call failed.
    System(Failed),
    /// A directory above the user's is not root's alone.
    Distrusted(TrustError),
    /// The user has no directory yet.
    Missing(PathBuf),
    /// What is there is not what it should be, and is left as it is.
    Wrong(PathBuf, Wrong),
}

/// What is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// It is a file or a link.
    NoDirectory,
    /// It is no regular file: a link, a pipe, a directory.
    NoFile,
    /// Something is mounted there.
    Mounted,
    /// It belongs to this user.
    Owner(u32),
    /// It has this mode, by which others may write it, or the helper not read what is made in it.
    Mode(u32),
    /// It has this many names; the others lie in directories of someone else's.
    Links(u64),
    /// It has more bytes than an id can have.
    TooLarge,
    /// What it holds is not the id of a job on a line of its own.
    NoId,
}

impl fmt::Display for ChoiceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System(failed) => failed.fmt(f),
            Self::Distrusted(error) => error.fmt(f),
            Self::Missing(path) => write!(f, "{}: does not exist", path.display()),
            Self::Wrong(path, wrong) => write!(f, "{}: {wrong}", path.display()),
        }
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoDirectory => f.write_str("not a directory"),
            Self::NoFile => f.write_str("not a regular file"),
            Self::Mounted => f.write_str("a file system is mounted there"),
            Self::Owner(uid) => write!(f, "owned by uid {uid}"),
            Self::Mode(mode) => write!(f, "has mode {mode:04o}"),
            Self::Links(count) => write!(f, "has {count} names"),
            Self::TooLarge => f.write_str("larger than a job's id"),
            Self::NoId => f.write_str("holds no job's id"),
        }
    }
}

impl std::error::Error for ChoiceError {}

#[cfg(test)]
mod tests;
