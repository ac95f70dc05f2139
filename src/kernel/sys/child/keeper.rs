//! Starts keepers: long-lived processes, neither children of sshd nor in its session.

use super::{
    ChildStack, DEFAULT_SIGACTION, SIGNAL_SET_BYTES, SpawnFailure, execute, prepare_exec,
    set_limit, set_signal_mask, sys, vfork_with,
};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use std::convert::Infallible;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// The descriptors that a keeper inherits, in this order after the standard ones.
#[derive(Clone, Copy, Debug)]
pub struct KeeperFds<T> {
    /// A `SOCK_SEQPACKET` socket to the process that started the keeper.
    pub talk: T,
    /// The pidfd of the process whose end the keeper waits for.
    pub watched: T,
    /// The directory of the cgroup that contains the leaf.
    pub above: T,
    /// The leaf's directory.
    pub leaf: T,
    /// The file with the keepers' locks.
    pub keepers: T,
    /// The root of the cgroup v2 mount.
    pub root: T,
}

/// Number of the first inherited descriptor after the standard ones.
const FIRST_FD: RawFd = 3;
/// Number of the executable's descriptor, which comes last.
const EXECUTABLE_FD: RawFd = FIRST_FD + 6;

impl KeeperFds<OwnedFd> {
    /// Takes over the inherited descriptors of this process.
    ///
    /// # Errors
    ///
    /// `EBADF` in a process that was not started as a keeper.
    pub fn take() -> io::Result<Self> {
        let take = |index: RawFd| {
            // SAFETY: the call takes numbers only; a number that is not open gives EBADF.
            let result = unsafe { libc::fcntl(FIRST_FD + index, libc::F_SETFD, libc::FD_CLOEXEC) };
            crate::sys::checked(result.into())?;
            // SAFETY: it is open, the process that started us has put it there for us, and only this call
            // takes it, once: the program has just begun.
            Ok::<_, io::Error>(unsafe { OwnedFd::from_raw_fd(FIRST_FD + index) })
        };
        Ok(Self {
            talk: take(0)?,
            watched: take(1)?,
            above: take(2)?,
            leaf: take(3)?,
            keepers: take(4)?,
            root: take(5)?,
        })
    }
}

/// Starts a keeper.
///
/// `executable` is open and checked. The keeper gets `null` as its standard descriptors, and ps(1) shows its
/// title. An intermediate process starts it and ends at once, so that the system's first process becomes the
/// keeper's parent.
///
/// # Errors
///
/// The step that failed, in this process or in one of the new ones.
pub fn spawn_keeper(
    executable: BorrowedFd<'_>,
    title: &CStr,
    null: BorrowedFd<'_>,
    fds: KeeperFds<BorrowedFd<'_>>,
) -> Result<(), SpawnFailure> {
    let KeeperFds {
        talk,
        watched,
        above,
        leaf,
        keepers,
        root,
    } = fds;
    let inherited = [
        null, null, null, talk, watched, above, leaf, keepers, root, executable,
    ];
    let stack = ChildStack::new();
    let mut order = KeeperOrder {
        fds: inherited.map(|fd| fd.as_raw_fd()),
        title,
        stack: &stack,
        failure: None,
    };
    // Without an exit signal, no `SIGCHLD` reaches the application, and no handler of it can reap the process.
    // SAFETY: makes system calls only.
    let (pid, _) = unsafe { vfork_with(run_intermediate, &mut order, 0) }?;
    while waitpid(Pid::from_raw(pid), Some(WaitPidFlag::__WALL)) == Err(nix::Error::EINTR) {}
    order.failure.map_or(Ok(()), Err)
}

/// The inputs of the intermediate process and of the keeper, and their failure.
struct KeeperOrder<'a> {
    /// Descriptors in the order of their numbers in the keeper.
    fds: [RawFd; EXECUTABLE_FD as usize + 1],
    title: &'a CStr,
    /// The keeper's stack until it executes its program.
    stack: &'a ChildStack,
    failure: Option<SpawnFailure>,
}

/// Runs in the intermediate process: leaves sshd's session and starts the keeper's process, whose parent it is. Its
/// own end, right after, makes the keeper an orphan. A failure is left in the order.
extern "C" fn run_intermediate(order: *mut libc::c_void) -> libc::c_int {
    // SAFETY: the order of our parent, which is suspended: no other code uses it.
    let intermediate = unsafe { &mut *order.cast::<KeeperOrder<'_>>() };
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: as in `vfork_with`: the keeper has a stack of its own, this process is suspended until the
    // keeper has executed its program, and our parent is suspended until this process has ended.
    unsafe {
        sys!(SYS_setsid);
        if libc::clone(start_keeper, intermediate.stack.top(), flags, order) == -1 {
            intermediate.failure = Some(SpawnFailure::from_errno("clone"));
        }
    }
    0
}

/// Runs in the keeper's process until that executes its program. A failure is left in the order.
extern "C" fn start_keeper(order: *mut libc::c_void) -> libc::c_int {
    // SAFETY: the order of a process that is suspended, as its parent is: no other code uses it.
    let order = unsafe { &mut *order.cast::<KeeperOrder<'_>>() };
    // SAFETY: in the process that has just been made.
    order.failure = unsafe { become_keeper(order) }.err();
    127
}

/// Turns the new process into the keeper; returns only on failure.
///
/// # Safety
///
/// Only in a process that [`run_intermediate`] has just made.
unsafe fn become_keeper(order: &mut KeeperOrder<'_>) -> Result<Infallible, SpawnFailure> {
    // SAFETY: system calls on descriptors, numbers and NUL-terminated memory that was laid out
    // before. Nothing allocates or locks.
    unsafe {
        prepare_exec(&mut order.fds)?;
        // An ignored signal would stay ignored over the exec.
        for signal in 1..65 {
            let action = DEFAULT_SIGACTION.as_ptr();
            sys!(SYS_rt_sigaction, signal, action, 0_usize, SIGNAL_SET_BYTES);
        }
        set_signal_mask(0);
        // The login's own limits may be in force by now.
        for resource in [libc::RLIMIT_CPU, libc::RLIMIT_AS, libc::RLIMIT_FSIZE] {
            set_limit(resource, libc::RLIM_INFINITY);
        }
        set_limit(libc::RLIMIT_CORE, 0);
        // The login's nice value and scheduling class may be, too, and jobs compute on every core.
        let usual = libc::sched_param { sched_priority: 0 };
        sys!(
            SYS_sched_setscheduler,
            0,
            libc::SCHED_OTHER,
            &raw const usual
        );
        sys!(SYS_setpriority, libc::PRIO_PROCESS, 0, 0);
        execute(EXECUTABLE_FD, order.title)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn file_that_cannot_be_executed_is_reported() {
        let file = |path| std::fs::File::open(path).unwrap();
        let null = file("/dev/null");
        let program = file("/bin/true");
        let text = file("/etc/passwd");
        let null = null.as_fd();
        let fds = KeeperFds {
            talk: null,
            watched: null,
            above: null,
            leaf: null,
            keepers: null,
            root: null,
        };
        let spawn = |executable| spawn_keeper(executable, c"keeper", null, fds);
        assert_eq!(spawn(program.as_fd()), Ok(()));
        let failure = SpawnFailure {
            step: "execveat",
            errno: nix::Error::EACCES,
        };
        assert_eq!(spawn(text.as_fd()), Err(failure));
    }
}
