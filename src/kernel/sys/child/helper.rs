//! Starts the helper: a child of sshd that runs as another account, within a time limit.
//!
//! The helper starts as by vfork(2): until it has executed its program it runs on its own stack in sshd's
//! memory, and the calling thread is suspended. Nothing is copied. Its effects on sshd are undone. `SIGCHLD`
//! has its default action while a helper lives, so that only this module reaps it. The change of identity
//! makes the shared memory untraceable and not dumpable; afterwards sshd is as dumpable as before. Every
//! signal stays blocked in the helper, which needs none.
//!
//! A pidfd kills the helper. Kernels before 5.2 have none. There its process number serves, which no other
//! process can get before the helper is reaped.

use super::{
    DEFAULT_SIGACTION, KernelSigaction, SIGNAL_SET_BYTES, SpawnFailure, check_step, execute,
    prepare_exec, set_limit, sys, vfork_with,
};
use crate::sys::attributes::{get_scheduling, set_scheduling};
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

/// The account, program and time limit of a helper.
#[derive(Debug)]
pub struct HelperSpec<'a> {
    /// Standard input, output and error, and the executable, opened and checked.
    pub fds: [BorrowedFd<'a>; 4],
    /// `argv[0]` of the program.
    pub name: &'a CStr,
    /// Numeric user id, never 0.
    pub uid: u32,
    /// Numeric group id.
    pub gid: u32,
    /// Maximum time until the program runs; rounded up, also its limit of CPU time.
    pub time_limit: Duration,
}

/// The way in which a helper has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HelperExit {
    /// It has exited with this status.
    Exited(i32),
    /// This signal has killed it.
    Killed(i32),
    /// Other code in this process has reaped it.
    Unknown,
}

/// A running helper. `drop` kills it, and reaps it if it ends at once. A helper that no signal reaches is
/// left to the code that reaps sshd's children, or to the end of sshd.
#[derive(Debug)]
pub struct Helper {
    pid: libc::pid_t,
    pidfd: Option<OwnedFd>,
    reaped: bool,
    _boost: SchedulerBoost,
    _sigchld: SigchldDefault,
}

/// How long `drop` waits to reap a killed helper. A process ends in microseconds once it is scheduled.
const HELPER_KILL_GRACE: Duration = Duration::from_millis(100);
/// Pause between two queries if no descriptor becomes ready at the helper's end.
const END_POLL_INTERVAL: Duration = Duration::from_millis(1);

impl Helper {
    /// Starts a helper.
    ///
    /// # Errors
    ///
    /// The step that failed, in this process or in the child.
    pub fn start(spec: &HelperSpec<'_>) -> Result<Self, SpawnFailure> {
        Self::start_with(spec, libc::CLONE_PIDFD)
    }

    /// Starts a helper as [`Helper::start`] does. `pidfd_flag` is `CLONE_PIDFD`, or 0 in tests, as on kernels without
    /// pidfds. Every change to sshd is undone before it returns an error: `drop` reaps a child that could not become
    /// the helper.
    fn start_with(spec: &HelperSpec<'_>, pidfd_flag: libc::c_int) -> Result<Self, SpawnFailure> {
        let sigchld =
            SigchldDefault::acquire().map_err(|()| SpawnFailure::from_errno("sigaction"))?;
        let boost = SchedulerBoost::apply();
        let dumpable = RestoreDumpable(RestoreDumpable::read());
        let mut order = HelperOrder {
            spec,
            parent: getpid().as_raw(),
            failure: None,
        };
        // SAFETY: makes system calls only.
        let result = unsafe { vfork_with(start_helper, &mut order, libc::SIGCHLD | pidfd_flag) };
        drop(dumpable);
        let (pid, pidfd) = result?;
        let helper = Self {
            pid,
            pidfd,
            reaped: false,
            _boost: boost,
            _sigchld: sigchld,
        };
        match order.failure {
            None => Ok(helper),
            Some(failure) => Err(failure),
        }
    }

