//! Processes that sshd's own code does not know of: the helper, which is gone when it has answered,
//! and the keepers of leaves, which outlive the login.

mod helper;
mod keeper;

pub use helper::{End, Helper, HelperSpec};
pub use keeper::{Handed, KeeperSpec, spawn_keeper};

use std::os::fd::RawFd;

/// The step on the way to `execve` that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpawnFailure {
    /// The system call.
    pub step: &'static str,
    /// Its `errno`.
    pub errno: i32,
}

impl SpawnFailure {
    /// Most bytes of one in a packet.
    pub const MAX: usize = 6;
    const KIND: u8 = b'f';

    fn last(step: &'static str) -> Self {
        Self { step, errno: nix::errno::Errno::last_raw() }
    }

    /// Reads a packet; `None` for anything else.
    #[must_use]
    pub fn decode(packet: &[u8]) -> Option<Self> {
        let [Self::KIND, step, number @ ..] = packet else { return None };
        let errno = i32::from_ne_bytes(number.try_into().ok()?);
        Some(Self { step: STEPS.get(usize::from(*step)).copied().unwrap_or("?"), errno })
    }
}

/// The same, as a new process tells it.
#[derive(Clone, Copy, Debug)]
struct RawFailure {
    step: Step,
    errno: i32,
}

impl RawFailure {
    fn packet(self) -> [u8; SpawnFailure::MAX] {
        let [a, b, c, d] = self.errno.to_ne_bytes();
        [SpawnFailure::KIND, self.step as u8, a, b, c, d]
    }
}

impl From<RawFailure> for SpawnFailure {
    fn from(raw: RawFailure) -> Self {
        let step = STEPS.get(usize::from(raw.step as u8)).copied().unwrap_or("?");
        Self { step, errno: raw.errno }
    }
}

/// The steps, by the system call that each is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Step {
    Clone,
    Timer,
    Dup,
    Chdir,
    Setsid,
    Setgroups,
    Setresgid,
    Setresuid,
    Dumpable,
    Capset,
    NoNewPrivs,
    Pdeathsig,
    ParentGone,
    Execveat,
}

const STEPS: [&str; 14] = [
    "clone",
    "timer",
    "dup",
    "chdir",
    "setsid",
    "setgroups",
    "setresgid",
    "setresuid",
    "dumpable",
    "capset",
    "no_new_privs",
    "pdeathsig",
    "parent gone",
    "execveat",
];

/// A system call without the C library's wrapper around it, which may take locks, be a point of
/// cancellation, or act on every thread of the process.
macro_rules! sys {
    ($number:ident $(, $argument:expr)* $(,)?) => {
        libc::syscall(libc::$number $(, $argument)*)
    };
}
use sys;

/// Closes every descriptor from `first` on.
///
/// # Safety
/// Only in a new process, which has a table of descriptors of its own.
unsafe fn close_from(first: RawFd) {
    #[allow(clippy::multiple_unsafe_ops_per_block)]
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

/// Forgets the SELinux context that pam_selinux has asked for the user's shell: it would apply to
/// the next exec. It is this thread's own. Without SELinux nothing happens.
///
/// # Safety
/// Only in a new process.
unsafe fn clear_exec_context() {
    let path = c"/proc/thread-self/attr/exec";
    #[allow(clippy::multiple_unsafe_ops_per_block)]
    // SAFETY: a NUL-terminated path and an empty write.
    unsafe {
        let flags = libc::O_WRONLY | libc::O_CLOEXEC;
        let fd = sys!(SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0);
        if fd != -1 {
            sys!(SYS_write, fd, std::ptr::null::<u8>(), 0_usize);
            sys!(SYS_close, fd);
        }
    }
}

/// The kernel's `struct sigaction`, at least as long as on any machine.
type Action = [u64; 4];
/// The default one: all zero.
const DEFAULT_ACTION: Action = [0; 4];
/// Bytes of the kernel's set of signals.
const MASK: usize = 8;

/// Every signal at its default: ignored ones would outlive the exec.
///
/// # Safety
/// Only in a new process, which has dispositions of its own.
unsafe fn reset_signals() {
    for signal in 1..65 {
        let none = std::ptr::null_mut::<u64>();
        // SAFETY: reads a structure that is there for good; the kernel refuses those signals that
        // cannot be set.
        unsafe { sys!(SYS_rt_sigaction, signal, DEFAULT_ACTION.as_ptr(), none, MASK) };
    }
}

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
    #[allow(clippy::multiple_unsafe_ops_per_block)]
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
    fn a_failure_is_read_back() {
        let raw = RawFailure { step: Step::Setgroups, errno: libc::EPERM };
        let failure = SpawnFailure { step: "setgroups", errno: libc::EPERM };
        assert_eq!(SpawnFailure::decode(&raw.packet()), Some(failure));
        assert_eq!(SpawnFailure::from(raw), failure);
        for packet in [&b""[..], b"f", b"f\0\0", b"x\0\0\0\0\0", b"f\0\0\0\0\0\0"] {
            assert_eq!(SpawnFailure::decode(packet), None, "{packet:?}");
        }
        assert_eq!(STEPS.len(), Step::Execveat as usize + 1);
    }

    #[test]
    fn what_is_blocked_is_as_before() {
        let before = block(u64::MAX);
        let all = block(before);
        // All but the two that no process can block.
        assert_eq!((!all).count_ones(), 2);
        assert_eq!(block(before), before);
    }
}
