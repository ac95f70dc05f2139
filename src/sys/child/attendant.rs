//! The attendant: one process beside sshd for the time of one call.
//!
//! It starts the helper, waits for it and reports how it ended; in the session phase it then stays
//! where sshd was and looks after the move. sshd itself has no child but this one, which has no
//! exit signal: the helper's own end, which `execve(2)` makes a `SIGCHLD` again, is nobody's but
//! the attendant's. And however long the helper takes to die, the attendant does not.

use super::helper::{HelperFds, HelperSpec, RawFailure, SpawnFailure, Step, become_helper};
use super::{Child, FD_FLOOR, RawFdGuard, clone_with, close_from, raise};
use std::io;
use std::ops::Range;
use std::os::fd::{BorrowedFd, RawFd};

/// Most hierarchies in which a move is looked after: twice as many as Linux has controllers.
pub const ORIGINS_MAX: usize = 32;

/// What the attendant is for.
#[derive(Debug)]
pub struct AttendantSpec<'a> {
    /// A `SOCK_SEQPACKET` socket: reports come from it, leaves are told on it, see [`Report`] and
    /// [`Watch`]. Its end is the end of the process that called.
    pub talk: BorrowedFd<'a>,
    /// The helper to start.
    pub helper: HelperSpec<'a>,
    /// What to look after once the helper is done.
    pub watch: Option<Watch<'a>>,
}

/// The move that is to be looked after: a login that is silent for too long has been frozen with
/// its job and is moved back; of one that dies, the leaf whose path it told last is removed,
/// unless others use it by then. A packet of one NUL takes the last path back.
#[derive(Debug)]
pub struct Watch<'a> {
    /// `cgroup.procs` of the cgroups that the login came from, one of each hierarchy, open for
    /// writing; at most [`ORIGINS_MAX`].
    pub origins: Vec<BorrowedFd<'a>>,
    /// Directory of the cgroup v2 mount, to which told paths are relative; none where no leaf can
    /// be told of.
    pub root: Option<BorrowedFd<'a>>,
    /// Milliseconds after which a silent login is taken for frozen.
    pub patience_ms: i32,
}

/// How the helper ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// It never started.
    Failed(SpawnFailure),
    /// Its wait status, see `waitpid(2)`.
    Ended(i32),
}

impl Report {
    /// Most bytes of a report.
    pub const MAX: usize = 6;
    pub(super) const FAILED: u8 = b'f';
    const ENDED: u8 = b'e';

    /// Reads a report; `None` for anything else.
    #[must_use]
    pub fn decode(packet: &[u8]) -> Option<Self> {
        let [kind, step, number @ ..] = packet else { return None };
        let number = i32::from_ne_bytes(number.try_into().ok()?);
        match *kind {
            Self::FAILED => Some(Self::Failed(SpawnFailure::new(*step, number))),
            Self::ENDED => Some(Self::Ended(number)),
            _ => None,
        }
    }

    pub(super) fn packet(kind: u8, step: u8, number: i32) -> [u8; Self::MAX] {
        let [a, b, c, d] = number.to_ne_bytes();
        [kind, step, a, b, c, d]
    }
}

/// Starts the attendant, and with it the helper.
///
/// # Errors
/// `EAGAIN` or `ENOMEM` of `clone(2)`, `EMFILE`, `E2BIG` for more origins than there is room for.
/// What fails later is told in a [`Report`].
pub fn spawn_attendant(spec: &AttendantSpec<'_>) -> io::Result<Child> {
    let helper = &spec.helper;
    let watch = spec.watch.as_ref();
    let root = watch.and_then(|watch| watch.root).unwrap_or(spec.talk);
    let origins = watch.map(|watch| watch.origins.as_slice()).unwrap_or_default();
    if origins.len() > ORIGINS_MAX {
        return Err(io::Error::from_raw_os_error(libc::E2BIG));
    }
    let places = [spec.talk, root, helper.stdin, helper.stdout, helper.stderr, helper.executable];
    let places = places.iter().chain(origins);
    let raised: Vec<RawFdGuard> = places.map(|fd| raise(*fd)).collect::<io::Result<_>>()?;
    let patience = spec.watch.as_ref().map(|watch| watch.patience_ms);
    let parent = nix::unistd::getpid().as_raw();
    let mut digits = [0_u8; 12];
    let parent_digits = decimal(parent, &mut digits);
    clone_with(|| {
        // SAFETY: we are the only thread of a fresh process and call nothing but the kernel.
        unsafe { attend(&raised, helper, parent, parent_digits, patience) };
        0
    })
}

const TALK: RawFd = 0;
const ROOT: RawFd = 1;
const HELPER: HelperFds = HelperFds { stdin: 2, stdout: 3, stderr: 4, executable: 5 };
/// The first of the origins; the last descriptors of all.
const ORIGINS: RawFd = 6;

const _: () = assert!(ORIGINS as usize + ORIGINS_MAX <= FD_FLOOR as usize, "places overlap");

/// # Safety
/// Only in a process that [`clone_with`] has just made.
unsafe fn attend(
    raised: &[RawFdGuard],
    helper: &HelperSpec<'_>,
    parent: libc::pid_t,
    parent_digits: &[u8],
    patience_ms: Option<libc::c_int>,
) {
    #[allow(clippy::multiple_unsafe_ops_per_block)]
    // SAFETY: system calls on our own descriptors and stack; nothing allocates.
    unsafe {
        let mut end = 0;
        for fd in raised {
            if libc::dup2(fd.0, end) == -1 {
                return;
            }
            end += 1;
        }
        // The caller's own end of the socket among the rest would hide its death from us.
        close_from(end);
        // Until the helper is gone we go with the caller, and the helper goes with us.
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0);
        if libc::getppid() != parent {
            return;
        }
        // Ignored, it would have the kernel reap the helper before we can.
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
        let report = run_helper(helper);
        libc::prctl(libc::PR_SET_PDEATHSIG, 0, 0, 0, 0);
        libc::send(TALK, report.as_ptr().cast(), report.len(), libc::MSG_NOSIGNAL);
        if let Some(patience_ms) = patience_ms {
            watch(parent_digits, ORIGINS..end, patience_ms);
        }
    }
}

