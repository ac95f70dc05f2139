//! Describes what a login has in its job, beside what the job's own processes have: cores, memory, tasks, devices and
//! the order in which the kernel serves and kills.

use super::child_leaf::open_child_leaf;
use facts::cgroup_members::list_members;
use facts::limits_in_force::{LIMITS, LimitFile, show_limit};
use facts::logins::list_logins;
use kernel::cgroup::{self, Dir, find_lowest_limit};
use kernel::priority::TaskPriority;
use kernel::proc::{self, Proc};
use module::{Job, JoinResult, LeafLimit};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Longest look at the job's processes.
const PROCESSES_TIMEOUT: Duration = Duration::from_secs(5);
const CORES: &str = "cores";

/// What a login has, and what its job's processes have.
#[derive(Debug, PartialEq, Eq)]
struct Attribute {
    key: &'static str,
    login: String,
    job: String,
}

impl Attribute {
    fn differs(&self) -> bool {
        self.login != self.job
    }

    /// Shows the login's value, and how that of the job's processes stands to it.
    fn text(&self) -> String {
        let Self { login, job, .. } = self;
        if self.differs() {
            format!("{login}; the job's processes: {job}")
        } else {
            format!("{login}, as the job's processes")
        }
    }
}

/// Describes the share of a login of `uid` in the job, one line for each attribute, and names last what differs.
/// `joined` is the predicted result of the join; `None` if the login would not join.
pub(super) fn describe_share(
    job: &Job,
    joined: Option<&JoinResult>,
    uid: u32,
) -> Vec<(&'static str, String)> {
    let processes = JobProcesses::read(job, uid);
    let mut lines = describe_cpuset(job, &processes);
    let mut attributes = Vec::new();
    for file in &LIMITS {
        match read_limit(job, joined, file) {
            Ok(limit) => attributes.push(limit),
            Err(error) => lines.push((file.key, error.to_string())),
        }
    }
    attributes.extend(joined.map(|joined| compare_devices(job, joined.containment)));
    let mut different: Vec<&str> = attributes
        .iter()
        .filter(|attribute| attribute.differs())
        .map(|attribute| attribute.key)
        .collect();
    for attribute in &attributes {
        lines.push((attribute.key, attribute.text()));
    }
    for values in [&processes.nice, &processes.oom_score] {
        lines.push((values.key, values.compare()));
        if values.has_other() {
            different.push(values.key);
        }
    }
    if !different.is_empty() {
        lines.push(("differs", different.join(", ")));
    }
    lines
}

/// Describes the cores and memory nodes of the job's logins: those of the job's cpuset or, without one, sshd's, beside
/// the cores of the job's `processes`.
fn describe_cpuset(job: &Job, processes: &JobProcesses) -> Vec<(&'static str, String)> {
    let cpuset = match job.read_cpuset() {
        Ok(Some(cpuset)) => cpuset,
        Ok(None) => {
            let mut text = "those of sshd: the job has no cpuset of its own".to_owned();
            if !processes.cores.is_empty() {
                let cores: Vec<&str> = processes.cores.iter().map(String::as_str).collect();
                text += &format!("; the job's processes: {}", cores.join(" and "));
            }
            return vec![(CORES, text)];
        }
        Err(error) => return vec![(CORES, error.to_string())],
    };
    let mems = cpuset.read_mems().unwrap_or_else(|error| error.to_string());
    vec![
        (CORES, format!("{}, the job's", cpuset.cpus)),
        ("memory nodes", mems),
    ]
}

