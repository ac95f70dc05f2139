//! The jobs that schedulers run here.

use super::Job;
use crate::cgroup::Mount;
use crate::cli::Output;
use crate::device::Tree;
use crate::plan::SourceName;
use crate::resolve::Config;
use crate::source::{self, Account, FluxSource, SlurmSource, SourceError};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long the daemons of Slurm's jobs are waited for, and units of Flux's looked at.
const PATIENCE: Duration = Duration::from_secs(5);

/// The running jobs of a scheduler's, and what cannot be told of others.
fn running(
    source: SourceName,
    config: &Config,
) -> Result<(Vec<(u32, source::Job)>, source::Found), SourceError> {
    let deadline = Instant::now() + PATIENCE;
    match source {
        SourceName::Registry => Ok(Default::default()),
        SourceName::Slurm => {
            let (settings, spool) = (config.devices.clone(), config.slurm.spool.clone());
            SlurmSource::new(Tree::here(), settings, spool).everyones(deadline)
        }
        SourceName::Flux => {
            let mount = Mount::open().map_err(|error| SourceError::Failed(error.to_string()))?;
            let account = Account::Name(config.flux_user.clone());
            FluxSource::new(account, PathBuf::from(mount.path()), Path::new("/"))
                .everyones(deadline)
        }
    }
}

/// Adds the jobs that a scheduler runs for this user, or for all, to those of records. Whether it is
/// sure that there are no others.
pub(super) fn add(
    jobs: &mut Vec<Job>,
    user: Option<u32>,
    source: SourceName,
    config: &Config,
    output: &mut Output<'_>,
) -> bool {
    let (running, found) = match running(source, config) {
        Ok(answer) => answer,
        Err(SourceError::Absent(_)) => return true,
        Err(error) => {
            output.warn(format_args!("{}: {error}", source.as_str()));
            return false;
        }
    };
    for (uid, job) in running.into_iter().filter(|(uid, _)| user.is_none_or(|own| own == *uid)) {
        let is_own = |own: &Job| own.id.parse().is_ok_and(|id| job.goes_by(&id));
        match jobs.iter_mut().find(|own| own.uid == uid && is_own(own)) {
            Some(own) => own.runs_in(&job),
            None => jobs.push(Job::of_scheduler(uid, &job)),
        }
    }
    let unsure = || found.broken.iter().chain(&found.silent);
    unsure().for_each(|text| output.warn(text));
    unsure().next().is_none()
}
