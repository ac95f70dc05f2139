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

/// Has every descriptor above standard error close when a program is executed, whoever opened it
/// and left it open to programs. Until then all of them stay usable.
///
/// # Errors
/// As `readdir(3)` of `/proc/self/fd`, where the kernel has no `close_range(2)` for it.
pub fn keep_standard_descriptors_only() -> io::Result<()> {
    let first: libc::c_uint = 3;
    // SAFETY: the call takes numbers only, and closes nothing before an execve(2).
    let result = unsafe {
        libc::syscall(
            libc::SYS_close_range,
            first,
            libc::c_uint::MAX,
            libc::CLOSE_RANGE_CLOEXEC as libc::c_uint,
        )
    };
    match super::checked(result) {
        Ok(_) => Ok(()),
        // Before Linux 5.11, and under seccomp filters that do not know the call.
        Err(_) => mark_one_by_one(),
    }
}

fn mark_one_by_one() -> io::Result<()> {
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| name.parse::<libc::c_int>().ok());
        if let Some(number) = number.filter(|number| *number > 2) {
            // SAFETY: sets a flag by which nobody's memory is affected; that of the listing, which
            // stands in it as well, is set already.
            unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) };
        }
    }
    Ok(())
}

/// Takes every variable from the environment of this process, where it has one thread only; with
/// more it does nothing.
pub fn clear_environment() {
    let threads = std::fs::read_dir("/proc/self/task").map(Iterator::count);
    if threads.is_ok_and(|threads| threads == 1) {
        // SAFETY: no other thread can be reading the environment.
        unsafe { libc::clearenv() };
    }
}

/// Whether this process ignores a signal.
///
/// # Errors
/// `EINVAL` for a number that is no signal.
pub fn is_ignored(signal: i32) -> io::Result<bool> {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: changes nothing, and writes a whole structure of this type.
    let result = unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) };
    super::checked(result.into())?;
    // SAFETY: zeroed memory is one already, and the call has succeeded.
    Ok(unsafe { action.assume_init() }.sa_sigaction == libc::SIG_IGN)
}

/// Gives `SIGCHLD` its default disposition: where a caller left it ignored, the kernel would reap
/// children itself and their status would be lost.
pub fn heed_children() {
    // SAFETY: sets a disposition, no handler.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
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

#[cfg(test)]
mod tests {
    use super::*;

    fn closes(file: &std::fs::File) -> bool {
        // SAFETY: reads a flag of a descriptor that is open.
        (unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFD) }) & libc::FD_CLOEXEC != 0
    }

    fn open() -> std::fs::File {
        let file = std::fs::File::open("/dev/null").unwrap();
        // SAFETY: clears a flag of a descriptor that is open.
        unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFD, 0) };
        assert!(!closes(&file));
        file
    }

    #[test]
    fn both_ways_mark_every_descriptor() {
        let file = open();
        keep_standard_descriptors_only().unwrap();
        assert!(closes(&file));
        let file = open();
        mark_one_by_one().unwrap();
        assert!(closes(&file));
    }

    #[test]
    fn what_is_ignored_is_known() {
        // The Rust runtime ignores this one and leaves the other alone.
        assert!(is_ignored(libc::SIGPIPE).unwrap());
        assert!(!is_ignored(libc::SIGUSR2).unwrap());
        assert!(is_ignored(-1).is_err());
    }
}
