//! Finds the job whose cgroup this process is in, and tells which processes are in that cgroup too.

use helper::jobs::{ExternSocket, Job};
use kernel::cgroup::{Membership, v1};
use protocol::{JobId, Placement, is_within};
use schedulers::stepd::{ROOT_UID, job_of_daemon};
use std::time::Instant;

/// The cgroup of a job, in the hierarchy by which its scheduler ends it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct JobCgroup {
    pub(super) job: JobId,
    hierarchy: Hierarchy,
    path: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hierarchy {
    /// Cgroup v2.
    Unified,
    /// Cgroup v1, by which Slurm kills.
    Freezer,
}

impl Hierarchy {
    /// The path of a process in this hierarchy; `None` if the process is not in it.
    fn path_of(self, membership: &Membership) -> Option<&str> {
        match self {
            Self::Unified => membership.unified(),
            Self::Freezer => membership.path_of_controller("freezer"),
        }
    }
}

impl JobCgroup {
    /// Finds the one of these jobs whose cgroup a process is in, of nested ones the innermost; `None` if it
    /// is in none.
    pub(super) fn find(jobs: &[Job], process: &Membership, deadline: Instant) -> Option<Self> {
        jobs.iter()
            .filter_map(|job| Self::of_job(job, process, deadline))
            .filter(|cgroup| cgroup.contains(process))
            .max_by_key(|cgroup| cgroup.path.len())
    }

    /// A job in the root cgroup.
    #[cfg(test)]
    pub(super) fn of_all_processes() -> Self {
        Self {
            job: "7".parse().unwrap(),
            hierarchy: Hierarchy::Unified,
            path: "/".to_owned(),
        }
    }

    /// Tells whether a process is in the job's cgroup or below it.
    pub(super) fn contains(&self, process: &Membership) -> bool {
        let path = self.hierarchy.path_of(process);
        path.is_some_and(|path| is_within(path, &self.path))
    }

    /// Finds the cgroup of a job. The placement names it, except that of a Slurm job: the job's step daemon
    /// shows it or, if that daemon is hidden, the job's name in the path of `process`. `None` if neither
    /// does.
    fn of_job(job: &Job, process: &Membership, deadline: Instant) -> Option<Self> {
        let (hierarchy, path) = match &job.placement {
            Placement::Cgroup { path, .. } | Placement::Unit { path, .. } => {
                (Hierarchy::Unified, path.to_string())
            }
            Placement::Extern { spool, node } => {
                let socket = ExternSocket::from_job(spool, node, &job.id);
                match socket.and_then(|socket| socket.read_cgroups(ROOT_UID, deadline)) {
                    Some(daemon) => job_cgroup_of_daemon(&daemon)?,
                    None => job_cgroup_by_name(&job.id, process)?,
                }
            }
        };
        Some(Self {
            job: job.id.clone(),
            hierarchy,
            path,
        })
    }
}

/// Derives the job's cgroup from those of its step daemon; `None` for paths other than Slurm's.
fn job_cgroup_of_daemon(daemon: &Membership) -> Option<(Hierarchy, String)> {
    if let Some(job) = v1::JobCgroups::from_daemon(daemon) {
        let step = job.step();
        let path = step.strip_suffix("/step_extern")?;
        return Some((Hierarchy::Freezer, path.to_owned()));
    }
    let path = job_of_daemon(daemon.unified()?)?;
    Some((Hierarchy::Unified, path.to_string()))
}

/// Finds the cgroup above a process that is named after the job, as Slurm names it up to 25.11 or with
/// `CgroupJobIdPaths`; `None` if there is none.
fn job_cgroup_by_name(job: &JobId, process: &Membership) -> Option<(Hierarchy, String)> {
    let name = format!("/job_{job}/");
    [Hierarchy::Freezer, Hierarchy::Unified]
        .into_iter()
        .find_map(|hierarchy| {
            let path = hierarchy.path_of(process)?;
            let (above, _) = path.split_once(&name)?;
            Some((hierarchy, format!("{above}/job_{job}")))
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn job(id: &str, path: &str) -> Job {
        Job {
            id: id.parse().unwrap(),
            started: 0,
            ends: None,
            placement: Placement::Cgroup {
                path: path.parse().unwrap(),
                leaf: None,
            },
            slurm: None,
            record: None,
        }
    }

    fn membership(text: &str) -> Membership {
        Membership::parse(text).unwrap()
    }

    fn find(jobs: &[Job], text: &str) -> Option<JobCgroup> {
        let deadline = Instant::now() + Duration::from_secs(1);
        JobCgroup::find(jobs, &membership(text), deadline)
    }

    #[test]
    fn innermost_job_that_contains_the_process_is_found() {
        let jobs = [job("1", "/a"), job("2", "/a/b"), job("3", "/c")];
        let id = |text| find(&jobs, text).map(|cgroup| cgroup.job.to_string());
        assert_eq!(id("0::/a/x\n").as_deref(), Some("1"));
        assert_eq!(id("0::/a/b/job-adopt\n").as_deref(), Some("2"));
        for outside in ["0::/\n", "0::/ab\n", "0::/user.slice\n"] {
            assert_eq!(id(outside), None, "{outside}");
        }
    }

    #[test]
    fn only_processes_of_the_jobs_own_cgroup_are_in_it() {
        let cgroup = find(&[job("1", "/a")], "0::/a/job-adopt\n").unwrap();
        assert!(cgroup.contains(&membership("0::/a/libpod-1\n")));
        assert!(cgroup.contains(&membership("0::/a\n")));
        assert!(!cgroup.contains(&membership("0::/ab\n")));
        assert!(!cgroup.contains(&membership("1:freezer:/a\n")));
    }

    #[test]
    fn cgroup_of_slurm_job_is_that_above_its_daemons_step() {
        let v2 = membership("0::/system.slice/slurmstepd.scope/sEKNK/step_extern/slurm\n");
        assert_eq!(
            job_cgroup_of_daemon(&v2),
            Some((
                Hierarchy::Unified,
                "/system.slice/slurmstepd.scope/sEKNK".to_owned()
            ))
        );
        let path = || "/slurm_n1/uid_5/job_7".to_owned();
        let v1 = membership("3:freezer:/slurm_n1/uid_5/job_7\n0::/\n");
        assert_eq!(
            job_cgroup_of_daemon(&v1),
            Some((Hierarchy::Freezer, path()))
        );
        let login = membership("3:freezer:/slurm_n1/uid_5/job_7/step_extern\n0::/\n");
        let id = "7".parse().unwrap();
        assert_eq!(
            job_cgroup_by_name(&id, &login),
            Some((Hierarchy::Freezer, path()))
        );
        assert_eq!(job_cgroup_by_name(&"70".parse().unwrap(), &login), None);
    }
}
