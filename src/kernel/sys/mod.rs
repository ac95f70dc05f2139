//! Wraps system calls that need unsafe code. The crate has no unsafe block elsewhere, and each block has its
//! argument for safety.
//!
//! Functions here are thin: one system call, owned descriptors in and out, errors as
//! [`std::io::Error`]. Callers decide when to call them.

#![allow(unsafe_code)]

pub mod attributes;
pub mod bpf;
pub mod child;
pub mod clock;
pub mod file;
pub mod nsfs;
pub mod pidfd;
pub mod socket;

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// Turns the `-1` of a raw system call into the error in `errno`.
///
/// # Errors
///
/// The error of the system call.
pub fn checked(result: libc::c_long) -> io::Result<libc::c_long> {
    if result == -1 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// Takes over the descriptor that a raw system call has returned.
///
/// # Errors
///
/// The error of the system call.
///
/// # Safety
///
/// `result` is of a call that makes a descriptor.
pub(crate) unsafe fn fd_from_syscall(result: libc::c_long) -> io::Result<OwnedFd> {
    let fd = RawFd::try_from(checked(result)?).map_err(|_| io::ErrorKind::InvalidData)?;
    // SAFETY: the kernel has just made this descriptor for us, and no other code has its number.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
