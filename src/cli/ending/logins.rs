//! Which processes of a scheduler's cgroup are logins.

use super::process::{Identity, Process};
use std::collections::{BTreeMap, BTreeSet};

/// Numbers of the processes that belong to a login: root's sshd in the job's cgroup, whatever it
/// or another of these started, and whatever shares its audit session. `held` are processes that
/// are known to belong to one already, by number and start.
///
/// An audit session that sshd merely inherited says nothing: the scheduler's daemon may have been
/// started by hand from that very session. It counts where sshd's own parent has another one.
pub(in super::super) fn logins(table: &[Process], held: &[Identity]) -> BTreeSet<i32> {
    let own_session = |process: &Process| {
        process.session.filter(|_| process.is_sshd && process.session != process.parent_session)
    };
    let sessions: BTreeSet<u32> = table.iter().filter_map(own_session).collect();
    let is_root = |process: &&Process| {
        process.is_sshd
            || process.session.is_some_and(|session| sessions.contains(&session))
            || held.contains(&process.identity())
    };
    let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for process in table {
        children.entry(process.parent).or_default().push(process.pid);
    }
    let mut found = BTreeSet::new();
    let mut open: Vec<i32> = table.iter().filter(is_root).map(|process| process.pid).collect();
    while let Some(pid) = open.pop() {
        if found.insert(pid) {
            open.extend(children.get(&pid).into_iter().flatten());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: i32, parent: i32) -> Process {
        Process { pid, parent, start: 1, ..Process::default() }
    }

    fn sshd(pid: i32, session: Option<u32>, parent_session: Option<u32>) -> Process {
        Process { is_sshd: true, session, parent_session, ..process(pid, 1) }
    }

    fn chosen(table: &[Process]) -> Vec<i32> {
        logins(table, &[]).into_iter().collect()
    }

    #[test]
    fn the_scheduler_s_own_processes_stay() {
        assert_eq!(chosen(&[process(10, 1), process(11, 10)]), [0; 0]);
    }

    #[test]
    fn sshd_and_all_that_it_started() {
        let table = [
            process(10, 1),
            process(23, 22),
            process(22, 21),
            process(21, 20),
            sshd(20, None, None),
        ];
        assert_eq!(chosen(&table), [20, 21, 22, 23]);
    }

    #[test]
    fn what_left_its_parent_is_known_by_its_session() {
        let daemon = Process { session: Some(7), ..process(30, 1) };
        let below = process(31, 30);
        let table = [sshd(20, Some(7), None), daemon, below, process(10, 1)];
        assert_eq!(chosen(&table), [20, 30, 31]);
    }

    #[test]
    fn an_inherited_session_says_nothing() {
        let job = Process { session: Some(3), ..process(10, 1) };
        assert_eq!(chosen(&[sshd(20, Some(3), Some(3)), job.clone()]), [20]);
        assert_eq!(chosen(&[process(20, 1), job]), [0; 0]);
    }

    #[test]
    fn processes_without_a_session_share_none() {
        assert_eq!(chosen(&[sshd(20, None, Some(2)), process(10, 1)]), [20]);
    }

    #[test]
    fn what_is_held_stays_so_but_not_its_number() {
        let table = [process(21, 1), process(22, 21)];
        assert_eq!(logins(&table, &[(21, 1)]).len(), 2);
        assert_eq!(logins(&table, &[(21, 9)]).len(), 0);
    }
}
