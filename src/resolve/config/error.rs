//! What is wrong with a configuration.

use std::fmt;
use std::path::PathBuf;

use crate::trust::TrustError;

/// Why there is no configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigError {
    /// The file is not believed.
    File(TrustError),
    /// This line of the file is at fault.
    Line(PathBuf, usize, Fault),
}

/// What is wrong with a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is no text, be it in a comment.
    Encoding,
    /// It is not `key = value`.
    Form,
    /// There is no such key.
    Unknown(String),
    /// The key was removed: it, and what replaces it.
    Removed(String, &'static str),
    /// The key stood above already.
    Twice(String),
    /// The value of the key is not what is wanted.
    Value(String, &'static str),
    /// An entry of the list that is the value of the key is refused, and why.
    Entry(String, String, String),
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(error) => error.fmt(f),
            Self::Line(path, line, fault) => write!(f, "{}:{line}: {fault}", path.display()),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Encoding => f.write_str("not UTF-8"),
            Self::Form => f.write_str("not of the form key = value"),
            Self::Unknown(key) => write!(f, "unknown key {key}"),
            Self::Removed(key, instead) => write!(f, "key {key} {instead}"),
            Self::Twice(key) => write!(f, "key {key} stands twice"),
            Self::Value(key, wanted) => write!(f, "the value of {key} is not {wanted}"),
            Self::Entry(key, entry, why) => write!(f, "entry {entry:?} of {key}: {why}"),
        }
    }
}

impl std::error::Error for ConfigError {}
