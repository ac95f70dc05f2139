//! Why a file is not believed.

use std::fmt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;

/// A file or directory that is not believed, and the cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustError {
    path: PathBuf,
    cause: Distrust,
}

/// What is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Distrust {
    /// It cannot be opened or listed; `ELOOP` and `ENOTDIR` are what a symbolic link answers.
    Open(Errno),
    /// It cannot be read.
    Read(Errno),
    /// The path does not lie below the directory from which it has to be checked.
    Outside,
    /// It is no regular file.
    NotRegular,
    /// It belongs to this user.
    Owner(u32),
    /// Group or others may write it; the mode.
    Writable(u32),
    /// It has this many names; a second one may lie in a directory of someone else's.
    Links(u64),
    /// It has more bytes than this.
    TooLarge(u64),
    /// The directory has more names than this.
    Crowded(usize),
}

impl TrustError {
    pub(crate) fn new(path: &Path, cause: Distrust) -> Self {
        Self { path: path.to_owned(), cause }
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

impl Distrust {
    pub(super) fn from_io(error: &std::io::Error) -> Self {
        Self::Read(Errno::from_raw(error.raw_os_error().unwrap_or(0)))
    }
}

impl fmt::Display for TrustError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.cause)
    }
}

impl fmt::Display for Distrust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open(Errno::ELOOP | Errno::ENOTDIR) => {
                f.write_str("a symbolic link, which is not followed, or no directory")
            }
            Self::Open(Errno::EACCES) => f.write_str(
                "cannot open: Permission denied; jobs are looked up as the user job-adopt, which \
                 has to be able to read it",
            ),
            Self::Open(errno) => write!(f, "cannot open: {}", errno.desc()),
            Self::Read(errno) => write!(f, "cannot read: {}", errno.desc()),
            Self::Outside => f.write_str("not an absolute path without .."),
            Self::NotRegular => f.write_str("not a regular file"),
            Self::Owner(uid) => write!(f, "owned by uid {uid}"),
            Self::Writable(mode) => write!(f, "writable by others (mode {mode:04o})"),
            Self::Links(count) => write!(f, "has {count} names"),
            Self::TooLarge(limit) => write!(f, "larger than {limit} bytes"),
            Self::Crowded(limit) => write!(f, "holds more than {limit} names"),
        }
    }
}

impl std::error::Error for TrustError {}
