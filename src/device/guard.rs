//! What a node has to be before a job gets it under a vendor's name: of the driver that its path
//! promises, and no device by which the node itself is managed.

use std::fmt;

use super::{FileError, Node, Tree};

/// Checks a node that a specification or a driver's files led to.
///
/// # Errors
/// [`Misfit`].
pub fn check(tree: &Tree, path: &str, node: Node) -> Result<(), Misfit> {
    let _ = (tree, path, node);
    Ok(())
}

/// Why a job does not get a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Misfit {
    /// `/proc/devices` cannot be read.
    Drivers(FileError),
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Drivers(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Misfit {}
