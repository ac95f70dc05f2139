//! A list of devices as a directory: each is named by a file, whose content does not matter.

use std::fmt;
use std::path::Path;

use super::{Named, Tree};

/// The devices that a directory lists.
///
/// # Errors
/// [`DirectoryError`].
pub fn read(tree: &Tree, path: &Path) -> Result<Vec<Named>, DirectoryError> {
    let _ = (tree, path);
    Err(DirectoryError::Later)
}

/// Why a directory lists nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DirectoryError {
    /// Not there yet.
    Later,
}

impl fmt::Display for DirectoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("this version cannot resolve it")
    }
}

impl std::error::Error for DirectoryError {}
