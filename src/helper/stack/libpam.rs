//! How the libpam of a node reads service files, as far as builds differ.

use super::file::open_file;
use super::image::resolve_below;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// Folders below the root that may have `libpam.so.0`, before those of another word size.
const LIBRARY_FOLDERS: [&str; 4] = ["usr/lib64", "lib64", "usr/lib", "lib"];
/// Folders of PAM modules of one word size, besides those of this program's architecture. libpam looks into one
/// folder: the one with the stock module.
const MODULE_FOLDERS: [&str; 2] = ["usr/lib64/security", "lib64/security"];
/// Folders of PAM modules into which Debian's libpam looks besides its own.
const COMMON_FOLDERS: [&str; 2] = ["usr/lib/security", "lib/security"];
const LIBRARY_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Size of the parts in which a library is searched.
const SEARCH_BYTES: usize = 16 * 1024;
/// A module of every installation of libpam.
const STOCK_MODULE: &str = "pam_permit.so";

/// One way to read service files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reading {
    /// `@include` takes a file in. It is an extension of Debian's and its derivatives' libpam; for others
    /// it is a word that is no group.
    pub(super) has_at_include: bool,
    /// Files that a line names are looked for in `/usr/lib/pam.d`, too. Debian's libpam finds only
    /// services there.
    pub(super) includes_vendor_files: bool,
}

impl Reading {
    const DEBIAN: Self = Self {
        has_at_include: true,
        includes_vendor_files: false,
    };
    const UPSTREAM: Self = Self {
        has_at_include: false,
        includes_vendor_files: true,
    };
    /// Takes in whatever one of the two does.
    pub(super) const WIDEST: Self = Self {
        has_at_include: true,
        includes_vendor_files: true,
    };

    /// Returns the ways in which the node's libpam may read: one if the library can be read, else the widest and
    /// upstream's.
    pub(super) fn possible(root: &Path) -> Vec<Self> {
        let Some(library) = open_library(root) else {
            return vec![Self::WIDEST, Self::UPSTREAM];
        };
        match has_at_include(BufReader::with_capacity(SEARCH_BYTES, library)) {
            Ok(true) => vec![Self::DEBIAN],
            Ok(false) => vec![Self::UPSTREAM],
            Err(_) => vec![Self::WIDEST, Self::UPSTREAM],
        }
    }
}

/// Opens the node's libpam; `None` if it is at none of the usual places. A file above the maximum size counts as none.
pub(super) fn open_library(root: &Path) -> Option<impl Read> {
    let arch = std::env::consts::ARCH;
    let multiarch = ["usr/lib", "lib"].map(|lib| format!("{lib}/{arch}-linux-gnu"));
    let mut folders = multiarch.iter().map(String::as_str).chain(LIBRARY_FOLDERS);
    let library = folders.find_map(|folder| {
        let (file, status) =
            open_file(&resolve_below(root, &root.join(folder).join("libpam.so.0"))).ok()?;
        (status.is_file() && status.len() <= LIBRARY_BYTES_MAX).then_some(file)
    })?;
    Some(library.take(LIBRARY_BYTES_MAX))
}

/// Returns whether a library has the word `@include`. Each login searches it, so it is not held in memory.
fn has_at_include(mut library: impl BufRead) -> io::Result<bool> {
    while library.skip_until(b'@')? > 0 {
        if begins_with(&mut library, b"include\0")? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns whether these bytes come next. Reads no byte that differs: another word may begin there.
fn begins_with(library: &mut impl BufRead, bytes: &[u8]) -> io::Result<bool> {
    for byte in bytes {
        if library.fill_buf()?.first() != Some(byte) {
            return Ok(false);
        }
        library.consume(1);
    }
    Ok(true)
}

/// Returns the folders in which a libpam may look for modules, that of this program's architecture first.
fn list_module_folders(root: &Path) -> impl Iterator<Item = PathBuf> {
    let arch = std::env::consts::ARCH;
    let multiarch = ["usr/lib", "lib"].map(|lib| format!("{lib}/{arch}-linux-gnu/security"));
    let others = MODULE_FOLDERS
        .into_iter()
        .chain(COMMON_FOLDERS)
        .map(str::to_owned);
    multiarch
        .into_iter()
        .chain(others)
        .map(|folder| root.join(folder))
}

/// Returns the folder of PAM modules of the node whose files are below `root`; `None` if it is at none of the usual
/// places. Of several it takes that of this program's architecture, which is sshd's as well.
pub fn find_module_folder(root: &Path) -> Option<PathBuf> {
    list_module_folders(root)
        .find(|folder| resolve_below(root, &folder.join(STOCK_MODULE)).exists())
}

/// Returns the file of a PAM module by the word of a line. A name that no folder has is taken to belong
/// into the usual one; `None` if that is unknown.
pub fn find_module(root: &Path, module: &str) -> Option<PathBuf> {
    if let Some(relative) = module.strip_prefix('/') {
        return Some(root.join(relative));
    }
    let mut files = list_module_folders(root).map(|folder| folder.join(module));
    files
        .find(|file| resolve_below(root, file).exists())
        .or_else(|| Some(find_module_folder(root)?.join(module)))
}

/// Returns whether it is certain that libpam finds no module of that name. It is not for a name without a path on
/// a node whose folder of modules is unknown, and for a name with `$`: libpam replaces `$ISA`, and the loader
/// replaces `$LIB`, by a folder.
pub fn is_missing_module(root: &Path, module: &str) -> bool {
    if module.contains('$') {
        return false;
    }
    if let Some(relative) = module.strip_prefix('/') {
        return !may_exist(root, &root.join(relative));
    }
    let mut has_folder = false;
    for folder in list_module_folders(root) {
        if may_exist(root, &folder.join(STOCK_MODULE)) {
            has_folder = true;
            if may_exist(root, &folder.join(module)) {
                return false;
            }
        }
    }
    if !has_folder {
        return false;
    }
    // Debian's libpam looks into the common folders as well, whether or not they have the stock module.
    let is_common = COMMON_FOLDERS
        .iter()
        .any(|folder| may_exist(root, &root.join(folder).join(module)));
    // Its libpam alone reads `@include`.
    let may_be_debians = || {
        Reading::possible(root)
            .iter()
            .any(|reading| reading.has_at_include)
    };
    let is_found_by_debians = is_common && may_be_debians();
    !is_found_by_debians
}

/// Returns whether the path leads to a file of the node below `root`. Whoever may not look cannot say that it is missing.
pub(super) fn may_exist(root: &Path, path: &Path) -> bool {
    match resolve_below(root, path).metadata() {
        Ok(_) => true,
        Err(error) => error.kind() == std::io::ErrorKind::PermissionDenied,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn word_is_found_wherever_the_parts_of_a_library_end() {
        for (library, expected) in [
            ("\0@include\0", true),
            ("@inc@include\0", true),
            ("@@include\0", true),
            ("@include", false),
            ("@included\0@", false),
            ("", false),
        ] {
            for part_bytes in 1..=library.len().max(1) {
                let parts = BufReader::with_capacity(part_bytes, library.as_bytes());
                assert_eq!(
                    has_at_include(parts).unwrap(),
                    expected,
                    "{library:?} in parts of {part_bytes}"
                );
            }
        }
    }
}
