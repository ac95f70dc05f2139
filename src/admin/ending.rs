//! The end of a job: its logins are told and ended, and what we made is removed.
//!
//! In a cgroup that we made, or had systemd make, everything is ended, in a scheduler's only the
//! logins that were put there: the scheduler ends the rest itself.

use super::Error;
use helper::records::Record;
use helper::sources::processes;
use keeper::subtree::{self, KillMode};
use kernel::cgroup::{
    self, Dir, Found, MADE, Membership, Place, event, is_marked, processes as list_processes,
    unless_gone,
};
use kernel::proc::{self, Proc};
use kernel::sys::pidfd::{pidfd_open, pidfd_send_signal};
use nix::fcntl::{OFlag, open};
use nix::sys::signal::Signal;
use nix::sys::stat::{Mode, SFlag, fstat, major, minor};
use nix::unistd::{Uid, write};
use protocol::{JobId, is_within};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CStr;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Name of the mark "systemd made this directory for a job of ours": everything in it is ours to end,
/// but it is systemd that removes it.
pub(super) const SCOPE: &CStr = c"trusted.job_adopt_scope";
/// What sshd is given to send the last words on, before it is ended with the rest.
const FORWARDING: Duration = Duration::from_millis(200);
/// Time to kill the leaves if none was left.
const LEAVES: Duration = Duration::from_secs(1);
/// Pause between two looks at what is left.
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
/// Errors: [`Error::Failed`] where processes are left at the deadline, or a directory cannot be
/// removed.
pub(super) fn end(place: &Place, record: &Record, deadline: Instant) -> Result<Ending, Error> {
    let job = place.dir()?;
    let leaves = made_children(job)?;
    // What a walk misses is not told; killing says whether any was left.
    let time = deadline.saturating_duration_since(Instant::now()) / 4;
    let none = BTreeSet::new();
    let found = logins_in(job, &leaves, record.uid, &none, Instant::now() + time).all;
    let terminals = tell(&record.id, record.uid, &found);
    if terminals > 0 {
        sleep(FORWARDING.min(deadline.saturating_duration_since(Instant::now())));
    }
    let ending = Ending { logins: found.len(), terminals };

    if unless_gone(is_marked(job, SCOPE))? == Some(true) {
        kill_all(job, deadline)?;
        leave_to_systemd(job, deadline)?;
        return Ok(ending);
    }
    if is_made(job)? {
        kill_all(job, deadline)?;
        remove(place)?;
        return Ok(ending);
    }
    // Those in the leaves with the others: afterwards nothing tells where a process came from that
    // left a leaf.
    let killed = kill_logins(job, &leaves, record.uid, deadline);
    // Whatever came of it, the leaves end, and each of them.
    let deadline = deadline.max(Instant::now() + LEAVES);
    let removed = leaves.iter().map(|leaf| {
        kill_all(leaf, deadline)?;
        Ok(remove_from(job, leaf)?)
    });
    let removed = removed.fold(Ok(()), Result::and);
    killed.and(removed).map(|()| ending)
}

/// The children that we made, whatever records called them.
fn made_children(dir: &Dir) -> Result<Vec<Dir>, Error> {
    let mut made = Vec::new();
    for name in unless_gone(dir.children())?.unwrap_or_default() {
        if let Some(child) = unless_gone(dir.child(name))? {
            if is_made(&child)? {
                made.push(child);
            }
        }
    }
    Ok(made)
}

fn is_made(dir: &Dir) -> cgroup::Result<bool> {
    Ok(unless_gone(is_marked(dir, MADE))? == Some(true))
}

fn remove_from(above: &Dir, dir: &Dir) -> cgroup::Result<()> {
    match dir.path().rsplit_once('/') {
        Some((_, name)) => above.remove_child(name),
        None => Ok(()),
    }
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
    let [job, above, rest @ ..] = place.levels() else { return Ok(()) };
    if !is_made(job)? {
        return Ok(());
    }
    remove_made(above, job)?;
    if let (Some(top), true) = (rest.first(), is_made(above)?) {
        // Refused while there are other jobs in it.
        let _ = remove_from(top, above);
    }
    Ok(())
}

