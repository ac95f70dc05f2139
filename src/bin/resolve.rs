//! `resolve`: the unprivileged half, run by the PAM module at each login.

#![cfg_attr(not(test), no_main)]
#![allow(unsafe_code)]

/// The `main` of C. Rust's own would first look at descriptors, at the stack and at its guard page:
/// a twentieth of what a login waits for.
#[cfg(not(test))]
#[unsafe(no_mangle)]
pub extern "C" fn main() -> std::ffi::c_int {
    helper::main()
}
