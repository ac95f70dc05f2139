//! Extended attributes, for those who take them away.

use crate::kernel::sys::checked;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Removes an extended attribute of an open file.
/// Errors: `ENODATA` when there is none.
pub(crate) fn remove_xattr(fd: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
    // SAFETY: the name is NUL-terminated.
    checked(unsafe { libc::fremovexattr(fd.as_raw_fd(), name.as_ptr()) }.into()).map(drop)
}
