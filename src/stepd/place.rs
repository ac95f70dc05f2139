//! Where the daemon of an extern step is on cgroup v2, and what that tells of its job:
//! `JOB/step_extern/slurm`. The job's own cgroup may have any name and stand anywhere, but for the
//! root.

use crate::plan::CgroupPath;

/// The way from the step to its daemon.
const DAEMON: &str = "/slurm";
/// The way from the job to its extern step.
const STEP: &str = "/step_extern";

/// The extern step's cgroup, by where its daemon is; `None` for a daemon that is elsewhere.
#[must_use]
pub fn step_of(daemon: &str) -> Option<CgroupPath> {
    job_of(daemon)?;
    daemon.strip_suffix(DAEMON)?.parse().ok()
}

/// The job's, likewise.
#[must_use]
pub fn job_of(daemon: &str) -> Option<CgroupPath> {
    daemon.strip_suffix(DAEMON)?.strip_suffix(STEP)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn job_and_step_are_told_by_where_the_daemon_is() {
        for job in [
            "/system.slice/slurmstepd.scope/job_4242",
            "/system.slice/gpu017_slurmstepd.scope/job_4242",
            "/site.slice/slurmstepd.scope/sEKNKTV3WPV500",
            "/a",
        ] {
            let daemon = format!("{job}/step_extern/slurm");
            assert_eq!(step_of(&daemon).unwrap().as_str(), format!("{job}/step_extern"));
            assert_eq!(job_of(&daemon).unwrap().as_str(), job);
        }
    }

    #[test]
    fn elsewhere_is_no_step() {
        for path in [
            "/",
            "/step_extern/slurm",
            "/system.slice/slurmstepd.scope/system",
            "/system.slice/slurmd.service",
            "/a/job_1/step_batch/slurm",
            "/a/job_1/step_extern",
            "/a/job_1/step_extern/slurm (deleted)",
            "/a/job_1/step_extern/user/task_special",
            "/../job_1/step_extern/slurm",
        ] {
            assert_eq!((step_of(path), job_of(path)), (None, None), "{path}");
        }
    }
}
