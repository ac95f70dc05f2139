//! The helper's way from `clone(2)` to `execve`: everything of root's is dropped on it.

use super::{Child, RawFdGuard, clone_with, close_from, raise};
use nix::sys::signal::{SigSet, SigmaskHow, sigprocmask};
use nix::unistd::Pid;
use std::ffi::CStr;
use std::io;
use std::os::fd::{BorrowedFd, RawFd};

/// Who the helper runs as and on what.
#[derive(Debug)]
pub struct HelperSpec<'a> {
    /// The executable, opened and checked.
    pub executable: BorrowedFd<'a>,
    /// Its `argv[0]`.
    pub name: &'a CStr,
    /// Becomes its standard input.
    pub stdin: BorrowedFd<'a>,
    /// Becomes its standard output.
    pub stdout: BorrowedFd<'a>,
    /// Becomes its standard error.
    pub stderr: BorrowedFd<'a>,
    /// Where a failed step before `execve` is told: see [`SpawnFailure`].
    pub status: BorrowedFd<'a>,
    /// Numeric user id, never 0.
    pub uid: u32,
    /// Numeric group id.
    pub gid: u32,
}

/// The step between `clone` and `execve` that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpawnFailure {
    /// The system call.
    pub step: &'static str,
    /// Its `errno`.
    pub errno: i32,
}

impl SpawnFailure {
    /// Reads what the child wrote to `status`; `None` when it wrote nothing: it got to `execve`.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (&step, rest) = bytes.split_first()?;
        let errno = i32::from_ne_bytes(rest.get(..4)?.try_into().ok()?);
        Some(Self { step: STEPS.get(usize::from(step)).copied().unwrap_or("?"), errno })
    }
}

const STEPS: [&str; 12] = [
    "dup2",
    "close_range",
    "chdir",
    "setsid",
    "setgroups",
    "setresgid",
    "setresuid",
    "capset",
    "no_new_privs",
    "pdeathsig",
    "parent gone",
    "execveat",
];

/// Limits of the helper: resource, and soft and hard value alike. The user's own may be in force
/// by now (pam_limits runs before us on some stacks), and their `nproc` must not fail our exec;
/// once the identity has changed it is 0.
const LIMITS: [(libc::__rlimit_resource_t, libc::rlim_t); 6] = [
    (libc::RLIMIT_NPROC, libc::RLIM_INFINITY),
    (libc::RLIMIT_AS, 1 << 30),
    (libc::RLIMIT_CPU, 30),
    (libc::RLIMIT_NOFILE, 256),
    (libc::RLIMIT_FSIZE, 0),
    (libc::RLIMIT_CORE, 0),
];

/// Starts the helper: no privilege, no environment, no descriptor but those of `spec`.
///
/// # Errors
/// `EAGAIN` or `ENOMEM` of `clone(2)`. What fails later is told on `status`.
pub fn spawn_helper(spec: &HelperSpec<'_>) -> io::Result<Child> {
    let raised: Vec<RawFdGuard> =
        [spec.stdin, spec.stdout, spec.stderr, spec.status, spec.executable]
            .into_iter()
            .map(raise)
            .collect::<io::Result<_>>()?;
    let [stdin, stdout, stderr, status, executable] = raised.as_slice() else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let fds = [stdin.0, stdout.0, stderr.0, status.0, executable.0];
    let parent = nix::unistd::getpid();
    clone_with(|| {
        // SAFETY: we are the only thread of a fresh process and call nothing but the kernel.
        let (step, errno) = unsafe { become_helper(spec, fds, parent) };
        let mut note = [0_u8; 5];
        let [head, tail @ ..] = &mut note;
        *head = step;
        tail.copy_from_slice(&errno.to_ne_bytes());
        // Descriptor 3 or the raised one, whichever is open by now, takes it.
        for fd in [3, fds[3]] {
            // SAFETY: the buffer is ours and of the length given.
            if unsafe { libc::write(fd, note.as_ptr().cast(), note.len()) } != -1 {
                break;
            }
        }
        127
    })
}

