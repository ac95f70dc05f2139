//! Sends signals to processes that their numbers and start times identify.

use command::error::Error;
use facts::process::{Identity, read_start_ticks};
use kernel::sys::pidfd::{pidfd_open, pidfd_send_signal};
use nix::sys::signal::Signal;
use std::collections::BTreeSet;
use std::io;
use std::os::fd::AsFd;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Pause between two searches for processes that still run.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// What [`stop_then_kill`] did.
#[derive(Debug)]
pub(crate) struct StopAndKill {
    /// All processes that were stopped. If `result` is an error they remain stopped, and the caller must
    /// signal them.
    pub(crate) stopped: BTreeSet<Identity>,
    /// The processes that remained at the deadline. The errors of the search, and [`Error::Failed`] for a
    /// process that takes no signal; the others were signaled all the same.
    pub(crate) result: Result<Vec<Identity>, Error>,
}

/// Kills all processes that `find` finds; `find` gets those that were stopped so far, and returns what still runs of
/// them and what is new. New processes are stopped, and only a search without new ones is followed by `SIGKILL`: a
/// stopped process starts no other that could escape. At the deadline all that were found last are killed, also new
/// ones, so that a process which starts others without end protects none.
pub(crate) fn stop_then_kill(
    mut find: impl FnMut(&BTreeSet<Identity>) -> Result<Vec<Identity>, Error>,
    deadline: Instant,
) -> StopAndKill {
    let mut stopped = BTreeSet::new();
    // The first failure to signal a process.
    let mut signaled = Ok(());
    let result = loop {
        // During the first search a process may have started another and ended.
        let remaining = match find(&stopped) {
            Ok(none) if none.is_empty() => find(&stopped),
            found => found,
        };
        let remaining = match remaining {
            Ok(remaining) => remaining,
            Err(error) => break Err(error),
        };
        if remaining.is_empty() {
            break signaled.map(|()| remaining);
        }
        let mut new = remaining.clone();
        // Those that were not in the set.
        new.retain(|process| stopped.insert(*process));
        if new.is_empty() {
            signaled = signaled.and(send_signals(remaining.iter().copied(), Signal::SIGKILL));
            sleep(POLL_INTERVAL);
        }
        signaled = signaled.and(send_signals(new, Signal::SIGSTOP));
        if Instant::now() >= deadline {
            let killed = send_signals(remaining.iter().copied(), Signal::SIGKILL);
            break signaled.and(killed).map(|()| remaining);
        }
    };
    StopAndKill { stopped, result }
}

/// Sends a signal to each of these processes.
///
/// # Errors
///
/// [`Error::Failed`] for the first failure, after which the others get the signal all the same.
pub(crate) fn send_signals(
    processes: impl IntoIterator<Item = Identity>,
    signal: Signal,
) -> Result<(), Error> {
    let mut result = Ok(());
    for process in processes {
        result = result.and(send_signal(process, signal));
    }
    result
}

/// Sends a signal to a process, unless its number belongs to another process by now. It holds one
/// descriptor at a time, so that the number of processes is not limited.
fn send_signal((pid, start): Identity, signal: Signal) -> Result<(), Error> {
    let pidfd = match pidfd_open(pid) {
        Err(error) if is_gone(&error) => return Ok(()),
        pidfd => pidfd.map_err(|error| Error::failed("open process", pid, error))?,
    };
    // The descriptor holds the process that has the number now, so compare the start time after
    // opening it.
    if read_start_ticks(pid) != Some(start) {
        return Ok(());
    }
    match pidfd_send_signal(pidfd.as_fd(), signal as i32) {
        Err(error) if !is_gone(&error) => Err(Error::failed("kill process", pid, error)),
        _ => Ok(()),
    }
}

fn is_gone(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ESRCH)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::signal::kill;
    use nix::unistd::Pid;
    use std::fs;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    #[test]
    fn process_with_reused_number_gets_no_signal() {
        // A signal that the process blocks stays pending for all to see.
        let mut child = Command::new("env")
            .args(["--block-signal=USR1", "sleep", "60"])
            .spawn()
            .unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let status = || fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        while !status().starts_with("Name:\tsleep\n") {
            std::thread::yield_now();
        }
        let is_pending = || !status().contains("\nShdPnd:\t0000000000000000\n");
        let start = read_start_ticks(pid).unwrap();
        send_signal((pid, start + 1), Signal::SIGUSR1).unwrap();
        assert!(!is_pending());
        send_signal((pid, start), Signal::SIGUSR1).unwrap();
        assert!(is_pending());
        send_signal((pid, start), Signal::SIGKILL).unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(Signal::SIGKILL as i32));
        send_signal((pid, start), Signal::SIGKILL).unwrap();
    }

    /// Processes that were only stopped would continue after the deadline.
    #[test]
    fn endless_new_processes_are_killed_at_deadline() {
        let start = || Command::new("sleep").arg("60").spawn().unwrap();
        let children = std::cell::RefCell::new(vec![start()]);
        let find = |_: &BTreeSet<Identity>| {
            children.borrow_mut().push(start());
            let children = children.borrow();
            let pids = children
                .iter()
                .map(|child| i32::try_from(child.id()).unwrap());
            Ok(pids
                .map(|pid| (pid, read_start_ticks(pid).unwrap()))
                .collect())
        };
        let deadline = Instant::now() + 5 * POLL_INTERVAL;
        let remaining = stop_then_kill(find, deadline).result.unwrap();
        let children = children.into_inner();
        assert_eq!(remaining.len(), children.len());
        for mut child in children {
            // One that was only stopped ends by SIGTERM.
            let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
            kill(pid, Signal::SIGTERM).unwrap();
            kill(pid, Signal::SIGCONT).unwrap();
            assert_eq!(child.wait().unwrap().signal(), Some(Signal::SIGKILL as i32));
        }
    }
}
