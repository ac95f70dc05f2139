//! Ends a job: notifies and kills its logins, and removes the cgroups that this project made.
//!
//! In a cgroup that `run` made, or had systemd make, it kills every process. In a scheduler's cgroup it
//! kills only the logins that were moved there: the scheduler ends the rest itself.

use super::cgroup_members::list_members;
use super::logins::{find_logins, select_descendants};
use super::signals::{StopAndKill, send_signals, stop_then_kill};
use super::usage::Usage;
use crate::error::Error;
use crate::process::{Identity, Process};
use crate::terminals::{open_terminals, write_to_terminals};
use helper::jobs::records::Record;
use helper::jobs::sources::processes;
use keeper::subtree::{self, KillMode};
use kernel::cgroup::{
    self, CgroupChain, Dir, Listing, MADE_XATTR, Membership, has_mark, ignore_gone, read_event,
};
use kernel::proc::Proc;
use nix::sys::signal::Signal;
use protocol::is_within;
use std::collections::BTreeSet;
use std::ffi::CStr;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Name of the mark "systemd made this scope for a job of `run`": every process in it may be killed,
/// but only systemd removes the directory.
pub(super) const SCOPE_XATTR: &CStr = c"trusted.job_adopt_scope";
/// Time for sshd to send the last message, before it is killed with the rest.
const LAST_MESSAGE_GRACE: Duration = Duration::from_millis(200);
/// Shortest time to kill the leaves, also past the deadline.
const LEAF_KILL_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum searches for descendants of stopped logins: each can find what was started during the one before.
const DESCENDANT_SEARCHES_MAX: u32 = 10;
/// Pause between two searches for processes that still run.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The numbers of ended processes and notified terminals, and what the logins had used.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EndedLogins {
    /// Processes of logins.
    pub(super) logins: usize,
    /// Terminals that got the message.
    pub(super) terminals: usize,
    /// Empty unless the logins had a cgroup of their own.
    pub(super) usage: Usage,
}

/// One attempt to end a job.
#[derive(Debug)]
pub(super) struct Attempt {
    /// What was ended, also by an attempt that failed.
    pub(super) ended: EndedLogins,
    /// [`Error::Failed`] if processes still run at the deadline, or a directory cannot be removed.
    pub(super) result: Result<(), Error>,
}

impl Attempt {
    /// An attempt that has ended nothing.
    pub(super) fn without_logins(result: Result<(), Error>) -> Self {
        Self {
            ended: EndedLogins::default(),
            result,
        }
    }

    /// Follows a failed attempt by this one, which finds only what the first has left, and may not find the
    /// cgroups of logins any more whose usage the first has read.
    pub(super) fn after(self, first: EndedLogins) -> Self {
        let is_more = self.ended.usage.cpu_usec >= first.usage.cpu_usec;
        let ended = EndedLogins {
            logins: first.logins.max(self.ended.logins),
            terminals: first.terminals.max(self.ended.terminals),
            usage: if is_more {
                self.ended.usage
            } else {
                first.usage
            },
        };
        Self {
            ended,
            result: self.result,
        }
    }
}

/// Who made the cgroup of a job, and so ends the processes in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Maker {
    /// `run`, which had systemd make a scope.
    RunBySystemd,
    /// `run` itself.
    Run,
    Scheduler,
}

/// The cgroup of a job that ends.
struct EndingCgroup<'a> {
    dir: &'a Dir,
    maker: Maker,
    /// The cgroups for logins in it.
    leaves: Vec<Dir>,
}

impl<'a> EndingCgroup<'a> {
    fn open(place: &'a CgroupChain) -> Result<Self, Error> {
        let dir = place.dir()?;
        let leaves = find_made_children(dir)?;
        let maker = if ignore_gone(has_mark(dir, SCOPE_XATTR))? == Some(true) {
            Maker::RunBySystemd
        } else if is_made(dir)? {
            Maker::Run
        } else {
            Maker::Scheduler
        };
        Ok(Self { dir, maker, leaves })
    }

