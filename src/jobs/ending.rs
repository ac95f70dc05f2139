//! Ends a job: notifies its logins, asks them to end, kills those that do not, and removes the cgroups that this
//! project made.
//!
//! In a cgroup that `run` made, or had systemd make, it kills every process. In a scheduler's cgroup it
//! kills only the logins that were moved there: the scheduler ends the rest itself.

use crate::signals::{StopAndKill, send_signals, stop_then_kill};
use crate::terminals::{open_terminals, write_to_terminals};
use command::error::Error;
use facts::cgroup_members::{list_members, read_processes};
use facts::logins::{KnownLogins, find_logins, select_descendants};
use facts::process::{Identity, Process, has_ended, read_start_ticks};
use facts::usage::Usage;
use helper::jobs::records::Record;
use helper::jobs::sources::processes;
use helper::printable;
use keeper::grace::{Logins, ask_to_end};
use keeper::subtree::{self, KillMode};
use keeper::survivors::describe_unkillable;
use kernel::cgroup::{
    self, CgroupChain, Dir, Listing, MADE_XATTR, Membership, Stamp, has_mark, ignore_gone,
    read_event,
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
/// Time for sshd to send the last message, before it is killed with the rest, if nothing has time to save.
const LAST_MESSAGE_GRACE: Duration = Duration::from_millis(200);
/// Shortest time to kill the leaves, or what was asked to end before, also past the deadline.
const KILL_TIMEOUT_MIN: Duration = Duration::from_secs(1);
/// Pause between two searches for processes that were started after logins were asked to end.
const SEARCH_INTERVAL: Duration = Duration::from_millis(250);
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
    /// The logins that it found, for a further attempt, which could not tell any more where they come from.
    pub(super) known: KnownLogins,
    /// [`Error::Remaining`] if processes still run at the deadline, [`Error::Failed`] if a directory cannot be removed.
    pub(super) result: Result<(), Error>,
}

impl Attempt {
    /// An attempt that has ended nothing.
    pub(super) fn without_logins(result: Result<(), Error>) -> Self {
        Self {
            ended: EndedLogins::default(),
            known: KnownLogins::default(),
            result,
        }
    }

    /// Merges this attempt with the `first` one, which failed before it, into one attempt with the result of this
    /// one. The larger number counts: this attempt finds only the processes that the first has left. Of the usages
    /// the one with more processor time counts, since the first attempt may have removed cgroups of logins.
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
            known: self.known,
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
    /// The stamp that the job had.
    stamp: Stamp,
}

impl<'a> EndingCgroup<'a> {
    /// Finds out who made the job's cgroup, and opens the cgroups for logins in it. It fails with
    /// [`Error::Failed`] if the cgroup cannot be read.
    fn open(place: &'a CgroupChain, record: &Record) -> Result<Self, Error> {
        let dir = place.dir()?;
        let leaves = find_made_children(dir)?;
        let maker = if ignore_gone(has_mark(dir, SCOPE_XATTR))? == Some(true) {
            Maker::RunBySystemd
        } else if is_made(dir)? {
            Maker::Run
        } else {
            Maker::Scheduler
        };
        Ok(Self {
            dir,
            maker,
            leaves,
            stamp: Stamp {
                uid: record.uid,
                job: record.id.clone(),
            },
        })
    }

    /// Whether the cgroup belongs to another job by now. Logins join that one only after it was stamped, so what was
    /// found in the cgroup before is not theirs. A stamp that cannot be read is none of ours.
    fn has_next_job(&self) -> bool {
        let stamp = Stamp::read(self.dir).ok().flatten();
        stamp.is_some_and(|stamp| stamp != self.stamp)
    }

    /// Kills the processes that were found before the cgroup was stamped for another job.
    fn end_known_alone(ended: EndedLogins, known: KnownLogins) -> Attempt {
        let result = send_signals(known.processes.iter().copied(), Signal::SIGKILL);
        Attempt {
            ended,
            known,
            result,
        }
    }

