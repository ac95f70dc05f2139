//! Opens and uses pidfds, descriptors that stand for a process. A signal through one cannot hit another
//! process that has got the number since.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

/// Opens a descriptor for a process.
///
/// # Errors
///
/// `ESRCH` without such a process; `ENOSYS` before Linux 5.3.
pub fn pidfd_open(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: the call takes numbers only.
    let result = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    // SAFETY: the call makes a descriptor.
    unsafe { super::fd_from_syscall(result) }
}

/// Sends a signal to the process behind a descriptor.
///
/// # Errors
///
/// `ESRCH` for a process that is gone; `EPERM` for a process that the caller may not signal.
pub fn pidfd_send_signal(pidfd: BorrowedFd<'_>, signal: i32) -> io::Result<()> {
    // SAFETY: for a null siginfo the kernel fills one in, as kill(2) does.
    super::checked(unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            pidfd.as_raw_fd(),
            signal,
            std::ptr::null::<libc::siginfo_t>(),
            0,
        )
    })
    .map(drop)
}
