//! Job records: where they lie, what they say, and how they are read.
//!
//! `REGISTRY/UID/ID.json` is a running job, `REGISTRY/UID/ID.ended` the note that one ended a
//! moment ago. Everything is root's and readable by all. Only the directory of the user who logs
//! in is ever looked at, so that a login costs the same however many jobs others have.

mod read;
mod record;
mod write;

use thiserror::Error;

use self::record::VERSION;

pub use read::{Broken, Note, ReadError, Registry, UserRecords};
pub use record::{Devices, Environment, Gpu, Options, Place, Record, Via};
pub use write::Known;

/// Why bytes are no record.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct RecordError(String);

impl RecordError {
    fn version(version: u32) -> Self {
        Self(format!("record version {version}, known is {VERSION}"))
    }

    /// The value of this key is out of its range.
    fn key(key: &str) -> Self {
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
