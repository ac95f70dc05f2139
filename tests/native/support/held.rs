//! Logins that strace holds up at one of their calls.

use std::collections::BTreeMap;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{scope, sleep};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::{Node, Outcome};

/// How often in a row a process is seen stopped, and its tracer asleep, neither having run
/// meanwhile, before it counts as held up: between two calls the tracer has work.
const LOOKS: usize = 4;
const PAUSE: Duration = Duration::from_millis(10);

/// Runs `login`, which strace is to hold up for longer than anything takes, and `meanwhile` as soon
/// as it does; then the login goes on at once, untraced. It fails where no call is held up.
#[track_caller]
pub(crate) fn while_held(
    node: &Node,
    login: impl FnOnce() -> Outcome + Send,
    meanwhile: impl FnOnce(),
) -> Outcome {
    let (outcome, held) = if_held(node, login, meanwhile);
    assert!(held, "the login was not held up: {outcome}");
    outcome
}

/// As [`while_held`], and whether a call was held up at all.
pub(crate) fn if_held(
    node: &Node,
    login: impl FnOnce() -> Outcome + Send,
    meanwhile: impl FnOnce(),
) -> (Outcome, bool) {
    holding(node, login, |pid, stop| {
        let over = AtomicBool::new(false);
        scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) && stop.lasts(pid) {
                    sleep(PAUSE);
                }
                // One that is killed lets go of what it traces; no other signal ends a delay. And
                // what is killed while it is held up does not end before.
                let _ = kill(stop.tracer, Signal::SIGKILL);
            });
            let _over = Over(&over);
            meanwhile();
        });
    })
}

/// As [`if_held`]; but the login stays held up, and traced, for as long as strace was told.
pub(crate) fn while_delayed(
    node: &Node,
    login: impl FnOnce() -> Outcome + Send,
    meanwhile: impl FnOnce(),
) -> Outcome {
    holding(node, login, |_, _| meanwhile()).0
}

fn holding(
    node: &Node,
    login: impl FnOnce() -> Outcome + Send,
    held: impl FnOnce(i32, &Stop),
) -> (Outcome, bool) {
    scope(|scope| {
        let login = scope.spawn(login);
        let mut seen = BTreeMap::new();
        while !login.is_finished() {
            seen = look(node, &seen);
            if let Some((pid, (stop, _))) = seen.iter().find(|(_, (_, looks))| *looks >= LOOKS) {
                held(*pid, stop);
                return (login.join().unwrap(), true);
            }
            sleep(PAUSE);
        }
        (login.join().unwrap(), false)
    })
}

/// Says that something is over, however it ends.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A process that is stopped by a tracer that sleeps, and how often either has run.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stop {
    tracer: Pid,
    runs: [String; 2],
}

impl Stop {
    fn of(pid: i32) -> Option<Self> {
        let status = |pid: i32| fs::read_to_string(format!("/proc/{pid}/status")).ok();
        let runs = |status: &str| {
            status.split_once("\nvoluntary_ctxt_switches").map(|(_, runs)| runs.to_owned())
        };
        let stopped = status(pid).filter(|status| status.contains("\nState:\tt"))?;
        let tracer = stopped.lines().find_map(|line| line.strip_prefix("TracerPid:\t"))?;
        let tracer: i32 = tracer.parse().ok()?;
        let sleeping = status(tracer).filter(|status| status.contains("\nState:\tS"))?;
        Some(Self { tracer: Pid::from_raw(tracer), runs: [runs(&stopped)?, runs(&sleeping)?] })
    }

    /// Whether the process has not run since.
    fn lasts(&self, pid: i32) -> bool {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        status.ends_with(&self.runs[0])
    }
}

/// What is stopped, and how many looks ago that changed.
fn look(node: &Node, before: &BTreeMap<i32, (Stop, usize)>) -> BTreeMap<i32, (Stop, usize)> {
    let stopped = |pid: i32| {
        let stop = Stop::of(pid)?;
        let looks = before.get(&pid).filter(|(old, _)| *old == stop).map_or(0, |(_, n)| n + 1);
        Some((pid, (stop, looks)))
    };
    node.processes().into_iter().filter_map(stopped).collect()
}