    /// Notifies the logins of the job and, if there is a grace, asks their processes to end; in a cgroup that `run` made,
    /// all processes ([`LeavingLogins::search`]). Returns what was found, whether it ends or not, and adds it to `known`,
    /// since the kill cannot tell any more where it comes from.
    fn ask_logins_to_end(
        &self,
        record: &Record,
        known: &mut KnownLogins,
        grace: Duration,
        deadline: Instant,
    ) -> EndedLogins {
        // A login that is not found in a quarter of the time gets no message; it is searched for again to be killed.
        let search_end = Instant::now() + deadline.saturating_duration_since(Instant::now()) / 4;
        let logins = find_logins(self.dir, &self.leaves, record.uid, known, search_end).all;
        let line = format!("job {} has ended; closing this login", record.id);
        let terminals = write_to_terminals(record.uid, &open_terminals(record.uid, &logins), &line);
        known.add(&logins);
        let ended = EndedLogins {
            logins: logins.len(),
            terminals,
            usage: Usage::default(),
        };
        // Without a grace sshd is killed next.
        if grace.is_zero() && terminals > 0 {
            sleep(LAST_MESSAGE_GRACE.min(deadline.saturating_duration_since(Instant::now())));
        }
        let mut leaving = LeavingLogins {
            cgroup: self,
            end: Instant::now() + grace,
            known,
            current: BTreeSet::new(),
            searched: None,
        };
        ask_to_end(&mut leaving, grace);
        ended
    }

    /// Kills the logins in a scheduler's cgroup, those that are `known` among them, and removes their leaves.
    /// Returns the attempt, for which it adds to `ended` what the logins had used.
    fn end_logins_alone(
        &self,
        mut ended: EndedLogins,
        known: KnownLogins,
        deadline: Instant,
    ) -> Attempt {
        // Processes in the leaves are killed together with the others: the origin of a process that has
        // left its leaf could not be found later.
        let mut result = kill_logins(self, &known, deadline);
        // What is left in the cgroup may be of the next job, so it is no failure.
        if self.has_next_job() {
            return Self::end_known_alone(ended, known);
        }
        // Every leaf is killed, also if a login could not be killed or the deadline is over.
        let leaf_deadline = deadline.max(Instant::now() + KILL_TIMEOUT_MIN);
        let kill_results: Vec<_> = self
            .leaves
            .iter()
            .map(|leaf| kill_all(leaf, leaf_deadline))
            .collect();
        // A removed cgroup has no usage.
        ended.usage = Usage::read_leaves(&self.leaves);
        for (leaf, killed) in self.leaves.iter().zip(kill_results) {
            let removed = killed.and_then(|()| Ok(remove_child(self.dir, leaf)?));
            result = result.and(removed);
        }
        Attempt {
            ended,
            known,
            result,
        }
    }
}

/// The processes of a job's end that were asked to end.
struct LeavingLogins<'a> {
    cgroup: &'a EndingCgroup<'a>,
    /// End of the grace, and so of each search.
    end: Instant,
    known: &'a mut KnownLogins,
    /// Those that ran at the last look.
    current: BTreeSet<Identity>,
    /// When all processes of the job were last looked at.
    searched: Option<Instant>,
}

impl LeavingLogins<'_> {
    /// Replaces `current` by the processes that run now: in a scheduler's cgroup those of logins, and else
    /// all in the cgroup. If the grace ends first, `current` has those that were found until then. Adds them to
    /// `known`, which forgets those that have ended. Once the cgroup belongs to another job, `current` is empty.
    fn search(&mut self) {
        let found = if self.cgroup.maker == Maker::Scheduler {
            let EndingCgroup {
                dir, leaves, stamp, ..
            } = self.cgroup;
            find_logins(dir, leaves, stamp.uid, self.known, self.end).all
        } else {
            read_processes(self.cgroup.dir, self.end).all
        };
        self.searched = Some(Instant::now());
        self.current.clear();
        // Asked after the search: what it found may be of the next job.
        if self.cgroup.has_next_job() {
            return;
        }
        self.known.add(&found);
        self.current = found.iter().map(Process::identity).collect();
        let current = &self.current;
        self.known
            .forget_ended(|process| current.contains(process) || runs(process));
    }
}

