//! The cgroups of a job and of its extern step, by that of the step's daemon.

use protocol::CgroupPath;

/// Derives the extern step's cgroup from the cgroup v2 of its daemon, `JOB/step_extern/slurm`; `None` for a
/// daemon that is elsewhere. The job's own cgroup may have any name and may be anywhere below the root, but
/// is never the root itself.
pub fn step_of_daemon(daemon: &str) -> Option<CgroupPath> {
    let job = job_of_daemon(daemon)?;
    format!("{job}/step_extern").parse().ok()
}

/// Derives the job's cgroup from the cgroup v2 of the daemon of its extern step; `None` for a
/// daemon that is elsewhere.
pub fn job_of_daemon(daemon: &str) -> Option<CgroupPath> {
    daemon.strip_suffix("/step_extern/slurm")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn job_and_step_follow_from_cgroup_of_daemon() {
        for job in [
            "/system.slice/slurmstepd.scope/job_4242",
            "/system.slice/gpu017_slurmstepd.scope/job_4242",
            "/site.slice/slurmstepd.scope/sEKNKTV3WPV500",
            "/a",
        ] {
            let daemon = format!("{job}/step_extern/slurm");
            assert_eq!(
                step_of_daemon(&daemon).unwrap().as_str(),
                format!("{job}/step_extern")
            );
            assert_eq!(job_of_daemon(&daemon).unwrap().as_str(), job);
        }
    }

    #[test]
    fn daemon_elsewhere_has_neither_job_nor_step() {
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
            assert_eq!(
                (step_of_daemon(path), job_of_daemon(path)),
                (None, None),
                "{path}"
            );
        }
    }
}
