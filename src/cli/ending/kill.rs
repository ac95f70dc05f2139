//! Killing until nothing is left.

use super::super::Error;
use super::process::{Process, read, table};
use crate::cgroup::subtree::{self, Found};
use crate::cgroup::{Dir, event};
use crate::sys::process::{pidfd_open, pidfd_send_signal};
use nix::sys::signal::Signal;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(10);
/// Most process numbers in a message.
const NAMED: usize = 8;

/// Kills everything in a cgroup and below it. What is frozen dies as well.
///
/// # Errors
/// [`Error::Failed`] where anything is left at the deadline, or where we are in there ourselves.
pub(super) fn all(dir: &Dir, deadline: Instant) -> Result<(), Error> {
    let own = nix::unistd::getpid().as_raw();
    if subtree::processes(dir).all.contains(&own) {
        return Err(Error::failed("kill", dir.path(), "this process is in it itself"));
    }
    let mut again = false;
    loop {
        if subtree::unless_gone(event(dir, "populated"))?.flatten() != Some(true) {
            return Ok(());
        }
        match dir.write("cgroup.kill", "1") {
            // The kernel signals the first thread of each process alone (`__cgroup_kill` in
            // `kernel/cgroup/cgroup.c`): where that has ended before the others, nobody dies.
            // What cannot be done here shows in what is left.
            Ok(()) if std::mem::replace(&mut again, true) => drop(one_by_one(dir)),
            Ok(()) => {}
            // Linux before 5.14 has no such file.
            Err(error) if error.is_gone() => one_by_one(dir)?,
            Err(error) => return Err(error.into()),
        }
        std::thread::sleep(PAUSE);
        if Instant::now() >= deadline {
            return left(dir, &subtree::processes(dir).all);
        }
    }
}

/// What a walk found is killed even where it could not see everything.
fn one_by_one(dir: &Dir) -> Result<(), Error> {
    let mut held = Held::default();
    let Found { all, cut } = table(dir);
    let taken = all.iter().try_for_each(|process| held.take(process).map(drop));
    held.signal(Signal::SIGKILL)?;
    taken?;
    cut.map_or(Ok(()), |error| Err(error.into()))
}

/// Kills the logins in a scheduler's cgroup. They are stopped first, until there are no new ones:
/// what is stopped starts nothing that could get away.
///
/// # Errors
/// [`Error::Failed`] where any is left at the deadline, or where not every cgroup could be seen;
/// what was found is killed all the same.
pub(super) fn logins(dir: &Dir, deadline: Instant) -> Result<(), Error> {
    let mut held = Held::default();
    let hunted = hunt(dir, deadline, &mut held);
    // Whatever came of it, nothing is left stopped.
    let killed = held.signal(Signal::SIGKILL);
    hunted.and(killed)
}

fn hunt(dir: &Dir, deadline: Instant, held: &mut Held) -> Result<(), Error> {
    loop {
        let Found { all, cut } = table(dir);
        let chosen = super::logins(&all, &held.identities());
        let chosen: Vec<&Process> =
            all.iter().filter(|process| chosen.contains(&process.pid)).collect();
        if chosen.is_empty() {
            return cut.map_or(Ok(()), |error| Err(error.into()));
        }
        let mut news = false;
        for process in &chosen {
            news |= held.take(process)?;
        }
        if !news {
            held.signal(Signal::SIGKILL)?;
            std::thread::sleep(PAUSE);
        }
        if Instant::now() >= deadline {
            return left(dir, &chosen.iter().map(|process| process.pid).collect::<Vec<_>>());
        }
    }
}

fn left(dir: &Dir, pids: &[i32]) -> Result<(), Error> {
    let mut named: Vec<String> = pids.iter().take(NAMED).map(ToString::to_string).collect();
    if pids.len() > NAMED {
        named.push("...".into());
    }
    let cause = format!("processes {} are still there; try again later", named.join(", "));
    Err(Error::failed("empty", dir.path(), cause))
}

/// Processes by descriptor, so that no signal meets one that took over a number.
#[derive(Default)]
struct Held(BTreeMap<(i32, u64), OwnedFd>);

impl Held {
    fn identities(&self) -> Vec<(i32, u64)> {
        self.0.keys().copied().collect()
    }

    /// Stops a process and holds it; `true` where it is a new one.
    fn take(&mut self, process: &Process) -> Result<bool, Error> {
        let identity = (process.pid, process.start);
        if self.0.contains_key(&identity) {
            return Ok(false);
        }
        let pidfd = match pidfd_open(process.pid) {
            Ok(pidfd) => pidfd,
            Err(error) if is_gone(&error) => return Ok(true),
            Err(error) => return Err(Error::failed("open process", process.pid, error)),
        };
        // The descriptor is of whoever has the number now: see whether that is still the same.
        if read(process.pid).is_some_and(|found| found.start == process.start) {
            signal(&pidfd, process.pid, Signal::SIGSTOP)?;
            self.0.insert(identity, pidfd);
        }
        Ok(true)
    }

    fn signal(&self, which: Signal) -> Result<(), Error> {
        self.0.iter().try_for_each(|((pid, _), pidfd)| signal(pidfd, *pid, which))
    }
}

fn signal(pidfd: &OwnedFd, pid: i32, which: Signal) -> Result<(), Error> {
    match pidfd_send_signal(pidfd.as_fd(), which as i32) {
        Err(error) if !is_gone(&error) => Err(Error::failed("kill process", pid, error)),
        _ => Ok(()),
    }
}

fn is_gone(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ESRCH)
}
