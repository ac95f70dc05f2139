//! The helper: a child of sshd's that runs as another account, and is never waited for longer than
//! it is given.
//!
//! It is made as vfork(2) makes one: until it has executed its program it runs on a stack of its own
//! in sshd's memory, and the calling thread stands still. Nothing is copied. What sshd would
//! notice of that is put back: `SIGCHLD` is at its default while the helper is there, so that its
//! end is ours to collect; and a change of identity, which takes from the shared memory that it may be
//! traced and dumped, is undone for sshd. Every signal stays blocked: none is of use to the helper.
//!
//! The helper is killed through a descriptor that stands for it (pidfd). Kernels before 5.2 have
//! none; there its number is used, which nobody else can get before it is reaped.

use super::{
    Action, DEFAULT_ACTION, MASK, SpawnFailure, arrange, execute, limit, step, sys, vfork_with,
};
use crate::sys::pidfd::pidfd_send_signal;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SIGCHLD, kill};
use nix::unistd::getpid;
use std::convert::Infallible;
use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Who the helper runs as and on what.
#[derive(Debug)]
pub struct HelperSpec<'a> {
    /// Its standard input, output and error, and the executable, opened and checked.
    pub fds: [BorrowedFd<'a>; 4],
    /// Its `argv[0]`.
    pub name: &'a CStr,
    /// Numeric user id, never 0.
    pub uid: u32,
    /// Numeric group id.
    pub gid: u32,
    /// How long it may take until its program runs.
    pub patience: Duration,
}

/// How a helper ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// With this status.
    Exited(i32),
    /// By this signal.
    Killed(i32),
    /// Somebody else in this process has reaped it.
    Unknown,
}

/// A helper that was started. Dropped, it is killed, and reaped if it ends at once; one that no
/// signal reaches is left to whoever reaps sshd's children, or to the end of sshd.
#[derive(Debug)]
pub struct Helper {
    pid: libc::pid_t,
    pidfd: Option<OwnedFd>,
    reaped: bool,
    _haste: Haste,
    _sigchld: Sigchld,
}

/// How long a killed helper is looked after. Death needs some microseconds, and its turn.
const DYING: Duration = Duration::from_millis(100);
/// Between two looks at a helper of whose end nothing tells.
const TICK: Duration = Duration::from_millis(1);

impl Helper {
    /// Starts it.
    /// Errors: The step that failed, here or in the child.
    pub fn start(spec: &HelperSpec<'_>) -> Result<Self, SpawnFailure> {
        Self::start_with(spec, libc::CLONE_PIDFD)
    }

    fn start_with(spec: &HelperSpec<'_>, pidfds: libc::c_int) -> Result<Self, SpawnFailure> {
        let sigchld = Sigchld::take().map_err(|()| SpawnFailure::last("sigaction"))?;
        let haste = Haste::take();
        let dumpable = Dumpable(Dumpable::get());
        let mut order = Order { spec, parent: getpid().as_raw(), failure: None };
        // SAFETY: makes system calls only.
        let made = unsafe { vfork_with(start_helper, &mut order, libc::SIGCHLD | pidfds) };
        drop(dumpable);
        let (pid, pidfd) = made?;
        let helper = Self { pid, pidfd, reaped: false, _haste: haste, _sigchld: sigchld };
        match order.failure {
            None => Ok(helper),
            Some(failure) => Err(failure),
        }
    }

