//! Replaces a file atomically.

use crate::disk;
use crate::error::Error;
use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

/// Replaces a file atomically: readers see the old or the new content, also after a crash. The file gets
/// the owner and mode of `like`, else root's and 0644.
///
/// # Errors
///
/// [`Error::Failed`] with the cause. The old file then stays, unless only its folder could not be written to
/// the disk.
pub fn replace_file(
    path: &Path,
    content: impl AsRef<[u8]>,
    like: Option<&Metadata>,
) -> Result<(), Error> {
    let new = new_path(path);
    let written = write_new(&new, content.as_ref(), like).and_then(|()| disk::rename(&new, path));
    written.map_err(|error| {
        let _ = fs::remove_file(&new);
        Error::failed("write", path.display(), error)
    })
}

/// Returns the path of the new file until it replaces the old one. An interrupted call leaves a file there.
pub fn new_path(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.job-adopt"))
}

/// Writes a new file with the owner and mode of `like`, else those of a new file and 0644. It takes the place of one
/// that an interrupted call has left.
fn write_new(path: &Path, content: &[u8], like: Option<&Metadata>) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = File::create_new(path)?;
    file.write_all(content)?;
    if let Some(like) = like {
        fchown(&file, Some(like.uid()), Some(like.gid()))?;
    }
    let mode = like.map_or(0o644, |like| like.mode() & 0o7777);
    file.set_permissions(fs::Permissions::from_mode(mode))?;
    file.sync_all()
}
