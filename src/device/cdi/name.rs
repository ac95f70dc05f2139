//! Qualified names of devices, `VENDOR/CLASS=NAME`.

use std::fmt;
use std::str::FromStr;

/// A qualified name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QualifiedName {
    kind: String,
    name: String,
}

impl QualifiedName {
    /// `VENDOR/CLASS`.
    #[must_use]
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// The device's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl FromStr for QualifiedName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let (kind, name) = text.split_once('=').ok_or(NameError)?;
        Ok(Self { kind: kind.to_owned(), name: name.to_owned() })
    }
}

impl fmt::Display for QualifiedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.kind, self.name)
    }
}

/// A text is no qualified name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NameError;

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a qualified CDI name, VENDOR/CLASS=NAME")
    }
}

impl std::error::Error for NameError {}
