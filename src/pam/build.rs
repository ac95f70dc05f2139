//! Passes linker flags for the PAM module.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // dlclose(3) in pam_end(3) would unload code that thread-local destructors still point to.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,relro,-z,now");
    // Link only libraries that are called: pam-sys asks for libpam_misc, which is for applications.
    println!("cargo:rustc-cdylib-link-arg=-Wl,--as-needed");
}
