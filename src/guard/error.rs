//! Why a guard cannot be seen to.

use crate::{bpf, cgroup};
use std::fmt;

/// Result of this layer.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a guard cannot be seen to, in the words of the layer below.
#[derive(Debug)]
pub enum Error {
    /// The cgroup cannot be looked at.
    Cgroup(cgroup::Error),
    /// The filter cannot be looked at or attached.
    Bpf(bpf::Error),
    /// That is no path of a cgroup.
    Path(String),
}

impl Error {
    /// Whether it is another filter that does not let a guard be added.
    #[must_use]
    pub fn is_obstacle(&self) -> bool {
        matches!(self, Self::Bpf(bpf::Error::Obstacle { .. }))
    }
}

impl From<cgroup::Error> for Error {
    fn from(error: cgroup::Error) -> Self {
        Self::Cgroup(error)
    }
}

impl From<bpf::Error> for Error {
    fn from(error: bpf::Error) -> Self {
        Self::Bpf(error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cgroup(error) => error.fmt(f),
            Self::Bpf(error) => error.fmt(f),
            Self::Path(path) => write!(f, "{path} is no path of a cgroup"),
        }
    }
}

impl std::error::Error for Error {}
