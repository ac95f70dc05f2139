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

mod make;
mod read;
mod write;

use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{Mode, SFlag};

use crate::failed::Failed;
use crate::sys::file::{Facts, facts};
use crate::trust::{Trust, TrustError, TrustedDir};

/// Where the directories of users are.
pub const DIR: &str = "/run/job-adopt/use";

/// Name of the file in it.
pub const FILE: &str = "job";

/// Mode of a user's directory: what the user makes in it has the group of it, and others see
/// nothing.
const USER_MODE: u32 = 0o2750;
/// Mode of the file.
const FILE_MODE: u32 = 0o640;
/// Most bytes of the file: a job's id and the end of its line.
const FILE_MAX: u64 = 65;

/// The choices of all users of a node.
#[derive(Clone, Debug)]
pub struct Choices {
    dir: PathBuf,
    trust: Trust,
}

/// The directory of one user.
struct UserDir {
    fd: OwnedFd,
    path: PathBuf,
    facts: Facts,
}

impl Choices {
    /// The choices of this node.
    #[must_use]
    pub fn here() -> Self {
        Self::below(Path::new("/"), Trust::root())
    }

    /// Those of a node whose files lie below `root` and are believed as `trust` says.
    #[must_use]
    pub fn below(root: &Path, trust: Trust) -> Self {
        Self { dir: root.join(DIR.trim_start_matches('/')), trust }
    }

    /// The directory of one user.
    #[must_use]
    pub fn user_dir(&self, uid: u32) -> PathBuf {
        self.dir.join(uid.to_string())
    }

    /// Finds the directory of a user in `base`; `None` where there is none.
    fn find(&self, base: &TrustedDir, uid: u32) -> Result<Option<UserDir>, ChoiceError> {
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

fn facts_of(fd: &impl AsFd, path: &Path) -> Result<Facts, ChoiceError> {
    let failed = |error| ChoiceError::System(Failed::new("stat", path.to_string_lossy(), error));
    facts(fd.as_fd()).map_err(failed)
}

fn permissions(facts: &Facts) -> u32 {
    facts.mode & !SFlag::S_IFMT.bits()
}

fn system(operation: &'static str, path: &Path, errno: Errno) -> ChoiceError {
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
