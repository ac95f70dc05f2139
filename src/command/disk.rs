//! Changes of folders that are on the disk when a function returns: a power cut takes none of them back.

use crate::error::Error;
use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::symlink;
use std::path::Path;

/// Writes a folder to the disk: which names are in it, and for what.
///
/// # Errors
///
/// The errors of `open(2)` and `fsync(2)`.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Writes the folder of a file or link to the disk.
///
/// # Errors
///
/// As [`sync_folder`].
pub fn sync_folder_of(path: &Path) -> io::Result<()> {
    sync_folder(path.parent().unwrap_or(Path::new("/")))
}

/// Removes a file or link.
///
/// # Errors
///
/// [`ErrorKind::NotFound`] if there is none; after another failure it may be gone until the next power cut.
pub fn remove_file(path: &Path) -> io::Result<()> {
    fs::remove_file(path)?;
    sync_folder_of(path)
}

/// Gives a file or link another name in its folder.
///
/// # Errors
///
/// The errors of `rename(2)`, and those of [`sync_folder`].
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)?;
    sync_folder_of(to)
}

/// Makes a symbolic link.
///
/// # Errors
///
/// The errors of `symlink(2)`, and those of [`sync_folder`].
pub fn link(target: &Path, link: &Path) -> io::Result<()> {
    symlink(target, link)?;
    sync_folder_of(link)
}

/// Makes a folder and those above it, as far as they are missing.
///
/// # Errors
///
/// [`Error::Failed`] with the folder that cannot be made.
pub fn make_folder(folder: &Path) -> Result<(), Error> {
    if folder.is_dir() {
        return Ok(());
    }
    if let Some(above) = folder.parent() {
        make_folder(above)?;
    }
    let made = match DirBuilder::new().create(folder) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        other => other,
    };
    made.and_then(|()| sync_folder_of(folder))
        .map_err(|error| Error::failed("make", folder.display(), error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;

    #[test]
    fn folders_are_made_below_those_that_are_there() {
        let scratch = Scratch::new();
        let folder = scratch.path().join("a/b/c");
        make_folder(&folder).unwrap();
        make_folder(&folder).unwrap();
        assert!(folder.is_dir());
        let file = scratch.file("file", "");
        let error = make_folder(&file.join("x")).unwrap_err().to_string();
        assert!(
            error.starts_with(&format!("make {}", file.display())),
            "{error}"
        );
    }
}
