//! Processes that sshd's own code does not know of: the helper, which is gone when it has answered,
//! and the keepers of leaves, which outlive the login.

// Between vfork and exec every line is a system call, and one argument holds for all.
#![allow(clippy::multiple_unsafe_ops_per_block)]

mod helper;
mod keeper;

pub use helper::{End, Helper, HelperSpec};
pub use keeper::{Handed, spawn_keeper};

use nix::errno::Errno;
use std::convert::Infallible;
use std::ffi::CStr;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// The step on the way to `execve` that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpawnFailure {
    /// The system call.
    pub step: &'static str,
    /// Its answer.
    pub errno: Errno,
}

impl SpawnFailure {
    fn last(step: &'static str) -> Self {
        Self { step, errno: Errno::last() }
    }
}

/// That step, where the call has failed.
fn step(step: &'static str, result: libc::c_long) -> Result<libc::c_long, SpawnFailure> {
    if result == -1 { Err(SpawnFailure::last(step)) } else { Ok(result) }
}

/// A system call without the C library's wrapper around it, which may take locks, be a point of
/// cancellation, or act on every thread of the process.
macro_rules! sys {
    ($number:ident $(, $argument:expr)* $(,)?) => {
        libc::syscall(libc::$number $(, $argument)*)
    };
}
use sys;

/// What a child runs on until it has executed its program: far more than it needs, in pieces that are
/// aligned as the ABIs of all 64-bit Linux machines want a stack.
struct Stack(Vec<u128>);
const PIECES: usize = 64 * 1024 / size_of::<u128>();

impl Stack {
    fn new() -> Self {
        Self(Vec::with_capacity(PIECES))
    }

    /// Where a stack begins.
    fn top(&self) -> *mut libc::c_void {
        // SAFETY: one past the end of what was allocated.
        unsafe { self.0.as_ptr().cast_mut().add(PIECES) }.cast()
    }
}

/// Makes a child as vfork(2) makes one, and returns when it has executed a program or has ended:
/// its number, and with `CLONE_PIDFD` among `flags` its descriptor, where the kernel knows of such.
/// Every signal is blocked meanwhile.
///
/// # Safety
/// `body`, which is given `order` and nobody else uses it meanwhile, makes system calls only: it
/// runs in this process's memory.
unsafe fn vfork_with<T>(
    body: extern "C" fn(*mut libc::c_void) -> libc::c_int,
    order: &mut T,
    flags: libc::c_int,
) -> Result<(libc::pid_t, Option<OwnedFd>), SpawnFailure> {
    // Not on our own stack, which may be a thread's small one.
    let stack = Stack::new();
    let mut pidfd: RawFd = -1;
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | flags;
    let none = std::ptr::null_mut::<libc::c_void>();
    let order = std::ptr::from_mut(order).cast();
    let before = block(u64::MAX);
    // SAFETY: the child shares our memory, and this thread is held until it has executed its
    // program or has ended (CLONE_VFORK), so that `stack`, `order` and what that borrows outlive its
    // use of them, and nobody else writes there. It runs on `stack`, with every signal blocked, so
    // that no handler of the application's runs in it, and makes system calls only, says the
    // caller. Where a kernel knows of no pidfds the number is left as it is.
    let pid = unsafe { libc::clone(body, stack.top(), flags, order, &raw mut pidfd, none, none) };
    let made = step("clone", pid.into());
    block(before);
    // SAFETY: the kernel has just made it for us.
    let pidfd = (pidfd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(pidfd) });
    made.map(|_| (pid, pidfd))
}