    /// Waits for its end; `None` where it has not ended by then. `answer` is the reading end of
    /// what it writes to.
    pub fn wait(&mut self, answer: Option<BorrowedFd<'_>>, until: Instant) -> Option<End> {
        loop {
            let told = self.pause(answer, until);
            if let Some(end) = self.reap() {
                return Some(end);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            // It closed its output and lives on, or whoever traces it has to see its end first.
            if told {
                std::thread::sleep(left.min(TICK));
            }
        }
    }

    /// Stands still until its end is told of, and whether it was. Without a pidfd the end of its
    /// answer tells.
    fn pause(&self, answer: Option<BorrowedFd<'_>>, until: Instant) -> bool {
        let mut told = match (&self.pidfd, answer) {
            (Some(pidfd), _) => [PollFd::new(pidfd.as_fd(), PollFlags::POLLIN)],
            // The end alone, and no part of it.
            (None, Some(answer)) => [PollFd::new(answer, PollFlags::empty())],
            (None, None) => return true,
        };
        let left = until.saturating_duration_since(Instant::now());
        let timeout = match left.as_millis() {
            0 if left.is_zero() => PollTimeout::ZERO,
            // Not a moment less than is left, or the last one would be spent in vain.
            millis => PollTimeout::try_from(millis + 1).unwrap_or(PollTimeout::MAX),
        };
        poll(&mut told, timeout) != Ok(0)
    }

    /// Collects its end, if there is one by now.
    fn reap(&mut self) -> Option<End> {
        if self.reaped {
            return Some(End::Unknown);
        }
        let by_number = (libc::P_PID, self.pid.unsigned_abs());
        let by_fd = self.pidfd.as_ref().map(|fd| (libc::P_PIDFD, fd.as_raw_fd().unsigned_abs()));
        let mut ended = Err(Errno::EINVAL);
        for (kind, id) in by_fd.into_iter().chain([by_number]) {
            // Before 5.4 a pidfd cannot be waited for.
            if ended == Err(Errno::EINVAL) {
                ended = wait_id(kind, id, 0);
            }
        }
        let end = match ended {
            Ok(end) => end,
            Err(errno) => (errno == Errno::ECHILD).then_some(End::Unknown),
        };
        self.reaped = end.is_some();
        end
    }

    fn kill(&self) {
        match &self.pidfd {
            Some(pidfd) => _ = pidfd_send_signal(pidfd.as_fd(), libc::SIGKILL),
            // SAFETY: a number that is our child's, since it is not reaped.
            None => _ = unsafe { libc::kill(self.pid, libc::SIGKILL) },
        }
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        if self.reap().is_none() {
            self.kill();
            self.wait(None, Instant::now() + DYING);
        }
    }
}

/// What sshd does at the end of a child, while none of the helpers is there; and how many are, one
/// for each thread that is in the module.
struct Kept {
    helpers: usize,
    disposition: Option<Action>,
}

static KEPT: Mutex<Kept> = Mutex::new(Kept { helpers: 0, disposition: None });

/// Keeps `SIGCHLD` at its default.
#[derive(Debug)]
struct Sigchld {
    /// The application blocks it, and had one to take.
    pending: bool,
}

impl Sigchld {
    fn take() -> Result<Self, ()> {
        let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
        let pending = sigchld_is_pending();
        if kept.helpers == 0 {
            kept.disposition = Some(dispose(&DEFAULT_ACTION)?);
        }
        kept.helpers += 1;
        Ok(Self { pending })
    }
}

impl Drop for Sigchld {
    fn drop(&mut self) {
        let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
        kept.helpers -= 1;
        // Where the application blocks it: this one is the helper's. Setting a default that is to
        // do nothing takes it away.
        if sigchld_is_pending() {
            let _ = dispose(&DEFAULT_ACTION);
        }
        if kept.helpers == 0 {
            if let Some(disposition) = kept.disposition.take() {
                let _ = dispose(&disposition);
            }
        }
        drop(kept);
        // Nobody was told of the application's own children meanwhile.
        if self.pending || wait_id(libc::P_ALL, 0, libc::WNOWAIT).is_ok_and(|end| end.is_some()) {
            let _ = kill(getpid(), SIGCHLD);
        }
    }
}

/// Sets the disposition of `SIGCHLD`; returns the one before. The C library's call would add to what
/// the application had set.
fn dispose(action: &Action) -> Result<Action, ()> {
    let mut before = DEFAULT_ACTION;
    let (new, old) = (action.as_ptr(), before.as_mut_ptr());
    // SAFETY: the default, or what the application itself had set; both are long enough.
    match unsafe { sys!(SYS_rt_sigaction, libc::SIGCHLD, new, old, MASK) } {
        -1 => Err(()),
        _ => Ok(before),
    }
}

fn sigchld_is_pending() -> bool {
    let mut set = 0_u64;
    // SAFETY: writes a number of the size that it is told.
    unsafe { sys!(SYS_rt_sigpending, &raw mut set, MASK) };
    set & (1 << (libc::SIGCHLD - 1)) != 0
}

/// How such a child has ended (waitid(2)); `None` where none has.
fn wait_id(kind: libc::idtype_t, id: libc::id_t, flags: libc::c_int) -> nix::Result<Option<End>> {
    // SAFETY: zeroed memory is a siginfo_t.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let flags = libc::WEXITED | libc::WNOHANG | flags;
    // SAFETY: writes a whole structure of this type, or nothing.
    Errno::result(unsafe { libc::waitid(kind, id, &raw mut info, flags) })?;
    // SAFETY: they are zero, or what waitid has written.
    let (pid, status) = unsafe { (info.si_pid(), info.si_status()) };
    let end = if info.si_code == libc::CLD_EXITED { End::Exited } else { End::Killed };
    Ok((pid != 0).then_some(end(status)))
}

/// Has this thread, and the helper that it starts, run at once where jobs compute on every core: for
/// half a millisecond, in which they would wait for their turn three times. Since Linux 6.6 whoever
/// runs has its slice first, whatever its nice value, unless the other's is shorter: 100 us is the
/// shortest (6.12). Put back on drop; without the right to it nothing changes.
#[derive(Debug)]
struct Haste(Option<libc::sched_attr>);

impl Haste {
    fn take() -> Self {
        // SAFETY: zeroed memory is a sched_attr.
        let mut before: libc::sched_attr = unsafe { std::mem::zeroed() };
        // SAFETY: writes no more than the size that it is told.
        let known = unsafe { sys!(SYS_sched_getattr, 0, &raw mut before, size_of_val(&before), 0) }
            == 0
            && before.sched_policy == libc::SCHED_OTHER as u32;
        before.sched_runtime = 0;
        let hasty = libc::sched_attr { sched_nice: -20, sched_runtime: 100_000, ..before };
        Self((known && schedule(&hasty)).then_some(before))
    }
}

impl Drop for Haste {
    fn drop(&mut self) {
        self.0.take().map(|before| schedule(&before));
    }
}

fn schedule(how: &libc::sched_attr) -> bool {
    // SAFETY: reads a structure that tells its size, about this thread.
    unsafe { sys!(SYS_sched_setattr, 0, std::ptr::from_ref(how), 0) == 0 }
}

/// Whether this process may be traced and dumped, put back on drop.
struct Dumpable(libc::c_int);

impl Dumpable {
    fn get() -> libc::c_int {
        // SAFETY: asks for a number.
        unsafe { libc::prctl(libc::PR_GET_DUMPABLE, 0, 0, 0, 0) }
    }
}

impl Drop for Dumpable {
    fn drop(&mut self) {
        if Self::get() != self.0 {
            // The third state, "by root alone", cannot be asked for; the one that is left is
            // narrower.
            let wanted = libc::c_ulong::from(self.0 == 1);
            // SAFETY: sets a number.
            unsafe { libc::prctl(libc::PR_SET_DUMPABLE, wanted, 0, 0, 0) };
        }
    }
}

/// What the child needs, and what it leaves behind.
struct Order<'a, 'b> {
    spec: &'a HelperSpec<'b>,
    /// The process that asks.
    parent: libc::pid_t,
    failure: Option<SpawnFailure>,
}

extern "C" fn start_helper(order: *mut libc::c_void) -> libc::c_int {
    // SAFETY: our parent's order, which nobody else touches while that is held.
    let order = unsafe { &mut *order.cast::<Order<'_, '_>>() };
    // SAFETY: in the process that has just been made.
    order.failure = unsafe { become_helper(order.spec, order.parent) }.err();
    127
}

/// Limits of the helper: resource, and soft and hard value alike. The user's own may be in force
/// by now (pam_limits runs before us on some stacks), and their `nproc` must not fail our exec, nor
/// their `sigpending` our timer; once the identity has changed both are less.
const LIMITS: [(libc::__rlimit_resource_t, libc::rlim_t); 8] = [
    (libc::RLIMIT_NPROC, libc::RLIM_INFINITY),
    (libc::RLIMIT_SIGPENDING, libc::RLIM_INFINITY),
    (libc::RLIMIT_AS, 1 << 30),
    (libc::RLIMIT_NICE, 0),
    (libc::RLIMIT_RTPRIO, 0),
    (libc::RLIMIT_NOFILE, 256),
    (libc::RLIMIT_FSIZE, 0),
    (libc::RLIMIT_CORE, 0),
];
const SIGPENDING: libc::rlim_t = 64;

/// Arguments that the kernel reads all 64 bits of.
const NIL: usize = 0;
const ONE: usize = 1;
const SIGKILL: usize = libc::SIGKILL as usize;

/// The child's way to `execve`; returns only on failure.
///
/// # Safety
/// Only in a process that [`vfork_with`] has just made.
unsafe fn become_helper(
    spec: &HelperSpec<'_>,
    parent: libc::pid_t,
) -> Result<Infallible, SpawnFailure> {
    // SAFETY: system calls on descriptors, numbers and NUL-terminated or length-delimited memory
    // that was laid out before or is on this stack. Nothing allocates, locks or panics, and of the
    // parent's memory nothing is written but the failure and the calling thread's `errno`.
    unsafe {
        // First of all: how many descriptors there may be is what sshd's own limit tells.
        arrange(&mut spec.fds.map(|fd| fd.as_raw_fd()))?;
        for (resource, wanted) in LIMITS {
            limit(resource, wanted);
        }
        // It has no more than the phase, whatever becomes of sshd.
        limit(libc::RLIMIT_CPU, spec.patience.as_secs() + 1);
        step("timer", end_after(spec.patience))?;
        // Only to leave a terminal: a new session has its turn (autogroup, sched(7)) behind the jobs.
        let flags = libc::O_RDWR | libc::O_NONBLOCK | libc::O_CLOEXEC;
        let terminal = sys!(SYS_openat, libc::AT_FDCWD, c"/dev/tty".as_ptr(), flags, 0);
        if terminal != -1 || Errno::last_raw() != libc::ENXIO {
            step("setsid", sys!(SYS_setsid))?;
        }
        // The raw forms, since glibc's would signal threads that are the parent's. Capabilities are
        // kept over the change of identity, and dropped when nobody may trace us any more: until
        // exec this is sshd's memory, and the helper's account may run other helpers.
        sys!(SYS_prctl, libc::PR_SET_KEEPCAPS, ONE, NIL, NIL, NIL);
        step("setgroups", sys!(SYS_setgroups, NIL, std::ptr::null::<libc::gid_t>()))?;
        step("setresgid", sys!(SYS_setresgid, spec.gid, spec.gid, spec.gid))?;
        step("setresuid", sys!(SYS_setresuid, spec.uid, spec.uid, spec.uid))?;
        step("dumpable", sys!(SYS_prctl, libc::PR_SET_DUMPABLE, NIL, NIL, NIL, NIL))?;
        step("capset", drop_capabilities())?;
        // Set now that exec no longer looks at it: the helper can make no process of its own.
        limit(libc::RLIMIT_NPROC, 0);
        limit(libc::RLIMIT_SIGPENDING, SIGPENDING);
        step("no_new_privs", sys!(SYS_prctl, libc::PR_SET_NO_NEW_PRIVS, ONE, NIL, NIL, NIL))?;
        step("pdeathsig", sys!(SYS_prctl, libc::PR_SET_PDEATHSIG, SIGKILL, NIL, NIL, NIL))?;
        if sys!(SYS_getppid) != libc::c_long::from(parent) {
            return Err(SpawnFailure { step: "parent gone", errno: Errno::ESRCH });
        }
        execute(3, spec.name)
    }
}

/// Has the kernel kill this process at that time; its program is rid of that. Whoever has the
/// helper's uid can stop this process until then, and with it the parent.
///
/// # Safety
/// As [`become_helper`].
unsafe fn end_after(patience: Duration) -> libc::c_long {
    let zero = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let patience = patience.max(TICK);
    let after = libc::timespec {
        tv_sec: libc::time_t::try_from(patience.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: libc::c_long::from(patience.subsec_nanos()),
    };
    let once = libc::itimerspec { it_interval: zero, it_value: after };
    let mut timer: libc::c_int = 0;
    // SAFETY: structures on our own stack; zeroed, a sigevent is one.
    unsafe {
        let mut event: libc::sigevent = std::mem::zeroed();
        event.sigev_notify = libc::SIGEV_SIGNAL;
        event.sigev_signo = libc::SIGKILL;
        let made = sys!(SYS_timer_create, libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer);
        if made == -1 {
            return made;
        }
        sys!(SYS_timer_settime, timer, 0, &raw const once, std::ptr::null::<libc::itimerspec>())
    }
}

/// Empties every capability set, ambient included, whatever securebits say.
///
/// # Safety
/// As [`become_helper`].
unsafe fn drop_capabilities() -> libc::c_long {
    const LINUX_CAPABILITY_VERSION_3: u32 = 0x2008_0522;
    const CLEAR_ALL: usize = libc::PR_CAP_AMBIENT_CLEAR_ALL as usize;
    let header: [u32; 2] = [LINUX_CAPABILITY_VERSION_3, 0];
    let sets = [0_u32; 6];
    // SAFETY: header and sets have the layout of version 3 in linux/capability.h.
    unsafe {
        sys!(SYS_prctl, libc::PR_CAP_AMBIENT, CLEAR_ALL, NIL, NIL, NIL);
        sys!(SYS_capset, header.as_ptr(), sets.as_ptr())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::pidfd::pidfd_open;
    use std::process::{Command, Stdio};

    /// A shell in the helper's place, and the end of what it says.
    #[expect(clippy::zombie_processes, reason = "the helper is waited for as such")]
    fn shell(script: &str, pidfds: bool) -> (Helper, std::process::ChildStdout) {
        let sigchld = Sigchld::take().unwrap();
        let mut child =
            Command::new("sh").args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let pidfd = pidfds.then(|| pidfd_open(pid).unwrap());
        (
            Helper { pid, pidfd, reaped: false, _haste: Haste(None), _sigchld: sigchld },
            child.stdout.take().unwrap(),
        )
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    /// A thread has a nice value of its own.
    #[test]
    fn the_nice_value_is_put_back() {
        // SAFETY: asks for a number, of this thread.
        let own = || unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
        let cycle = move || {
            let told = own() + 1;
            // SAFETY: sets a number, of this thread.
            assert_eq!(unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, told) }, 0);
            let haste = Haste::take();
            assert_eq!(own(), if haste.0.is_some() { -20 } else { told });
            drop(haste);
            assert_eq!(own(), told);
        };
        std::thread::spawn(cycle).join().unwrap();
    }

    #[test]
    fn its_end_is_told_with_a_pidfd_and_without() {
        for pidfds in [true, false] {
            for (script, end) in [
                ("exit 0", End::Exited(0)),
                ("echo x; exit 3", End::Exited(3)),
                ("exec >&-; sleep 0.1; exit 4", End::Exited(4)),
                ("kill -9 $$", End::Killed(9)),
                ("kill -40 $$", End::Killed(40)),
            ] {
                let (mut helper, answer) = shell(script, pidfds);
                assert_eq!(helper.wait(Some(answer.as_fd()), soon()), Some(end), "{script}");
            }
        }
    }

    #[test]
    fn one_that_stays_is_killed_and_reaped() {
        for pidfds in [true, false] {
            for script in ["exec sleep 1000", "kill -STOP $$", "exec >&-; exec sleep 1000"] {
                let (mut helper, answer) = shell(script, pidfds);
                let until = Instant::now() + Duration::from_millis(50);
                assert_eq!(helper.wait(Some(answer.as_fd()), until), None, "{script}");
                helper.kill();
                assert_eq!(helper.wait(None, soon()), Some(End::Killed(9)), "{script}");
            }
        }
    }

    #[test]
    fn one_that_somebody_else_has_reaped_is_let_be() {
        for pidfds in [true, false] {
            let (mut helper, answer) = shell("exit 3", pidfds);
            let sigchld = Sigchld::take().unwrap();
            let mut other = Helper {
                pid: helper.pid,
                pidfd: None,
                reaped: false,
                _haste: Haste(None),
                _sigchld: sigchld,
            };
            assert_eq!(other.wait(Some(answer.as_fd()), soon()), Some(End::Exited(3)));
            assert_eq!(helper.wait(Some(answer.as_fd()), soon()), Some(End::Unknown));
        }
    }

    /// As root, where the kernel knows of no pidfds and where it does.
    #[test]
    fn a_program_is_executed_as_somebody_else() {
        if !nix::unistd::geteuid().is_root() {
            return;
        }
        for pidfds in [libc::CLONE_PIDFD, 0] {
            let null = std::fs::File::open("/dev/null").unwrap();
            let program = std::fs::File::open("/usr/bin/id").unwrap();
            let (answer, stdout) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).unwrap();
            let spec = HelperSpec {
                fds: [null.as_fd(), stdout.as_fd(), null.as_fd(), program.as_fd()],
                name: c"id",
                uid: 65_534,
                gid: 65_534,
                patience: Duration::from_secs(60),
            };
            let mut helper = Helper::start_with(&spec, pidfds).unwrap();
            assert_eq!(helper.pidfd.is_some(), pidfds != 0);
            drop(stdout);
            assert_eq!(helper.wait(Some(answer.as_fd()), soon()), Some(End::Exited(0)));
            let mut said = String::new();
            std::io::Read::read_to_string(&mut std::fs::File::from(answer), &mut said).unwrap();
            assert!(said.starts_with("uid=65534") && said.contains("gid=65534"), "{said}");
            assert!(!said.contains("(root)"), "{said}");
        }
    }

    #[test]
    fn a_step_that_fails_is_told() {
        if !nix::unistd::geteuid().is_root() {
            return;
        }
        let null = std::fs::File::open("/dev/null").unwrap();
        let fd = null.as_fd();
        let name = c"nothing";
        let patience = Duration::from_secs(60);
        let (uid, gid) = (65_534, 65_534);
        let spec = HelperSpec { fds: [fd; 4], name, uid, gid, patience };
        let failure = Helper::start(&spec).map(drop).unwrap_err();
        assert_eq!(failure, SpawnFailure { step: "execveat", errno: Errno::EACCES });
    }
}
