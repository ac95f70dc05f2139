//! Logins that strace holds up at one of their calls.

use std::collections::BTreeMap;
use std::fs;
use std::thread::{scope, sleep};
use std::time::Duration;

use super::{Node, Outcome};

/// How often in a row a process is seen not to have run before it counts as held up; between two
/// calls strace stops one only for as long as it needs itself.
const LOOKS: usize = 10;
const PAUSE: Duration = Duration::from_millis(20);

/// Runs `login`, which strace is to hold up for a second or more, and `meanwhile` as soon as it
/// does; where no call is held up `meanwhile` is left out.
pub(crate) fn while_held(
    node: &Node,
    login: impl FnOnce() -> Outcome + Send,
    meanwhile: impl FnOnce(),
) -> Outcome {
    scope(|scope| {
        let login = scope.spawn(login);
        let mut seen = BTreeMap::new();
        while !login.is_finished() {
            seen = look(node, &seen);
            if seen.values().any(|(_, looks)| *looks >= LOOKS) {
                meanwhile();
                break;
            }
            sleep(PAUSE);
        }
        login.join().unwrap()
    })
}

/// What is stopped by its tracer, how often it has run, and how many looks ago that changed.
fn look(node: &Node, before: &BTreeMap<i32, (String, usize)>) -> BTreeMap<i32, (String, usize)> {
    let stopped = |pid: i32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let runs = status.split_once("\nvoluntary_ctxt_switches")?.1.to_owned();
        let looks = before.get(&pid).filter(|(old, _)| *old == runs).map_or(0, |(_, n)| n + 1);
        status.contains("\nState:\tt").then_some((pid, (runs, looks)))
    };
    node.processes().into_iter().filter_map(stopped).collect()
}