/// What every program of ours begins with: these descriptors as 0, 1, 2 and so on, the last of them
/// closed on exec, and no other; no context of SELinux's; keyring, directory and umask of its own.
///
/// # Safety
/// Only in a new process, which has a table of descriptors of its own.
unsafe fn arrange<const N: usize>(fds: &mut [RawFd; N]) -> Result<(), SpawnFailure> {
    let count = N as RawFd;
    // SAFETY: plain numbers, NUL-terminated paths, and an empty write.
    unsafe {
        // The SELinux context that pam_selinux has asked for the user's shell would apply to our
        // exec. Where there is no SELinux, this costs less than a new process's first file of proc(5).
        let (selinux, own) = (c"/sys/fs/selinux/enforce", c"/proc/thread-self/attr/exec");
        if sys!(SYS_faccessat, libc::AT_FDCWD, selinux.as_ptr(), 0) == 0 {
            let fd = sys!(SYS_openat, libc::AT_FDCWD, own.as_ptr(), libc::O_WRONLY, 0);
            sys!(SYS_write, fd, std::ptr::null::<u8>(), 0_usize);
        }
        // An empty keyring of its own: the session's has the user's keys by now. A kernel without keys, or a
        // filter in front of them, keeps them from this process as well.
        let join = usize::try_from(libc::KEYCTL_JOIN_SESSION_KEYRING).unwrap_or_default();
        if sys!(SYS_keyctl, join, std::ptr::null::<libc::c_char>()) == -1 {
            let errno = Errno::last();
            if !matches!(errno, Errno::ENOSYS | Errno::EPERM) {
                return Err(SpawnFailure { step: "keyctl", errno });
            }
        }
        // Out of the way of each other first.
        for fd in fds.iter_mut().filter(|fd| **fd < count) {
            *fd = step("dup", sys!(SYS_fcntl, *fd, libc::F_DUPFD_CLOEXEC, count))? as RawFd;
        }
        for (place, fd) in (0..count).zip(fds.iter()) {
            let flags = if place + 1 == count { libc::O_CLOEXEC } else { 0 };
            step("dup", sys!(SYS_dup3, *fd, place, flags))?;
        }
        close_from(count);
        step("chdir", sys!(SYS_chdir, c"/".as_ptr()))?;
        sys!(SYS_umask, 0o077);
    }
    Ok(())
}

/// Executes the program behind a descriptor, without an environment. Every signal is still blocked.
///
/// # Safety
/// Only in a new process.
unsafe fn execute(program: RawFd, name: &CStr) -> Result<Infallible, SpawnFailure> {
    let argv = [name.as_ptr(), std::ptr::null()];
    let environ = [std::ptr::null::<libc::c_char>()];
    let (path, flags) = (c"".as_ptr(), libc::AT_EMPTY_PATH);
    // SAFETY: NUL-terminated texts, in lists that end with a null pointer.
    unsafe { sys!(SYS_execveat, program, path, argv.as_ptr(), environ.as_ptr(), flags) };
    Err(SpawnFailure::last("execveat"))
}

/// Closes every descriptor from `first` on.
///
/// # Safety
/// Only in a new process, which has a table of descriptors of its own.
unsafe fn close_from(first: RawFd) {
    // SAFETY: plain numbers, and a structure on our own stack. The loop is for kernels before 5.9
    // (no close_range).
    unsafe {
        if sys!(SYS_close_range, first, libc::c_uint::MAX, 0) == -1 {
            let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
            libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
            let most = RawFd::try_from(limit.rlim_cur).unwrap_or(RawFd::MAX).clamp(1024, 1 << 20);
            for fd in first..most {
                sys!(SYS_close, fd);
            }
        }
    }
}

/// The kernel's `struct sigaction`, at least as long as on any machine.
type Action = [u64; 4];
/// The default one: all zero.
const DEFAULT_ACTION: Action = [0; 4];
/// Bytes of the kernel's set of signals.
const MASK: usize = 8;

/// Sets the signals that this thread blocks; returns those that it did.
fn block(signals: u64) -> u64 {
    let mut before = 0_u64;
    // SAFETY: reads and writes numbers on our own stack, of the size that it is told.
    unsafe {
        sys!(SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const signals, &raw mut before, MASK)
    };
    before
}

/// Sets a limit; where the hard one is lower and may not be raised (no `CAP_SYS_RESOURCE`), as
/// much of it as there is.
///
/// # Safety
/// Only in a new process, which has limits of its own.
unsafe fn limit(resource: libc::__rlimit_resource_t, wanted: libc::rlim_t) {
    // SAFETY: plain numbers and a structure on our own stack.
    unsafe {
        let both = libc::rlimit { rlim_cur: wanted, rlim_max: wanted };
        if libc::setrlimit(resource, &raw const both) == -1 {
            let mut found = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
            libc::getrlimit(resource, &raw mut found);
            found.rlim_cur = found.rlim_max;
            libc::setrlimit(resource, &raw const found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_blocked_is_as_before() {
        let before = block(u64::MAX);
        let all = block(before);
        // All but the two that no process can block.
        assert_eq!((!all).count_ones(), 2);
        assert_eq!(block(before), before);
    }
}
