//! Every unsafe block of the crate but the command's own and two at the C edge, each with its
//! argument for safety.
//!
//! Functions here are thin: one system call or one libpam call, owned descriptors in and out,
//! errors as [`std::io::Error`]. Callers decide when to call them.

#![allow(unsafe_code)]

pub mod bpf;
pub mod child;
pub mod clock;
pub mod file;
pub mod namespace;
pub mod pam;
pub mod process;

use std::io;

/// Turns the `-1` of a raw system call into the error in `errno`.
pub(crate) fn checked(result: libc::c_long) -> io::Result<libc::c_long> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
