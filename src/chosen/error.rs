//! Why a choice cannot be made, kept or read.

use std::fmt;
use std::path::PathBuf;

use crate::failed::Failed;
use crate::trust::TrustError;

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
