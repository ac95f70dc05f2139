//! The helper's way from the attendant to `execve`: everything of root's is dropped on it.

use super::close_from;
use nix::sys::signal::{SigSet, SigmaskHow, sigprocmask};
use std::ffi::CStr;
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
    /// Numeric user id, never 0.
    pub uid: u32,
    /// Numeric group id.
    pub gid: u32,
}

/// The step between the attendant and `execve` that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpawnFailure {
    /// The system call.
    pub step: &'static str,
    /// Its `errno`.
    pub errno: i32,
}

/// The same, as the child leaves it in the attendant's memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct RawFailure {
    pub(super) step: Step,
    pub(super) errno: i32,
}

impl SpawnFailure {
    pub(super) fn new(step: u8, errno: i32) -> Self {
        Self { step: STEPS.get(usize::from(step)).copied().unwrap_or("?"), errno }
    }
}

/// The steps, by the system call that each is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Step {
    Clone,
    Dup2,
    Chdir,
    Setsid,
    Setgroups,
    Setresgid,
    Setresuid,
    Capset,
    NoNewPrivs,
    Pdeathsig,
    ParentGone,
    Execveat,
}

const STEPS: [&str; 12] = [
    "clone",
    "dup2",
    "chdir",
    "setsid",
    "setgroups",
    "setresgid",
    "setresuid",
    "capset",
    "no_new_privs",
    "pdeathsig",
    "attendant gone",
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

/// Where the attendant keeps the helper's descriptors.
#[derive(Clone, Copy, Debug)]
pub(super) struct HelperFds {
    pub(super) stdin: RawFd,
    pub(super) stdout: RawFd,
    pub(super) stderr: RawFd,
    pub(super) executable: RawFd,
}

/// The child's way to `execve`; returns only on failure.
///
/// # Safety
/// Only in a process that the attendant, whose number is `parent`, has just made.
pub(super) unsafe fn become_helper(
    spec: &HelperSpec<'_>,
    fds: HelperFds,
    parent: libc::pid_t,
) -> RawFailure {
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
            ($step:ident, $call:expr) => {
                if $call == -1 {
                    return RawFailure { step: Step::$step, errno: errno() };
                }
            };
        }
        clear_exec_context();
        reset_signals();
        step!(Dup2, libc::dup2(fds.stdin, 0));
        step!(Dup2, libc::dup2(fds.stdout, 1));
        step!(Dup2, libc::dup2(fds.stderr, 2));
        step!(Dup2, libc::dup3(fds.executable, 3, libc::O_CLOEXEC));
        close_from(4);
        step!(Chdir, libc::chdir(c"/".as_ptr()));
        step!(Setsid, libc::setsid());
        libc::umask(0o077);
        for (resource, wanted) in LIMITS {
            limit(resource, wanted);
        }
        step!(Setgroups, libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<libc::gid_t>()));
        step!(Setresgid, libc::syscall(libc::SYS_setresgid, spec.gid, spec.gid, spec.gid));
        step!(Setresuid, libc::syscall(libc::SYS_setresuid, spec.uid, spec.uid, spec.uid));
        step!(Capset, drop_capabilities());
        // Set now that exec no longer looks at it: the helper can make no process of its own.
        limit(libc::RLIMIT_NPROC, 0);
        step!(NoNewPrivs, libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
        step!(Pdeathsig, libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0));
        if libc::getppid() != parent {
            return RawFailure { step: Step::ParentGone, errno: libc::ESRCH };
        }
        let result = libc::syscall(
            libc::SYS_execveat,
            3,
            c"".as_ptr(),
            argv.as_ptr(),
            environ.as_ptr(),
            libc::AT_EMPTY_PATH,
        );
        step!(Execveat, result);
        RawFailure { step: Step::Execveat, errno: 0 }
    }
}

/// Forgets the SELinux context that pam_selinux has asked for the user's shell: it would apply to
/// the helper's exec, which `no_new_privs` then refuses. Without SELinux nothing happens.
///
/// # Safety
/// As [`become_helper`].
pub(super) unsafe fn clear_exec_context() {
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
pub(super) unsafe fn reset_signals() {
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
pub(super) unsafe fn limit(resource: libc::__rlimit_resource_t, wanted: libc::rlim_t) {
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