    /// Waits for the helper's end; `None` if it has not ended by `until`. `answer` is the reading end of its
    /// output, whose end counts on a kernel without pidfds; without either the wait asks again and again.
    pub fn wait(&mut self, answer: Option<BorrowedFd<'_>>, until: Instant) -> Option<HelperExit> {
        loop {
            let is_ready = self.await_end(answer, until);
            if let Some(exit) = self.reap() {
                return Some(exit);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            // The helper has closed its output and lives on, or a tracer must see its end first.
            if is_ready {
                std::thread::sleep(left.min(END_POLL_INTERVAL));
            }
        }
    }

    /// Waits until the helper exits or `until` passes. Without a pidfd, EOF on the answer pipe counts. Returns `false`
    /// once `until` has passed; `true` if a descriptor became ready, after a signal, and at once without a descriptor.
    fn await_end(&self, answer: Option<BorrowedFd<'_>>, until: Instant) -> bool {
        let mut poll_fds = match (&self.pidfd, answer) {
            (Some(pidfd), _) => [PollFd::new(pidfd.as_fd(), PollFlags::POLLIN)],
            // No flags: EOF counts, and a part of the answer does not.
            (None, Some(answer)) => [PollFd::new(answer, PollFlags::empty())],
            (None, None) => return true,
        };
        let left = until.saturating_duration_since(Instant::now());
        let timeout = match left.as_millis() {
            0 if left.is_zero() => PollTimeout::ZERO,
            // Round up: otherwise the last part of a millisecond would pass in a busy loop.
            millis => PollTimeout::try_from(millis + 1).unwrap_or(PollTimeout::MAX),
        };
        poll(&mut poll_fds, timeout) != Ok(0)
    }

    /// Reaps the helper if it has ended. `None` if it has not, or if the kernel cannot tell; [`HelperExit::Unknown`]
    /// if it was reaped before, by an earlier call or by other code of this process.
    fn reap(&mut self) -> Option<HelperExit> {
        if self.reaped {
            return Some(HelperExit::Unknown);
        }
        let mut result = match &self.pidfd {
            Some(pidfd) => wait_id(libc::P_PIDFD, pidfd.as_raw_fd().unsigned_abs(), 0),
            None => Err(Errno::EINVAL),
        };
        // Without a pidfd, and on kernels before 5.4, which cannot wait for one, the number serves.
        if result == Err(Errno::EINVAL) {
            result = wait_id(libc::P_PID, self.pid.unsigned_abs(), 0);
        }
        let exit = match result {
            Ok(exit) => exit,
            Err(errno) => (errno == Errno::ECHILD).then_some(HelperExit::Unknown),
        };
        self.reaped = exit.is_some();
        exit
    }

    /// Sends `SIGKILL` to the helper, which is not reaped yet. An error is ignored: the caller waits in any case.
    fn kill(&self) {
        match &self.pidfd {
            Some(pidfd) => _ = pidfd_send_signal(pidfd.as_fd(), libc::SIGKILL),
            // SAFETY: takes numbers only. The number is still our child's, which is not reaped.
            None => _ = unsafe { libc::kill(self.pid, libc::SIGKILL) },
        }
    }
}

impl Drop for Helper {
    /// Kills the helper unless it has ended, and waits for a moment to reap it.
    fn drop(&mut self) {
        if self.reap().is_none() {
            self.kill();
            // Nobody needs its answer any more.
            self.wait(None, Instant::now() + HELPER_KILL_GRACE);
        }
    }
}

/// The number of live helpers, one for each thread inside the module, and the action for `SIGCHLD` that sshd
/// had before the first of them.
struct SigchldState {
    helpers: usize,
    action: Option<KernelSigaction>,
}

static SIGCHLD_STATE: Mutex<SigchldState> = Mutex::new(SigchldState {
    helpers: 0,
    action: None,
});

/// Keeps `SIGCHLD` at its default action until it is dropped.
#[derive(Debug)]
struct SigchldDefault {
    /// The application blocks the signal, and one was pending.
    pending: bool,
}

impl SigchldDefault {
    /// Sets `SIGCHLD` to its default action, unless another helper's guard has done so. An error means that the
    /// kernel refused the action.
    fn acquire() -> Result<Self, ()> {
        let mut state = SIGCHLD_STATE.lock().unwrap_or_else(PoisonError::into_inner);
        let pending = is_sigchld_pending();
        if state.helpers == 0 {
            state.action = Some(set_sigchld_action(&DEFAULT_SIGACTION)?);
        }
        state.helpers += 1;
        Ok(Self { pending })
    }
}

impl Drop for SigchldDefault {
    /// Restores the application's action with the last guard. If a child of the application may have ended
    /// meanwhile, it then sends the `SIGCHLD` that the application has missed.
    fn drop(&mut self) {
        let mut state = SIGCHLD_STATE.lock().unwrap_or_else(PoisonError::into_inner);
        state.helpers -= 1;
        // If the application blocks the signal, the helper's end has left one pending. Setting a default
        // that ignores the signal discards it.
        if is_sigchld_pending() {
            let _ = set_sigchld_action(&DEFAULT_SIGACTION);
        }
        if state.helpers == 0 {
            if let Some(action) = state.action.take() {
                let _ = set_sigchld_action(&action);
            }
        }
        drop(state);
        // The application has got no signal for its own children meanwhile.
        if self.pending || wait_id(libc::P_ALL, 0, libc::WNOWAIT).is_ok_and(|exit| exit.is_some()) {
            let _ = kill(getpid(), SIGCHLD);
        }
    }
}

/// Sets the action for `SIGCHLD`; returns the one before. The C library's call would add flags to the
/// application's own action.
fn set_sigchld_action(action: &KernelSigaction) -> Result<KernelSigaction, ()> {
    let mut before = DEFAULT_SIGACTION;
    let new = action.as_ptr();
    let old = before.as_mut_ptr();
    // SAFETY: the default, or the action that the application had set; both are long enough.
    match unsafe { sys!(SYS_rt_sigaction, libc::SIGCHLD, new, old, SIGNAL_SET_BYTES) } {
        -1 => Err(()),
        _ => Ok(before),
    }
}

/// Tells whether a `SIGCHLD` waits until this thread unblocks it.
fn is_sigchld_pending() -> bool {
    let mut set = 0_u64;
    // SAFETY: writes a number of the size that the last argument gives.
    unsafe { sys!(SYS_rt_sigpending, &raw mut set, SIGNAL_SET_BYTES) };
    set & (1 << (libc::SIGCHLD - 1)) != 0
}

/// Asks how a child has ended (waitid(2)); `None` if none of these children has. `ECHILD` means that there is no such
/// child, or that it is reaped already.
fn wait_id(
    kind: libc::idtype_t,
    id: libc::id_t,
    flags: libc::c_int,
) -> nix::Result<Option<HelperExit>> {
    // SAFETY: zeroed memory is a siginfo_t.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let flags = libc::WEXITED | libc::WNOHANG | flags;
    // SAFETY: writes a whole structure of this type, or nothing.
    Errno::result(unsafe { libc::waitid(kind, id, &raw mut info, flags) })?;
    // SAFETY: they are zero, or waitid has written them.
    let (pid, status) = unsafe { (info.si_pid(), info.si_status()) };
    let is_exit = info.si_code == libc::CLD_EXITED;
    let exit = if is_exit {
        HelperExit::Exited
    } else {
        HelperExit::Killed
    };
    Ok((pid != 0).then_some(exit(status)))
}

/// Makes this thread, and the helper that it starts, run at once while jobs compute on every core; `drop`
/// restores the old nice value, with the default slice. Without the right to do so nothing changes.
///
/// The two run for half a millisecond and would wait for their turn three times. Since Linux 6.6 a running
/// process finishes its slice, whatever its nice value, unless the slice of the waking process is shorter.
/// 100 us is the shortest slice (6.12). The attributes are those that `drop` sets; `None` if nothing was changed.
#[derive(Debug)]
struct SchedulerBoost(Option<libc::sched_attr>);

impl SchedulerBoost {
    /// Raises the priority of this thread, if its class is `SCHED_OTHER`. In another class, or without the right to
    /// do so, nothing changes, and `drop` restores nothing.
    fn apply() -> Self {
        let Ok(before) = get_scheduling() else {
            return Self(None);
        };
        if before.sched_policy != libc::SCHED_OTHER as u32 {
            return Self(None);
        }
        let boosted = libc::sched_attr {
            sched_nice: -20,
            sched_runtime: 100_000,
            ..before
        };
        if set_scheduling(&boosted).is_err() {
            return Self(None);
        }
        // 0 is the default slice.
        Self(Some(libc::sched_attr {
            sched_runtime: 0,
            ..before
        }))
    }
}

impl Drop for SchedulerBoost {
    /// Restores the old nice value. An error is ignored: the thread then stays boosted.
    fn drop(&mut self) {
        if let Some(before) = self.0.take() {
            let _ = set_scheduling(&before);
        }
    }
}

/// The dumpable attribute of this process, which `drop` restores.
struct RestoreDumpable(libc::c_int);

impl RestoreDumpable {
    /// Reads the dumpable attribute: 0, 1, or 2 for "by root alone".
    fn read() -> libc::c_int {
        // SAFETY: returns a number.
        unsafe { libc::prctl(libc::PR_GET_DUMPABLE, 0, 0, 0, 0) }
    }
}

impl Drop for RestoreDumpable {
    /// Restores the attribute if the helper's start has changed it.
    fn drop(&mut self) {
        if Self::read() != self.0 {
            // The third value, "by root alone", cannot be set; 0 is narrower.
            let value = libc::c_ulong::from(self.0 == 1);
            // SAFETY: sets a number.
            unsafe { libc::prctl(libc::PR_SET_DUMPABLE, value, 0, 0, 0) };
        }
    }
}

/// The inputs of the child, and its failure.
struct HelperOrder<'a, 'b> {
    spec: &'a HelperSpec<'b>,
    /// Process that starts the helper.
    parent: libc::pid_t,
    failure: Option<SpawnFailure>,
}

/// Runs in the helper's process until that executes its program. A failure is left in the order.
extern "C" fn start_helper(order: *mut libc::c_void) -> libc::c_int {
    // SAFETY: the order of our parent, which is suspended: no other code uses it.
    let order = unsafe { &mut *order.cast::<HelperOrder<'_, '_>>() };
    // SAFETY: in the process that has just been made.
    order.failure = unsafe { become_helper(order.spec, order.parent) }.err();
    127
}

/// Soft and hard limits of the helper's resources. The user's own limits may be in force by now, since
/// pam_limits runs before us on some stacks. Their `nproc` must not fail our exec, nor their `sigpending` our
/// timer. After the change of identity both are lowered.
const RESOURCE_LIMITS: [(libc::__rlimit_resource_t, libc::rlim_t); 8] = [
    (libc::RLIMIT_NPROC, libc::RLIM_INFINITY),
    (libc::RLIMIT_SIGPENDING, libc::RLIM_INFINITY),
    (libc::RLIMIT_AS, 1 << 30),
    (libc::RLIMIT_NICE, 0),
    (libc::RLIMIT_RTPRIO, 0),
    (libc::RLIMIT_NOFILE, 256),
    (libc::RLIMIT_FSIZE, 0),
    (libc::RLIMIT_CORE, 0),
];
/// Maximum pending signals of the running helper.
const PENDING_SIGNALS_MAX: libc::rlim_t = 64;

// The kernel reads all 64 bits of these arguments.
const NIL: usize = 0;
const ONE: usize = 1;
const SIGKILL: usize = libc::SIGKILL as usize;

/// Turns the new process into the helper; returns only on failure.
///
/// # Safety
///
/// Only in a process that [`vfork_with`] has just made.
unsafe fn become_helper(
    spec: &HelperSpec<'_>,
    parent: libc::pid_t,
) -> Result<Infallible, SpawnFailure> {
    // SAFETY: system calls on descriptors, numbers and NUL-terminated or length-delimited memory
    // that was laid out before or is on this stack. Nothing allocates, locks or panics, and of the
    // parent's memory nothing is written but the failure and the calling thread's `errno`.
    unsafe {
        // This comes first: kernels without close_range(2) close as many descriptors as sshd's limit allows.
        prepare_exec(&mut spec.fds.map(|fd| fd.as_raw_fd()))?;
        for (resource, value) in RESOURCE_LIMITS {
            set_limit(resource, value);
        }
        // Even if sshd ends, the helper computes no longer than the phase.
        set_limit(libc::RLIMIT_CPU, spec.time_limit.as_secs() + 1);
        check_step("timer", arm_kill_timer(spec.time_limit))?;
        // A new session would be a new group of the scheduler (autogroup, sched(7)), which waits for its turn behind
        // the jobs. So it is made only to leave a terminal; `ENXIO` means that there is none.
        let flags = libc::O_RDWR | libc::O_NONBLOCK | libc::O_CLOEXEC;
        let terminal = sys!(SYS_openat, libc::AT_FDCWD, c"/dev/tty".as_ptr(), flags, 0);
        if terminal != -1 || Errno::last_raw() != libc::ENXIO {
            check_step("setsid", sys!(SYS_setsid))?;
        }
        // These are raw calls: glibc's would signal the parent's threads. Capabilities survive the change of
        // identity and are dropped once this process is untraceable: until exec it has sshd's memory, and
        // the helper's account may run other helpers.
        sys!(SYS_prctl, libc::PR_SET_KEEPCAPS, ONE, NIL, NIL, NIL);
        check_step(
            "setgroups",
            sys!(SYS_setgroups, NIL, std::ptr::null::<libc::gid_t>()),
        )?;
        check_step(
            "setresgid",
            sys!(SYS_setresgid, spec.gid, spec.gid, spec.gid),
        )?;
        check_step(
            "setresuid",
            sys!(SYS_setresuid, spec.uid, spec.uid, spec.uid),
        )?;
        check_step(
            "dumpable",
            sys!(SYS_prctl, libc::PR_SET_DUMPABLE, NIL, NIL, NIL, NIL),
        )?;
        check_step("capset", drop_capabilities())?;
        // From now on the helper can make no process. exec checks this limit only if it was exceeded at the
        // change of identity (execve(2), `EAGAIN`).
        set_limit(libc::RLIMIT_NPROC, 0);
        set_limit(libc::RLIMIT_SIGPENDING, PENDING_SIGNALS_MAX);
        check_step(
            "no_new_privs",
            sys!(SYS_prctl, libc::PR_SET_NO_NEW_PRIVS, ONE, NIL, NIL, NIL),
        )?;
        check_step(
            "pdeathsig",
            sys!(SYS_prctl, libc::PR_SET_PDEATHSIG, SIGKILL, NIL, NIL, NIL),
        )?;
        if sys!(SYS_getppid) != libc::c_long::from(parent) {
            return Err(SpawnFailure {
                step: "parent gone",
                errno: Errno::ESRCH,
            });
        }
        execute(3, spec.name)
    }
}

/// Makes the kernel kill this process after this time, unless it has executed its program by then: exec
/// deletes the timer. Without it, a process with the helper's uid could stop this one, and the parent with
/// it, for any time.
///
/// # Safety
///
/// As [`become_helper`].
unsafe fn arm_kill_timer(time_limit: Duration) -> libc::c_long {
    let zero = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // A time of 0 would arm no timer.
    let time_limit = time_limit.max(END_POLL_INTERVAL);
    let value = libc::timespec {
        tv_sec: libc::time_t::try_from(time_limit.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: libc::c_long::from(time_limit.subsec_nanos()),
    };
    let once = libc::itimerspec {
        it_interval: zero,
        it_value: value,
    };
    let mut timer: libc::c_int = 0;
    // SAFETY: structures on our own stack; a zeroed sigevent is valid.
    unsafe {
        let mut event: libc::sigevent = std::mem::zeroed();
        event.sigev_notify = libc::SIGEV_SIGNAL;
        event.sigev_signo = libc::SIGKILL;
        let result = sys!(
            SYS_timer_create,
            libc::CLOCK_MONOTONIC,
            &raw mut event,
            &raw mut timer
        );
        if result == -1 {
            return result;
        }
        sys!(
            SYS_timer_settime,
            timer,
            0,
            &raw const once,
            std::ptr::null::<libc::itimerspec>()
        )
    }
}

/// Empties every capability set, the ambient one included, whatever the securebits are.
///
/// # Safety
///
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

    fn helper_of(pid: libc::pid_t, pidfd: Option<OwnedFd>) -> Helper {
        let sigchld = SigchldDefault::acquire().unwrap();
        Helper {
            pid,
            pidfd,
            reaped: false,
            _boost: SchedulerBoost(None),
            _sigchld: sigchld,
        }
    }

    /// Starts a shell in place of the helper; returns it and its output.
    #[expect(clippy::zombie_processes, reason = "the helper reaps it")]
    fn start_shell(script: &str, has_pidfd: bool) -> (Helper, std::process::ChildStdout) {
        let sigchld = SigchldDefault::acquire().unwrap();
        let mut child = Command::new("sh")
            .args(["-c", script])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let helper = helper_of(pid, has_pidfd.then(|| pidfd_open(pid).unwrap()));
        drop(sigchld);
        (helper, child.stdout.take().unwrap())
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    /// Uses a thread, which has its own nice value.
    #[test]
    fn nice_value_is_restored() {
        // SAFETY: returns a number of this thread.
        let own = || unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
        let cycle = move || {
            let before = own() + 1;
            // SAFETY: sets a number of this thread.
            let result = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, before) };
            assert_eq!(result, 0);
            let boost = SchedulerBoost::apply();
            assert_eq!(own(), if boost.0.is_some() { -20 } else { before });
            drop(boost);
            assert_eq!(own(), before);
        };
        std::thread::spawn(cycle).join().unwrap();
    }

