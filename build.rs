//! Linker flags, those of the PAM module and the unwinder for the programs; and the name of this build.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // dlclose(3) at pam_end(3) would take away code that thread-local destructors still point to.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,relro,-z,now");
    // Only what is called: pam-sys asks for libpam_misc, which belongs to applications.
    println!("cargo:rustc-cdylib-link-arg=-Wl,--as-needed");
    take_unwinder_in();
    name_build();
}

/// The version with a checksum of the source (FNV-1a): a build with a patch has the same version, and may
/// speak another protocol.
fn name_build() {
    println!("cargo:rerun-if-changed=src");
    let mut files = files(Path::new("src"));
    // An editor's own files come and go between the two builds of module and helper.
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

/// All files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let below = |path: PathBuf| if path.is_dir() { files(&path) } else { vec![path] };
    entries.flat_map(|entry| below(entry.path())).collect()
}

/// Has the linker take the compiler's unwinder into the programs, where it would name the shared
/// libgcc_s, which takes a ninth of their start to find, map and link. A compiler that comes without
/// the archive leaves it as it was.
fn take_unwinder_in() {
    println!("cargo:rerun-if-env-changed=CC");
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let archive = Command::new(compiler).arg("-print-file-name=libgcc_eh.a").output();
    // Where there is none, its name comes back without a folder.
    let found = |output: std::process::Output| output.stdout.starts_with(b"/");
    let out = std::env::var_os("OUT_DIR");
    if let (Ok(true), Some(out)) = (archive.map(found), out) {
        let stand_in = Path::new(&out).join("libgcc_s.so");
        if std::fs::write(&stand_in, "INPUT(-lgcc_eh -lgcc)\n").is_ok() {
            println!("cargo:rustc-link-arg-bins=-L{}", Path::new(&out).display());
        }
    }
}
