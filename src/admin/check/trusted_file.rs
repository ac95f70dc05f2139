//! Files that only root may have written.

use super::remedy::{Remedy, run, shell_path};
use kernel::trust::{Distrust, Trust, TrustError};
use nix::errno::Errno;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Names the remedy for a file or directory that others can write or the helper cannot read. What others could write
/// has no command: one that gave it to root would make root's what they have written.
pub(super) fn trust_remedy(error: &TrustError) -> Remedy {
    let path = shell_path(error.path());
    if is_exposed(error) {
        return format!(
            "others could write {path}: look at it, and at what is in it, and replace what root did not write; only \
             then chown root: {path} && chmod go-w {path}"
        )
        .into();
    }
    match error.cause() {
        // It keeps its owner: a user's file is the next finding.
        Distrust::Open(Errno::EACCES) => run(format!("chmod a+rX {path}")),
        _ => format!("replace {path} by one that only root can write").into(),
    }
}

/// Checks whether others than root could have written the file, or what is in the directory.
pub(super) fn is_exposed(error: &TrustError) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_that_others_could_write_is_looked_at_before_it_becomes_roots() {
        let remedy = |cause| trust_remedy(&TrustError::new(Path::new("/etc/x"), cause));
        for cause in [Distrust::WrongOwner(7), Distrust::Writable(0o666)] {
            let Remedy { command, advice } = remedy(cause);
            assert_eq!(command, "");
            assert!(advice.contains("others could write /etc/x: look at it"));
        }
        let unreadable = remedy(Distrust::Open(Errno::EACCES));
        assert_eq!(unreadable.command, "chmod a+rX /etc/x");
    }
}
