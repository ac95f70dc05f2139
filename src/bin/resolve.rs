//! `resolve`: the unprivileged half, run by the PAM module at each login.

#![cfg_attr(not(test), no_main)]
#![allow(unsafe_code)]

/// The `main` of C. Rust's own would first look at descriptors, at the stack and at its guard page:
/// a twentieth of what a login waits for.
#[cfg(not(test))]
#[unsafe(no_mangle)]
pub extern "C" fn main() -> libc::c_int {
    // SAFETY: a disposition that is there for good; nothing else runs yet. A scheduler that closes a
    // connection is an error to tell of, and no end.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
    pam_job_adopt::helper::main()
}
