//! The folders in which libpam looks for service files. Which they are was decided when it was built
//! (`--enable-vendordir`), so its file is asked: the paths are constants in it.

use std::io::Read;
use std::path::{Path, PathBuf};

use super::libpam::open_library;

/// The site's folder, which every libpam reads first.
pub(super) const SITE_DIR: &str = "etc/pam.d";
/// The distribution's folder, unless libpam has others.
const DISTRIBUTION_DIR: &str = "/usr/lib/pam.d";
/// How the paths end in libpam's constants: the folder, and the format of a file's name.
const PATH_ENDS: [&str; 2] = ["/pam.d", "/pam.d/%s"];
/// Maximum length of a folder's path.
const PATH_BYTES_MAX: usize = 128;

/// Returns the folders that libpam reads below `root`, in its order: the site's, then those of the
/// distribution.
pub fn service_dirs(root: &Path) -> Vec<PathBuf> {
    std::iter::once(root.join(SITE_DIR))
        .chain(vendor_dirs(root))
        .collect()
}

/// Returns the folders of the distribution that libpam reads, in its order; the usual one if the library is not found
/// or names none.
pub(super) fn vendor_dirs(root: &Path) -> Vec<PathBuf> {
    let mut library = Vec::new();
    if let Some(mut file) = open_library(root) {
        // A library that cannot be read names no folder.
        let _ = file.read_to_end(&mut library);
    }
    let mut dirs = find_dirs(&library);
    dirs.retain(|dir| dir.trim_start_matches('/') != SITE_DIR);
    // libpam reads the distribution's usual folder first, and one that it was built with (`--enable-vendordir`) last.
    dirs.sort_by_key(|dir| dir != DISTRIBUTION_DIR);
    if dirs.is_empty() {
        dirs.push(DISTRIBUTION_DIR.to_owned());
    }
    dirs.iter()
        .map(|dir| root.join(dir.trim_start_matches('/')))
        .collect()
}

/// Returns the folders that constants of a library name, each once: texts before a NUL that have the form of
/// [`PATH_ENDS`].
fn find_dirs(library: &[u8]) -> Vec<String> {
    let constants = library
        .split(|byte| *byte == 0)
        .filter(|text| text.len() <= PATH_BYTES_MAX);
    let mut dirs: Vec<String> = Vec::new();
    for text in constants.filter_map(|bytes| std::str::from_utf8(bytes).ok()) {
        let is_path = text.starts_with('/') && text.bytes().all(|byte| byte.is_ascii_graphic());
        if is_path && PATH_ENDS.iter().any(|end| text.ends_with(end)) {
            let dir = text.trim_end_matches("/%s").to_owned();
            if !dirs.contains(&dir) {
                dirs.push(dir);
            }
        }
    }
    dirs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;

    #[test]
    fn folders_are_those_of_libpam() {
        let root = Path::new("/image");
        let dirs = |library: &str| {
            let scratch = Scratch::new();
            scratch.file("usr/lib64/libpam.so.0", library);
            let below = |dir: &PathBuf| dir.strip_prefix(scratch.path()).unwrap().to_owned();
            service_dirs(scratch.path())
                .iter()
                .map(below)
                .collect::<Vec<_>>()
        };
        let [etc, lib, vendor] = ["etc/pam.d", "usr/lib/pam.d", "usr/etc/pam.d"].map(PathBuf::from);
        let plain = "\0x\0/etc/pam.d/%s\0/usr/lib/pam.d/%s\0/etc/pam.d\0pam.d/%s\0";
        assert_eq!(dirs(plain), [etc.clone(), lib.clone()]);
        let with_vendor = format!("/usr/etc/pam.d/%s\0{plain}");
        assert_eq!(
            dirs(&with_vendor),
            [etc.clone(), lib.clone(), vendor.clone()]
        );
        assert_eq!(
            dirs("\0/etc/pam.d/%s\0/usr/etc/pam.d/%s\0"),
            [etc.clone(), vendor]
        );
        assert_eq!(dirs("\x7fELF"), [etc, lib]);
        assert_eq!(
            service_dirs(root),
            [root.join("etc/pam.d"), root.join("usr/lib/pam.d")]
        );
    }

    #[test]
    fn folders_of_this_machines_libpam_are_found() {
        let dirs = service_dirs(Path::new("/"));
        assert_eq!(dirs.first().unwrap(), Path::new("/etc/pam.d"));
    }
}
