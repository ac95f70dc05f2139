//! Killing until nothing is left.

use super::super::Error;
use super::process::{Identity, Process, started, table};
use crate::cgroup::{Dir, Membership, event};
use crate::keeper::subtree::{self, Found};
use crate::plan::is_within;
use crate::sys::process::{pidfd_open, pidfd_send_signal};
use nix::sys::signal::Signal;
use std::collections::BTreeSet;
use std::io;
use std::os::fd::AsFd;
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
    let Found { all, cut } = table(dir);
    let killed = signal_all(dir, all.iter().map(Process::identity), Signal::SIGKILL);
    killed.and(cut.map_or(Ok(()), |error| Err(error.into())))
}

/// Kills the logins in a scheduler's cgroup. They are stopped first, until there are no new ones:
/// what is stopped starts nothing that could get away.
///
/// # Errors
/// [`Error::Failed`] where any is left at the deadline, or where not every cgroup could be seen;
/// what was found is killed all the same.
pub(super) fn logins(dir: &Dir, deadline: Instant) -> Result<(), Error> {
    let mut stopped = Vec::new();
    let hunted = hunt(dir, deadline, &mut stopped);
    // Whatever came of it, nothing is left stopped.
    let killed = signal_all(dir, stopped, Signal::SIGKILL);
    hunted.and(killed)
}

fn hunt(dir: &Dir, deadline: Instant, stopped: &mut Vec<Identity>) -> Result<(), Error> {
    loop {
        let Found { all, cut } = table(dir);
        let chosen = super::logins(&all, stopped);
        let chosen: Vec<&Process> =
            all.iter().filter(|process| chosen.contains(&process.pid)).collect();
        if chosen.is_empty() {
            return cut.map_or(Ok(()), |error| Err(error.into()));
        }
        let known: BTreeSet<_> = stopped.iter().copied().collect();
        let identities = chosen.iter().map(|process| process.identity());
        let news: Vec<_> = identities.filter(|one| !known.contains(one)).collect();
        if news.is_empty() {
            signal_all(dir, stopped.iter().copied(), Signal::SIGKILL)?;
            std::thread::sleep(PAUSE);
        }
        stopped.extend(&news);
        signal_all(dir, news, Signal::SIGSTOP)?;
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

/// Sends a signal to each of these processes; one that fails keeps no other from it.
fn signal_all(
    dir: &Dir,
    processes: impl IntoIterator<Item = Identity>,
    which: Signal,
) -> Result<(), Error> {
    let done = processes.into_iter().map(|process| signal(dir, process, which));
    done.fold(Ok(()), Result::and)
}

/// Sends a signal to a process that is still the same and still in the cgroup: its number may have
/// passed to another since it was listed. One descriptor at a time, however many there are.
fn signal(dir: &Dir, (pid, start): Identity, which: Signal) -> Result<(), Error> {
    let pidfd = match pidfd_open(pid) {
        Err(error) if is_gone(&error) => return Ok(()),
        pidfd => pidfd.map_err(|error| Error::failed("open process", pid, error))?,
    };
    // Of whoever has the number now. Should that be another one than a moment ago, the descriptor
    // stands for nobody any more.
    if started(pid) != Some(start) || !is_in(pid, dir) {
        return Ok(());
    }
    match pidfd_send_signal(pidfd.as_fd(), which as i32) {
        Err(error) if !is_gone(&error) => Err(Error::failed("kill process", pid, error)),
        _ => Ok(()),
    }
}

/// Whether a process is in a cgroup or below it.
fn is_in(pid: i32, dir: &Dir) -> bool {
    let found = Membership::of(pid).ok();
    found.as_ref().and_then(Membership::unified).is_some_and(|at| is_within(at, dir.path()))
}

fn is_gone(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ESRCH)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Child, Command};

    /// A directory that calls itself by the path of a cgroup.
    fn called(path: &str) -> Dir {
        Dir::new(std::fs::File::open("/").unwrap().into(), path)
    }

    fn sleeper() -> (Child, Identity) {
        let child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id().cast_signed();
        (child, (pid, started(pid).unwrap()))
    }

    #[test]
    fn who_took_over_a_number_is_spared() {
        let own = Membership::of(std::process::id().cast_signed()).unwrap();
        // Without cgroup v2 there is no job to end.
        let Some(own) = own.unified() else { return };
        let (mut child, (pid, start)) = sleeper();
        let elsewhere = called(&format!("{}-2", own.trim_end_matches('/')));
        signal(&elsewhere, (pid, start), Signal::SIGKILL).unwrap();
        signal(&called(own), (pid, start + 1), Signal::SIGKILL).unwrap();
        std::thread::sleep(Duration::from_millis(50));
        assert!(child.try_wait().unwrap().is_none(), "it was killed");
        signal(&called(own), (pid, start), Signal::SIGKILL).unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(Signal::SIGKILL as i32));
        signal(&called(own), (pid, start), Signal::SIGKILL).unwrap();
    }
}
