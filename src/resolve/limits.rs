//! Which process of a job its logins take their resource limits from: the oldest of the user's own.
//!
//! What is below the job's cgroup is the user's to arrange, and so are its processes: they choose
//! among their own here, and the privileged half sees to it that it is no other.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::cgroup::subtree::{Found, processes_unless};
use crate::cgroup::{Dir, Error, Membership, Mount, v1};
use crate::plan::{CgroupPath, LeafName, Placement, ProcessId};
use crate::proc;
use crate::source::Job;
use crate::stepd::{SocketName, job_of, pid_of, step_of};

/// How long the processes of a job are looked at.
const LOOK: Duration = Duration::from_millis(200);
/// Why the search ended then.
const LATE: &str = "has more processes than there was time to look at";
/// How far up a process is followed on the way to the sshd that started it.
const ANCESTORS_MAX: usize = 64;

/// Where a job is looked at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ground<'a> {
    /// The node's root.
    pub(super) root: &'a Path,
    /// The uid of the daemons of Slurm's steps: root's.
    pub(super) owner: u32,
    /// Whose processes count.
    pub(super) uid: u32,
}

/// What came of the search.
#[derive(Debug, Default)]
pub(super) struct Source {
    /// The process.
    pub(super) process: Option<ProcessId>,
    /// What an administrator should know about it.
    pub(super) remark: Option<String>,
}

/// Looks for the process, for a bounded time. Neither sshd of a login in this job counts nor what
/// one of these started, nor whatever is in the cgroup that is for logins.
pub(super) fn process(job: &Job, ground: Ground<'_>) -> Source {
    let deadline = Instant::now() + LOOK;
    let remark = |text: String| Some(format!("limits: job {}: {text}", job.id));
    let place = match place(job, ground, deadline) {
        Ok(place) => place,
        Err(why) => return Source { process: None, remark: remark(why) },
    };
    let late = || Instant::now() >= deadline;
    let pass_over = |dir: &Dir| match late() {
        true => Err(Error::Unfit { object: dir.path().to_owned(), why: LATE }),
        false => Ok(is_within(dir.path(), &place.logins)),
    };
    let Found { all, mut cut } = processes_unless(&place.job, pass_over);
    let mut table = BTreeMap::new();
    for pid in all {
        if late() {
            cut = cut.or(Some(Error::Unfit { object: place.job.path().to_owned(), why: LATE }));
            break;
        }
        table.extend(Process::read(pid).map(|process| (pid, process)));
    }
    let process = oldest(&table, ground.uid, owners);
    let remark = match (process, cut) {
        (_, Some(error)) => remark(error.to_string()),
        (None, None) => remark("has no process to take limits from".into()),
        (Some(_), None) => None,
    };
    Source { process, remark }
}

/// A job's cgroup, and the one in it that its logins are put into.
struct Place {
    job: Dir,
    logins: String,
}

