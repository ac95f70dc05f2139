//! Finds jobs that run although the daemon of their extern step was killed, as by the kernel for want of memory.
//!
//! Slurm starts no second daemon for the step, ends such a job as any other, and leaves the dead socket behind as it
//! does after a job.

use super::daemon_fault::fault_kind;
use super::daemon_query::{QueryOutcome, QueryTerms, query_sockets};
use super::job_owner::OwnerSearch;
use super::sockets::Socket;
use crate::jobs::sources::DaemonlessJob;
use crate::jobs::sources::doubt::{Doubt, Fault, FaultKind};
use schedulers::stepd::{Error, State};
use std::path::{Path, PathBuf};

/// What the other steps of a job tell whose extern step has no daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum OtherSteps {
    /// No step has a daemon: nothing here tells such a job from one that is over.
    Over,
    /// There was no time to ask a step: the job may run.
    Unasked,
    /// A step has a daemon that tells nothing: the job may run.
    Silent {
        path: PathBuf,
        pid: Option<i32>,
        error: Error,
    },
    /// A step runs or starts, and so does the job.
    Running { owner: u32, job: DaemonlessJob },
}

impl OtherSteps {
    /// Judges the job with this dead socket by one other step of it.
    fn from_step(socket: &Socket, path: &Path, outcome: Option<QueryOutcome>) -> Self {
        let Some(QueryOutcome { pid, answer }) = outcome else {
            return Self::Unasked;
        };
        match answer {
            Ok(answer) if answer.state != State::Ending => Self::Running {
                owner: answer.uid,
                job: DaemonlessJob {
                    id: socket.name.job.clone(),
                    cause: format!(
                        "{}: the daemon of the extern step was killed, and the job runs on at {}: no login can join it",
                        socket.path.display(),
                        path.display()
                    ),
                },
            },
            Ok(_) | Err(Error::SocketGone) => Self::Over,
            Err(error) => Self::Silent {
                path: path.to_owned(),
                pid,
                error,
            },
        }
    }

    /// Which answer counts for a job with several: the one that says most of a job that may run.
    fn rank(&self) -> u8 {
        match self {
            Self::Over => 0,
            Self::Unasked => 1,
            Self::Silent { .. } => 2,
            Self::Running { .. } => 3,
        }
    }

    /// Describes why the job with this dead socket may run; `None` if it is known.
    pub(super) fn find_fault(&self, socket: &Socket, owners: &OwnerSearch<'_>) -> Option<Fault> {
        let dead = socket.path.display();
        let (cause, pid, kind) = match self {
            Self::Over | Self::Running { .. } => return None,
            Self::Unasked => {
                let cause =
                    format!("{dead}: nobody listens, and other steps could not be asked in time");
                (cause, None, FaultKind::Silent)
            }
            Self::Silent { path, pid, error } => {
                let cause = format!("{}: {error}; at {dead} nobody listens", path.display());
                (cause, *pid, fault_kind(error))
            }
        };
        let job = socket.name.job.clone();
        let doubt = Doubt {
            cause,
            owners: owners.find(&job, pid),
            job: Some(job),
        };
        Some(Fault { doubt, kind })
    }
}

/// Asks the other steps of the jobs with these `stale` sockets; the answers are in the order of the sockets.
pub(super) fn query_other_steps(stale: &[Socket], terms: QueryTerms<'_>) -> Vec<OtherSteps> {
    let mut steps: Vec<(usize, &Socket, &Path)> = Vec::new();
    for (index, socket) in stale.iter().enumerate() {
        // A daemon that ends by itself removes its socket.
        if socket.path.symlink_metadata().is_ok() {
            let paths = socket.other_steps.iter();
            steps.extend(paths.map(|path| (index, socket, path.as_path())));
        }
    }
    let paths: Vec<&Path> = steps.iter().map(|(_, _, path)| *path).collect();
    let mut found = vec![OtherSteps::Over; stale.len()];
    for ((index, socket, path), outcome) in steps.iter().zip(query_sockets(&paths, terms)) {
        let answer = OtherSteps::from_step(socket, path, outcome);
        if let Some(known) = found
            .get_mut(*index)
            .filter(|known| known.rank() < answer.rank())
        {
            *known = answer;
        }
    }
    found
}
