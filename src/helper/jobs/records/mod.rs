//! Reads and writes job records.
//!
//! `REGISTRY/UID/ID.json` is a running job, `REGISTRY/UID/ID.ended` notes that a job ended recently.
//! Root owns all files, and everybody can read them. A login reads only its own user's directory,
//! so that it costs the same however many jobs others have.

mod read;
mod record;
mod write;

use thiserror::Error;

use self::record::VERSION;

pub use read::{Note, ReadError, Registry, UnusableFile, UserRecords};
pub use record::{Gpu, LoginTarget, Options, PrologEnvironment, Record, RecordDevices, Via};
pub use write::RegisteredJob;

/// Reason why bytes are not a record.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct RecordError(String);

impl RecordError {
    fn unknown_version(version: u32) -> Self {
        Self(format!("record version {version}, known is {VERSION}"))
    }

    /// Returns the error for a key whose value is not allowed.
    fn invalid_value(key: &str) -> Self {
        Self(match key {
            "env" => {
                "key env is for records via slurm, with the names that job-adopt-record(5) has"
                    .to_owned()
            }
            "accounts" => {
                "key accounts is for records with cgroup: at most 8 names or numbers of accounts"
                    .to_owned()
            }
            "namespaces" => {
                "key namespaces is for records with cgroup: the number of a process or an \
                             absolute path of at most 200 bytes"
                    .to_owned()
            }
            key => format!("key {key} has a value out of range"),
        })
    }
}
