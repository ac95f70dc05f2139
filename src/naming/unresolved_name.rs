//! The error of a name that must resolve.

use helper::node::DeviceError;
use std::fmt;

/// A name that must resolve and does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnresolvedName {
    /// The refused name: the one that the job gave or, if that is a directory, that of the entry in it.
    pub name: String,
    /// The reason.
    pub why: DeviceError,
}

impl fmt::Display for UnresolvedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.why)
    }
}
