//! Ends a job: notifies and kills its logins, and removes the cgroups that this project made.
//!
//! In a cgroup that `run` made, or had systemd make, it kills every process. In a scheduler's cgroup it
//! kills only the logins that were moved there: the scheduler ends the rest itself.

use super::cgroup_members::list_members;
use super::terminals::{open_terminals, write_to_terminals};
use super::usage::{Usage, open_login_cgroup};
use crate::error::Error;
use helper::jobs::records::Record;
use helper::jobs::sources::processes;
use keeper::subtree::{self, KillMode};
use kernel::cgroup::{
    self, CgroupChain, Dir, Listing, MADE_XATTR, Membership, has_mark, ignore_gone, read_event,
};
use kernel::proc::{self, Proc, read_audit_number};
use kernel::sys::pidfd::{pidfd_open, pidfd_send_signal};
use nix::sys::signal::Signal;
use nix::unistd::Uid;
use protocol::{LeafName, is_within};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CStr;
use std::fs;
use std::io;
use std::os::fd::AsFd;
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
pub(super) fn kill_all(dir: &Dir, deadline: Instant) -> Result<(), Error> {
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

/// Kills the processes that `find` returns. All are stopped first, until there are no new ones: `stopped`
/// receives each of them, and is the argument of `find`. Returns the processes that remain at the
/// deadline; these are killed as well, so that a process which starts others without end protects none.
///
/// # Errors
///
/// The errors of `find`: the processes in `stopped` then remain stopped, and the caller must signal them.
/// [`Error::Failed`] for a process that takes no signal; the others are signaled all the same.
pub(super) fn stop_then_kill(
    find: impl Fn(&BTreeSet<Identity>) -> Result<Vec<Identity>, Error>,
    deadline: Instant,
    stopped: &mut BTreeSet<Identity>,
) -> Result<Vec<Identity>, Error> {
    let mut result = Ok(());
    loop {
        let mut remaining = find(stopped)?;
        // During the search a process may have started another and ended.
        if remaining.is_empty() {
            remaining = find(stopped)?;
        }
        if remaining.is_empty() {
            return result.map(|()| remaining);
        }
        let is_new = |process: &Identity| stopped.insert(*process);
        let new: Vec<_> = remaining.iter().copied().filter(is_new).collect();
        if new.is_empty() {
            result = result.and(send_signals(remaining.iter().copied(), Signal::SIGKILL));
            sleep(POLL_INTERVAL);
        }
        result = result.and(send_signals(new, Signal::SIGSTOP));
        if Instant::now() >= deadline {
            let killed = send_signals(remaining.iter().copied(), Signal::SIGKILL);
            return result.and(killed).map(|()| remaining);
        }
    }
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

/// Sends a signal to each of these processes.
///
/// # Errors
///
/// [`Error::Failed`] for the first failure, after which the others get the signal all the same.
pub(super) fn send_signals(
    processes: impl IntoIterator<Item = Identity>,
    signal: Signal,
) -> Result<(), Error> {
    let results = processes.into_iter().map(|process| send_signal(process, signal));
    results.fold(Ok(()), Result::and)
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

/// Lists the processes of the logins of `owner` in a job's cgroup and in the one for its logins.
///
/// # Errors
///
/// As [`open_login_cgroup`].
pub(super) fn list_logins(
    job: &Dir,
    leaf: Option<&LeafName>,
    owner: u32,
    deadline: Instant,
) -> Result<Listing<Process>, Error> {
    let leaves: Vec<Dir> = open_login_cgroup(job, leaf)?.into_iter().collect();
    Ok(find_logins(job, &leaves, owner, &BTreeSet::new(), deadline))
}

/// Finds the processes of the logins of `owner` in a job's cgroup, with all in the leaves. `members` are
/// processes that are known to belong to a login.
fn find_logins(
    job: &Dir,
    leaves: &[Dir],
    owner: u32,
    members: &BTreeSet<Identity>,
    deadline: Instant,
) -> Listing<Process> {
    let mut members = members.clone();
    let in_leaves: Vec<Process> =
        leaves.iter().flat_map(|leaf| read_processes(leaf, deadline).all).collect();
    members.extend(in_leaves.iter().map(Process::identity));
    let Listing { mut all, cut } = read_processes(job, deadline);
    let mut selected = select_logins(&all, owner, &members);
    all.retain(|process| selected.contains(&process.pid));
    // A job with too many processes hides none of its logins that have been found already.
    if cut.is_some() {
        all.extend(in_leaves.into_iter().filter(|process| selected.insert(process.pid)));
    }
    Listing { all, cut }
}

/// Selects the numbers of processes that belong to a login: root's sshd in the job's cgroup, processes
/// that pam_loginuid(8) marked as logins of the job's owner, `members`, and all descendants of these.
fn select_logins(table: &[Process], owner: u32, members: &BTreeSet<Identity>) -> BTreeSet<i32> {
    select_descendants(table, |process| {
        process.is_sshd || process.login == Some(owner) || members.contains(&process.identity())
    })
}

/// Selects the numbers of the processes for which `is_first` holds, and of all their descendants.
fn select_descendants(table: &[Process], is_first: impl Fn(&Process) -> bool) -> BTreeSet<i32> {
    let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for process in table {
        children.entry(process.parent).or_default().push(process.pid);
    }
    let mut selected = BTreeSet::new();
    let first = table.iter().filter(|process| is_first(process));
    let mut open: Vec<i32> = first.map(|process| process.pid).collect();
    while let Some(pid) = open.pop() {
        if selected.insert(pid) {
            open.extend(children.get(&pid).into_iter().flatten());
        }
    }
    selected
}

/// A process, with the facts that tell whether it belongs to a login.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) pid: i32,
    pub(super) parent: i32,
    /// Session id: the process id of its session's leader.
    pub(super) session: i32,
    /// The start time in ticks since boot; with the number it identifies the process.
    pub(super) start: u64,
    /// Device number of its controlling terminal, 0 for none.
    pub(super) terminal: u32,
    /// True for the sshd of a login that root runs, which no user controls.
    ///
    /// It is false for the server that listens for all logins, in any cgroup, and that server is
    /// never killed: no other sshd started it, and it has a listening socket, which it closes in each
    /// of its children. An sshd that systemd starts for a single connection has no listening socket.
    pub(super) is_sshd: bool,
    /// The uid of the login that it comes from, if pam_loginuid(8) set it. No user can remove it.
    pub(super) login: Option<u32>,
}

/// The number and the start time of a process, which identify it.
pub(super) type Identity = (i32, u64);

impl Process {
    pub(super) fn identity(&self) -> Identity {
        (self.pid, self.start)
    }
}

/// Reads the processes in a cgroup and below it, except this one.
///
/// It lists them twice: a number may pass to a process elsewhere before it is read, and then the second
/// list lacks it. It reads no paths, since the kernel shows none of more than 4096 bytes.
pub(super) fn read_processes(dir: &Dir, deadline: Instant) -> Listing<Process> {
    let own_pid = nix::unistd::getpid().as_raw();
    let Listing { all: pids, cut } = list_members(dir, deadline);
    let mut all: Vec<Process> =
        pids.into_iter().filter(|&pid| pid != own_pid).filter_map(read_process).collect();
    let again = list_members(dir, deadline);
    let remaining: BTreeSet<i32> = again.all.into_iter().collect();
    all.retain(|process| remaining.contains(&process.pid));
    Listing { all, cut: cut.or(again.cut) }
}

/// Reads one process; `None` if it has ended.
pub(super) fn read_process(pid: i32) -> Option<Process> {
    let processes::Stat { parent, session, terminal, start, .. } =
        processes::read_stat(&Proc::host(), pid).ok()?;
    let is_sshd = is_sshd_process(pid) && (is_sshd_process(parent) || !has_listening_socket(pid));
    let login = read_login_uid(pid);
    Some(Process { pid, parent, session, start, terminal, is_sshd, login })
}

/// Returns the start time of a process, in ticks since boot; `None` if it has ended.
pub(super) fn read_start_ticks(pid: i32) -> Option<u64> {
    processes::read_stat(&Proc::host(), pid).ok().map(|stat| stat.start)
}

/// Returns the uid of the login that a process comes from. The login of this command counts as none:
/// then an admin has started the scheduler by hand.
pub(super) fn read_login_uid(pid: i32) -> Option<u32> {
    let own_session = read_audit_number("self", "sessionid");
    let session = read_audit_number(pid, "sessionid")?;
    (Some(session) != own_session).then(|| read_audit_number(pid, "loginuid"))?
}

/// Returns whether a process is root's sshd, of a login or not. It checks the executable, since a
/// process can choose its name, and the uid, since users may run an sshd as well.
pub(super) fn is_sshd_process(pid: i32) -> bool {
    let Ok(path) = fs::read_link(Proc::host().dir(pid).join("exe")) else { return false };
    is_sshd_path(&path.to_string_lossy()) && real_uid(pid).is_some_and(Uid::is_root)
}

/// Returns whether a process has a listening TCP socket.
fn has_listening_socket(pid: i32) -> bool {
    let dir = Proc::host().dir(pid);
    let listening: BTreeSet<String> = ["net/tcp", "net/tcp6"]
        .iter()
        .filter_map(|table| proc::read(dir.join(table)).ok())
        .flat_map(|table| table.lines().filter_map(listening_socket).collect::<Vec<_>>())
        .collect();
    let dir = dir.join("fd");
    let Ok(descriptors) = processes::list_numbers::<u32>(&dir) else { return false };
    let mut targets = descriptors
        .flatten()
        .filter_map(|descriptor| fs::read_link(dir.join(descriptor.to_string())).ok());
    targets.any(|target| listening.contains(&*target.to_string_lossy()))
}

/// Returns the socket of a line of `/proc/net/tcp`, in the form of a descriptor's link; `None` unless it
/// listens (state 0A, Documentation/networking/proc_net_tcp.rst).
fn listening_socket(line: &str) -> Option<String> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    (*fields.get(3)? == "0A").then_some(format!("socket:[{}]", fields.get(9)?))
}

/// Returns whether an executable is an sshd. The second name exists since OpenSSH 9.8, and the kernel
/// marks a replaced executable as deleted.
fn is_sshd_path(path: &str) -> bool {
    let path = path.strip_suffix(" (deleted)").unwrap_or(path);
    matches!(path.rsplit('/').next(), Some("sshd" | "sshd-session"))
}

/// Returns the real uid of a process; `None` if it has ended.
pub(super) fn real_uid(pid: i32) -> Option<Uid> {
    let [uid, ..] = Proc::host().read_process(pid).ok()?.uids;
    Some(Uid::from_raw(uid))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::signal::kill;
    use nix::unistd::Pid;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    #[test]
    fn process_with_reused_number_gets_no_signal() {
        // A signal that the process blocks stays pending for all to see.
        let mut child =
            Command::new("env").args(["--block-signal=USR1", "sleep", "60"]).spawn().unwrap();
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

    fn process(pid: i32, parent: i32) -> Process {
        Process { pid, parent, start: 1, ..Process::default() }
    }

    fn sshd(pid: i32) -> Process {
        Process { is_sshd: true, ..process(pid, 1) }
    }

    fn selected(table: &[Process]) -> Vec<i32> {
        select_logins(table, 5, &BTreeSet::new()).into_iter().collect()
    }

    #[test]
    fn processes_of_scheduler_are_not_selected() {
        assert_eq!(selected(&[process(10, 1), process(11, 10)]), [0; 0]);
    }

    #[test]
    fn sshd_and_its_descendants_are_selected() {
        let table = [process(10, 1), process(23, 22), process(22, 21), process(21, 20), sshd(20)];
        assert_eq!(selected(&table), [20, 21, 22, 23]);
    }

    #[test]
    fn orphan_of_login_is_selected_by_login_uid() {
        let of = |pid, login| Process { login: Some(login), ..process(pid, 1) };
        let table = [of(30, 5), process(31, 30), of(40, 6), process(10, 1)];
        assert_eq!(selected(&table), [30, 31]);
    }

    #[test]
    fn member_is_selected_by_number_and_start() {
        let table = [process(21, 1), process(22, 21)];
        assert_eq!(select_logins(&table, 5, &BTreeSet::from([(21, 1)])).len(), 2);
        assert_eq!(select_logins(&table, 5, &BTreeSet::from([(21, 9)])).len(), 0);
    }

    /// Processes that were only stopped would continue after the deadline.
    #[test]
    fn endless_new_processes_are_killed_at_deadline() {
        let start = || Command::new("sleep").arg("60").spawn().unwrap();
        let children = std::cell::RefCell::new(vec![start()]);
        let find = |_: &BTreeSet<Identity>| {
            children.borrow_mut().push(start());
            let children = children.borrow();
            let pids = children.iter().map(|child| i32::try_from(child.id()).unwrap());
            Ok(pids.map(|pid| (pid, read_start_ticks(pid).unwrap())).collect())
        };
        let deadline = Instant::now() + 5 * POLL_INTERVAL;
        let remaining = stop_then_kill(find, deadline, &mut BTreeSet::new()).unwrap();
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

    /// A hidden process would outlive the job.
    #[test]
    fn process_with_invalid_utf8_name_is_read() {
        let id = std::process::id().to_string();
        let name = [b"\xff\xc3", id.as_bytes()].concat();
        let path = std::env::temp_dir().join(OsStr::from_bytes(&name));
        std::os::unix::fs::symlink("/bin/sleep", &path).unwrap();
        let mut child = std::process::Command::new(&path).arg("60").spawn().unwrap();
        fs::remove_file(&path).unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        // The kernel resumes this process a moment before it sets the name of the new one.
        let named = || fs::read(format!("/proc/{pid}/comm")).unwrap();
        let comm = (0..1000).map(|_| named()).find(|comm| comm.starts_with(b"\xff"));
        let comm = comm.unwrap_or_default();
        let parent_and_uid = (read_process(pid).map(|process| process.parent), real_uid(pid));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(comm.starts_with(b"\xff\xc3"), "{comm:?}");
        let own = (nix::unistd::getpid().as_raw(), nix::unistd::getuid());
        assert_eq!(parent_and_uid, (Some(own.0), Some(own.1)));
    }

    #[test]
    fn own_process_is_read_and_is_no_sshd() {
        let own = nix::unistd::getpid().as_raw();
        let process = read_process(own).unwrap();
        assert_eq!(process.parent, nix::unistd::getppid().as_raw());
        assert!(!process.is_sshd);
        assert_eq!(read_process(-1), None);
    }

    #[test]
    fn listening_socket_is_found() {
        let own = nix::unistd::getpid().as_raw();
        let line =
            "0: 0100007F:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 77 1";
        assert_eq!(listening_socket(line).as_deref(), Some("socket:[77]"));
        assert_eq!(listening_socket(&line.replace("0A", "01")), None);
        let _server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(has_listening_socket(own));
        assert!(!has_listening_socket(-1));
    }

    #[test]
    fn sshd_is_recognized_by_executable() {
        for path in ["/usr/sbin/sshd", "/usr/lib/openssh/sshd-session", "/usr/sbin/sshd (deleted)"]
        {
            assert!(is_sshd_path(path), "{path}");
        }
        for path in ["/home/a/sshd2", "/usr/bin/ssh", "/sshd/x", ""] {
            assert!(!is_sshd_path(path), "{path}");
        }
    }
}
