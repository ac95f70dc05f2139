//! Asks the processes of logins to end, so that programs can save, for the keeper and for `job-adopt`.
//!
//! Each process gets `SIGHUP`, as if its connection had ended: shells pass it on and end, editors save. Those that
//! ignore it, as by nohup(1), get `SIGTERM` instead. Whatever still runs in the middle of the grace gets `SIGTERM` as
//! well. Both at once would lose text: vim 9.0 that is interrupted by the second signal while it saves gives up, in
//! four of ten runs. `SIGCONT` follows each signal, since a stopped process handles none.
//!
//! The sshd of a login comes last: without it a program has no terminal, and the user does not see the last message.

use crate::sshd::is_connection;
use kernel::proc::{Proc, find_field, read_record};
use nix::sys::signal::Signal;
use std::collections::{BTreeMap, BTreeSet};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// First pause between two looks at what still runs; each is twice as long as the one before.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Longest such pause.
const POLL_INTERVAL_MAX: Duration = Duration::from_millis(80);
/// Time for sshd to send what programs have written, before it is asked to end as well.
const LAST_OUTPUT_GRACE: Duration = Duration::from_millis(200);

/// The processes of logins that end.
pub trait Logins {
    /// Lists those that still run. It may leave out some that began a moment ago, while others run.
    fn list(&mut self) -> BTreeSet<i32>;

    /// Sends a signal to these of them. A process that has ended meanwhile, or takes no signal, is left out.
    fn send(&mut self, pids: &BTreeSet<i32>, signal: Signal);
}

/// What a process is, and the last signal that it got.
#[derive(Clone, Copy, Debug)]
struct Asked {
    /// It is the sshd of a login, which comes last.
    is_connection: bool,
    /// `None` before the first signal.
    signal: Option<Signal>,
}

/// Asks logins to end. Returns when none is left, or when the grace is over: what runs then, the caller kills.
pub fn ask_to_end(logins: &mut impl Logins, grace: Duration) {
    let begin = Instant::now();
    let mut known: BTreeMap<i32, Asked> = BTreeMap::new();
    // Since when only connections are left; `None` while programs run.
    let mut programs_ended = None;
    let mut pause = POLL_INTERVAL;
    while begin.elapsed() < grace {
        let running = logins.list();
        if running.is_empty() {
            return;
        }
        for &pid in &running {
            if begin.elapsed() >= grace {
                return;
            }
            known.entry(pid).or_insert_with(|| Asked {
                is_connection: is_connection(pid),
                signal: None,
            });
        }
        known.retain(|pid, _| running.contains(pid));
        // Once only connections are left, sshd gets time to send what the programs have written.
        if known.values().all(|asked| asked.is_connection) {
            programs_ended.get_or_insert_with(Instant::now);
        } else {
            programs_ended = None;
        }
        let has_sent_output = programs_ended.is_some_and(|at| at.elapsed() >= LAST_OUTPUT_GRACE);
        let is_late = begin.elapsed() >= grace / 2;
        for signal in [Signal::SIGHUP, Signal::SIGTERM] {
            let mut pids = BTreeSet::new();
            for (&pid, asked) in &mut known {
                if begin.elapsed() >= grace {
                    break;
                }
                if next_signal(pid, *asked, is_late, has_sent_output) == Some(signal) {
                    asked.signal = Some(signal);
                    pids.insert(pid);
                }
            }
            if !pids.is_empty() {
                logins.send(&pids, signal);
                logins.send(&pids, Signal::SIGCONT);
                pause = POLL_INTERVAL;
            }
        }
        sleep(pause.min(grace.saturating_sub(begin.elapsed())));
        pause = (pause * 2).min(POLL_INTERVAL_MAX);
    }
}

/// The signal that a process should get now, if any: programs first `SIGHUP`, or `SIGTERM` at once if they ignore it,
/// and `SIGTERM` in the second half of the grace (`is_late`); a connection `SIGTERM` alone, once sshd has had time for
/// the last output (`has_sent_output`).
fn next_signal(pid: i32, asked: Asked, is_late: bool, has_sent_output: bool) -> Option<Signal> {
    if asked.signal == Some(Signal::SIGTERM) {
        return None;
    }
    if asked.is_connection {
        return has_sent_output.then_some(Signal::SIGTERM);
    }
    if is_late {
        return Some(Signal::SIGTERM);
    }
    match asked.signal {
        Some(_) => None,
        None if ignores_hangup(pid) => Some(Signal::SIGTERM),
        None => Some(Signal::SIGHUP),
    }
}

fn ignores_hangup(pid: i32) -> bool {
    let status = read_record(Proc::host().dir(pid).join("status")).unwrap_or_default();
    find_field(&status, "SigIgn:")
        .and_then(|mask| u64::from_str_radix(mask, 16).ok())
        .is_some_and(|mask| mask >> (Signal::SIGHUP as i32 - 1) & 1 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Logins whose list takes as long as this.
    struct SlowLogins(Duration, usize);

    impl Logins for SlowLogins {
        fn list(&mut self) -> BTreeSet<i32> {
            sleep(self.0);
            BTreeSet::from([-1])
        }

        fn send(&mut self, _: &BTreeSet<i32>, _: Signal) {
            self.1 += 1;
        }
    }

    #[test]
    fn no_signal_is_sent_after_end_of_grace() {
        let grace = Duration::from_millis(10);
        let mut logins = SlowLogins(grace, 0);
        ask_to_end(&mut logins, grace);
        assert_eq!(logins.1, 0);
    }
}