    /// Notifies the logins of the job; counts them, and the terminals that got the message.
    fn notify_logins(&self, record: &Record, deadline: Instant) -> EndedLogins {
        // A login that this walk misses gets no message. The kill reports remaining processes.
        let search_end = Instant::now() + deadline.saturating_duration_since(Instant::now()) / 4;
        let logins = find_logins(
            self.dir,
            &self.leaves,
            record.uid,
            &BTreeSet::new(),
            search_end,
        )
        .all;
        let line = format!("job {} has ended; closing this login", record.id);
        let terminals = write_to_terminals(record.uid, &open_terminals(record.uid, &logins), &line);
        if terminals > 0 {
            sleep(LAST_MESSAGE_GRACE.min(deadline.saturating_duration_since(Instant::now())));
        }
        EndedLogins {
            logins: logins.len(),
            terminals,
            usage: Usage::default(),
        }
    }

    /// Kills the logins in a scheduler's cgroup, and removes their leaves; returns also what they had used.
    fn end_logins_alone(&self, owner: u32, deadline: Instant) -> (Usage, Result<(), Error>) {
        // Processes in the leaves are killed together with the others: the origin of a process that has
        // left its leaf could not be found later.
        let mut result = kill_logins(self.dir, &self.leaves, owner, deadline);
        // Every leaf is killed, also if that failed.
        let leaf_deadline = deadline.max(Instant::now() + LEAF_KILL_TIMEOUT);
        let kill_results: Vec<_> = self
            .leaves
            .iter()
            .map(|leaf| kill_all(leaf, leaf_deadline))
            .collect();
        // A removed cgroup has no usage.
        let usage = Usage::read_leaves(&self.leaves);
        for (leaf, killed) in self.leaves.iter().zip(kill_results) {
            let removed = killed.and_then(|()| Ok(remove_child(self.dir, leaf)?));
            result = result.and(removed);
        }
        (usage, result)
    }
}

/// Ends the logins of a job in its cgroup, and the job itself if `run` made the cgroup.
pub(super) fn end_logins(place: &CgroupChain, record: &Record, deadline: Instant) -> Attempt {
    let cgroup = match EndingCgroup::open(place) {
        Ok(cgroup) => cgroup,
        Err(error) => return Attempt::without_logins(Err(error)),
    };
    let mut ended = cgroup.notify_logins(record, deadline);
    if cgroup.maker == Maker::Scheduler {
        let (usage, result) = cgroup.end_logins_alone(record.uid, deadline);
        ended.usage = usage;
        return Attempt { ended, result };
    }
    if let Err(error) = kill_all(cgroup.dir, deadline) {
        return Attempt {
            ended,
            result: Err(error),
        };
    }
    ended.usage = Usage::read_leaves(&cgroup.leaves);
    let result = if cgroup.maker == Maker::RunBySystemd {
        await_systemd_removal(cgroup.dir, deadline)
    } else {
        remove_made_cgroups(place)
    };
    Attempt { ended, result }
}

/// Finds the children that this project made, with any name.
fn find_made_children(dir: &Dir) -> Result<Vec<Dir>, Error> {
    let mut made = Vec::new();
    for name in ignore_gone(dir.children())?.unwrap_or_default() {
        let Some(child) = ignore_gone(dir.child(name))? else {
            continue;
        };
        if is_made(&child)? {
            made.push(child);
        }
    }
    Ok(made)
}

fn is_made(dir: &Dir) -> cgroup::Result<bool> {
    Ok(ignore_gone(has_mark(dir, MADE_XATTR))? == Some(true))
}

fn remove_child(above: &Dir, dir: &Dir) -> cgroup::Result<()> {
    match dir.path().rsplit_once('/') {
        Some((_, name)) => above.remove_child(name),
        None => Ok(()),
    }
}

