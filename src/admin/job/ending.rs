//! Ends a job: notifies and kills its logins, and removes the cgroups that this project made.
//!
//! In a cgroup that `run` made, or had systemd make, it kills every process. In a scheduler's cgroup it
//! kills only the logins that were moved there: the scheduler ends the rest itself.

use super::cgroup_members::list_members;
use super::logins::{find_logins, select_descendants};
use super::signals::{send_signals, stop_then_kill};
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

impl EndedLogins {
    /// Raises the numbers to those of this attempt: a second attempt finds only what the first has left.
    fn raise_counts(&mut self, logins: usize, terminals: usize) {
        self.logins = self.logins.max(logins);
        self.terminals = self.terminals.max(terminals);
    }

    /// Records what the logins have used, unless an earlier attempt saw them use more: it may have
    /// removed some of their cgroups.
    fn record_usage(&mut self, leaves: &[Dir]) {
        let usage = Usage::read_leaves(leaves);
        if usage.cpu_usec >= self.usage.cpu_usec {
            self.usage = usage;
        }
    }
}

/// Ends the logins of a job in its cgroup, and the job itself if `run` made the cgroup. Updates `ended`
/// even if it fails.
///
/// # Errors
///
/// [`Error::Failed`] if processes still run at the deadline, or a directory cannot be removed.
pub(super) fn end_logins(
    place: &CgroupChain,
    record: &Record,
    deadline: Instant,
    ended: &mut EndedLogins,
) -> Result<(), Error> {
    let job = place.dir()?;
    let leaves = find_made_children(job)?;
    // A login that this walk misses gets no message. The kill below reports remaining processes.
    let time = deadline.saturating_duration_since(Instant::now()) / 4;
    let none = BTreeSet::new();
    let logins = find_logins(job, &leaves, record.uid, &none, Instant::now() + time).all;
    let line = format!("job {} has ended; closing this login", record.id);
    let terminals = write_to_terminals(record.uid, &open_terminals(record.uid, &logins), &line);
    if terminals > 0 {
        sleep(LAST_MESSAGE_GRACE.min(deadline.saturating_duration_since(Instant::now())));
    }
    ended.raise_counts(logins.len(), terminals);

    if ignore_gone(has_mark(job, SCOPE_XATTR))? == Some(true) {
        kill_all(job, deadline)?;
        ended.record_usage(&leaves);
        return await_systemd_removal(job, deadline);
    }
    if is_made(job)? {
        kill_all(job, deadline)?;
        ended.record_usage(&leaves);
        return remove_made_cgroups(place);
    }
    // Processes in the leaves are killed together with the others: the origin of a process that has
    // left its leaf could not be found later.
    let killed = kill_logins(job, &leaves, record.uid, deadline);
    // Every leaf is killed, also if that failed.
    let deadline = deadline.max(Instant::now() + LEAF_KILL_TIMEOUT);
    let kill_results: Vec<_> = leaves.iter().map(|leaf| kill_all(leaf, deadline)).collect();
    ended.record_usage(&leaves);
    let removed = leaves.iter().zip(kill_results).map(|(leaf, kill_result)| {
        kill_result?;
        Ok(remove_child(job, leaf)?)
    });
    killed.and(removed.fold(Ok(()), Result::and))
}

/// Finds the children that this project made, with any name.
fn find_made_children(dir: &Dir) -> Result<Vec<Dir>, Error> {
    let mut made = Vec::new();
    for name in ignore_gone(dir.children())?.unwrap_or_default() {
        if let Some(child) = ignore_gone(dir.child(name))? {
            if is_made(&child)? {
                made.push(child);
            }
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
    let [job, above, rest @ ..] = place.levels() else { return Ok(()) };
    if !is_made(job)? {
        return Ok(());
    }
    remove_tree(above, job)?;
    if let (Some(top), true) = (rest.first(), is_made(above)?) {
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
    if Membership::read_own()?.unified().is_none_or(|own| is_within(own, dir.path())) {
        return Err(Error::failed("kill", dir.path(), "this process is in it itself"));
    }
    let mut mode = KillMode::Cgroup;
    while ignore_gone(read_event(dir, "populated"))?.flatten() == Some(true) {
        subtree::kill(dir, std::mem::replace(&mut mode, KillMode::EachProcess), deadline);
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
    let find = |stopped: &BTreeSet<Identity>| {
        let Listing { all, cut } = find_logins(job, leaves, owner, stopped, deadline);
        let mut logins = all.iter().map(Process::identity).collect();
        match cut {
            Some(error) if all.is_empty() => return Err(error.into()),
            // Once the logins are killed, a later search could not tell where their processes come from.
            Some(_) => stop_descendants(job, &mut logins),
            None => {}
        }
        Ok(logins.into_iter().collect())
    };
    let mut stopped = BTreeSet::new();
    let result = stop_then_kill(find, deadline, &mut stopped);
    // No process stays stopped, also if that failed.
    let killed = send_signals(stopped, Signal::SIGKILL);
    let remaining = result?;
    if !remaining.is_empty() {
        let pids: Vec<i32> = remaining.iter().map(|(pid, _)| *pid).collect();
        return Err(remaining_error(job, &pids));
    }
    killed
}

/// Stops these processes and, until it finds no new ones, their descendants in the job's cgroup and below it, which it
/// adds to `logins`. It looks for them in the process table, so the number of cgroups does not matter.
fn stop_descendants(job: &Dir, logins: &mut BTreeSet<Identity>) {
    for _ in 0..DESCENDANT_SEARCHES_MAX {
        // The caller signals them again, and reports failures.
        let _ = send_signals(logins.iter().copied(), Signal::SIGSTOP);
        let known = logins.len();
        logins.extend(find_descendants(job, logins));
        if logins.len() == known {
            return;
        }
    }
}

/// Finds the descendants of these processes whose cgroup is the job's or below it. One whose path cannot be read counts
/// as well: before Linux 6.8 the kernel shows none of more than 4096 bytes.
fn find_descendants(job: &Dir, logins: &BTreeSet<Identity>) -> Vec<Identity> {
    let own_pid = nix::unistd::getpid().as_raw();
    let read = |pid| {
        let processes::Stat { parent, start, .. } =
            processes::read_stat(&Proc::host(), pid).ok()?;
        Some(Process { pid, parent, start, ..Process::default() })
    };
    let pids = processes::list_numbers::<i32>(Path::new("/proc")).into_iter().flatten().flatten();
    let table: Vec<Process> = pids.filter(|&pid| pid != own_pid).filter_map(read).collect();
    let selected = select_descendants(&table, |process| logins.contains(&process.identity()));
    let is_inside = |pid: i32| match Membership::read(pid) {
        Ok(membership) => membership.unified().is_some_and(|path| is_within(path, job.path())),
        Err(_) => true,
    };
    let inside =
        table.iter().filter(|process| selected.contains(&process.pid) && is_inside(process.pid));
    inside.map(Process::identity).collect()
}

fn remaining_error(dir: &Dir, pids: &[i32]) -> Error {
    let mut names: Vec<String> = pids.iter().take(PIDS_MAX).map(ToString::to_string).collect();
    if pids.len() > PIDS_MAX {
        names.push("...".into());
    }
    let cause = format!("processes {} are still there; try again later", names.join(", "));
    Error::failed("empty", dir.path(), cause)
}
