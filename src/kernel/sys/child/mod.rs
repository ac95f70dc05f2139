//! Starts processes that sshd's own code does not know: the helper, which ends with its answer, and keepers
//! of leaves, which outlive the login.

// Between vfork and exec every line is a system call, and one argument holds for all.
#![allow(clippy::multiple_unsafe_ops_per_block)]

mod helper;
mod keeper;

pub use helper::{Helper, HelperExit, HelperSpec};
pub use keeper::{KeeperFds, spawn_keeper};

use nix::errno::Errno;
use std::convert::Infallible;
use std::ffi::CStr;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// The failed step on the way to `execve`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpawnFailure {
    /// Name of the system call, or of what it sets.
    pub step: &'static str,
    /// Error of the system call.
    pub errno: Errno,
}

impl SpawnFailure {
    /// Describes the failure of a step by the thread's `errno`.
    fn from_errno(step: &'static str) -> Self {
        Self {
            step,
            errno: Errno::last(),
        }
    }
}

/// Turns the `-1` of a system call into the failure of this step.
fn check_step(step: &'static str, result: libc::c_long) -> Result<libc::c_long, SpawnFailure> {
    if result == -1 {
        Err(SpawnFailure::from_errno(step))
    } else {
        Ok(result)
    }
}

/// Makes a system call without the C library's wrapper, which may take locks, be a point of cancellation, or
/// act on every thread of the process. `sys!(SYS_NAME, ARGUMENT, ...)` expands to
/// `libc::syscall(libc::SYS_NAME, ARGUMENT, ...)`.
macro_rules! sys {
    ($number:ident $(, $argument:expr)* $(,)?) => {
        libc::syscall(libc::$number $(, $argument)*)
    };
}
use sys;

/// The stack of a child until it executes its program: more than it needs. Its units have the alignment that
/// the ABIs of all 64-bit Linux machines require of a stack.
struct ChildStack(Vec<u128>);
const STACK_UNITS: usize = 64 * 1024 / size_of::<u128>();

impl ChildStack {
    fn new() -> Self {
        Self(Vec::with_capacity(STACK_UNITS))
    }

    /// The upper end, where the stack begins.
    fn top(&self) -> *mut libc::c_void {
        // SAFETY: one past the end of what was allocated.
        unsafe { self.0.as_ptr().cast_mut().add(STACK_UNITS) }.cast()
    }
}

/// Makes a child as vfork(2) does, and returns once the child has executed a program or ended: its process
/// number, and its pidfd if `flags` contain `CLONE_PIDFD` and the kernel has pidfds. This thread blocks every
/// signal meanwhile, and so does the child until it unblocks them itself.
///
/// # Errors
///
/// The failure of `clone(2)`. A failure in the child is left in `order`.
///
/// # Safety
///
/// `body` makes system calls only, since it runs in this process's memory. No other code uses `order` before
/// this function returns.
unsafe fn vfork_with<T>(
    body: extern "C" fn(*mut libc::c_void) -> libc::c_int,
    order: &mut T,
    flags: libc::c_int,
) -> Result<(libc::pid_t, Option<OwnedFd>), SpawnFailure> {
    // The caller's own stack may be the small one of a thread.
    let stack = ChildStack::new();
    let mut pidfd: RawFd = -1;
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | flags;
    let null = std::ptr::null_mut::<libc::c_void>();
    let order = std::ptr::from_mut(order).cast();
    let old_mask = set_signal_mask(u64::MAX);
    // SAFETY: the child shares our memory, and CLONE_VFORK suspends this thread until the child has
    // executed its program or ended. So `stack`, `order` and what that borrows outlive their use, and no
    // other thread writes there. The child runs on `stack`. It begins with every signal blocked, so that no
    // handler of the application runs in it. It makes system calls only, as the caller guarantees. A kernel
    // without pidfds leaves `pidfd` as it is.
    let pid = unsafe { libc::clone(body, stack.top(), flags, order, &raw mut pidfd, null, null) };
    let result = check_step("clone", pid.into());
    set_signal_mask(old_mask);
    // SAFETY: the kernel has just made it for us.
    let pidfd = (pidfd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(pidfd) });
    result.map(|_| (pid, pidfd))
}