impl Logins for LeavingLogins<'_> {
    /// Lists the processes that still run. It searches the whole job again only after a while, or once none of the
    /// known processes is left: a search reads each process of the job.
    fn list(&mut self) -> BTreeSet<i32> {
        let end = self.end;
        // Past the end no process is looked at any more, since the caller gives up then.
        self.current
            .retain(|process| Instant::now() >= end || runs(process));
        let is_recent = self
            .searched
            .is_some_and(|at| at.elapsed() < SEARCH_INTERVAL);
        if self.current.is_empty() || !is_recent {
            self.search();
        }
        self.current.iter().map(|(pid, _)| *pid).collect()
    }

    /// Sends a signal to those of the last list that have these numbers, and none once the grace has ended.
    fn send(&mut self, pids: &BTreeSet<i32>, signal: Signal) {
        let asked = self
            .current
            .iter()
            .filter(|(pid, _)| pids.contains(pid))
            .take_while(|_| Instant::now() < self.end);
        // The kill reports a process that takes no signal.
        let _ = send_signals(asked.copied(), signal);
    }
}

/// Whether a process still runs: a thread of it has not ended, and its number does not belong to another
/// process by now.
fn runs(process: &Identity) -> bool {
    read_start_ticks(process.0) == Some(process.1)
        && Proc::host()
            .read_process(process.0)
            .is_ok_and(|status| !has_ended(&status))
}

/// Ends the logins of a job in its cgroup, and the job itself if `run` made the cgroup. For `grace`, and not
/// longer than to the deadline, programs can save; whatever is left then is killed. `known` are the logins that an
/// earlier attempt has found.
pub(super) fn end_logins(
    place: &CgroupChain,
    record: &Record,
    mut known: KnownLogins,
    grace: Duration,
    deadline: Instant,
) -> Attempt {
    let cgroup = match EndingCgroup::open(place, record) {
        Ok(cgroup) => cgroup,
        Err(error) => return Attempt::without_logins(Err(error)),
    };
    if cgroup.maker != Maker::Scheduler {
        if let Err(error) = require_outside(cgroup.dir) {
            return Attempt::without_logins(Err(error));
        }
    }
    let grace = grace.min(deadline.saturating_duration_since(Instant::now()));
    let mut ended = cgroup.ask_logins_to_end(record, &mut known, grace, deadline);
    // The grace may have used up the time: what was asked to end is killed all the same.
    let deadline = if grace.is_zero() {
        deadline
    } else {
        deadline.max(Instant::now() + KILL_TIMEOUT_MIN)
    };
    if cgroup.has_next_job() {
        return EndingCgroup::end_known_alone(ended, known);
    }
    if cgroup.maker == Maker::Scheduler {
        return cgroup.end_logins_alone(ended, known, deadline);
    }
    if let Err(error) = kill_all(cgroup.dir, deadline) {
        return Attempt {
            ended,
            known,
            result: Err(error),
        };
    }
    ended.usage = Usage::read_leaves(&cgroup.leaves);
    let result = if cgroup.maker == Maker::RunBySystemd {
        await_systemd_removal(cgroup.dir, deadline)
    } else {
        remove_made_cgroups(place)
    };
    Attempt {
        ended,
        known,
        result,
    }
}

/// Finds the children of a cgroup that this project made, whatever their names.
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

