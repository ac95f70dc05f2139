//! The way to a keeper: a process that is neither sshd's child nor in its session, and that stays.

use super::{
    DEFAULT_ACTION, MASK, SpawnFailure, Stack, arrange, block, execute, limit, sys, vfork_with,
};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use std::convert::Infallible;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// The descriptors that a keeper is given, in this order behind the standard ones.
#[derive(Clone, Copy, Debug)]
pub struct Handed<T> {
    /// A `SOCK_SEQPACKET` socket to who started it.
    pub talk: T,
    /// The pidfd of the process whose end it waits for.
    pub watched: T,
    /// The directory of the cgroup that the leaf is in.
    pub above: T,
    /// The leaf's directory.
    pub leaf: T,
    /// The file of the keepers' locks.
    pub keepers: T,
    /// The root of the cgroup v2 mount.
    pub root: T,
}

/// The number of the first of them.
const FIRST: RawFd = 3;
/// Behind the last of them its executable.
const EXECUTABLE: RawFd = FIRST + 6;

impl Handed<OwnedFd> {
    /// Takes them over.
    /// Errors: `EBADF` in a process that was not started as a keeper.
    pub fn take() -> io::Result<Self> {
        let take = |at: RawFd| {
            // SAFETY: asks about a number; one that is not open is EBADF.
            let result = unsafe { libc::fcntl(FIRST + at, libc::F_SETFD, libc::FD_CLOEXEC) };
            crate::sys::checked(result.into())?;
            // SAFETY: it is open, was put there for us by who started us, and is taken once, by
            // this call: the program has just begun.
            Ok::<_, io::Error>(unsafe { OwnedFd::from_raw_fd(FIRST + at) })
        };
        let (talk, watched, above) = (take(0)?, take(1)?, take(2)?);
        Ok(Self { talk, watched, above, leaf: take(3)?, keepers: take(4)?, root: take(5)? })
    }
}

/// Starts a keeper by its executable, opened and checked, with `/dev/null` and what it is handed; ps(1)
/// shows its title. A process in between ends at once: the keeper is then nobody's child but the
/// system's first process's.
/// Errors: the step that failed, here or on the way to its program.
pub fn spawn_keeper(
    executable: BorrowedFd<'_>,
    title: &CStr,
    null: BorrowedFd<'_>,
    handed: Handed<BorrowedFd<'_>>,
) -> Result<(), SpawnFailure> {
    let Handed { talk, watched, above, leaf, keepers, root } = handed;
    let fds = [null, null, null, talk, watched, above, leaf, keepers, root, executable];
    let stack = Stack::new();
    let (fds, stack) = (fds.map(|fd| fd.as_raw_fd()), &stack);
    let mut order = Order { fds, title, stack, failure: None };
    // No exit signal: no `SIGCHLD` reaches the application, and none of its handlers can reap it.
    // SAFETY: makes system calls only.
    let (between, _) = unsafe { vfork_with(stand_between, &mut order, 0) }?;
    while waitpid(Pid::from_raw(between), Some(WaitPidFlag::__WALL)) == Err(nix::Error::EINTR) {}
    order.failure.map_or(Ok(()), Err)
}

struct Order<'a> {
    /// In the order of their places.
    fds: [RawFd; EXECUTABLE as usize + 1],
    title: &'a CStr,
    /// What the keeper runs on until it has executed its program.
    stack: &'a Stack,
    failure: Option<SpawnFailure>,
}

extern "C" fn stand_between(order: *mut libc::c_void) -> libc::c_int {
    // SAFETY: our parent's order, which nobody else touches while that is held.
    let between = unsafe { &mut *order.cast::<Order<'_>>() };
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: as in `vfork_with`: this process is held until the keeper has executed its program, on
    // a stack that is nobody else's, and our parent is until this one has ended.
    unsafe {
        sys!(SYS_setsid);
        if libc::clone(start_keeper, between.stack.top(), flags, order) == -1 {
            between.failure = Some(SpawnFailure::last("clone"));
        }
    }
    0
}

extern "C" fn start_keeper(order: *mut libc::c_void) -> libc::c_int {
    // SAFETY: its order, which nobody else touches while those above are held.
    let order = unsafe { &mut *order.cast::<Order<'_>>() };
    // SAFETY: in the process that has just been made.
    order.failure = unsafe { become_keeper(order) }.err();
    127
}

/// Returns only on failure.
///
/// # Safety
/// Only in a process that [`stand_between`] has just made.
unsafe fn become_keeper(order: &mut Order<'_>) -> Result<Infallible, SpawnFailure> {
    // SAFETY: system calls on descriptors, numbers and NUL-terminated memory that was laid out
    // before. Nothing allocates or locks.
    unsafe {
        arrange(&mut order.fds)?;
        // Ignored ones would outlive the exec.
        for signal in 1..65 {
            sys!(SYS_rt_sigaction, signal, DEFAULT_ACTION.as_ptr(), 0_usize, MASK);
        }
        block(0);
        // A login's own limits may be in force by now.
        for resource in [libc::RLIMIT_CPU, libc::RLIMIT_AS, libc::RLIMIT_FSIZE] {
            limit(resource, libc::RLIM_INFINITY);
        }
        limit(libc::RLIMIT_CORE, 0);
        // So may its nice value and its class of scheduling be, and jobs compute on every core.
        let usual = libc::sched_param { sched_priority: 0 };
        sys!(SYS_sched_setscheduler, 0, libc::SCHED_OTHER, &raw const usual);
        sys!(SYS_setpriority, libc::PRIO_PROCESS, 0, 0);
        execute(EXECUTABLE, order.title)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn a_keeper_that_cannot_be_executed_is_told_of() {
        let file = |path| std::fs::File::open(path).unwrap();
        let (null, program, text) = (file("/dev/null"), file("/bin/true"), file("/etc/passwd"));
        let null = null.as_fd();
        let handed = Handed {
            talk: null,
            watched: null,
            above: null,
            leaf: null,
            keepers: null,
            root: null,
        };
        let spawn = |executable| spawn_keeper(executable, c"keeper", null, handed);
        assert_eq!(spawn(program.as_fd()), Ok(()));
        let failure = SpawnFailure { step: "execveat", errno: nix::Error::EACCES };
        assert_eq!(spawn(text.as_fd()), Err(failure));
    }
}
