//! Passes linker flags for the PAM module.

use std::path::PathBuf;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // dlclose(3) in pam_end(3) would unload code that thread-local destructors still point to.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,relro,-z,now");
    // Link only libraries that are called: pam-sys asks for libpam_misc, which is for applications.
    println!("cargo:rustc-cdylib-link-arg=-Wl,--as-needed");
    if let Some(folder) = replace_shared_unwinder() {
        println!("cargo:rustc-cdylib-link-arg=-L{}", folder.display());
    }
}

/// Writes a linker script that stands in for the shared libgcc_s, and returns its folder. With it the linker takes the
/// compiler's unwinder into what it links. Otherwise that would name libgcc_s, which the loader has to find, map and
/// link: half of the time to load the module, and a ninth of the start of a program. rustc's list of exports keeps
/// the unwinder's functions local, so no other library calls them. A compiler without the archive keeps its default.
pub(crate) fn replace_shared_unwinder() -> Option<PathBuf> {
    println!("cargo:rerun-if-env-changed=CC");
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let archive = Command::new(compiler)
        .arg("-print-file-name=libgcc_eh.a")
        .output()
        .ok()?;
    // Without the archive the compiler prints its name without a folder.
    if !archive.stdout.starts_with(b"/") {
        return None;
    }
    let folder = PathBuf::from(std::env::var_os("OUT_DIR")?);
    std::fs::write(folder.join("libgcc_s.so"), "INPUT(-lgcc_eh -lgcc)\n").ok()?;
    Some(folder)
}