    #[test]
    fn wait_returns_exit_with_pidfd_and_without() {
        for has_pidfd in [true, false] {
            for (script, exit) in [
                ("exit 0", HelperExit::Exited(0)),
                ("echo x; exit 3", HelperExit::Exited(3)),
                ("exec >&-; sleep 0.01; exit 4", HelperExit::Exited(4)),
                ("kill -9 $$", HelperExit::Killed(9)),
                ("kill -40 $$", HelperExit::Killed(40)),
            ] {
                let (mut helper, answer) = start_shell(script, has_pidfd);
                assert_eq!(
                    helper.wait(Some(answer.as_fd()), soon()),
                    Some(exit),
                    "{script}"
                );
            }
        }
    }

    #[test]
    fn helper_that_does_not_end_is_killed_and_reaped() {
        for has_pidfd in [true, false] {
            for script in [
                "exec sleep 1000",
                "kill -STOP $$",
                "exec >&-; exec sleep 1000",
            ] {
                let (mut helper, answer) = start_shell(script, has_pidfd);
                let until = Instant::now() + Duration::from_millis(5);
                assert_eq!(helper.wait(Some(answer.as_fd()), until), None, "{script}");
                helper.kill();
                assert_eq!(
                    helper.wait(None, soon()),
                    Some(HelperExit::Killed(9)),
                    "{script}"
                );
            }
        }
    }

