//! Job records: where they lie, what they say, and how they are read.
//!
//! `REGISTRY/UID/ID.json` is a running job, `REGISTRY/UID/ID.ended` the note that one ended a
//! moment ago. Everything is root's and readable by all. Only the directory of the user who logs
//! in is ever looked at, so that a login costs the same however many jobs others have.

#![forbid(unsafe_code)]

mod environment;
mod layout;
mod note;
mod read;
mod record;
mod wire;
mod write;

use std::path::{Path, PathBuf};
use std::{fmt, io};

use self::wire::VERSION;

pub use environment::Environment;
pub use layout::Registry;
pub use note::{NOTE_VALID, Note};
pub use read::{Broken, ReadError, UserRecords};
pub use record::{Devices, Gpu, Options, Place, Record, Via};
pub use write::Known;

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
    fn new(operation: &'static str, path: &Path, source: io::Error) -> Self {
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
pub struct RecordError(String);

impl RecordError {
    fn version(version: u32) -> Self {
        Self(format!("record version {version}, known is {VERSION}"))
    }

    /// The value of this key is out of its range.
    fn key(key: &str) -> Self {
        Self(match key {
            "DevicePolicy" => "DevicePolicy is not one of auto, closed, strict".to_owned(),
            "env" => {
                "key env is for records via slurm, with the names that job-adopt-record(5) has"
                    .to_owned()
            }
            key => format!("key {key} has a value out of range"),
        })
    }
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for RecordError {}
