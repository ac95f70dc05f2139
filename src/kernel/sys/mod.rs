//! Every unsafe block of the crate but the command's own and those at the C edge, each with its
//! argument for safety.
//!
//! Functions here are thin: one system call, owned descriptors in and out, errors as
//! [`std::io::Error`]. Callers decide when to call them.

#![allow(unsafe_code)]

pub mod bpf;
pub mod child;
pub mod clock;
pub mod file;
pub mod process;

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// Turns the `-1` of a raw system call into the error in `errno`.
pub fn checked(result: libc::c_long) -> io::Result<libc::c_long> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// The descriptor that a raw system call has answered with, or the error in `errno`.
///
/// # Safety
/// `result` is of a call that makes a descriptor.
pub(crate) unsafe fn made_fd(result: libc::c_long) -> io::Result<OwnedFd> {
    let fd = RawFd::try_from(checked(result)?).map_err(|_| io::ErrorKind::InvalidData)?;
    // SAFETY: the kernel has just made this descriptor for us; nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
