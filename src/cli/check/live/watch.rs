//! The parent: starts the child, hears what it tells, and sees that nothing of it is left.

use super::child::{self, Order};
use super::event::Event;
use crate::cli::ending::read_process;
use crate::cli::sys::process::fork_and;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl::set_child_subreaper;
use nix::sys::signal::{SIGKILL, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getpid, pipe2, read};
use std::fs::{self, File};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// How long what the login started may take to end by itself once it is gone: the module's own
/// attendant removes what a login that died has made.
const GRACE: Duration = Duration::from_secs(1);
/// Most bytes that are heard.
const HEARD_MAX: usize = 1024 * 1024;
/// Between two looks at the child.
const TICK: u16 = 50;

/// How a run went.
#[derive(Debug, Default)]
pub(super) struct Run {
    /// What the child told, in this order.
    pub(super) events: Vec<Event>,
    /// It was still at it at the deadline, and was ended.
    pub(super) late: bool,
    /// Processes that it left behind, which were ended.
    pub(super) left: usize,
}

/// Runs the stack in a child of its own, for so long at most.
///
/// # Errors
/// As `fork(2)` and `pipe(2)`.
pub(super) fn run(order: Order<'_>, limit: Duration) -> Result<Run, std::io::Error> {
    let deadline = Instant::now() + limit;
    // What the child's own children leave behind becomes ours, whatever session they are in.
    set_child_subreaper(true)?;
    let (from, to) = pipe2(nix::fcntl::OFlag::O_CLOEXEC)?;
    let to = File::from(to);
    let pid = fork_and(|| child::run(order, &to))?;
    drop(to);
    let mut run = Run::default();
    let mut heard = Vec::new();
    let mut ended = false;
    while !ended {
        // Looked at first: what it told before it ended is heard after that.
        ended = has_ended(pid);
        hear(&from, &mut heard, if ended { 0 } else { TICK });
        if !ended && Instant::now() > deadline {
            run.late = true;
            let _ = kill(pid, SIGKILL);
            // One that waits in the kernel, as for a user's own file system, ends when it likes.
            let patience = Instant::now() + GRACE;
            while !has_ended(pid) && Instant::now() < patience {
                std::thread::sleep(Duration::from_millis(5));
            }
            ended = true;
            hear(&from, &mut heard, 0);
        }
    }
    run.left = reap();
    let _ = set_child_subreaper(false);
    run.events = events(&heard);
    Ok(run)
}

fn has_ended(pid: Pid) -> bool {
    !matches!(waitpid(pid, Some(WaitPidFlag::WNOHANG)), Ok(WaitStatus::StillAlive))
}

/// Reads what is there, and waits so many milliseconds for it.
fn hear(from: &OwnedFd, heard: &mut Vec<u8>, wait: u16) {
    let mut wait = wait;
    loop {
        let mut polled = [PollFd::new(from.as_fd(), PollFlags::POLLIN)];
        if !poll(&mut polled, PollTimeout::from(wait)).is_ok_and(|ready| ready > 0) {
            return;
        }
        wait = 0;
        let mut bytes = [0; 4096];
        match read(from, &mut bytes) {
            Ok(length) if length > 0 && heard.len() < HEARD_MAX => {
                heard.extend(bytes.iter().take(length));
            }
            // Closed: only its end is to be waited for.
            _ => {
                std::thread::sleep(Duration::from_millis(wait.max(1).into()));
                return;
            }
        }
    }
}

/// What is no event was cut short.
fn events(heard: &[u8]) -> Vec<Event> {
    let lines = heard.split(|byte| *byte == b'\n');
    lines.filter_map(|line| serde_json::from_slice(line).ok()).collect()
}

/// Ends what is left, and waits for it; how many there were that did not end by themselves.
fn reap() -> usize {
    let grace = Instant::now() + GRACE;
    let mut ended = std::collections::BTreeSet::new();
    loop {
        while matches!(
            waitpid(None, Some(WaitPidFlag::WNOHANG | WaitPidFlag::__WALL)),
            Ok(status) if status != WaitStatus::StillAlive
        ) {}
        let left = children();
        // A process that cannot be ended is not waited for either.
        if left.is_empty() || Instant::now() > grace + GRACE {
            return ended.len();
        }
        if Instant::now() > grace {
            for pid in left {
                let _ = kill(Pid::from_raw(pid), SIGKILL);
                ended.insert(pid);
            }
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The children of this process, those that it has been given among them.
fn children() -> Vec<i32> {
    let own = getpid().as_raw();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|&pid| read_process(pid).is_some_and(|process| process.parent == own)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::event::Step;
    use super::*;

    #[test]
    fn what_was_cut_short_is_no_event() {
        let whole = serde_json::to_string(&Event::Began(Step::Open)).unwrap();
        let text = format!("{whole}\n{}\n{{\"Said\":\"a\\nb\"}}\n{{\"Sa", "no json");
        let expected = [Event::Began(Step::Open), Event::Said("a\nb".into())];
        assert_eq!(events(text.as_bytes()), expected);
    }
}