fn remove_made(above: &Dir, dir: &Dir) -> Result<(), Error> {
    for child in made_children(dir)? {
        remove_made(dir, &child)?;
    }
    Ok(remove_from(above, dir)?)
}

/// Most process numbers in a message.
const NAMED: usize = 8;

/// Kills everything in a cgroup and below it. What is frozen dies as well.
/// Errors: [`Error::Failed`] where anything is left at the deadline, or where we are in there
/// ourselves.
pub(super) fn kill_all(dir: &Dir, deadline: Instant) -> Result<(), Error> {
    // By its path: a list of all processes may take longer than there is time.
    if Membership::own()?.unified().is_none_or(|own| is_within(own, dir.path())) {
        return Err(Error::failed("kill", dir.path(), "this process is in it itself"));
    }
    let mut mode = KillMode::Cgroup;
    while unless_gone(event(dir, "populated"))?.flatten() == Some(true) {
        subtree::kill(dir, std::mem::replace(&mut mode, KillMode::EachProcess), deadline);
        sleep(PAUSE);
        if Instant::now() >= deadline {
            return left(dir, &list_processes(dir, Instant::now() + FORWARDING).all);
        }
    }
    Ok(())
}

/// Kills the logins in a scheduler's cgroup. They are stopped first, until there are no new ones:
/// what is stopped starts nothing that could get away.
/// Errors: [`Error::Failed`] where any is left at the deadline, or where not every cgroup could be
/// seen; what was found is killed all the same.
fn kill_logins(job: &Dir, leaves: &[Dir], owner: u32, deadline: Instant) -> Result<(), Error> {
    let find = |stopped: &BTreeSet<Identity>| {
        let Found { all, cut } = logins_in(job, leaves, owner, stopped, deadline);
        match cut {
            Some(error) if all.is_empty() => Err(error.into()),
            _ => Ok(all.iter().map(Process::identity).collect()),
        }
    };
    let mut stopped = BTreeSet::new();
    let hunted = hunt(find, deadline, &mut stopped);
    // Whatever came of it, nothing is left stopped.
    let killed = signal_all(stopped, Signal::SIGKILL);
    let found = hunted?;
    if !found.is_empty() {
        return left(job, &found.iter().map(|(pid, _)| *pid).collect::<Vec<_>>());
    }
    killed
}

