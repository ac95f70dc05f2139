//! Finds jobs that run although the daemon of their extern step was killed, as by the kernel for want of memory.
//!
//! Slurm starts no second daemon for the step, ends such a job as any other, and leaves the dead socket behind as it
//! does after a job.

use super::Socket;
use super::daemon_query::{QueryTerms, query_sockets};
use crate::jobs::sources::DaemonlessJob;
use schedulers::stepd::State;
use std::path::Path;

/// Finds the jobs among those with `stale` sockets that run, each with its owner: another step's daemon reports it. If no
/// step has a daemon, nothing here tells such a job from one that is over.
pub(super) fn find_daemonless_jobs(
    stale: &[Socket],
    terms: QueryTerms<'_>,
) -> Vec<(u32, DaemonlessJob)> {
    let mut steps: Vec<(&Socket, &Path)> = Vec::new();
    for socket in stale {
        // A daemon that ends by itself removes its socket.
        if socket.path.symlink_metadata().is_ok() {
            let paths = socket.other_steps.iter();
            steps.extend(paths.map(|path| (socket, path.as_path())));
        }
    }
    let paths: Vec<&Path> = steps.iter().map(|(_, path)| *path).collect();
    let mut jobs: Vec<(u32, DaemonlessJob)> = Vec::new();
    for ((socket, path), outcome) in steps.iter().zip(query_sockets(&paths, terms)) {
        let Some(Ok(answer)) = outcome.map(|outcome| outcome.answer) else {
            continue;
        };
        let id = &socket.name.job;
        let is_known = jobs.iter().any(|(_, job)| job.id == *id);
        if answer.state == State::Running && !is_known {
            let cause = format!(
                "{}: the daemon of the extern step was killed, and the job runs on at {}: no login can join it",
                socket.path.display(),
                path.display()
            );
            let id = id.clone();
            jobs.push((answer.uid, DaemonlessJob { id, cause }));
        }
    }
    jobs
}