/// Removes a job's cgroup that this project made, with its children that this project made; and then the
/// cgroup above it, if this project made that and no other job is in it. A cgroup that this project did not
/// make stays.
///
/// # Errors
///
/// [`Error::Failed`] for a cgroup that cannot be read, or cannot be removed.
pub(super) fn remove_made_cgroups(place: &CgroupChain) -> Result<(), Error> {
    // From the job's cgroup upwards.
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

/// Kills every process in a cgroup and below it, also frozen ones.
///
/// # Errors
///
/// [`Error::Remaining`] if processes still run at the deadline; [`Error::Failed`] if this process is among them, or if
/// the cgroup cannot be read.
pub(crate) fn kill_all(dir: &Dir, deadline: Instant) -> Result<(), Error> {
    require_outside(dir)?;
    let mut mode = KillMode::Cgroup;
    while ignore_gone(read_event(dir, "populated"))?.flatten() == Some(true) {
        subtree::kill(dir, mode, deadline);
        // What survives the first kill is also signaled one by one.
        mode = KillMode::EachProcess;
        sleep(POLL_INTERVAL);
        if Instant::now() >= deadline {
            // The list for the message takes a moment past the deadline.
            let remaining = list_members(dir, Instant::now() + LAST_MESSAGE_GRACE).all;
            return Err(remaining_error(dir, remaining));
        }
    }
    Ok(())
}

/// Requires that this process is not in a cgroup whose processes it ends. If it has no path in cgroup v2, it counts as
/// inside. Paths are compared, since a list of all processes could take too long.
fn require_outside(dir: &Dir) -> Result<(), Error> {
    let is_inside = Membership::read_own()?
        .unified()
        .is_none_or(|own| is_within(own, dir.path()));
    if is_inside {
        let cause = "this process is in it itself";
        return Err(Error::failed("kill", dir.path(), cause));
    }
    Ok(())
}

/// Kills the logins in a scheduler's cgroup, those that are `known` among them. It stops them first, until it
/// finds no new ones: a stopped process starts no other that could escape.
///
/// It fails with [`Error::Remaining`] if a login still runs at the deadline, and with [`Error::Failed`] if a cgroup could
/// not be read; the logins that it found are killed all the same, with what they have started in other cgroups of the
/// job.
fn kill_logins(
    cgroup: &EndingCgroup<'_>,
    known: &KnownLogins,
    deadline: Instant,
) -> Result<(), Error> {
    let StopAndKill {
        stopped,
        result: remaining,
    } = stop_then_kill(
        |stopped| {
            let mut all = known.clone();
            all.processes.extend(stopped);
            find_logins_to_kill(cgroup, &all, deadline)
        },
        deadline,
    );
    // If the search failed, `stop_then_kill` has only stopped these. A second signal changes nothing for those
    // that it has killed.
    let killed = send_signals(stopped, Signal::SIGKILL);
    let remaining = remaining?;
    if !remaining.is_empty() {
        let pids = remaining.iter().map(|(pid, _)| *pid).collect();
        return Err(remaining_error(cgroup.dir, pids));
    }
    killed
}

/// Finds the logins in a scheduler's cgroup, the `known` ones among them. If the search was cut short, it stops those
/// that were found, and their descendants, and returns all these; if none was found, it fails with the cause. It
/// finds none once the cgroup belongs to another job.
fn find_logins_to_kill(
    cgroup: &EndingCgroup<'_>,
    known: &KnownLogins,
    deadline: Instant,
) -> Result<Vec<Identity>, Error> {
    let EndingCgroup {
        dir, leaves, stamp, ..
    } = cgroup;
    let Listing { all, cut } = find_logins(dir, leaves, stamp.uid, known, deadline);
    if cgroup.has_next_job() {
        return Ok(Vec::new());
    }
    let logins: BTreeSet<Identity> = all.iter().map(Process::identity).collect();
    let Some(error) = cut else {
        return Ok(logins.into_iter().collect());
    };
    if logins.is_empty() {
        return Err(error.into());
    }
    // Once the logins are killed, a later search could not tell where their processes come from.
    Ok(stop_with_descendants(dir, logins).into_iter().collect())
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

/// Finds those of these processes and of their descendants whose cgroup is the job's or below it. One whose path cannot
/// be read counts as well: before Linux 6.8 the kernel shows none of more than 4096 bytes. Finds none if `/proc` cannot
/// be listed.
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

/// Whether a process is in the job's cgroup or below it, or its cgroup cannot be read.
fn may_be_inside(pid: i32, job: &Dir) -> bool {
    let Ok(membership) = Membership::read(pid) else {
        return true;
    };
    membership
        .unified()
        .is_some_and(|path| is_within(path, job.path()))
}

/// Replaces the error for processes that remain in a cgroup by [`Error::Unkillable`], which names those that no signal
/// ends, if there are any: they need an admin. The caller has ended before what may hold them up.
pub(super) fn name_unkillable(error: Error) -> Error {
    let Error::Remaining { cgroup, pids } = error else {
        return error;
    };
    match describe_unkillable(&pids) {
        Some(which) => Error::Unkillable(format!("empty {cgroup}: cannot be killed: {which}")),
        None => Error::Remaining { cgroup, pids },
    }
}

/// Builds the error for the processes that remain at the deadline.
fn remaining_error(dir: &Dir, pids: Vec<i32>) -> Error {
    Error::Remaining {
        cgroup: printable(dir.path()),
        pids,
    }
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
            ..Attempt::without_logins(Ok(()))
        };
        let ended_by_both = second.after(first).ended;
        assert_eq!((ended_by_both.logins, ended_by_both.terminals), (5, 2));
        assert_eq!(ended_by_both.usage, usage(90));
    }
}
