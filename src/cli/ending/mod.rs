//! The end of a job: its logins are told and ended, and what we made is removed.
//!
//! In a cgroup that we made, or had systemd make, everything is ended, in a scheduler's only the
//! logins that were put there: the scheduler ends the rest itself.

mod kill;
mod logins;
mod process;
mod terminal;

use super::Error;
use crate::cgroup::{Dir, Mark, Place, event};
use crate::keeper::subtree::unless_gone;
use crate::plan::LeafName;
use crate::registry::Record;
use std::thread::sleep;
use std::time::{Duration, Instant};

pub(super) use logins::logins;
pub(super) use process::{
    Process, read as read_process, real_uid, runs_sshd, table as process_table,
};

/// What sshd is given to send the last words on, before it is ended with the rest.
const FORWARDING: Duration = Duration::from_millis(200);
/// Pause between two looks whether systemd has removed a scope.
const PAUSE: Duration = Duration::from_millis(10);

/// What there was to end.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ending {
    /// Processes of logins.
    pub(super) logins: usize,
    /// Terminals that were told.
    pub(super) terminals: usize,
}

/// Ends what is ours to end of a job in this place.
///
/// # Errors
/// [`Error::Failed`] where processes are left at the deadline, or a directory cannot be removed.
pub(super) fn end(place: &Place, record: &Record, deadline: Instant) -> Result<Ending, Error> {
    let job = place.dir()?;
    let leaves = made_leaves(job, record)?;
    let mut processes = Vec::new();
    for leaf in &leaves {
        processes.extend(process_table(leaf).all);
    }
    // What a walk misses is not told; killing says whether any was left.
    let table = process_table(job).all;
    let found = logins(&table, &[]);
    processes.extend(table.into_iter().filter(|process| found.contains(&process.pid)));
    let terminals = terminal::tell(&record.id, record.uid, &processes);
    if terminals > 0 {
        sleep(FORWARDING.min(deadline.saturating_duration_since(Instant::now())));
    }
    let ending = Ending { logins: found.len(), terminals };

    if unless_gone(Mark::Scope.is_set(job))? == Some(true) {
        kill::all(job, deadline)?;
        leave_to_systemd(job, deadline)?;
        return Ok(ending);
    }
    if unless_gone(Mark::Made.is_set(job))? == Some(true) {
        kill::all(job, deadline)?;
        remove(place)?;
        return Ok(ending);
    }
    for leaf in &leaves {
        kill::all(leaf, deadline)?;
        if let Some((_, name)) = leaf.path().rsplit_once('/') {
            job.remove_child(name)?;
        }
    }
    kill::logins(job, deadline)?;
    Ok(ending)
}

/// The children for logins that we made.
fn made_leaves(job: &Dir, record: &Record) -> Result<Vec<Dir>, Error> {
    let mut leaves = Vec::new();
    let named = record.leaf.as_ref().map(LeafName::as_str);
    let default = (named != Some(LeafName::DEFAULT)).then_some(LeafName::DEFAULT);
    for name in named.into_iter().chain(default) {
        if let Some(leaf) = unless_gone(job.child(name))? {
            if unless_gone(Mark::Made.is_set(&leaf))? == Some(true) {
                leaves.push(leaf);
            }
        }
    }
    Ok(leaves)
}

/// Waits until systemd has removed an empty scope, so that the next of that name can be made. One
/// that takes longer is no failure of ours.
///
/// We must not remove it: systemd learns that a scope is empty from a change of `cgroup.events`, and
/// reads the file then (`unit_check_cgroup_events` in `src/core/cgroup.c`). Where it finds none it
/// learns nothing, and the scope stays active for good.
fn leave_to_systemd(scope: &Dir, deadline: Instant) -> Result<(), Error> {
    while unless_gone(event(scope, "populated"))?.is_some() && Instant::now() < deadline {
        sleep(PAUSE);
    }
    Ok(())
}

/// Removes a directory that we made, and no other, after its children that we made; and the one
/// above where we made that as well and nothing else is in it.
pub(super) fn remove(place: &Place) -> Result<(), Error> {
    let [job, above, ..] = place.levels() else { return Ok(()) };
    if unless_gone(Mark::Made.is_set(job))? != Some(true) {
        return Ok(());
    }
    remove_made(above, job)?;
    if let Some(top) = place.levels().get(2) {
        if unless_gone(Mark::Made.is_set(above))? == Some(true) {
            if let Some((_, name)) = above.path().rsplit_once('/') {
                // Refused while there are other jobs in it.
                let _ = top.remove_child(name);
            }
        }
    }
    Ok(())
}

fn remove_made(above: &Dir, dir: &Dir) -> Result<(), Error> {
    for name in unless_gone(dir.children())?.unwrap_or_default() {
        if let Some(child) = unless_gone(dir.child(&name))? {
            if unless_gone(Mark::Made.is_set(&child))? == Some(true) {
                remove_made(dir, &child)?;
            }
        }
    }
    match dir.path().rsplit_once('/') {
        Some((_, name)) => Ok(above.remove_child(name)?),
        None => Ok(()),
    }
}