/// Waits until systemd has removed an empty scope, so that the next scope of that name can be started.
/// A scope that stays longer is no failure.
///
/// Only systemd may remove it: it learns that a scope is empty from a change of `cgroup.events`, and
/// then reads the file (`unit_check_cgroup_events` in `src/core/cgroup.c`). If the file is missing, the
/// scope stays active for ever.
fn await_systemd_removal(scope: &Dir, deadline: Instant) -> Result<(), Error> {
    while ignore_gone(read_event(scope, "populated"))?.is_some() && Instant::now() < deadline {
        sleep(POLL_INTERVAL);
    }
    Ok(())
}

/// Removes a cgroup that this project made, with its children; and the parent if this project made it
/// and it is empty. Other cgroups stay.
///
/// # Errors
///
/// [`Error::Failed`] for a cgroup that cannot be removed.
pub(super) fn remove_made_cgroups(place: &CgroupChain) -> Result<(), Error> {
    let [job, above, rest @ ..] = place.levels() else {
        return Ok(());
    };
    if !is_made(job)? {
        return Ok(());
    }
    remove_tree(above, job)?;
    let is_above_made = is_made(above)?;
    if let Some(top) = rest.first().filter(|_| is_above_made) {
        // This fails while other jobs are in it.
        let _ = remove_child(top, above);
    }
    Ok(())
}

fn remove_tree(above: &Dir, dir: &Dir) -> Result<(), Error> {
    for child in find_made_children(dir)? {
        remove_tree(dir, &child)?;
    }
    Ok(remove_child(above, dir)?)
}

/// Maximum process numbers in a message.
const PIDS_MAX: usize = 8;

/// Kills every process in a cgroup and below it, also frozen ones.
///
/// # Errors
///
/// [`Error::Failed`] if processes still run at the deadline, or if this process is among them.
pub(crate) fn kill_all(dir: &Dir, deadline: Instant) -> Result<(), Error> {
    // Compare paths: a list of all processes could take too long.
    if Membership::read_own()?
        .unified()
        .is_none_or(|own| is_within(own, dir.path()))
    {
        return Err(Error::failed(
            "kill",
            dir.path(),
            "this process is in it itself",
        ));
    }
    let mut mode = KillMode::Cgroup;
    while ignore_gone(read_event(dir, "populated"))?.flatten() == Some(true) {
        subtree::kill(
            dir,
            std::mem::replace(&mut mode, KillMode::EachProcess),
            deadline,
        );
        sleep(POLL_INTERVAL);
        if Instant::now() >= deadline {
            let remaining = list_members(dir, Instant::now() + LAST_MESSAGE_GRACE).all;
            return Err(remaining_error(dir, &remaining));
        }
    }
    Ok(())
}

/// Kills the logins in a scheduler's cgroup. It stops them first, until it finds no new ones: a stopped
/// process starts no other that could escape.
///
/// It fails with [`Error::Failed`] if a login still runs at the deadline, or if a cgroup could not be
/// read; the logins that it found are killed all the same, with what they have started in other cgroups of the
/// job.
fn kill_logins(job: &Dir, leaves: &[Dir], owner: u32, deadline: Instant) -> Result<(), Error> {
    let StopAndKill { stopped, result } = stop_then_kill(
        |stopped| find_logins_to_kill(job, leaves, owner, stopped, deadline),
        deadline,
    );
    // No process stays stopped, also if that failed.
    let killed = send_signals(stopped, Signal::SIGKILL);
    let remaining = result?;
    if !remaining.is_empty() {
        let pids: Vec<i32> = remaining.iter().map(|(pid, _)| *pid).collect();
        return Err(remaining_error(job, &pids));
    }
    killed
}

