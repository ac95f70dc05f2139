//! Why bytes are not a record.

use super::prolog_environment::UnusableVariable;
use crate::text::printable;
use thiserror::Error;

/// Reason why bytes are not a record.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct RecordError(String);

impl RecordError {
    /// The error for a file of another version than the known one.
    pub(super) fn unknown_version(version: u32, known: u32) -> Self {
        Self(format!("record version {version}, known is {known}"))
    }

    /// The error for a record that names no place for logins, or two.
    pub(super) fn ambiguous_target() -> Self {
        Self("a record has exactly one of cgroup and via".to_owned())
    }

    /// The error for a variable that a record cannot have.
    pub(super) fn unusable_variable(variable: &UnusableVariable) -> Self {
        Self(format!("key env: {}", printable(&variable.to_string())))
    }

    /// The error for a key whose value is not allowed. For some keys it says what is.
    pub(super) fn invalid_value(key: &str) -> Self {
        Self(match key {
            "env" => "key env is not for records via flux".to_owned(),
            "scheduler" => {
                "key scheduler is for records with cgroup: gridengine, htcondor, lsf, oar, openpbs or other"
                    .to_owned()
            }
            "accounts" => {
                "key accounts is for records with cgroup: at most 8 names or numbers of accounts"
                    .to_owned()
            }
            "namespaces" => {
                "key namespaces has the number of a process, for records with cgroup, or an absolute \
                 path of at most 200 bytes"
                    .to_owned()
            }
            key => format!("key {key} has a value out of range"),
        })
    }
}

/// A parser's error, with its position, on one line.
pub(super) fn json_error(error: &serde_json::Error) -> RecordError {
    RecordError(printable(&error.to_string()))
}
