//! Finds the running jobs of this node, by records and by schedulers, and the processes of their logins.

use super::ending::{Process, list_logins, read_processes};
use super::list::query_scheduler;
use super::{Error, Output};
use helper::Config;
use helper::records::{LoginTarget, ReadError, Record};
use helper::sources::SourceError;
use kernel::cgroup::{CgroupChain, Dir, Membership, Mount, MountInfo, ignore_gone, v1};
use kernel::trust::Trust;
use protocol::{CgroupPath, JobId, Placement, SourceName};
use schedulers::stepd::{SocketName, connect_to_daemon, step_of_daemon};
use std::path::Path;
use std::time::Instant;

/// A running job.
#[derive(Clone, Debug)]
pub(super) struct RunningJob {
    pub(super) id: JobId,
    pub(super) uid: u32,
    pub(super) placement: Placement,
    /// When it ends, in seconds since the epoch, if its record or its source has that.
    pub(super) ends: Option<i64>,
}

/// Finds the running jobs of all users; returns also whether the list is complete. If a record and a
/// scheduler have the same job, the scheduler's place counts and the record's end.
///
/// # Errors
///
/// [`Error::Failed`] if the registry cannot be listed.
pub(super) fn find_running_jobs(
    config: &Config,
    output: &mut Output<'_>,
) -> Result<(Vec<RunningJob>, bool), Error> {
    let (mut records, mut is_complete) = (Vec::new(), true);
    for uid in config.registry.list_users()? {
        match config.registry.read_user(&Trust::root(), uid) {
            Ok(found) => records.extend(found.records),
            Err(ReadError::NoRegistry) => {}
            Err(error) => {
                output.warn(error);
                is_complete = false;
            }
        }
    }
    let mut jobs = Vec::new();
    for &source in config.sources.iter().filter(|source| **source != SourceName::Registry) {
        match query_scheduler(source, config) {
            Ok((running, report)) => {
                for text in report.broken.iter().chain(&report.silent) {
                    output.warn(text);
                    is_complete = false;
                }
                for (uid, job) in running {
                    let has_job = |record: &&Record| record.uid == uid && job.has_name(&record.id);
                    let recorded = records.iter().find(has_job).and_then(|record| record.ends);
                    let (id, ends) = (job.id, job.ends.or(recorded));
                    jobs.push(RunningJob { id, uid, placement: job.placement, ends });
                }
            }
            Err(SourceError::Absent(_) | SourceError::Unused(_)) => {}
            Err(error) => {
                output.warn(format_args!("{}: {error}", source.as_str()));
                is_complete = false;
            }
        }
    }
    let is_registry_used = config.sources.contains(&SourceName::Registry);
    for Record { id, uid, target, leaf, ends, .. } in records {
        let is_known = jobs.iter().any(|job| job.uid == uid && job.id == id);
        if let (LoginTarget::Cgroup(path), true, false) = (target, is_registry_used, is_known) {
            jobs.push(RunningJob { id, uid, placement: Placement::Cgroup { path, leaf }, ends });
        }
    }
    Ok((jobs, is_complete))
}

impl RunningJob {
    /// Lists the processes of the job's logins; none if the job is over.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] if its cgroup cannot be found or read.
    pub(super) fn list_logins(&self, deadline: Instant) -> Result<Vec<Process>, Error> {
        let step = match &self.placement {
            Placement::Cgroup { .. } | Placement::Unit { .. } => {
                let Some(place) = self.open_cgroup()? else { return Ok(Vec::new()) };
                return list_logins(place.dir()?, self.uid, deadline);
            }
            Placement::Extern { spool, node } => {
                let Some(socket) = SocketName::from_job(node, &self.id) else {
                    return Ok(Vec::new());
                };
                let path = Path::new(spool.as_str()).join(socket.to_string());
                match connect_to_daemon(&path, 0, Some(deadline)) {
                    Ok(Some(daemon)) => open_step(daemon.pid)?,
                    Ok(None) | Err(schedulers::stepd::Error::SocketGone) => None,
                    Err(error) => return Err(Error::failed("query", path.display(), error)),
                }
            }
        };
        Ok(step.map(|step| read_processes(&step, deadline).all).unwrap_or_default())
    }

    /// Opens the job's cgroup; `None` if it is gone, and for a Slurm job.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] if cgroup v2 is not mounted, or the cgroup cannot be opened.
    pub(super) fn open_cgroup(&self) -> Result<Option<CgroupChain>, Error> {
        match &self.placement {
            Placement::Cgroup { path, .. } | Placement::Unit { path, .. } => open_chain(path),
            Placement::Extern { .. } => Ok(None),
        }
    }
}

fn open_chain(path: &CgroupPath) -> Result<Option<CgroupChain>, Error> {
    Ok(ignore_gone(Mount::open()?.open_chain(path))?)
}

/// Opens the cgroup of the extern step whose daemon this is, in the hierarchy by which Slurm kills;
/// `None` for a daemon that has ended. It has only logins and Slurm's own processes.
fn open_step(daemon: i32) -> Result<Option<Dir>, Error> {
    let Some(membership) = ignore_gone(Membership::read(daemon))? else { return Ok(None) };
    if let Some(job) = v1::JobCgroups::from_daemon(&membership) {
        let levels = ignore_gone(job.open_freezers(&MountInfo::read_all()?))?;
        return Ok(levels.and_then(|levels| levels.last().cloned()));
    }
    let Some(path) = membership.unified().and_then(step_of_daemon) else { return Ok(None) };
    let place = open_chain(&path)?;
    Ok(place.as_ref().map(CgroupChain::dir).transpose()?.cloned())
}
