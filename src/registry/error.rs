//! What can fail when the registry is written.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// An operation, the file it was done on, and why it failed.
#[derive(Debug)]
pub struct WriteError {
    /// What was done.
    pub operation: &'static str,
    /// To which file or directory.
    pub path: PathBuf,
    /// The kernel's answer.
    pub source: io::Error,
}

impl WriteError {
    pub(super) fn new(operation: &'static str, path: &Path, source: io::Error) -> Self {
        Self { operation, path: path.to_owned(), source }
    }
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.operation, self.path.display(), self.source)
    }
}

impl std::error::Error for WriteError {}