/// Compares a limit for the login with the one for the job's processes. A limit is the lowest of a cgroup and all
/// above it: for the login from the leaf up, for the job from the job's cgroup up. The login counts the limit that it
/// would set as well (`joined`).
fn read_limit(
    job: &Job,
    joined: Option<&JoinResult>,
    file: &LimitFile,
) -> cgroup::Result<Attribute> {
    let limits = joined.map_or(&[][..], |joined| &joined.limits);
    let (login, whole) = match job {
        Job::Leaf(job) => {
            let levels = job.place.levels();
            let whole = find_lowest_limit(file.v2, levels)?;
            let leaf = open_child_leaf(job);
            (
                whole.min(find_lowest_limit(file.v2, leaf.as_slice())?),
                whole,
            )
        }
        Job::Slurm(_, step) => (
            find_lowest_limit(file.v2, step.levels())?,
            find_lowest_limit(file.v2, step.job_levels())?,
        ),
        Job::SlurmV1(_, step) => {
            let levels = step.open_levels(file.controller)?.unwrap_or_default();
            let name = file.v1.unwrap_or(file.v2);
            // The last level is the cgroup of the logins, and the one before it the job's.
            let above = levels.split_last().map_or(&[][..], |(_, above)| above);
            (
                find_lowest_limit(name, &levels)?,
                find_lowest_limit(name, above)?,
            )
        }
    };
    Ok(Attribute {
        key: file.key,
        login: show_limit(apply_limit(login, file.v2, limits)),
        job: show_limit(whole),
    })
}

/// Returns the lowest of these numbers: the limit of the login's cgroups, and the one that a login sets.
fn apply_limit(lowest: u64, file: &str, limits: &[LeafLimit]) -> u64 {
    let planned = limits.iter().find(|(name, _)| *name == file);
    planned.map_or(lowest, |(_, value)| lowest.min(*value))
}

/// Compares the devices that open. On Slurm a list of ours is on the logins' cgroup alone, elsewhere on the job's.
fn compare_devices(job: &Job, containment: &str) -> Attribute {
    // "enforce" and "inherit+enforce" (`protocol::Containment`).
    let is_listed = containment.ends_with("enforce");
    let [login, whole] = if is_listed && matches!(job, Job::Slurm(..)) {
        ["the job's that are on the list of logins", "the job's"]
    } else if is_listed {
        ["those of the list"; 2]
    } else if containment == "none" {
        ["all, by no filter"; 2]
    } else {
        ["the job's"; 2]
    };
    Attribute {
        key: "devices",
        login: login.to_owned(),
        job: whole.to_owned(),
    }
}

/// A nice value or an OOM score of a login, and those of the job's processes. The higher, the worse.
#[derive(Debug)]
struct Values {
    key: &'static str,
    /// What a process with a higher value is to one with a lower one.
    higher_is: &'static str,
    /// The least value of a login.
    login: i32,
    processes: BTreeSet<i32>,
}

impl Values {
    /// Whether a process of the job has another value than a usual login.
    fn has_other(&self) -> bool {
        self.processes.iter().any(|value| *value != self.login)
    }

    /// Describes both sides. sshd gives its children the values that it was started with, and the module makes those
    /// that are better than the worst of the job's processes like that, and negative ones 0.
    fn compare(&self) -> String {
        let Self {
            higher_is, login, ..
        } = self;
        let text = format!("{login}, or what sshd was started with if that is more");
        let (Some(min), Some(max)) = (self.processes.first(), self.processes.last()) else {
            return text;
        };
        let range = if min == max {
            min.to_string()
        } else {
            format!("{min} to {max}")
        };
        let order = if min > login {
            format!(": they are {higher_is} the login")
        } else if max < login {
            format!(": the login is {higher_is} them")
        } else {
            String::new()
        };
        format!("{text}; the job's processes: {range}{order}")
    }
}

/// What the processes of the job's owner have that are not those of a login.
#[derive(Debug)]
struct JobProcesses {
    /// Their lists of cores, each once.
    cores: BTreeSet<String>,
    nice: Values,
    oom_score: Values,
}

impl JobProcesses {
    /// Reads the cores and priorities of the job's processes of `uid`, who owns the job. Processes that cannot be listed
    /// or read are left out.
    fn read(job: &Job, uid: u32) -> Self {
        let deadline = Instant::now() + PROCESSES_TIMEOUT;
        let login = job.read_priority(uid, deadline).unwrap_or_default();
        let mut processes = Self::new(login);
        for pid in list_tasks(job, uid, deadline) {
            if Proc::host().effective_uid(pid).ok() != Some(uid) {
                continue;
            }
            let status = proc::read(Proc::host().dir(pid).join("status")).unwrap_or_default();
            let cores = proc::find_field(&status, "Cpus_allowed_list:");
            processes.cores.extend(cores.map(str::to_owned));
            if let Ok(priority) = TaskPriority::read(pid) {
                processes.nice.processes.insert(priority.nice);
                processes.oom_score.processes.insert(priority.oom_score);
            }
        }
        processes
    }

