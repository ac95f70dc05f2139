//! Lists directories that only root can have filled.

use kernel::trust::{Distrust, TrustError, TrustedDir};
use nix::dir::Dir;
use nix::fcntl::{AtFlags, OFlag};
use nix::sys::stat::{Mode, SFlag, fstatat, makedev};
use std::path::Path;

/// An entry of a trusted directory.
#[derive(Debug)]
pub enum TrustedEntry {
    /// A directory that is trusted itself.
    Dir(TrustedDir),
    /// A regular file.
    File,
    /// The device `/dev/null`, as it is mounted over a file.
    NullDevice,
    /// A symbolic link, a pipe, a socket or another device.
    Other,
}

/// Lists the names in a directory that do not begin with a dot, sorted. Invalid UTF-8 is replaced;
/// no name that this crate accepts has a replacement character.
///
/// # Errors
///
/// [`Distrust::Open`] if the directory cannot be listed, [`Distrust::TooManyNames`] if it has more than
/// `max` names.
pub fn list_visible_names(dir: &TrustedDir, max: usize) -> Result<Vec<String>, TrustError> {
    list_filtered(dir, max, |name| !name.starts_with('.'))
}

/// Lists the names in a directory, sorted, including those that begin with a dot.
///
/// # Errors
///
/// The errors of [`list_visible_names`].
pub fn list_all_names(dir: &TrustedDir, max: usize) -> Result<Vec<String>, TrustError> {
    list_filtered(dir, max, |name| name != "." && name != "..")
}

/// Lists the sorted names in a directory that `is_wanted` accepts; only these count against `max`.
fn list_filtered(
    dir: &TrustedDir,
    max: usize,
    is_wanted: fn(&str) -> bool,
) -> Result<Vec<String>, TrustError> {
    let failed = |errno| TrustError::new(dir.path(), Distrust::Open(errno));
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let listing = Dir::openat(dir, ".", flags, Mode::empty()).map_err(failed)?;
    let mut names = Vec::new();
    for entry in listing.into_iter() {
        let name = entry
            .map_err(failed)?
            .file_name()
            .to_string_lossy()
            .into_owned();
        if !is_wanted(&name) {
            continue;
        }
        if names.len() >= max {
            return Err(TrustError::new(dir.path(), Distrust::TooManyNames(max)));
        }
        names.push(name);
    }
    names.sort_unstable();
    Ok(names)
}

/// Reads the type of the entry with this name, without opening it. Only root can have named a file
/// in a trusted directory, so a file needs no check of its own.
///
/// # Errors
///
/// [`TrustError`] if the entry is missing, or is a directory that `Trust::dir` would not trust.
pub fn read_entry(dir: &TrustedDir, name: &Path) -> Result<TrustedEntry, TrustError> {
    let stat = fstatat(dir, name, AtFlags::AT_SYMLINK_NOFOLLOW)
        .map_err(|errno| TrustError::new(&dir.path().join(name), Distrust::Open(errno)))?;
    match SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT {
        SFlag::S_IFDIR => dir.dir(name).map(TrustedEntry::Dir),
        SFlag::S_IFREG => Ok(TrustedEntry::File),
        SFlag::S_IFCHR if stat.st_rdev == makedev(1, 3) => Ok(TrustedEntry::NullDevice),
        _ => Ok(TrustedEntry::Other),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use kernel::trust::Trust;

    use super::*;
    use crate::testing::Scratch;

    #[test]
    fn names_are_sorted_and_bounded() {
        let scratch = Scratch::new();
        for name in ["d/b", "d/a", "d/.hidden"] {
            scratch.file(name, "");
        }
        let dir = scratch.trust().dir(&scratch.path().join("d")).unwrap();
        assert_eq!(
            list_visible_names(&dir, 2),
            Ok(vec!["a".to_owned(), "b".to_owned()])
        );
        assert_eq!(
            list_visible_names(&dir, 1).unwrap_err().cause(),
            &Distrust::TooManyNames(1)
        );
        assert_eq!(list_all_names(&dir, 3).unwrap(), [".hidden", "a", "b"]);
        assert_eq!(
            list_all_names(&dir, 2).unwrap_err().cause(),
            &Distrust::TooManyNames(2)
        );
    }

    #[test]
    fn entries_are_classified_unopened() {
        let scratch = Scratch::new();
        for name in ["d/file", "d/dir/x", "d/open/x"] {
            scratch.file(name, "");
        }
        scratch.mode("d/open", 0o777);
        symlink("file", scratch.path().join("d/link")).unwrap();
        symlink("dir", scratch.path().join("d/linked-dir")).unwrap();
        nix::unistd::mkfifo(&scratch.path().join("d/fifo"), Mode::S_IRUSR).unwrap();
        let dir = scratch.trust().dir(&scratch.path().join("d")).unwrap();
        let entry = |name: &str| read_entry(&dir, Path::new(name));
        assert!(matches!(entry("file"), Ok(TrustedEntry::File)));
        assert!(
            matches!(entry("dir"), Ok(TrustedEntry::Dir(below)) if below.path().ends_with("d/dir"))
        );
        for name in ["link", "linked-dir", "fifo"] {
            assert!(matches!(entry(name), Ok(TrustedEntry::Other)), "{name}");
        }
        assert_eq!(
            entry("open").unwrap_err().cause(),
            &Distrust::Writable(0o777)
        );
        assert!(entry("none").unwrap_err().is_missing());
        let dev = Trust::below(Path::new("/dev"), 0)
            .dir(Path::new("/dev"))
            .unwrap();
        let null = read_entry(&dev, Path::new("null"));
        assert!(matches!(null, Ok(TrustedEntry::NullDevice)));
        let zero = read_entry(&dev, Path::new("zero"));
        assert!(matches!(zero, Ok(TrustedEntry::Other)));
    }
}
