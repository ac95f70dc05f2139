//! Pseudo-terminals (ioctl_tty(2), pty(7)).

use kernel::sys::checked;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Rows and columns of a terminal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WindowSize(libc::winsize);

/// Reads the window size of a terminal.
///
/// # Errors
///
/// `ENOTTY` for a file that is no terminal.
pub(crate) fn window_size(terminal: BorrowedFd<'_>) -> io::Result<WindowSize> {
    let mut size = libc::winsize {
        ws_row: 0,
        ws_col: 0,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // SAFETY: TIOCGWINSZ writes a winsize, for which the pointer is good.
    let result = unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCGWINSZ, &raw mut size) };
    checked(result.into()).map(|_| WindowSize(size))
}

/// Sets the window size of a terminal; its foreground processes get `SIGWINCH` if it is another.
///
/// # Errors
///
/// `ENOTTY` for a file that is no terminal.
pub(crate) fn set_window_size(terminal: BorrowedFd<'_>, size: WindowSize) -> io::Result<()> {
    // SAFETY: TIOCSWINSZ reads a winsize, for which the pointer is good.
    let result = unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCSWINSZ, &raw const size.0) };
    checked(result.into()).map(drop)
}

/// Opens the other end of a pseudo-terminal, whatever its path is and whatever is mounted there.
///
/// # Errors
///
/// `ENOTTY` if `master` is none; as `open(2)`.
pub(crate) fn open_terminal_of_master(master: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    // A new pseudo-terminal is locked until its master allows others to open it.
    let unlocked: libc::c_int = 0;
    // SAFETY: TIOCSPTLCK reads an int, for which the pointer is good.
    let result = unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCSPTLCK, &raw const unlocked) };
    checked(result.into())?;
    let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
    // SAFETY: TIOCGPTPEER takes flags of open(2).
    let fd = unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCGPTPEER, flags) };
    checked(fd.into())?;
    // SAFETY: the kernel has just made this descriptor for us, and no other code has its number.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Makes a terminal the controlling one of this process, which leads a session without one.
///
/// # Errors
///
/// `EPERM` if the process leads no session, or another session has the terminal.
pub(crate) fn take_controlling_terminal(terminal: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: TIOCSCTTY takes a number.
    let result = unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCSCTTY, 0) };
    checked(result.into()).map(drop)
}