    /// No processes, beside a login to a job whose tasks have this priority.
    fn new(login: TaskPriority) -> Self {
        let values = |key, higher_is, value: i32| Values {
            key,
            higher_is,
            login: value.max(0),
            processes: BTreeSet::new(),
        };
        Self {
            cores: BTreeSet::new(),
            nice: values("nice", "served after", login.nice),
            oom_score: values("oom score", "killed before", login.oom_score),
        }
    }
}

/// Lists the processes in the job's cgroup that are none of its logins, as far as they can be listed in time. Logins
/// that cannot be told from them count as such processes.
fn list_tasks(job: &Job, uid: u32, deadline: Instant) -> Vec<i32> {
    let (all, logins) = match job {
        Job::Leaf(job) => {
            let Ok(dir) = job.place.dir() else {
                return Vec::new();
            };
            let logins = list_logins(dir, job.child.as_ref(), uid, deadline);
            let logins = logins.map(|listing| listing.all).unwrap_or_default();
            let logins: Vec<i32> = logins.iter().map(|process| process.pid).collect();
            (list_members(dir, deadline).all, logins)
        }
        Job::Slurm(_, step) => (
            list_first(step.job_levels(), deadline),
            list_first(step.step_levels(), deadline),
        ),
        Job::SlurmV1(_, step) => {
            // Slurm keeps all processes of a job in the hierarchy of the freezer. The cgroup of the logins is the
            // last level, and the job's the one above it.
            let levels = step.open_levels("freezer").ok().flatten();
            let mut levels = levels.unwrap_or_default();
            levels.reverse();
            let whole = levels.get(1..).unwrap_or_default();
            (list_first(whole, deadline), list_first(&levels, deadline))
        }
    };
    let logins: BTreeSet<i32> = logins.into_iter().collect();
    all.into_iter()
        .filter(|pid| !logins.contains(pid))
        .collect()
}

/// Lists the processes in the first of these cgroups and below it.
fn list_first(levels: &[Dir], deadline: Instant) -> Vec<i32> {
    let first = levels.first();
    first.map_or_else(Vec::new, |dir| list_members(dir, deadline).all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_that_a_login_sets_counts_if_it_is_lower() {
        let limits = [("memory.max", 75), ("pids.max", 20)];
        assert_eq!(apply_limit(300, "memory.max", &limits), 75);
        assert_eq!(apply_limit(60, "memory.max", &limits), 60);
        assert_eq!(apply_limit(u64::MAX, "memory.high", &limits), u64::MAX);
    }

    #[test]
    fn attribute_shows_both_sides_where_they_differ() {
        let attribute = |login: &str| Attribute {
            key: "memory",
            login: login.to_owned(),
            job: "300".to_owned(),
        };
        assert_eq!(attribute("300").text(), "300, as the job's processes");
        assert_eq!(attribute("75").text(), "75; the job's processes: 300");
    }

    #[test]
    fn priorities_say_who_comes_first() {
        let compare = |login: i32, scores: &[i32]| {
            let mut values = JobProcesses::new(TaskPriority {
                oom_score: login,
                ..TaskPriority::default()
            })
            .oom_score;
            values.processes.extend(scores);
            (values.compare(), values.has_other())
        };
        let login = "0, or what sshd was started with if that is more";
        let text = |rest: &str| format!("{login}; the job's processes: {rest}");
        assert_eq!(compare(0, &[]), (login.to_owned(), false));
        assert_eq!(compare(-3, &[0, 0]), (text("0"), false));
        assert_eq!(compare(0, &[0, 500]), (text("0 to 500"), true));
        let first = text("800: they are killed before the login");
        assert_eq!(compare(0, &[800]), (first, true));
        let last = text("-500: the login is killed before them");
        assert_eq!(compare(0, &[-500]), (last, true));
        assert!(!compare(500, &[500]).1);
    }
}
