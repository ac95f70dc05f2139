//! The way to a keeper: a process that is neither sshd's child nor in its session, and that stays.

use super::{SpawnFailure, arrange, execute, limit, sys, vfork_with};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use std::convert::Infallible;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

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
/// Behind those its executable.
const EXECUTABLE: RawFd = FIRST + HANDED as RawFd;

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
            crate::kernel::sys::checked(result.into())?;
            // SAFETY: it is open, was put there for us by who started us, and is taken once, by
            // this call: the program has just begun.
            Ok::<_, io::Error>(unsafe { OwnedFd::from_raw_fd(FIRST + at) })
        };
        let (talk, watched, above) = (take(0)?, take(1)?, take(2)?);
        Ok(Self { talk, watched, above, leaf: take(3)?, keepers: take(4)?, root: take(5)? })
    }
}

/// Starts a keeper, by a process in between that ends at once: the keeper is then nobody's child
/// but the system's first process's. One that could not be executed is told of by a
/// [`SpawnFailure`] on the other end of its socket.
///
/// Errors: `EAGAIN` or `ENOMEM` of `clone(2)`.
pub fn spawn_keeper(spec: &KeeperSpec<'_>) -> io::Result<()> {
    let KeeperSpec { executable, title, null, talk, watched, above, leaf, keepers, root } = *spec;
    let fds = [null, null, null, talk, watched, above, leaf, keepers, root, executable];
    let mut order = Order { fds: fds.map(|fd| fd.as_raw_fd()), title, failure: None };
    // No exit signal: no `SIGCHLD` reaches the application, and none of its handlers can reap it.
    // SAFETY: makes system calls only.
    let made = unsafe { vfork_with(stand_between, &mut order, 0) };
    let failed = |failure: SpawnFailure| io::Error::from_raw_os_error(failure.errno);
    let (between, _) = made.map_err(failed)?;
    while waitpid(Pid::from_raw(between), Some(WaitPidFlag::__WALL)) == Err(nix::Error::EINTR) {}
    order.failure.map_or(Ok(()), |failure| Err(failed(failure)))
}

struct Order<'a> {
    /// In the order of their places.
    fds: [RawFd; EXECUTABLE as usize + 1],
    title: &'a CStr,
    failure: Option<SpawnFailure>,
}

extern "C" fn stand_between(order: *mut libc::c_void) -> libc::c_int {
    // SAFETY: our parent's order, which nobody else touches while that is held.
    let order = unsafe { &mut *order.cast::<Order<'_>>() };
    #[allow(clippy::multiple_unsafe_ops_per_block)]
    // SAFETY: plain numbers. The next process has its own copy of everything, as after fork(2), and
    // never returns from here.
    unsafe {
        sys!(SYS_setsid);
        match sys!(SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) {
            0 => {
                let Err(failure) = become_keeper(order);
                tell(order, failure);
                libc::_exit(127)
            }
            -1 => order.failure = Some(SpawnFailure::last("clone")),
            _ => {}
        }
    }
    0
}

/// # Safety
/// Only in a process that [`stand_between`] has just made.
unsafe fn tell(order: &Order<'_>, failure: SpawnFailure) {
    let packet = failure.packet();
    // Until all are in their places, the socket has still the number that it came with.
    let [_, _, _, talk, ..] = order.fds;
    let talk = if failure.step == "dup" { talk } else { FIRST };
    // SAFETY: sends from our own stack.
    unsafe { libc::send(talk, packet.as_ptr().cast(), packet.len(), libc::MSG_NOSIGNAL) };
}

/// Returns only on failure.
///
/// # Safety
/// As [`tell`].
unsafe fn become_keeper(order: &mut Order<'_>) -> Result<Infallible, SpawnFailure> {
    #[allow(clippy::multiple_unsafe_ops_per_block)]
    // SAFETY: system calls on descriptors, numbers and NUL-terminated memory that was laid out
    // before the clone. Nothing allocates or locks.
    unsafe {
        arrange(&mut order.fds)?;
        // A login's own limits may be in force by now.
        for resource in [libc::RLIMIT_CPU, libc::RLIMIT_AS, libc::RLIMIT_FSIZE] {
            limit(resource, libc::RLIM_INFINITY);
        }
        limit(libc::RLIMIT_CORE, 0);
        execute(EXECUTABLE, order.title)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, recv, socketpair};
    use std::os::fd::AsFd;

    /// What a keeper of this program says, and its end.
    fn said(program: &str) -> Vec<Vec<u8>> {
        let file = |path| std::fs::File::open(path).unwrap();
        let (program, null) = (file(program), file("/dev/null"));
        let (kind, flags) = (SockType::SeqPacket, SockFlag::SOCK_CLOEXEC);
        let (theirs, ours) = socketpair(AddressFamily::Unix, kind, None, flags).unwrap();
        let (null, talk) = (null.as_fd(), theirs.as_fd());
        let spec = KeeperSpec {
            executable: program.as_fd(),
            title: c"keeper",
            null,
            talk,
            watched: null,
            above: null,
            leaf: null,
            keepers: null,
            root: null,
        };
        spawn_keeper(&spec).unwrap();
        drop(theirs);
        let packets = std::iter::repeat_with(|| {
            let mut packet = [0; SpawnFailure::LEN];
            let length = recv(ours.as_raw_fd(), &mut packet, MsgFlags::empty()).unwrap();
            packet[..length].to_vec()
        });
        packets.take_while(|packet| !packet.is_empty()).collect()
    }

    #[test]
    fn a_keeper_that_cannot_be_executed_says_so() {
        assert!(said("/usr/bin/true").is_empty());
        let [packet] = said("/dev/null").try_into().unwrap();
        let (step, error) = SpawnFailure::decode(&packet).unwrap();
        assert_eq!((step.as_str(), error.raw_os_error()), ("execveat", Some(libc::EACCES)));
    }
}
