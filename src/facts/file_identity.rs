//! Which paths lead to one file.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The device and inode of a file, which its other names share; `None` if it cannot be looked at.
pub fn file_identity(path: &Path) -> Option<(u64, u64)> {
    path.metadata().ok().map(|meta| (meta.dev(), meta.ino()))
}

/// Checks whether two paths lead to one file.
pub fn is_same_file(first: &Path, second: &Path) -> bool {
    let identity = file_identity(first);
    identity.is_some() && identity == file_identity(second)
}
