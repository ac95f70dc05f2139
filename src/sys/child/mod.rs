//! Processes that sshd does not know of: the attendant, the helper that it starts, and the keepers
//! of leaves, which outlive both.
//!
//! The attendant is made by `clone(2)` without an exit signal: no `SIGCHLD` reaches the
//! application, none of its handlers can reap it, and its signal dispositions need no change.
//! After `clone` only system calls happen, on memory that was laid out before.

mod attendant;
mod helper;
mod keeper;

pub use attendant::{AttendantSpec, ORIGINS_MAX, Report, Watch, spawn_attendant};
pub use helper::{HelperSpec, SpawnFailure};
pub use keeper::{Handed, KeeperSpec, spawn_keeper};

use nix::sys::signal::{SIGKILL, SigSet, SigmaskHow, kill, sigprocmask};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A child that nobody else waits for. Dropping it ends and reaps it.
#[derive(Debug)]
pub struct Child(Pid);

impl Drop for Child {
    fn drop(&mut self) {
        let _ = kill(self.0, SIGKILL);
        while waitpid(self.0, Some(WaitPidFlag::__WALL)) == Err(nix::Error::EINTR) {}
    }
}

/// Lowest number for the descriptors that travel to the child, so that the standard ones can be
/// laid over without harm, and the attendant's places after them.
const FD_FLOOR: RawFd = 40;

/// A descriptor of number [`FD_FLOOR`] or above, closed on drop and on exec.
struct RawFdGuard(RawFd);

impl Drop for RawFdGuard {
    fn drop(&mut self) {
        let _ = nix::unistd::close(self.0);
    }
}

fn raise(fd: BorrowedFd<'_>) -> io::Result<RawFdGuard> {
    use nix::fcntl::{FcntlArg, fcntl};
    Ok(RawFdGuard(fcntl(fd, FcntlArg::F_DUPFD_CLOEXEC(FD_FLOOR))?))
}

/// Runs `body` in a new process without an exit signal, every signal blocked.
fn clone_with(body: impl FnOnce() -> libc::c_int) -> io::Result<Child> {
    let mut before = SigSet::empty();
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::all()), Some(&mut before))?;
    // SAFETY: no flags: the child has its own copy of everything, as after fork(2). It runs
    // `body`, whose authors promise system calls only, and never returns from this block.
    let result = super::checked(unsafe { libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0) });
    if let Ok(0) = result {
        // A panic, which there should be none of, must not carry the child back into sshd's code.
        let status = catch_unwind(AssertUnwindSafe(body)).unwrap_or(127);
        // SAFETY: in the child: _exit runs no handler of the application.
        unsafe { libc::_exit(status) }
    }
    let restored = sigprocmask(SigmaskHow::SIG_SETMASK, Some(&before), None);
    let pid = i32::try_from(result?).map_err(|_| io::ErrorKind::InvalidData)?;
    let child = Child(Pid::from_raw(pid));
    restored?;
    Ok(child)
}

/// Closes every descriptor from `first` on.
///
/// # Safety
/// Only in a process that [`clone_with`] has just made.
unsafe fn close_from(first: RawFd) {
    #[allow(clippy::multiple_unsafe_ops_per_block)]
    // SAFETY: plain numbers. The loop is for kernels before 5.9 (no close_range).
    unsafe {
        if libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, 0) == -1 {
            let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
            libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
            let most = RawFd::try_from(limit.rlim_cur).unwrap_or(RawFd::MAX).clamp(1024, 1 << 20);
            for fd in first..most {
                libc::close(fd);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_ended_and_reaped() {
        let child = clone_with(|| {
            // SAFETY: waits for the kill.
            unsafe { libc::pause() };
            0
        })
        .unwrap();
        let pid = child.0;
        drop(child);
        assert_eq!(kill(pid, None), Err(nix::Error::ESRCH));
    }
}