/// Starts the helper and waits for its end; returns the packet of the report.
///
/// # Safety
/// As [`attend`].
unsafe fn run_helper(spec: &HelperSpec<'_>) -> [u8; Report::MAX] {
    let mut order = Order { spec, attendant: 0, failure: None };
    let mut stack = Stack([0; 64 * 1024]);
    #[allow(clippy::multiple_unsafe_ops_per_block)]
    // SAFETY: the child shares our memory and we are held until it has become the helper or has
    // ended (CLONE_VFORK), so that `order` and `stack` outlive its use of them; it runs on a stack
    // of its own and makes system calls only. This is a copy of sshd, not sshd: what a change of
    // identity does to shared memory (it may no longer be traced or dumped) stays here.
    unsafe {
        order.attendant = libc::getpid();
        let top = stack.0.as_mut_ptr().add(stack.0.len());
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        let pid = libc::clone(start_helper, top.cast(), flags, (&raw mut order).cast());
        let mut status = 0;
        let mut failure = order.failure;
        if pid == -1 {
            failure = Some(RawFailure { step: Step::Clone, errno: *libc::__errno_location() });
        }
        for fd in [HELPER.stdin, HELPER.stdout, HELPER.stderr, HELPER.executable] {
            libc::close(fd);
        }
        while pid != -1 && libc::waitpid(pid, &raw mut status, 0) == -1 {
            if *libc::__errno_location() != libc::EINTR {
                status = -1;
                break;
            }
        }
        match failure {
            Some(RawFailure { step, errno }) => Report::packet(Report::FAILED, step as u8, errno),
            None => Report::packet(Report::ENDED, 0, status),
        }
    }
}

/// What the child needs, and what it leaves behind.
struct Order<'a, 'b> {
    spec: &'a HelperSpec<'b>,
    attendant: libc::pid_t,
    failure: Option<RawFailure>,
}

/// Aligned as the ABIs of all 64-bit Linux machines want a stack.
#[repr(align(16))]
struct Stack([u8; 64 * 1024]);

extern "C" fn start_helper(order: *mut libc::c_void) -> libc::c_int {
    // SAFETY: the attendant's order, which nobody else touches while the attendant is held.
    let order = unsafe { &mut *order.cast::<Order<'_, '_>>() };
    // SAFETY: in the process that the attendant has just made.
    order.failure = Some(unsafe { become_helper(order.spec, HELPER, order.attendant) });
    127
}

/// How often a login that stays silent is moved back before the watch is given up.
const RELEASES: u32 = 8;

/// # Safety
/// As [`attend`].
unsafe fn watch(parent: &[u8], origins: Range<RawFd>, patience_ms: libc::c_int) {
    let mut leaf = [0_u8; libc::PATH_MAX as usize];
    let mut released = 0;
    #[allow(clippy::multiple_unsafe_ops_per_block)]
    // SAFETY: system calls on our own descriptors and stack; nothing allocates.
    unsafe {
        loop {
            let mut poll = libc::pollfd { fd: TALK, events: libc::POLLIN, revents: 0 };
            match libc::poll(&raw mut poll, 1, patience_ms) {
                0 if released == RELEASES => return,
                0 => {
                    for origin in origins.clone() {
                        libc::write(origin, parent.as_ptr().cast(), parent.len());
                    }
                    released += 1;
                    continue;
                }
                -1 => continue,
                _ => {}
            }
            // One byte less than there is room for, so that the path stays NUL-terminated; in
            // whole, so that nothing of a longer one before it is left.
            let mut told = [0_u8; libc::PATH_MAX as usize];
            match libc::read(TALK, told.as_mut_ptr().cast(), told.len() - 1) {
                -1 => {}
                0 => {
                    if leaf[0] != 0 {
                        libc::unlinkat(ROOT, leaf.as_ptr().cast(), libc::AT_REMOVEDIR);
                    }
                    return;
                }
                _ => leaf = told,
            }
        }
    }
}

/// `number` in decimal digits at the end of `buffer`, without allocating.
fn decimal(number: i32, buffer: &mut [u8; 12]) -> &[u8] {
    let mut rest = number.unsigned_abs();
    let mut start = buffer.len();
    for (index, digit) in buffer.iter_mut().enumerate().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
        start = index;
        if rest == 0 {
            break;
        }
    }
    buffer.get(start..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimal_digits() {
        for number in [0, 7, 10, 4_194_304, i32::MAX] {
            assert_eq!(decimal(number, &mut [0; 12]), number.to_string().as_bytes());
        }
    }

    #[test]
    fn reports_are_read_back() {
        let failed = Report::packet(Report::FAILED, Step::Setgroups as u8, libc::EPERM);
        let failure = SpawnFailure { step: "setgroups", errno: libc::EPERM };
        assert_eq!(Report::decode(&failed), Some(Report::Failed(failure)));
        assert_eq!(
            Report::decode(&Report::packet(Report::ENDED, 0, 256)),
            Some(Report::Ended(256))
        );
        for packet in [&b""[..], b"e", b"e\0\0", b"x\0\0\0\0\0", b"e\0\0\0\0\0\0"] {
            assert_eq!(Report::decode(packet), None, "{packet:?}");
        }
    }
}