    #[test]
    fn exit_of_helper_that_other_code_has_reaped_is_unknown() {
        for has_pidfd in [true, false] {
            let (mut helper, answer) = start_shell("exit 3", has_pidfd);
            let mut other = helper_of(helper.pid, None);
            assert_eq!(
                other.wait(Some(answer.as_fd()), soon()),
                Some(HelperExit::Exited(3))
            );
            assert_eq!(
                helper.wait(Some(answer.as_fd()), soon()),
                Some(HelperExit::Unknown)
            );
        }
    }

    /// Needs root, and tests kernels with pidfds and without.
    #[test]
    fn program_runs_as_other_account() {
        if !nix::unistd::geteuid().is_root() {
            return crate::testing::skip("needs root");
        }
        for pidfd_flag in [libc::CLONE_PIDFD, 0] {
            let null = std::fs::File::open("/dev/null").unwrap();
            let program = std::fs::File::open("/usr/bin/id").unwrap();
            let (answer, stdout) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).unwrap();
            let spec = HelperSpec {
                fds: [null.as_fd(), stdout.as_fd(), null.as_fd(), program.as_fd()],
                name: c"id",
                uid: 65_534,
                gid: 65_534,
                time_limit: Duration::from_secs(60),
            };
            let mut helper = Helper::start_with(&spec, pidfd_flag).unwrap();
            assert_eq!(helper.pidfd.is_some(), pidfd_flag != 0);
            drop(stdout);
            let exit = helper.wait(Some(answer.as_fd()), soon());
            assert_eq!(exit, Some(HelperExit::Exited(0)));
            let mut output = String::new();
            std::io::Read::read_to_string(&mut std::fs::File::from(answer), &mut output).unwrap();
            assert!(
                output.starts_with("uid=65534") && output.contains("gid=65534"),
                "{output}"
            );
            assert!(!output.contains("(root)"), "{output}");
        }
    }

    #[test]
    fn failed_step_is_reported() {
        let null = std::fs::File::open("/dev/null").unwrap();
        let fd = null.as_fd();
        let name = c"nothing";
        let time_limit = Duration::from_secs(60);
        let uid = 65_534;
        let gid = 65_534;
        let spec = HelperSpec {
            fds: [fd; 4],
            name,
            uid,
            gid,
            time_limit,
        };
        let failure = Helper::start(&spec).map(drop).unwrap_err();
        // Only root can become another account.
        let expected = if nix::unistd::geteuid().is_root() {
            SpawnFailure {
                step: "execveat",
                errno: Errno::EACCES,
            }
        } else {
            SpawnFailure {
                step: "setgroups",
                errno: Errno::EPERM,
            }
        };
        assert_eq!(failure, expected);
    }
}
