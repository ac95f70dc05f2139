//! Describes what a login has in its job, beside what the job's own processes have: cores, memory, tasks, devices and
//! the order in which the kernel kills.

use super::resolve::open_child_leaf;
use crate::job::cgroup_members::list_members;
use crate::job::limits_in_force::{LIMITS, LimitFile, show_limit};
use crate::job::logins::list_logins;
use kernel::cgroup::{self, Dir, find_lowest_limit};
use kernel::proc::{self, Proc, read_record};
use module::{Job, JoinResult, LeafJob, LeafLimit, OwnerProof};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Longest look at the job's processes.
const PROCESSES_TIMEOUT: Duration = Duration::from_secs(5);
const CORES: &str = "cores";
const OOM_SCORE: &str = "oom score";

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
    lines.push((OOM_SCORE, processes.compare_oom_scores()));
    if processes.has_other_oom_scores() {
        different.push(OOM_SCORE);
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

/// What the processes of the job's owner have that are not those of a login.
#[derive(Debug, Default)]
struct JobProcesses {
    /// Their lists of cores, each once.
    cores: BTreeSet<String>,
    oom_scores: BTreeSet<i32>,
    /// The least score of a login.
    login_oom_score: i32,
}

impl JobProcesses {
    /// Reads the cores and scores of the job's processes of `uid`, who owns the job. Processes that cannot be listed or
    /// read are left out.
    fn read(job: &Job, uid: u32) -> Self {
        let deadline = Instant::now() + PROCESSES_TIMEOUT;
        let mut processes = Self {
            login_oom_score: find_login_oom_score(job),
            ..Self::default()
        };
        for pid in list_tasks(job, uid, deadline) {
            let dir = Proc::host().dir(pid);
            if Proc::host().effective_uid(pid).ok() != Some(uid) {
                continue;
            }
            let status = proc::read(dir.join("status")).unwrap_or_default();
            let cores = proc::find_field(&status, "Cpus_allowed_list:");
            processes.cores.extend(cores.map(str::to_owned));
            let score = read_record(dir.join("oom_score_adj")).ok();
            processes
                .oom_scores
                .extend(score.and_then(|text| text.trim_end().parse::<i32>().ok()));
        }
        processes
    }

    /// Whether a process of the job has another score than a usual login.
    fn has_other_oom_scores(&self) -> bool {
        self.oom_scores
            .iter()
            .any(|score| *score != self.login_oom_score)
    }

    /// Describes the scores, by which the kernel chooses what to kill for lack of memory: the highest first. sshd
    /// gives its children the score that it was started with, and the module makes a negative one 0.
    fn compare_oom_scores(&self) -> String {
        let least = self.login_oom_score;
        let login = format!("{least}, or what sshd was started with if that is more");
        let (Some(min), Some(max)) = (self.oom_scores.first(), self.oom_scores.last()) else {
            return login;
        };
        let range = if min == max {
            min.to_string()
        } else {
            format!("{min} to {max}")
        };
        let order = if *min > least {
            ": they are killed before the login"
        } else if *max < least {
            ": the login is killed before them"
        } else {
            ""
        };
        format!("{login}; the job's processes: {range}{order}")
    }
}

/// Finds the least OOM score of a login: that of the tasks of a Flux job, which its IMP has as well, else 0, also if it
/// cannot be read. The module makes a negative one 0.
fn find_login_oom_score(job: &Job) -> i32 {
    let score = match job {
        Job::Leaf(LeafJob {
            proof: OwnerProof::Imp(imp),
            ..
        }) => imp.read_oom_score().unwrap_or_default(),
        _ => 0,
    };
    score.max(0)
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
    fn oom_scores_say_who_is_killed_first() {
        let compare = |scores: &[i32]| {
            let processes = JobProcesses {
                oom_scores: scores.iter().copied().collect(),
                ..JobProcesses::default()
            };
            (
                processes.compare_oom_scores(),
                processes.has_other_oom_scores(),
            )
        };
        let login = "0, or what sshd was started with if that is more";
        let text = |rest: &str| format!("{login}; the job's processes: {rest}");
        assert_eq!(compare(&[]), (login.to_owned(), false));
        assert_eq!(compare(&[0, 0]), (text("0"), false));
        assert_eq!(compare(&[0, 500]), (text("0 to 500"), true));
        let first = text("800: they are killed before the login");
        assert_eq!(compare(&[800]), (first, true));
        let last = text("-500: the login is killed before them");
        assert_eq!(compare(&[-500]), (last, true));
    }
}