/// Whether a path is `top` or below it.
fn is_within(path: &str, top: &str) -> bool {
    let rest = path.strip_prefix(top);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn place(job: &Job, ground: Ground<'_>, deadline: Instant) -> Result<Place, String> {
    let unified = |path: &CgroupPath, logins: String| {
        let place = Mount::below(ground.root)?.place(path)?;
        Ok(Place { job: place.dir()?.try_clone()?, logins })
    };
    let placed = match &job.placement {
        Placement::Cgroup { path, leaf } => {
            let leaf = leaf.as_ref().map_or(LeafName::DEFAULT, LeafName::as_str);
            unified(path, format!("{path}/{leaf}"))
        }
        Placement::Unit { path, .. } => unified(path, format!("{path}/{}", LeafName::DEFAULT)),
        Placement::Extern { spool, node } => {
            let name = SocketName::new(node, &job.id).ok_or("its id is no number of Slurm's")?;
            let socket = Path::new(spool.as_str()).join(name.to_string());
            let pid = pid_of(&socket, ground.owner, deadline).map_err(|error| error.to_string())?;
            let daemon = Membership::of(pid).map_err(|error| error.to_string())?;
            let here = daemon.unified().and_then(|path| Some((job_of(path)?, step_of(path)?)));
            match (here, v1::Job::of(&daemon)) {
                (Some((job, step)), _) => unified(&job, step.to_string()),
                (None, Some(job)) => legacy(&job),
                (None, None) => return Err("its step daemon is in no step".into()),
            }
        }
    };
    placed.map_err(|error: Error| error.to_string())
}

/// By its cgroups in the hierarchy of the freezer, the extern step's last.
fn legacy(job: &v1::Job) -> Result<Place, Error> {
    let mut levels = job.freezers()?;
    levels.pop();
    let object = || Error::Malformed { object: job.path().to_owned() };
    Ok(Place { job: levels.pop().ok_or_else(object)?, logins: job.step() })
}

/// A process, as far as it matters here (proc_pid_stat(5)).
#[derive(Clone, Debug, PartialEq, Eq)]
struct Process {
    parent: i32,
    /// When it started, in ticks since boot.
    start: u64,
    /// Whether it calls itself as sshd does.
    sshd: bool,
    /// Whether it has ended, and waits for its parent to see that.
    ended: bool,
}

impl Process {
    /// `None` where it is gone, or not to be seen.
    fn read(pid: i32) -> Option<Self> {
        Self::parse(&proc::read(format!("/proc/{pid}/stat")).ok()?)
    }

    /// The name stands in parentheses and may hold anything, parentheses as well.
    fn parse(stat: &str) -> Option<Self> {
        let (front, rest) = stat.rsplit_once(") ")?;
        let (_, name) = front.split_once(" (")?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        Some(Self {
            parent: fields.get(1)?.parse().ok()?,
            start: fields.get(19)?.parse().ok()?,
            // The second name since OpenSSH 9.8.
            sshd: matches!(name, "sshd" | "sshd-session"),
            ended: matches!(*fields.first()?, "Z" | "X"),
        })
    }
}

/// Real, effective, saved and file system uid of a process (proc_pid_status(5)).
fn owners(pid: i32) -> Option<[u32; 4]> {
    let status = proc::read(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    let uids: Vec<u32> = line.split_ascii_whitespace().filter_map(|uid| uid.parse().ok()).collect();
    uids.try_into().ok()
}

/// The oldest of `uid`'s that is no login's; the smaller number of two that started together. Nobody's
/// owners are asked for more than twice, however users call their processes.
fn oldest(
    table: &BTreeMap<i32, Process>,
    uid: u32,
    owners: impl Fn(i32) -> Option<[u32; 4]>,
) -> Option<ProcessId> {
    // A user's process may call itself as it likes.
    let named = table.iter().filter(|(_, process)| process.sshd).map(|(pid, _)| *pid);
    let sshds: BTreeSet<i32> = named.filter(|pid| owners(*pid) == Some([0; 4])).collect();
    let is_login = |pid: i32| {
        let above = |pid: &i32| table.get(pid).map(|process| process.parent);
        let mut line = std::iter::successors(Some(pid), above).take(ANCESTORS_MAX);
        line.any(|pid| sshds.contains(&pid))
    };
    let mut ages: Vec<_> = table.iter().filter(|(_, process)| !process.ended).collect();
    ages.sort_by_key(|(pid, process)| (process.start, **pid));
    let found = ages.iter().find(|(pid, _)| owners(**pid) == Some([uid; 4]) && !is_login(**pid));
    found.and_then(|(pid, _)| ProcessId::new(i64::from(**pid)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    fn process(parent: i32, start: u64) -> Process {
        Process { parent, start, sshd: false, ended: false }
    }

    /// What is found among processes with their owners, for uid 5.
    fn found(processes: &[(i32, u32, Process)]) -> Option<i32> {
        let table = processes.iter().map(|(pid, _, process)| (*pid, process.clone())).collect();
        let owners =
            |wanted| processes.iter().find(|(pid, ..)| *pid == wanted).map(|(_, uid, _)| [*uid; 4]);
        oldest(&table, 5, owners).map(ProcessId::number)
    }

    #[test]
    fn what_is_below_the_cgroup_of_logins_is_theirs_too() {
        for (path, theirs) in [
            ("/j/7/job-adopt", true),
            ("/j/7/job-adopt/a/b", true),
            ("/j/7/job-adoption", false),
            ("/j/7", false),
            ("/j/7/x/job-adopt", false),
        ] {
            assert_eq!(is_within(path, "/j/7/job-adopt"), theirs, "{path}");
        }
    }

    #[test]
    fn the_oldest_of_the_users_own() {
        let batch = (20, 5, process(10, 7));
        let step = (10, 0, process(1, 3));
        let other = (12, 6, process(1, 1));
        let later = (15, 5, process(20, 9));
        assert_eq!(found(&[later.clone(), batch.clone(), step.clone(), other.clone()]), Some(20));
        assert_eq!(found(&[step, other]), None);
        let ended = (30, 5, Process { ended: true, ..process(1, 2) });
        assert_eq!(found(&[ended, later.clone(), batch]), Some(20));
        let together = (14, 5, process(1, 9));
        assert_eq!(found(&[later, together]), Some(14));
    }

    #[test]
    fn a_login_is_no_process_of_the_jobs() {
        let sshd = (30, 0, Process { sshd: true, ..process(1, 2) });
        let own = (31, 5, Process { sshd: true, ..process(30, 3) });
        let shell = (32, 5, process(31, 4));
        let below = (33, 5, process(32, 5));
        let batch = (20, 5, process(10, 7));
        let logins = [sshd, own, shell, below];
        assert_eq!(found(&logins), None);
        assert_eq!(found(&[&logins[..], &[batch]].concat()), Some(20));
        // An sshd of the user's is none, nor is one outside of the job.
        let named = (40, 5, Process { sshd: true, ..process(1, 8) });
        let started = (41, 5, process(99, 9));
        assert_eq!(found(&[named.clone(), started]), Some(40));
        // Nor does a circle of parents, which numbers that are used again may make, end in nothing.
        assert_eq!(found(&[(50, 5, process(51, 1)), (51, 6, process(50, 1))]), Some(50));
    }

    #[test]
    fn a_process_with_mixed_uids_is_not_the_users() {
        let table = BTreeMap::from([(20, process(1, 1))]);
        for owners in [[5, 0, 0, 0], [5, 5, 0, 5], [0, 5, 5, 5], [5, 5, 5, 6]] {
            assert_eq!(oldest(&table, 5, |_| Some(owners)), None, "{owners:?}");
        }
        assert_eq!(oldest(&table, 5, |_| None), None);
    }

    /// A login can start any number of processes below a line of others that it calls sshd.
    #[test]
    fn nobody_is_asked_about_again_and_again() {
        let mut table = BTreeMap::from([(9, Process { sshd: true, ..process(1, 1) })]);
        table.extend((10..60).map(|pid| (pid, Process { sshd: true, ..process(pid - 1, 2) })));
        table.extend((100..1100).map(|pid| (pid, process(59, 3))));
        let asked = Cell::new(0);
        let found = oldest(&table, 5, |pid| {
            asked.set(asked.get() + 1);
            Some(if pid == 9 { [0; 4] } else { [5; 4] })
        });
        assert_eq!(found, None);
        assert!(asked.get() <= 2 * table.len(), "{} times", asked.get());
    }

    #[test]
    fn a_job_that_cannot_be_looked_at_is_named() {
        let spool = "/no/such/spool".parse().unwrap();
        let placement = Placement::Extern { spool, node: "n1".parse().unwrap() };
        let job = Job { id: "7".parse().unwrap(), started: 0, ends: None, placement, record: None };
        let ground = Ground { root: Path::new("/"), owner: 0, uid: 5 };
        let found = super::process(&job, ground);
        assert_eq!(found.process, None);
        let remark = found.remark.unwrap();
        assert!(remark.starts_with("limits: job 7: "), "{remark}");
    }

    #[test]
    fn stat_with_any_name() {
        let tail = "3 7 7 34817 7 4194560 1 0 0 0 0 0 0 0 20 0 1 0 123 0 0";
        let parse = |name: &str, state: &str| Process::parse(&format!("7 ({name}) {state} {tail}"));
        assert_eq!(parse("a) b) (c", "S"), Some(process(3, 123)));
        assert!(parse("sshd-session", "S").unwrap().sshd && parse("sshd", "S").unwrap().sshd);
        assert!(!parse("sshd ", "S").unwrap().sshd && parse("x", "Z").unwrap().ended);
        assert_eq!((Process::parse("7 (a) S 3"), Process::parse("")), (None, None));
        assert!(Process::read(std::process::id().cast_signed()).is_some());
        assert_eq!(owners(-1), None);
    }
}