/// Prepares a new process for its program. It gets these descriptors as 0, 1, 2 and so on, the last of them
/// closed on exec, and no other descriptor. It gets no SELinux context of the user, an empty keyring, `/` as
/// its directory, and the umask 077.
///
/// # Errors
///
/// The first step that failed: `keyctl`, `dup` or `chdir`.
///
/// # Safety
///
/// Only in a new process that has its own table of descriptors.
unsafe fn prepare_exec<const N: usize>(fds: &mut [RawFd; N]) -> Result<(), SpawnFailure> {
    let count = N as RawFd;
    // SAFETY: plain numbers, NUL-terminated paths, and an empty write.
    unsafe {
        // The SELinux context that pam_selinux has set for the user's shell would apply to our exec. An empty write
        // removes it. Without SELinux, this test costs less than the first file of proc(5) that a new process opens.
        let selinux = c"/sys/fs/selinux/enforce";
        let exec_context = c"/proc/thread-self/attr/exec";
        if sys!(SYS_faccessat, libc::AT_FDCWD, selinux.as_ptr(), 0) == 0 {
            let fd = sys!(
                SYS_openat,
                libc::AT_FDCWD,
                exec_context.as_ptr(),
                libc::O_WRONLY,
                0
            );
            sys!(SYS_write, fd, std::ptr::null::<u8>(), 0_usize);
        }
        // The session's keyring has the user's keys by now, so this process gets an empty one. A kernel
        // without keys, or a seccomp filter that denies the call, keeps the keys from this process as well.
        let join = usize::try_from(libc::KEYCTL_JOIN_SESSION_KEYRING).unwrap_or_default();
        if sys!(SYS_keyctl, join, std::ptr::null::<libc::c_char>()) == -1 {
            let errno = Errno::last();
            if !matches!(errno, Errno::ENOSYS | Errno::EPERM) {
                return Err(SpawnFailure {
                    step: "keyctl",
                    errno,
                });
            }
        }
        // First move descriptors whose numbers are needed for others.
        for fd in fds.iter_mut().filter(|fd| **fd < count) {
            *fd = check_step("dup", sys!(SYS_fcntl, *fd, libc::F_DUPFD_CLOEXEC, count))? as RawFd;
        }
        for (number, fd) in (0..count).zip(fds.iter()) {
            let flags = if number + 1 == count {
                libc::O_CLOEXEC
            } else {
                0
            };
            check_step("dup", sys!(SYS_dup3, *fd, number, flags))?;
        }
        close_from(count);
        check_step("chdir", sys!(SYS_chdir, c"/".as_ptr()))?;
        sys!(SYS_umask, 0o077);
    }
    Ok(())
}

/// Executes the program behind a descriptor, with an empty environment; returns only on failure. The program
/// inherits this thread's signal mask.
///
/// # Errors
///
/// The failure of `execveat(2)`.
///
/// # Safety
///
/// Only in a new process.
unsafe fn execute(program: RawFd, name: &CStr) -> Result<Infallible, SpawnFailure> {
    let argv = [name.as_ptr(), std::ptr::null()];
    let environ = [std::ptr::null::<libc::c_char>()];
    let path = c"".as_ptr();
    let flags = libc::AT_EMPTY_PATH;
    // SAFETY: NUL-terminated texts, in lists that end with a null pointer.
    unsafe {
        sys!(
            SYS_execveat,
            program,
            path,
            argv.as_ptr(),
            environ.as_ptr(),
            flags
        )
    };
    Err(SpawnFailure::from_errno("execveat"))
}

/// Closes every descriptor from `first` on.
///
/// # Safety
///
/// Only in a new process that has its own table of descriptors.
unsafe fn close_from(first: RawFd) {
    // SAFETY: plain numbers, and a structure on our own stack. Kernels before 5.9 need the loop: they have
    // no close_range(2).
    unsafe {
        if sys!(SYS_close_range, first, libc::c_uint::MAX, 0) == -1 {
            let mut limit = libc::rlimit {
                rlim_cur: 0,
                rlim_max: 0,
            };
            libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
            let end = RawFd::try_from(limit.rlim_cur)
                .unwrap_or(RawFd::MAX)
                .clamp(1024, 1 << 20);
            for fd in first..end {
                sys!(SYS_close, fd);
            }
        }
    }
}

/// The kernel's `struct sigaction`, at least as long as on any machine.
type KernelSigaction = [u64; 4];
/// The default action, which is all zero.
const DEFAULT_SIGACTION: KernelSigaction = [0; 4];
/// Bytes of the kernel's set of signals.
const SIGNAL_SET_BYTES: usize = 8;

/// Sets the signals that this thread blocks; returns those that it has blocked before.
fn set_signal_mask(signals: u64) -> u64 {
    let mut before = 0_u64;
    let new = &raw const signals;
    let old = &raw mut before;
    // SAFETY: reads and writes numbers on our own stack, of the size that the last argument gives.
    unsafe {
        sys!(
            SYS_rt_sigprocmask,
            libc::SIG_SETMASK,
            new,
            old,
            SIGNAL_SET_BYTES
        )
    };
    before
}

/// Sets soft and hard limit of a resource. If this process may not raise a lower hard limit (no
/// `CAP_SYS_RESOURCE`), the soft limit becomes the hard one.
///
/// # Safety
///
/// Only in a new process that has its own limits.
unsafe fn set_limit(resource: libc::__rlimit_resource_t, value: libc::rlim_t) {
    // SAFETY: plain numbers and a structure on our own stack.
    unsafe {
        let limits = libc::rlimit {
            rlim_cur: value,
            rlim_max: value,
        };
        if libc::setrlimit(resource, &raw const limits) == -1 {
            let mut current = libc::rlimit {
                rlim_cur: 0,
                rlim_max: 0,
            };
            libc::getrlimit(resource, &raw mut current);
            current.rlim_cur = current.rlim_max;
            libc::setrlimit(resource, &raw const current);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signal_mask_is_restored() {
        let before = set_signal_mask(u64::MAX);
        let all = set_signal_mask(before);
        // No process can block two of the signals.
        assert_eq!((!all).count_ones(), 2);
        assert_eq!(set_signal_mask(before), before);
    }
}
