//! Linker flags of the PAM module.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // dlclose(3) at pam_end(3) would take away code that thread-local destructors still point to.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,relro,-z,now");
    // Only what is called: pam-sys asks for libpam_misc, which belongs to applications.
    println!("cargo:rustc-cdylib-link-arg=-Wl,--as-needed");
}
