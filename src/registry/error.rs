//! What can fail when records are read and the registry is written.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use super::wire::VERSION;

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

/// Why bytes are no record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordError {
    /// No JSON, or a key that is unknown, doubled, missing or of another type; with its place.
    Json(String),
    /// A version of the grammar that this program does not know.
    Version(u32),
    /// The value of this key is out of its range.
    Key(&'static str),
    /// Not exactly one of `cgroup` and `via`.
    Place,
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Json(what) => f.write_str(what),
            Self::Version(version) => write!(f, "record version {version}, known is {VERSION}"),
            Self::Key("DevicePolicy") => {
                f.write_str("DevicePolicy is not one of auto, closed, strict")
            }
            Self::Key("env") => f.write_str(
                "key env is for records via slurm, with the names that job-adopt-record(5) has",
            ),
            Self::Key(key) => write!(f, "key {key} has a value out of range"),
            Self::Place => f.write_str("a record has exactly one of cgroup and via"),
        }
    }
}

impl std::error::Error for RecordError {}