/// Kills the processes that `find` finds, given those that are stopped: they are stopped first,
/// until there are no new ones. Returns those that are left at the deadline, killed as well: whoever
/// still starts others saves nobody.
/// Errors: that of `find`, and [`Error::Failed`] for a process that takes no signal, which keeps no other
/// from its end.
pub(super) fn hunt(
    find: impl Fn(&BTreeSet<Identity>) -> Result<Vec<Identity>, Error>,
    deadline: Instant,
    stopped: &mut BTreeSet<Identity>,
) -> Result<Vec<Identity>, Error> {
    let mut signaled = Ok(());
    loop {
        let mut found = find(stopped)?;
        // While this looked, one may have started another and ended.
        if found.is_empty() {
            found = find(stopped)?;
        }
        if found.is_empty() {
            return signaled.map(|()| found);
        }
        let news: Vec<_> = found.iter().copied().filter(|one| stopped.insert(*one)).collect();
        if news.is_empty() {
            signaled = signaled.and(signal_all(found.iter().copied(), Signal::SIGKILL));
            sleep(PAUSE);
        }
        signaled = signaled.and(signal_all(news, Signal::SIGSTOP));
        if Instant::now() >= deadline {
            let killed = signal_all(found.iter().copied(), Signal::SIGKILL);
            return signaled.and(killed).map(|()| found);
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
pub(super) fn signal_all(
    processes: impl IntoIterator<Item = Identity>,
    which: Signal,
) -> Result<(), Error> {
    let done = processes.into_iter().map(|process| signal(process, which));
    done.fold(Ok(()), Result::and)
}

/// Sends a signal to a process that is still the same: its number may have passed to another since
/// it was listed. One descriptor at a time, however many there are.
fn signal((pid, start): Identity, which: Signal) -> Result<(), Error> {
    let pidfd = match pidfd_open(pid) {
        Err(error) if is_gone(&error) => return Ok(()),
        pidfd => pidfd.map_err(|error| Error::failed("open process", pid, error))?,
    };
    // Of whoever has the number now. Should that be another one than a moment ago, the descriptor
    // stands for nobody any more.
    if started(pid) != Some(start) {
        return Ok(());
    }
    match pidfd_send_signal(pidfd.as_fd(), which as i32) {
        Err(error) if !is_gone(&error) => Err(Error::failed("kill process", pid, error)),
        _ => Ok(()),
    }
}

fn is_gone(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ESRCH)
}

/// Returns whether `owner` runs something in a job's cgroup that does not come from a login.
pub(super) fn runs_job(job: &Dir, owner: u32, deadline: Instant) -> Result<bool, Error> {
    let logins = logins_in(job, &made_children(job)?, owner, &BTreeSet::new(), deadline);
    let logins: BTreeSet<i32> = logins.complete()?.iter().map(|process| process.pid).collect();
    let all = list_processes(job, deadline).complete()?;
    let is_own = |pid: &i32| real_uid(*pid).map(Uid::as_raw) == Some(owner);
    Ok(all.iter().any(|pid| !logins.contains(pid) && is_own(pid)))
}

/// The logins of `owner` in a job's cgroup, and what is in its leaves for them.
fn logins_in(
    job: &Dir,
    leaves: &[Dir],
    owner: u32,
    held: &BTreeSet<Identity>,
    deadline: Instant,
) -> Found<Process> {
    let mut held = held.clone();
    for leaf in leaves {
        held.extend(process_table(leaf, deadline).all.iter().map(Process::identity));
    }
    let Found { mut all, cut } = process_table(job, deadline);
    let chosen = logins(&all, owner, &held);
    all.retain(|process| chosen.contains(&process.pid));
    Found { all, cut }
}

/// Numbers of the processes that belong to a login: root's sshd in the job's cgroup, what a login
/// of the job's owner was marked with by pam_loginuid(8), and whatever one of these started. `held`
/// are processes that are known to belong to one already, by number and start.
fn logins(table: &[Process], owner: u32, held: &BTreeSet<Identity>) -> BTreeSet<i32> {
    let is_root = |process: &&Process| {
        process.is_sshd || process.login == Some(owner) || held.contains(&process.identity())
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

/// A process, as far as it matters here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) pid: i32,
    pub(super) parent: i32,
    /// When it started, in ticks since boot: with the number, its identity.
    pub(super) start: u64,
    /// Device number of its controlling terminal, 0 for none.
    pub(super) terminal: u32,
    /// Whether it is the sshd of a login, run by root: the part of it that no user controls.
    ///
    /// The server that listens for all logins is none, wherever it was started, and is never
    /// ended: no other sshd started it, and it has a socket that listens, which it closes in each
    /// of its children. One that systemd starts for a single connection listens on nothing.
    pub(super) is_sshd: bool,
    /// Whose login it comes from, where that ran pam_loginuid(8): no user can take it away.
    pub(super) login: Option<u32>,
}

/// What no other process has: the number, and when it started.
pub(super) type Identity = (i32, u64);

impl Process {
    pub(super) fn identity(&self) -> Identity {
        (self.pid, self.start)
    }
}

/// The processes in a cgroup and below it, but for this one. Listed twice, since a number may pass
/// to a process elsewhere before it is read; whoever has it then is not the one that was read. No
/// path is looked at, since the kernel tells none of more than 4096 bytes.
pub(super) fn process_table(dir: &Dir, deadline: Instant) -> Found<Process> {
    let own = nix::unistd::getpid().as_raw();
    let Found { all: pids, cut } = list_processes(dir, deadline);
    let mut all: Vec<Process> =
        pids.into_iter().filter(|&pid| pid != own).filter_map(read_process).collect();
    let again = list_processes(dir, deadline);
    let still: BTreeSet<i32> = again.all.into_iter().collect();
    all.retain(|process| still.contains(&process.pid));
    Found { all, cut: cut.or(again.cut) }
}

/// Reads one process; `None` where it is gone.
pub(super) fn read_process(pid: i32) -> Option<Process> {
    let processes::Stat { parent, terminal, start, .. } =
        processes::read_stat(&Proc::here(), pid).ok()?;
    let is_sshd = is_sshd_process(pid) && (is_sshd_process(parent) || !listens(pid));
    Some(Process { pid, parent, start, terminal, is_sshd, login: login(pid) })
}

/// When the process of that number started; `None` where there is none.
pub(super) fn started(pid: i32) -> Option<u64> {
    processes::read_stat(&Proc::here(), pid).ok().map(|stat| stat.start)
}

/// Whose login a process comes from. That this command has come from the same one says nothing:
/// then an admin has started the scheduler by hand.
fn login(pid: i32) -> Option<u32> {
    let own = number(nix::unistd::getpid().as_raw(), "sessionid");
    let session = number(pid, "sessionid")?;
    (Some(session) != own).then(|| number(pid, "loginuid"))?
}

/// What the kernel's audit has noted of a process (proc(5)); the highest number stands for nothing.
pub(super) fn number(pid: i32, file: &str) -> Option<u32> {
    let text = proc::read(Proc::here().dir(pid).join(file)).ok()?;
    text.trim().parse().ok().filter(|&number| number != u32::MAX)
}

/// Whether a process is an sshd, of a login or not: by the executable, which it cannot choose,
/// unlike its name; and root's, since a user may run an sshd as well.
pub(super) fn is_sshd_process(pid: i32) -> bool {
    let Ok(path) = fs::read_link(Proc::here().dir(pid).join("exe")) else { return false };
    is_sshd_path(&path.to_string_lossy()) && real_uid(pid).is_some_and(Uid::is_root)
}

/// Whether a process has a TCP socket that listens.
fn listens(pid: i32) -> bool {
    let dir = Proc::here().dir(pid);
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

/// A line of `/proc/net/tcp` as a descriptor's link names the socket; `None` unless it listens
/// (state 0A, Documentation/networking/proc_net_tcp.rst).
fn listening_socket(line: &str) -> Option<String> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    (*fields.get(3)? == "0A").then_some(format!("socket:[{}]", fields.get(9)?))
}

/// The second name since OpenSSH 9.8. An executable that was replaced is marked as deleted.
fn is_sshd_path(path: &str) -> bool {
    let path = path.strip_suffix(" (deleted)").unwrap_or(path);
    matches!(path.rsplit('/').next(), Some("sshd" | "sshd-session"))
}

/// Whom a process belongs to; `None` where it is gone.
pub(super) fn real_uid(pid: i32) -> Option<Uid> {
    let [uid, ..] = Proc::here().process(pid).ok()?.uids;
    Some(Uid::from_raw(uid))
}

/// Majors of pseudo-terminals (Documentation/admin-guide/devices.txt).
const PTS_MAJORS: std::ops::RangeInclusive<u64> = 136..=143;

/// Tells the controlling terminals of these processes, as far as they are the user's own; returns
/// how many were told. One that does not take the text at once is left alone.
fn tell(job: &JobId, uid: u32, processes: &[Process]) -> usize {
    let terminals: BTreeSet<u32> = processes.iter().map(|process| process.terminal).collect();
    let text = format!("\r\n*** job {job} has ended; closing this login ***\r\n");
    terminals.into_iter().filter(|&terminal| tell_one(terminal, uid, &text)).count()
}

fn tell_one(terminal: u32, uid: u32, text: &str) -> bool {
    let Some(path) = terminal_path(terminal) else { return false };
    let flags = OFlag::O_WRONLY
        | OFlag::O_NOCTTY
        | OFlag::O_NONBLOCK
        | OFlag::O_NOFOLLOW
        | OFlag::O_CLOEXEC;
    let Ok(file) = open(path.as_str(), flags, Mode::empty()) else { return false };
    // A terminal of the same number in another instance of devpts is somebody else's.
    let ours = fstat(&file).is_ok_and(|stat| {
        stat.st_mode & SFlag::S_IFMT.bits() == SFlag::S_IFCHR.bits()
            && stat.st_rdev == terminal_device(terminal)
            && stat.st_uid == uid
    });
    ours && write(&file, text.as_bytes()).is_ok()
}

/// `/dev/pts/N`; `None` for anything but a pseudo-terminal.
fn terminal_path(terminal: u32) -> Option<String> {
    let device = terminal_device(terminal);
    let first = *PTS_MAJORS.start();
    PTS_MAJORS
        .contains(&major(device))
        .then(|| format!("/dev/pts/{}", (major(device) - first) * 256 + minor(device)))
}

/// The number in `/proc/PID/stat` has the kernel's own packing: minor in the bits 0 to 7 and 20 to
/// 31, major in between (`new_encode_dev()` of linux/kdev_t.h).
fn terminal_device(terminal: u32) -> u64 {
    let terminal = u64::from(terminal);
    let minor = (terminal & 0xff) | ((terminal >> 12) & 0xf_ff00);
    nix::sys::stat::makedev((terminal >> 8) & 0xfff, minor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    #[test]
    fn who_took_over_a_number_is_spared() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id().cast_signed();
        let start = started(pid).unwrap();
        signal((pid, start + 1), Signal::SIGKILL).unwrap();
        std::thread::sleep(Duration::from_millis(50));
        assert!(child.try_wait().unwrap().is_none(), "it was killed");
        signal((pid, start), Signal::SIGKILL).unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(Signal::SIGKILL as i32));
        signal((pid, start), Signal::SIGKILL).unwrap();
    }

    fn process(pid: i32, parent: i32) -> Process {
        Process { pid, parent, start: 1, ..Process::default() }
    }

    fn sshd(pid: i32) -> Process {
        Process { is_sshd: true, ..process(pid, 1) }
    }

    fn chosen(table: &[Process]) -> Vec<i32> {
        logins(table, 5, &BTreeSet::new()).into_iter().collect()
    }

    #[test]
    fn the_scheduler_s_own_processes_stay() {
        assert_eq!(chosen(&[process(10, 1), process(11, 10)]), [0; 0]);
    }

    #[test]
    fn sshd_and_all_that_it_started() {
        let table = [process(10, 1), process(23, 22), process(22, 21), process(21, 20), sshd(20)];
        assert_eq!(chosen(&table), [20, 21, 22, 23]);
    }

    #[test]
    fn what_left_its_parent_is_known_by_its_mark() {
        let of = |pid, login| Process { login: Some(login), ..process(pid, 1) };
        let table = [of(30, 5), process(31, 30), of(40, 6), process(10, 1)];
        assert_eq!(chosen(&table), [30, 31]);
    }

    #[test]
    fn what_is_held_stays_so_but_not_its_number() {
        let table = [process(21, 1), process(22, 21)];
        assert_eq!(logins(&table, 5, &BTreeSet::from([(21, 1)])).len(), 2);
        assert_eq!(logins(&table, 5, &BTreeSet::from([(21, 9)])).len(), 0);
    }

    /// Stopped they would go on as soon as the rest is given up.
    #[test]
    fn new_processes_without_end_save_nobody() {
        let start = || std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let children = std::cell::RefCell::new(vec![start()]);
        let find = |_: &BTreeSet<Identity>| {
            children.borrow_mut().push(start());
            let children = children.borrow();
            let pids = children.iter().map(|child| child.id().cast_signed());
            Ok(pids.map(|pid| (pid, started(pid).unwrap())).collect())
        };
        let deadline = Instant::now() + Duration::from_millis(200);
        let left = hunt(find, deadline, &mut BTreeSet::new()).unwrap();
        let mut children = children.into_inner();
        let until = Instant::now() + Duration::from_secs(10);
        let all = |children: &mut Vec<std::process::Child>| {
            children.iter_mut().all(|child| child.try_wait().unwrap().is_some())
        };
        while !all(&mut children) && Instant::now() < until {
            sleep(PAUSE);
        }
        let ended = all(&mut children);
        for child in &mut children {
            _ = child.kill();
            child.wait().unwrap();
        }
        assert_eq!((left.len(), ended), (children.len(), true));
    }

    /// Else it would outlive the job, and could be anybody's in a cgroup that becomes one.
    #[test]
    fn a_name_that_is_no_text_hides_no_process() {
        let id = std::process::id().to_string();
        let name = [b"\xff\xc3", id.as_bytes()].concat();
        let path = std::env::temp_dir().join(OsStr::from_bytes(&name));
        std::os::unix::fs::symlink("/bin/sleep", &path).unwrap();
        let mut child = std::process::Command::new(&path).arg("60").spawn().unwrap();
        fs::remove_file(&path).unwrap();
        let pid = child.id().cast_signed();
        // The kernel lets go of us a moment before it has given the process its name.
        let named = || fs::read(format!("/proc/{pid}/comm")).unwrap();
        let comm = (0..1000).map(|_| named()).find(|comm| comm.starts_with(b"\xff"));
        let comm = comm.unwrap_or_default();
        let found = (read_process(pid).map(|process| process.parent), real_uid(pid));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(comm.starts_with(b"\xff\xc3"), "{comm:?}");
        let own = (nix::unistd::getpid().as_raw(), nix::unistd::getuid());
        assert_eq!(found, (Some(own.0), Some(own.1)));
    }

    #[test]
    fn this_process_is_there_and_is_no_sshd() {
        let own = nix::unistd::getpid().as_raw();
        let process = read_process(own).unwrap();
        assert_eq!(process.parent, nix::unistd::getppid().as_raw());
        assert!(!process.is_sshd);
        assert_eq!(read_process(-1), None);
    }

    #[test]
    fn a_server_is_known_by_its_socket() {
        let own = nix::unistd::getpid().as_raw();
        let line =
            "0: 0100007F:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 77 1";
        assert_eq!(listening_socket(line).as_deref(), Some("socket:[77]"));
        assert_eq!(listening_socket(&line.replace("0A", "01")), None);
        let _server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(listens(own));
        assert!(!listens(-1));
    }

    #[test]
    fn sshd_by_its_executable() {
        for path in ["/usr/sbin/sshd", "/usr/lib/openssh/sshd-session", "/usr/sbin/sshd (deleted)"]
        {
            assert!(is_sshd_path(path), "{path}");
        }
        for path in ["/home/a/sshd2", "/usr/bin/ssh", "/sshd/x", ""] {
            assert!(!is_sshd_path(path), "{path}");
        }
    }

    #[test]
    fn only_pseudo_terminals_have_a_path() {
        assert_eq!(terminal_path(136 << 8).as_deref(), Some("/dev/pts/0"));
        assert_eq!(terminal_path((136 << 8) | 7).as_deref(), Some("/dev/pts/7"));
        assert_eq!(terminal_path((136 << 8) | (1 << 20) | 2).as_deref(), Some("/dev/pts/258"));
        assert_eq!(terminal_path((137 << 8) | 2).as_deref(), Some("/dev/pts/258"));
        for other in [0, 4 << 8, (5 << 8) | 1, 144 << 8] {
            assert_eq!(terminal_path(other), None, "{other}");
        }
    }

    #[test]
    fn a_terminal_of_somebody_else_is_left_alone() {
        let process = Process { terminal: 4 << 8, ..Process::default() };
        assert_eq!(tell(&"7".parse().unwrap(), u32::MAX, &[process, Process::default()]), 0);
    }
}
