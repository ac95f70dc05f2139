//! Files that only root may have written.

use super::remedy::{Remedy, run, shell_path};
use kernel::trust::{Distrust, Trust, TrustError};
use nix::errno::Errno;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Names the remedy for a file or directory that others can write or the helper cannot read.
pub(super) fn trust_remedy(error: &TrustError) -> Remedy {
    let path = shell_path(error.path());
    match error.cause() {
        Distrust::WrongOwner(_)
        | Distrust::Writable(_)
        | Distrust::WrongMode(_)
        | Distrust::Open(Errno::EACCES) => {
            run(format!("chown root: {path} && chmod go-w,a+rX {path}"))
        }
        _ => format!("replace {path} by one that only root can write").into(),
    }
}

/// Checks that only root can have written a file; returns its mode.
///
/// # Errors
///
/// [`TrustError`] for a file or a folder that others may write, and for anything but a regular file.
pub(super) fn require_trusted(trust: &Trust, path: &Path) -> Result<u32, TrustError> {
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
