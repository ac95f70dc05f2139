//! Names this build. Module and helper of different builds refuse each other.

use std::path::{Path, PathBuf};

fn main() {
    println!("cargo:rerun-if-changed=.");
    name_build(Path::new("."));
}

/// Names the build by its version and a checksum of the source below a folder (FNV-1a). A patched build
/// has the same version and may have another protocol. A file that cannot be read counts as empty.
pub(crate) fn name_build(folder: &Path) {
    let mut files = list_files(folder);
    // Files of an editor come and go between the builds of module and helper.
    files.retain(|path| path.extension().is_some_and(|end| end == "rs"));
    files.sort();
    let mut sum = 0xcbf2_9ce4_8422_2325_u64;
    for path in files {
        let text = std::fs::read(&path).unwrap_or_default();
        for byte in path.as_os_str().as_encoded_bytes().iter().chain(&text) {
            sum = (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        }
    }
    let version = std::env::var("CARGO_PKG_VERSION").unwrap_or_default();
    println!("cargo:rustc-env=BUILD={version}+{:08x}", sum >> 32);
}

/// Lists all files below a folder, in no order. What cannot be read is left out.
fn list_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            files.extend(list_files(&path));
        } else {
            files.push(path);
        }
    }
    files
}