/// Finds the logins in a scheduler's cgroup, `stopped` among them. If the search was cut short, it stops
/// those that were found.
fn find_logins_to_kill(
    job: &Dir,
    leaves: &[Dir],
    owner: u32,
    stopped: &BTreeSet<Identity>,
    deadline: Instant,
) -> Result<Vec<Identity>, Error> {
    let Listing { all, cut } = find_logins(job, leaves, owner, stopped, deadline);
    let logins: BTreeSet<Identity> = all.iter().map(Process::identity).collect();
    let Some(error) = cut else {
        return Ok(logins.into_iter().collect());
    };
    if logins.is_empty() {
        return Err(error.into());
    }
    // Once the logins are killed, a later search could not tell where their processes come from.
    Ok(stop_with_descendants(job, logins).into_iter().collect())
}

/// Stops these processes and, until it finds no new ones, their descendants in the job's cgroup and below it. It looks
/// for them in the process table, so the number of cgroups does not matter.
fn stop_with_descendants(job: &Dir, mut logins: BTreeSet<Identity>) -> BTreeSet<Identity> {
    for _ in 0..DESCENDANT_SEARCHES_MAX {
        // The caller signals them again, and reports failures.
        let _ = send_signals(logins.iter().copied(), Signal::SIGSTOP);
        let count = logins.len();
        logins.extend(find_descendants(job, &logins));
        if logins.len() == count {
            break;
        }
    }
    logins
}

/// Finds the descendants of these processes whose cgroup is the job's or below it. One whose path cannot be read counts
/// as well: before Linux 6.8 the kernel shows none of more than 4096 bytes.
fn find_descendants(job: &Dir, logins: &BTreeSet<Identity>) -> Vec<Identity> {
    let own_pid = nix::unistd::getpid().as_raw();
    let mut table = Vec::new();
    for pid in processes::list_numbers::<i32>(Path::new("/proc"))
        .into_iter()
        .flatten()
        .flatten()
    {
        if pid == own_pid {
            continue;
        }
        if let Ok(processes::Stat { parent, start, .. }) = processes::read_stat(&Proc::host(), pid)
        {
            table.push(Process {
                pid,
                parent,
                start,
                ..Process::default()
            });
        }
    }
    let selected = select_descendants(&table, |process| logins.contains(&process.identity()));
    table
        .iter()
        .filter(|process| selected.contains(&process.pid) && may_be_inside(process.pid, job))
        .map(Process::identity)
        .collect()
}

fn may_be_inside(pid: i32, job: &Dir) -> bool {
    let Ok(membership) = Membership::read(pid) else {
        return true;
    };
    membership
        .unified()
        .is_some_and(|path| is_within(path, job.path()))
}

fn remaining_error(dir: &Dir, pids: &[i32]) -> Error {
    let mut names: Vec<String> = pids
        .iter()
        .take(PIDS_MAX)
        .map(ToString::to_string)
        .collect();
    if pids.len() > PIDS_MAX {
        names.push("...".into());
    }
    let cause = format!(
        "processes {} are still there; try again later",
        names.join(", ")
    );
    Error::failed("empty", dir.path(), cause)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first attempt may have removed the cgroups of logins.
    #[test]
    fn second_attempt_keeps_counts_and_usage_of_first() {
        let usage = |cpu_usec| Usage {
            cpu_usec: Some(cpu_usec),
            ..Usage::default()
        };
        let first = EndedLogins {
            logins: 4,
            terminals: 2,
            usage: usage(70),
        };
        let ended = Attempt::without_logins(Ok(())).after(first).ended;
        assert_eq!(
            (ended.logins, ended.terminals, ended.usage),
            (4, 2, usage(70))
        );
        let more = EndedLogins {
            logins: 5,
            terminals: 0,
            usage: usage(90),
        };
        let second = Attempt {
            ended: more,
            result: Ok(()),
        };
        let ended_by_both = second.after(first).ended;
        assert_eq!((ended_by_both.logins, ended_by_both.terminals), (5, 2));
        assert_eq!(ended_by_both.usage, usage(90));
    }
}
