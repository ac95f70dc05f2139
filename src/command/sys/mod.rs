//! The unsafe blocks that only the command needs, each with its argument for safety. Blocks that the
//! module shares are in [`kernel::sys`].

#![allow(unsafe_code)]

pub mod process;

use kernel::sys::checked;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Removes an extended attribute of an open file.
///
/// # Errors
///
/// `ENODATA` if there is none, and the other errors of `fremovexattr(2)`.
pub fn remove_xattr(fd: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
    // SAFETY: the name is NUL-terminated.
    checked(unsafe { libc::fremovexattr(fd.as_raw_fd(), name.as_ptr()) }.into()).map(drop)
}
