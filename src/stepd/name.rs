//! Names of step daemons' sockets, and where the daemon of an extern step is on cgroup v2:
//! `JOB/step_extern/slurm`. The job's own cgroup may have any name and stand anywhere, but for the
//! root.

use std::fmt;

use crate::plan::{CgroupPath, JobId, NodeName, decimal};

/// Number of the step that a job's logins belong to (`SLURM_EXTERN_CONT` of `slurm.h`).
const EXTERN_STEP: u32 = 0xffff_fffc;

/// Name of the socket of a job's extern step: `NODE_JOB.4294967292`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketName {
    /// The node, as Slurm calls it.
    pub node: NodeName,
    /// The job, in decimal digits.
    pub job: JobId,
}

impl SocketName {
    /// The name for this job; `None` for an id that is no number of Slurm's.
    #[must_use]
    pub fn new(node: &NodeName, job: &JobId) -> Option<Self> {
        decimal(job.as_str())?;
        Some(Self { node: node.clone(), job: job.clone() })
    }

    /// Reads a name; `None` for anything but the socket of an extern step.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let (name, step) = Self::with_step(name)?;
        (step == EXTERN_STEP).then_some(name)
    }

    /// Whether this is the name of a socket of a step that is no extern step.
    #[must_use]
    pub fn is_of_step(name: &str) -> bool {
        Self::with_step(name).is_some_and(|(_, step)| step != EXTERN_STEP)
    }

    fn with_step(name: &str) -> Option<(Self, u32)> {
        let (rest, step) = name.rsplit_once('.')?;
        let (node, job) = rest.rsplit_once('_')?;
        let name = Self::new(&node.parse().ok()?, &job.parse().ok()?)?;
        Some((name, decimal(step)?))
    }
}

impl fmt::Display for SocketName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}_{}.{EXTERN_STEP}", self.node, self.job)
    }
}

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
    fn names_are_read_back_and_nothing_else_is_one() {
        for good in ["gpu017_4242.4294967292", "a_b_1.4294967292", "n.cluster-1_7.4294967292"] {
            assert_eq!(SocketName::parse(good).unwrap().to_string(), good);
            assert!(!SocketName::is_of_step(good));
        }
        for bad in [
            "",
            "gpu017_4242.0",
            "gpu017_4242.4294967291",
            "gpu017_4242.4294967292.0",
            "gpu017_04242.4294967292",
            "gpu017_4294967296.4294967292",
            "gpu017_x.4294967292",
            "_1.4294967292",
            "gpu017.4294967292",
            "gpu/17_1.4294967292",
        ] {
            assert_eq!(SocketName::parse(bad), None, "{bad}");
            let of_step = ["gpu017_4242.0", "gpu017_4242.4294967291"].contains(&bad);
            assert_eq!(SocketName::is_of_step(bad), of_step, "{bad}");
        }
    }

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
