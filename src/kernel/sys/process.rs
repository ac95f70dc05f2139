//! Descriptors that stand for processes: a signal through one cannot meet a process that took over
//! the number.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// A descriptor that stands for this process, whatever becomes of its number.
/// Errors: `ESRCH` when there is none, `ENOSYS` before Linux 5.3.
pub fn pidfd_open(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: the call takes numbers only.
    let fd = super::checked(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) })?;
    let fd = libc::c_int::try_from(fd).map_err(|_| io::ErrorKind::InvalidData)?;
    // SAFETY: the kernel has just made this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sends a signal to the process behind a descriptor.
/// Errors: `ESRCH` when it is gone, `EPERM` where it is none of ours to signal.
pub fn pidfd_send_signal(pidfd: BorrowedFd<'_>, signal: i32) -> io::Result<()> {
    // SAFETY: a null siginfo means that the kernel fills one in, as kill(2) does.
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
