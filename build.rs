//! Linker flags: those of the PAM module, and the unwinder for the programs.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // dlclose(3) at pam_end(3) would take away code that thread-local destructors still point to.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,relro,-z,now");
    // Only what is called: pam-sys asks for libpam_misc, which belongs to applications.
    println!("cargo:rustc-cdylib-link-arg=-Wl,--as-needed");
    take_unwinder_in();
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
