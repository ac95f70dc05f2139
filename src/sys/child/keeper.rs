//! The way to a keeper: a process that is neither sshd's child nor in its session, and that stays.

use super::{RawFailure, Step, block, clear_exec_context, close_from, limit, reset_signals};
use nix::sys::signal::{SIGKILL, kill};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use std::ffi::CStr;
use std::io;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What a keeper is started with.
#[derive(Debug)]
pub struct KeeperSpec<'a> {
    /// The executable, opened and checked.
    pub executable: BorrowedFd<'a>,
    /// Its `argv[0]`, which ps(1) shows.
    pub title: &'a CStr,
    /// `/dev/null`.
    pub null: BorrowedFd<'a>,
    /// As [`Handed::talk`], and so on.
    pub talk: BorrowedFd<'a>,
    /// As there.
    pub watched: BorrowedFd<'a>,
    /// As there.
    pub above: BorrowedFd<'a>,
    /// As there.
    pub leaf: BorrowedFd<'a>,
    /// As there.
    pub keepers: BorrowedFd<'a>,
    /// As there.
    pub root: BorrowedFd<'a>,
}

/// How many descriptors a keeper is given.
const HANDED: usize = 6;
/// The first of them, behind the standard ones.
const FIRST: RawFd = 3;
const EXECUTABLE: RawFd = FIRST + HANDED as RawFd;

const _: () = assert!(EXECUTABLE < FD_FLOOR, "places overlap");

/// The descriptors that a keeper was given.
#[derive(Debug)]
pub struct Handed {
    /// A `SOCK_SEQPACKET` socket to who started it.
    pub talk: OwnedFd,
    /// The pidfd of the process whose end it waits for.
    pub watched: OwnedFd,
    /// The directory of the cgroup that the leaf is in.
    pub above: OwnedFd,
    /// The leaf's directory.
    pub leaf: OwnedFd,
    /// The file of the keepers' locks.
    pub keepers: OwnedFd,
    /// The root of the cgroup v2 mount.
    pub root: OwnedFd,
}

impl Handed {
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

/// Starts a keeper. What is returned is the process in between, which ends by itself as soon as it
/// has made the keeper: that is then nobody's child but the system's first process's. A keeper that
/// could not be executed is told of by a [`super::SpawnFailure`] on the other end of its socket.
/// Errors: `EAGAIN` or `ENOMEM` of `clone(2)`, `EMFILE`.
pub fn spawn_keeper(spec: &KeeperSpec<'_>) -> io::Result<Child> {
    let KeeperSpec { null, talk, watched, above, leaf, keepers, root, .. } = *spec;
    let handed: [_; HANDED] = [talk, watched, above, leaf, keepers, root];
    let places = [null; FIRST as usize].into_iter().chain(handed).chain([spec.executable]);
    let raised: Vec<RawFdGuard> = places.map(raise).collect::<io::Result<_>>()?;
    clone_with(|| {
        #[allow(clippy::multiple_unsafe_ops_per_block)]
        // SAFETY: we are the only thread of a fresh process, and so is the next one, which has its
        // own copy of everything; both call nothing but the kernel.
        unsafe {
            libc::setsid();
            match libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) {
                0 => {
                    let failure = become_keeper(&raised, spec.title);
                    tell(failure);
                    libc::_exit(127)
                }
                -1 => {
                    let errno = *libc::__errno_location();
                    if let Some(talk) = raised.get(FIRST as usize) {
                        libc::dup2(talk.0, FIRST);
                    }
                    tell(RawFailure { step: Step::Clone, errno });
                }
                _ => {}
            }
        }
        0
    })
}

/// # Safety
/// Only where the socket is in its place.
unsafe fn tell(failure: RawFailure) {
    let packet = failure.packet();
    // SAFETY: sends from our own stack.
    unsafe { libc::send(FIRST, packet.as_ptr().cast(), packet.len(), libc::MSG_NOSIGNAL) };
}

/// Returns only on failure.
///
/// # Safety
/// Only in a process that [`spawn_keeper`] has just made.
unsafe fn become_keeper(raised: &[RawFdGuard], title: &CStr) -> RawFailure {
    let argv = [title.as_ptr(), std::ptr::null()];
    let environ = [std::ptr::null::<libc::c_char>()];
    #[allow(clippy::multiple_unsafe_ops_per_block)]
    // SAFETY: system calls on descriptors, numbers and NUL-terminated memory that was laid out
    // before the clone. Nothing allocates or locks.
    unsafe {
        let failed = |step| RawFailure { step, errno: *libc::__errno_location() };
        clear_exec_context();
        let mut end = 0;
        for fd in raised {
            if libc::dup2(fd.0, end) == -1 {
                return failed(Step::Dup);
            }
            end += 1;
        }
        libc::fcntl(EXECUTABLE, libc::F_SETFD, libc::FD_CLOEXEC);
        close_from(end);
        // A login's own limits may be in force by now.
        for resource in [libc::RLIMIT_CPU, libc::RLIMIT_AS, libc::RLIMIT_FSIZE] {
            limit(resource, libc::RLIM_INFINITY);
        }
        limit(libc::RLIMIT_CORE, 0);
        libc::umask(0o077);
        if libc::chdir(c"/".as_ptr()) == -1 {
            return failed(Step::Chdir);
        }
        reset_signals();
        block(0);
        libc::syscall(
            libc::SYS_execveat,
            EXECUTABLE,
            c"".as_ptr(),
            argv.as_ptr(),
            environ.as_ptr(),
            libc::AT_EMPTY_PATH,
        );
        failed(Step::Execveat)
    }
}

/// A child that nobody else waits for. Dropping it ends and reaps it.
#[derive(Debug)]
pub struct Child(Pid);

impl Drop for Child {
    fn drop(&mut self) {
        let _ = kill(self.0, SIGKILL);
        while waitpid(self.0, Some(WaitPidFlag::__WALL)) == Err(nix::Error::EINTR) {}
    }
}

/// Lowest number for the descriptors that travel to the child, so that their places can be filled
/// without harm.
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

/// Runs `body` in a new process without an exit signal, every signal blocked: no `SIGCHLD` reaches
/// the application, and none of its handlers can reap it.
fn clone_with(body: impl FnOnce() -> libc::c_int) -> io::Result<Child> {
    let before = block(u64::MAX);
    // SAFETY: no flags: the child has its own copy of everything, as after fork(2). It runs
    // `body`, whose authors promise system calls only, and never returns from this block.
    let result = crate::sys::checked(unsafe { libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0) });
    if let Ok(0) = result {
        // A panic, which there should be none of, must not carry the child back into sshd's code.
        let status = catch_unwind(AssertUnwindSafe(body)).unwrap_or(127);
        // SAFETY: in the child: _exit runs no handler of the application.
        unsafe { libc::_exit(status) }
    }
    block(before);
    let pid = i32::try_from(result?).map_err(|_| io::ErrorKind::InvalidData)?;
    Ok(Child(Pid::from_raw(pid)))
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
