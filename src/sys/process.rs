//! Processes that a person or a scheduler started: a fork of our own, and signals that cannot meet
//! a process that took over a number.

use nix::unistd::{ForkResult, Pid, fork};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Exit status of a child whose code panicked, as the Rust runtime has it.
const PANICKED: i32 = 101;

/// Forks; the child runs `body` and exits with its result. In the child `SIGPIPE` has its default
/// disposition, which the Rust runtime takes away and a program that is executed would inherit.
///
/// # Errors
/// `EBUSY` in a process of several threads; else as `fork(2)`.
pub fn fork_and(body: impl FnOnce() -> i32) -> io::Result<Pid> {
    if std::fs::read_dir("/proc/self/task")?.count() != 1 {
        return Err(io::Error::from_raw_os_error(libc::EBUSY));
    }
    // SAFETY: there is no other thread that could hold a lock which the child would wait for.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => Ok(child),
        ForkResult::Child => {
            // SAFETY: sets a disposition, no handler.
            unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
            // A panic must not carry the child back into what the parent is doing.
            let status = catch_unwind(AssertUnwindSafe(body)).unwrap_or(PANICKED);
            // SAFETY: ends the child alone; nothing that the parent registered to run at exit is
            // run a second time.
            unsafe { libc::_exit(status) }
        }
    }
}

/// A descriptor that stands for this process, whatever becomes of its number.
///
/// # Errors
/// `ESRCH` when there is none, `ENOSYS` before Linux 5.3.
pub fn pidfd_open(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: the call takes numbers only.
    let fd = super::checked(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) })?;
    let fd = libc::c_int::try_from(fd).map_err(|_| io::ErrorKind::InvalidData)?;
    // SAFETY: the kernel has just made this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sends a signal to the process behind a descriptor.
///
/// # Errors
/// `ESRCH` when it is gone, `EPERM` where it is none of ours to signal.
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
