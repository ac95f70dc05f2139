//! Logins that strace delays at one system call.

use std::collections::BTreeMap;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{scope, sleep};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::{Node, Outcome};

/// Number of polls in a row that must find the process stopped and its tracer asleep, with neither
/// having run. Between two calls the tracer has work, so fewer polls prove nothing.
const STOPPED_POLLS_MIN: usize = 4;
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Runs `login`, whose strace delays one call without end, and calls `meanwhile` during the delay.
/// Then the login goes on untraced.
///
/// # Panics
///
/// Panics if strace delays no call.
#[track_caller]
pub(crate) fn run_while_held(
    node: &Node,
    login: impl FnOnce() -> Outcome + Send,
    meanwhile: impl FnOnce(),
) -> Outcome {
    let (outcome, held) = try_run_while_held(node, login, meanwhile);
    assert!(held, "the login was not held up: {outcome}");
    outcome
}

/// Runs `login` like [`run_while_held`], and returns whether any call was delayed.
pub(crate) fn try_run_while_held(
    node: &Node,
    login: impl FnOnce() -> Outcome + Send,
    meanwhile: impl FnOnce(),
) -> (Outcome, bool) {
    hold_login(node, login, |pid, stop| {
        let ended = AtomicBool::new(false);
        scope(|scope| {
            scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) && stop.is_unchanged(pid) {
                    sleep(POLL_INTERVAL);
                }
                // A killed strace releases its tracee; no other signal ends a delay. If `meanwhile`
                // has killed the login, it stays in the delay until then.
                let _ = kill(stop.tracer, Signal::SIGKILL);
            });
            let _end = EndFlag(&ended);
            meanwhile();
        });
    })
}

/// Runs `login` like [`try_run_while_held`], but leaves it delayed and traced for the time that
/// strace was given.
pub(crate) fn run_while_delayed(
    node: &Node,
    login: impl FnOnce() -> Outcome + Send,
    meanwhile: impl FnOnce(),
) -> Outcome {
    hold_login(node, login, |_, _| meanwhile()).0
}

fn hold_login(
    node: &Node,
    login: impl FnOnce() -> Outcome + Send,
    held: impl FnOnce(i32, &StoppedProcess),
) -> (Outcome, bool) {
    scope(|scope| {
        let login = scope.spawn(login);
        let mut stopped = BTreeMap::new();
        while !login.is_finished() {
            stopped = poll_stopped(node, &stopped);
            if let Some((pid, (stop, _))) = stopped
                .iter()
                .find(|(_, (_, polls))| *polls >= STOPPED_POLLS_MIN)
            {
                held(*pid, stop);
                return (login.join().unwrap(), true);
            }
            sleep(POLL_INTERVAL);
        }
        (login.join().unwrap(), false)
    })
}

/// Sets the flag when it is dropped, also by a panic.
struct EndFlag<'a>(&'a AtomicBool);

impl Drop for EndFlag<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A stopped process with a sleeping tracer, and the context switches of both.
#[derive(Clone, Debug, PartialEq, Eq)]
struct StoppedProcess {
    tracer: Pid,
    runs: [String; 2],
}

impl StoppedProcess {
    fn read(pid: i32) -> Option<Self> {
        let status = |process: i32| fs::read_to_string(format!("/proc/{process}/status")).ok();
        let runs = |text: &str| {
            text.split_once("\nvoluntary_ctxt_switches")
                .map(|(_, runs)| runs.to_owned())
        };
        let stopped = status(pid).filter(|status| status.contains("\nState:\tt"))?;
        let tracer = stopped
            .lines()
            .find_map(|line| line.strip_prefix("TracerPid:\t"))?;
        let tracer: i32 = tracer.parse().ok()?;
        let sleeping = status(tracer).filter(|status| status.contains("\nState:\tS"))?;
        Some(Self {
            tracer: Pid::from_raw(tracer),
            runs: [runs(&stopped)?, runs(&sleeping)?],
        })
    }

    /// Returns whether the process has not run since.
    fn is_unchanged(&self, pid: i32) -> bool {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        status.ends_with(&self.runs[0])
    }
}

/// Lists the stopped processes, each with the number of polls since its last change.
fn poll_stopped(
    node: &Node,
    before: &BTreeMap<i32, (StoppedProcess, usize)>,
) -> BTreeMap<i32, (StoppedProcess, usize)> {
    let stopped = |pid: i32| {
        let stop = StoppedProcess::read(pid)?;
        let polls = before
            .get(&pid)
            .filter(|(old, _)| *old == stop)
            .map_or(0, |(_, n)| n + 1);
        Some((pid, (stop, polls)))
    };
    node.processes().into_iter().filter_map(stopped).collect()
}
