//! Files that only root may have written.

use kernel::trust::{Distrust, Trust, TrustError};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The mode bit for those who neither own a file nor are in its group.
pub const EXECUTE_BY_OTHERS: u32 = 0o001;

/// Finds the first folder above a file that does not let every user pass; `None` if all do, or cannot be looked at.
pub fn find_closed_folder(path: &Path) -> Option<&Path> {
    let mut folders: Vec<&Path> = path.ancestors().skip(1).collect();
    folders.reverse();
    folders.into_iter().find(|folder| {
        folder
            .metadata()
            .is_ok_and(|meta| meta.mode() & EXECUTE_BY_OTHERS == 0)
    })
}

/// Checks whether others than root could have written the file, or what is in the directory.
pub fn is_exposed(error: &TrustError) -> bool {
    matches!(
        error.cause(),
        Distrust::WrongOwner(_) | Distrust::Writable(_)
    )
}

/// Checks that only root can have written a file; returns its mode.
///
/// # Errors
///
/// [`TrustError`] for a file or a folder that others may write, and for anything but a regular file.
pub fn require_trusted(trust: &Trust, path: &Path) -> Result<u32, TrustError> {
    if let Some(parent) = path.parent() {
        trust.dir(parent)?;
    }
    let meta = path
        .symlink_metadata()
        .map_err(|error| TrustError::from_error("look at", path, error))?;
    if !meta.is_file() {
        return Err(TrustError::new(path, Distrust::NotRegular));
    }
    trust.check_owner(meta.uid(), meta.mode(), path)?;
    Ok(meta.mode() & 0o7777)
}
