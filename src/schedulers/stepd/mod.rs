//! The daemon of a Slurm job's extern step (slurmstepd): where its socket is, and what is asked of
//! it. Both halves ask; only the privileged one has it add a process.

#![forbid(unsafe_code)]

mod daemon;

use std::fmt;

use nix::errno::Errno;

use crate::protocol::{CgroupPath, JobId, NodeName, decimal};
use thiserror::Error;

pub use daemon::{ANSWER_LEN, Answer, Connection, Daemon, QUERY_LEN, State, call, made, query};

/// Number of the step that a job's logins belong to (`SLURM_EXTERN_CONT` of `slurm.h`).
pub(crate) const EXTERN_STEP: u32 = 0xffff_fffc;

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
    pub fn new(node: &NodeName, job: &JobId) -> Option<Self> {
        decimal(job.as_str())?;
        Some(Self { node: node.clone(), job: job.clone() })
    }
}

impl fmt::Display for SocketName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}_{}.{EXTERN_STEP}", self.node, self.job)
    }
}

/// The extern step's cgroup, by the cgroup v2 of its daemon, which is `JOB/step_extern/slurm`; `None`
/// for a daemon that is elsewhere. The job's own cgroup may have any name and stand anywhere, but
/// for the root.
pub fn step_of(daemon: &str) -> Option<CgroupPath> {
    job_of(daemon)?;
    daemon.strip_suffix("/slurm")?.parse().ok()
}

/// The job's cgroup, likewise.
pub fn job_of(daemon: &str) -> Option<CgroupPath> {
    daemon.strip_suffix("/step_extern/slurm")?.parse().ok()
}

/// The result of asking a step daemon.
pub type Result<T> = std::result::Result<T, Error>;

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Error {
    /// There is no socket of that name, or nobody listens at it any more: the job is over.
    #[error("nobody listens there: the job is over")]
    Gone,
    /// The name stands for something else than a socket, or one that is not root's.
    #[error("is no socket of root's")]
    NotRoots,
    /// Who listens there is not root; the number is its uid.
    #[error("who listens there is uid {0}, not root")]
    Peer(u32),
    /// A system call failed.
    #[error("{0}: {reason}", reason = .1.desc())]
    System(&'static str, Errno),
    /// It did not answer in time.
    #[error("did not answer in time")]
    Timeout,
    /// It hung up before it had answered.
    #[error("hung up")]
    Closed,
    /// It does not talk to our version of the protocol.
    #[error("does not talk to this version of its protocol")]
    Refused,
    /// Its answer has no meaning.
    #[error("gave an answer that has no meaning")]
    Malformed,
    /// It cannot open the job's namespaces.
    #[error("cannot hand over the job's namespaces")]
    NoNamespace,
    /// It would not take the process; the number is its return code.
    #[error("would not take the login into the job ({0})")]
    NotAdded(i32),
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
