//! Adds the unwinder to the programs, and names this build.

use std::path::Path;

#[path = "src/pam/build.rs"]
#[allow(dead_code, reason = "its own entry point")]
mod pam;
#[path = "src/protocol/build.rs"]
#[allow(dead_code, reason = "its own entry point")]
mod protocol;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if let Some(folder) = pam::replace_shared_unwinder() {
        println!("cargo:rustc-link-arg-bins=-L{}", folder.display());
    }
    println!("cargo:rerun-if-changed=src");
    protocol::name_build(Path::new("src"));
}
