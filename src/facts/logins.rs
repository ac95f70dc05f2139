//! Finds the processes of logins in the cgroup of a job.

use super::cgroup_members::read_processes;
use super::usage::open_login_cgroup;
use crate::process::{Identity, Process};
use command::error::Error;
use kernel::cgroup::{Dir, Listing};
use protocol::LeafName;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// Lists the processes of the logins of `owner` in a job's cgroup and in the one for its logins, which is called `leaf`
/// (`None`: the usual name).
///
/// # Errors
///
/// [`Error::Failed`] if the cgroup for logins cannot be opened, or its mark cannot be read.
pub fn list_logins(
    job: &Dir,
    leaf: Option<&LeafName>,
    owner: u32,
    deadline: Instant,
) -> Result<Listing<Process>, Error> {
    let leaves: Vec<Dir> = open_login_cgroup(job, leaf)?.into_iter().collect();
    Ok(find_logins(
        job,
        &leaves,
        owner,
        &KnownLogins::default(),
        deadline,
    ))
}

/// The processes of logins that an earlier search has found. What shows that a process belongs to a login may end
/// before it does: its sshd, its parents.
#[derive(Clone, Debug, Default)]
pub struct KnownLogins {
    /// The processes that were found.
    pub processes: BTreeSet<Identity>,
    /// Sessions whose leader was among them. Only descendants of the leader are in these.
    pub sessions: BTreeSet<i32>,
}

impl KnownLogins {
    /// Adds the processes of a search.
    pub fn add(&mut self, found: &[Process]) {
        self.processes.extend(found.iter().map(Process::identity));
        let leaders = found
            .iter()
            .filter(|process| process.session == process.pid);
        self.sessions.extend(leaders.map(|leader| leader.pid));
    }

    /// Forgets the processes that do not run any more: a login that starts others all the time must not fill memory.
    /// Sessions stay, since their orphans may still be found; they are no more than there are process numbers.
    pub fn forget_ended(&mut self, runs: impl Fn(&Identity) -> bool) {
        self.processes.retain(runs);
    }
}

/// Finds the processes of the logins of `owner` in a job's cgroup: all in the `leaves`, those that are `known`
/// from before or in the session of one, root's sshd, processes with the owner's login uid, and all descendants
/// of these.
pub fn find_logins(
    job: &Dir,
    leaves: &[Dir],
    owner: u32,
    known: &KnownLogins,
    deadline: Instant,
) -> Listing<Process> {
    // Whether the list of a leaf was cut off does not matter here: the leaves are below the job, whose own list shows it.
    let in_leaves: Vec<Process> = leaves
        .iter()
        .flat_map(|leaf| read_processes(leaf, deadline).all)
        .collect();
    let mut members = known.clone();
    members
        .processes
        .extend(in_leaves.iter().map(Process::identity));
    let Listing {
        all: mut logins,
        cut,
    } = read_processes(job, deadline);
    let mut selected = select_logins(&logins, owner, &members);
    logins.retain(|process| selected.contains(&process.pid));
    if cut.is_some() {
        // A job with too many processes hides none of those that the leaves have shown.
        for process in in_leaves {
            if selected.insert(process.pid) {
                logins.push(process);
            }
        }
    }
    Listing { all: logins, cut }
}

/// Selects the numbers of processes that belong to a login: root's sshd in the job's cgroup, processes
/// that pam_loginuid(8) marked as logins of the job's owner, `members` and those of their sessions, and all
/// descendants of these.
fn select_logins(table: &[Process], owner: u32, members: &KnownLogins) -> BTreeSet<i32> {
    select_descendants(table, |process| {
        process.is_sshd
            || process.login == Some(owner)
            || members.processes.contains(&process.identity())
            || members.sessions.contains(&process.session)
    })
}

/// Selects the numbers of the processes for which `is_first` holds, and of all their descendants.
pub fn select_descendants(table: &[Process], is_first: impl Fn(&Process) -> bool) -> BTreeSet<i32> {
    let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for process in table {
        children
            .entry(process.parent)
            .or_default()
            .push(process.pid);
    }
    let mut selected = BTreeSet::new();
    let mut open: Vec<i32> = table
        .iter()
        .filter(|process| is_first(process))
        .map(|process| process.pid)
        .collect();
    while let Some(pid) = open.pop() {
        if selected.insert(pid) {
            open.extend(children.get(&pid).into_iter().flatten());
        }
    }
    selected
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: i32, parent: i32) -> Process {
        Process {
            pid,
            parent,
            start: 1,
            ..Process::default()
        }
    }

    fn sshd(pid: i32) -> Process {
        Process {
            is_sshd: true,
            ..process(pid, 1)
        }
    }

    fn selected(table: &[Process]) -> Vec<i32> {
        select_logins(table, 5, &KnownLogins::default())
            .into_iter()
            .collect()
    }

    #[test]
    fn processes_of_scheduler_are_not_selected() {
        assert_eq!(selected(&[process(10, 1), process(11, 10)]), [0; 0]);
    }

    #[test]
    fn sshd_and_its_descendants_are_selected() {
        let table = [
            process(10, 1),
            process(23, 22),
            process(22, 21),
            process(21, 20),
            sshd(20),
        ];
        assert_eq!(selected(&table), [20, 21, 22, 23]);
    }

    #[test]
    fn orphan_of_login_is_selected_by_login_uid() {
        let of = |pid, login| Process {
            login: Some(login),
            ..process(pid, 1)
        };
        let table = [of(30, 5), process(31, 30), of(40, 6), process(10, 1)];
        assert_eq!(selected(&table), [30, 31]);
    }

    #[test]
    fn member_is_selected_by_number_and_start() {
        let table = [process(21, 1), process(22, 21)];
        for (start, count) in [(1, 2), (9, 0)] {
            let known = KnownLogins {
                processes: BTreeSet::from([(21, start)]),
                ..KnownLogins::default()
            };
            assert_eq!(select_logins(&table, 5, &known).len(), count);
        }
    }

    #[test]
    fn ended_process_is_forgotten_and_its_session_stays() {
        let mut known = KnownLogins::default();
        known.add(&[
            Process {
                session: 20,
                ..process(20, 1)
            },
            process(21, 20),
        ]);
        known.forget_ended(|(pid, _)| *pid == 21);
        assert_eq!(known.processes, BTreeSet::from([(21, 1)]));
        assert_eq!(known.sessions, BTreeSet::from([20]));
    }

    /// A shell that ends may have started a process meanwhile.
    #[test]
    fn orphan_is_selected_by_session_of_its_login() {
        let of = |pid, parent, session| Process {
            session,
            ..process(pid, parent)
        };
        let mut known = KnownLogins::default();
        known.add(&[of(20, 1, 7), of(21, 20, 21), of(22, 21, 21)]);
        let table = [of(23, 1, 21), of(10, 1, 7), of(24, 1, 24)];
        let orphan = BTreeSet::from([23]);
        assert_eq!(select_logins(&table, 5, &known), orphan);
    }
}
