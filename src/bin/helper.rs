//! `helper`: the unprivileged half; the PAM module runs it at each login.

#![cfg_attr(not(test), no_main)]
#![allow(unsafe_code)]

/// Runs the helper as C's `main`. The `main` of Rust would first check descriptors, the stack and its
/// guard page, for a twentieth of a login's waiting time.
#[cfg(not(test))]
#[unsafe(no_mangle)]
pub extern "C" fn main() -> std::ffi::c_int {
    helper::main()
}