/// The child's way to `execve`; returns only on failure, with the step and its `errno`.
///
/// # Safety
/// Only in a process that [`clone_with`] has just made.
unsafe fn become_helper(spec: &HelperSpec<'_>, fds: [RawFd; 5], parent: Pid) -> (u8, i32) {
    let argv = [spec.name.as_ptr(), std::ptr::null()];
    let environ = [std::ptr::null::<libc::c_char>()];
    #[allow(clippy::multiple_unsafe_ops_per_block)]
    // SAFETY: system calls on descriptors, numbers and NUL-terminated or
    // length-delimited memory that was laid out before the clone. Nothing allocates or locks.
    // The raw forms of the credential calls are used because glibc's wrappers would signal
    // threads that exist in the parent only.
    unsafe {
        let errno = || *libc::__errno_location();
        macro_rules! step {
            ($index:literal, $call:expr) => {
                if $call == -1 {
                    return ($index, errno());
                }
            };
        }
        clear_exec_context();
        reset_signals();
        step!(0, libc::dup2(fds[0], 0));
        step!(0, libc::dup2(fds[1], 1));
        step!(0, libc::dup2(fds[2], 2));
        step!(0, libc::dup3(fds[3], 3, libc::O_CLOEXEC));
        step!(0, libc::dup3(fds[4], 4, libc::O_CLOEXEC));
        close_from(5);
        step!(2, libc::chdir(c"/".as_ptr()));
        step!(3, libc::setsid());
        libc::umask(0o077);
        for (resource, wanted) in LIMITS {
            limit(resource, wanted);
        }
        step!(4, libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<libc::gid_t>()));
        step!(5, libc::syscall(libc::SYS_setresgid, spec.gid, spec.gid, spec.gid));
        step!(6, libc::syscall(libc::SYS_setresuid, spec.uid, spec.uid, spec.uid));
        step!(7, drop_capabilities());
        // Set now that exec no longer looks at it: the helper can make no process of its own.
        limit(libc::RLIMIT_NPROC, 0);
        step!(8, libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
        step!(9, libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0));
        if libc::getppid() != parent.as_raw() {
            return (10, libc::ESRCH);
        }
        let result = libc::syscall(
            libc::SYS_execveat,
            4,
            c"".as_ptr(),
            argv.as_ptr(),
            environ.as_ptr(),
            libc::AT_EMPTY_PATH,
        );
        step!(11, result);
        (11, 0)
    }
}

/// Forgets the SELinux context that pam_selinux has asked for the user's shell: it would apply to
/// the helper's exec, which `no_new_privs` then refuses. Without SELinux nothing happens.
///
/// # Safety
/// As [`become_helper`].
unsafe fn clear_exec_context() {
    #[allow(clippy::multiple_unsafe_ops_per_block)]
    // SAFETY: a NUL-terminated path and an empty write.
    unsafe {
        let path = c"/proc/thread-self/attr/exec";
        let fd = libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        if fd != -1 {
            libc::write(fd, std::ptr::null(), 0);
            libc::close(fd);
        }
    }
}

/// Every signal at its default and unblocked: ignored ones would outlive the exec.
///
/// # Safety
/// As [`become_helper`].
unsafe fn reset_signals() {
    for signal in 1..65 {
        // SAFETY: plain numbers; the kernel refuses those that cannot be set.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    let _ = sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None);
}

/// Sets a limit; where the hard one is lower and may not be raised (no `CAP_SYS_RESOURCE`), as
/// much of it as there is.
///
/// # Safety
/// As [`become_helper`].
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

/// Empties every capability set, ambient included, whatever securebits say.
///
/// # Safety
/// As [`become_helper`].
unsafe fn drop_capabilities() -> libc::c_long {
    const LINUX_CAPABILITY_VERSION_3: u32 = 0x2008_0522;
    let header: [u32; 2] = [LINUX_CAPABILITY_VERSION_3, 0];
    let sets = [0_u32; 6];
    #[allow(clippy::multiple_unsafe_ops_per_block)]
    // SAFETY: header and sets have the layout of version 3 in linux/capability.h.
    unsafe {
        libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
        libc::syscall(libc::SYS_capset, header.as_ptr(), sets.as_ptr())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spawn_failures_are_named() {
        let bytes = [&[4_u8][..], &libc::EPERM.to_ne_bytes()].concat();
        let failure = SpawnFailure::decode(&bytes).unwrap();
        assert_eq!((failure.step, failure.errno), ("setgroups", libc::EPERM));
        assert_eq!(SpawnFailure::decode(&[]), None);
    }
}
