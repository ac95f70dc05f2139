//! Adds the unwinder to the programs, and names this build.

use std::path::Path;
use std::process::Command;

#[path = "src/protocol/build.rs"]
#[allow(dead_code, reason = "its own entry point")]
mod protocol;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    take_unwinder_in();
    println!("cargo:rerun-if-changed=src");
    protocol::name_build(Path::new("src"));
}

/// Makes the linker take the compiler's unwinder into the programs. Otherwise they would name the
/// shared libgcc_s, which takes a ninth of their start to find, map and link. A compiler without
/// the archive keeps its default.
fn take_unwinder_in() {
    println!("cargo:rerun-if-env-changed=CC");
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let archive = Command::new(compiler)
        .arg("-print-file-name=libgcc_eh.a")
        .output();
    // Without the archive the compiler prints its name without a folder.
    let found = |output: std::process::Output| output.stdout.starts_with(b"/");
    let out = std::env::var_os("OUT_DIR");
    if let (Ok(true), Some(out)) = (archive.map(found), out) {
        let stand_in = Path::new(&out).join("libgcc_s.so");
        if std::fs::write(&stand_in, "INPUT(-lgcc_eh -lgcc)\n").is_ok() {
            println!("cargo:rustc-link-arg-bins=-L{}", Path::new(&out).display());
        }
    }
}
