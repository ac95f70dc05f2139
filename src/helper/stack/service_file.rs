//! The service files below a root, read as libpam reads them.

use super::entry::FileLine;
use super::file::{open_file, read_if_regular};
use super::image::resolve_below;
use nix::sys::stat::makedev;
use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::Metadata;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// A file and the bytes that replace its content on the disk.
pub(super) type Replacement<'a> = Option<(&'a Path, &'a [u8])>;

/// The service files below a root. Each is read once.
#[derive(Debug)]
pub(super) struct Files<'a> {
    pub(super) root: &'a Path,
    contents: RefCell<BTreeMap<PathBuf, Vec<u8>>>,
}

impl<'a> Files<'a> {
    /// Returns the files, of which one may be replaced.
    pub(super) fn new(root: &'a Path, replacement: Replacement<'_>) -> Self {
        let replaced = replacement.map(|(path, bytes)| (path.to_owned(), bytes.to_owned()));
        Self {
            root,
            contents: RefCell::new(replaced.into_iter().collect()),
        }
    }

    /// Reads a file, as [`read_service_file`] does, at most once. The replaced file has its new content.
    pub(super) fn read(&self, path: &Path) -> std::io::Result<Vec<u8>> {
        if let Some(bytes) = self.contents.borrow().get(path) {
            return Ok(bytes.clone());
        }
        let bytes = read_service_file(self.root, path)?;
        self.contents
            .borrow_mut()
            .insert(path.to_owned(), bytes.clone());
        Ok(bytes)
    }
}

/// A service file and its content.
pub(super) struct ServiceFile {
    pub(super) path: PathBuf,
    pub(super) bytes: Vec<u8>,
}

impl ServiceFile {
    /// Returns the content as text. Bytes of another encoding than UTF-8 become U+FFFD, which is in no
    /// word that libpam knows.
    pub(super) fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.bytes)
    }

    /// The position of a line of this file.
    pub(super) fn place(&self, line: usize) -> FileLine {
        FileLine {
            file: self.path.clone(),
            line,
        }
    }
}

/// Reads a service file of the node below `root` as libpam does: it follows links and checks no owner. Empty for a file without lines
/// ([`has_no_lines`]).
///
/// # Errors
///
/// The error of the system call; a file of another type, with more than a mebibyte, or with a NUL.
pub(super) fn read_service_file(root: &Path, path: &Path) -> std::io::Result<Vec<u8>> {
    let (file, status) = open_file(&resolve_below(root, path))?;
    if has_no_lines(&status) {
        return Ok(Vec::new());
    }
    let bytes = read_if_regular(file, &status, FILE_BYTES_MAX)?;
    if bytes.contains(&0) {
        return Err(std::io::Error::other("not a text"));
    }
    Ok(bytes)
}

/// Returns whether libpam opens the file and comes to its end at once: `/dev/null`, or a folder.
pub(super) fn has_no_lines(status: &Metadata) -> bool {
    let is_null = status.file_type().is_char_device() && status.rdev() == makedev(1, 3);
    is_null || status.is_dir()
}
