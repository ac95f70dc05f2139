//! Finds the running jobs of this node, by records and by schedulers, and the processes of their logins.

use super::cgroup_members::read_processes;
use super::logins::list_logins;
use crate::error::Error;
use crate::output::Output;
use crate::process::Process;
use helper::jobs::Job;
use helper::jobs::records::{LoginTarget, ReadError, Record};
use helper::jobs::sources::{self, FluxSource, SlurmSource, SourceError};
use helper::node::Tree;
use helper::slurm_conf::SlurmConfSearch;
use helper::{Config, Deadline};
use kernel::cgroup::{CgroupChain, Dir, Listing, Membership, Mount, MountInfo, ignore_gone, v1};
use kernel::trust::Trust;
use protocol::{CgroupPath, JobId, LeafName, Placement, SourceName};
use schedulers::stepd::{SocketName, connect_to_daemon, step_of_daemon};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Longest query of Slurm's daemons, and longest walk through Flux's units.
pub(super) const QUERY_TIMEOUT: Duration = Duration::from_secs(5);

/// Queries the running jobs of a scheduler; returns them, and a report of jobs that may be missing. The
/// registry is no scheduler and has none.
///
/// # Errors
///
/// The errors of the source: [`SourceError::Absent`] for a scheduler that is not on this node.
pub(crate) fn query_scheduler(
    source: SourceName,
    config: &Config,
) -> Result<(Vec<(u32, Job)>, sources::SourceReport), SourceError> {
    let deadline = Deadline::after(QUERY_TIMEOUT);
    match source {
        SourceName::Registry => Ok(Default::default()),
        SourceName::Slurm => {
            let devices = config.devices.clone();
            let slurm_conf = SlurmConfSearch::new(Tree::host(), devices.slurm_conf);
            SlurmSource::new(slurm_conf, devices.node_name, config.slurm_spool.clone())
                .jobs_of_all_users(deadline)
        }
        SourceName::Flux => {
            let mount = Mount::open().map_err(|error| SourceError::Failed(error.to_string()))?;
            FluxSource::new(&config.flux_user, PathBuf::from(mount.path()), Path::new("/"))
                .jobs_of_all_users(deadline)
        }
    }
}

/// A running job.
#[derive(Clone, Debug)]
pub(crate) struct RunningJob {
    pub(crate) id: JobId,
    pub(crate) uid: u32,
    pub(crate) placement: Placement,
    /// When it ends, in seconds since the epoch, if its record has that.
    pub(crate) ends: Option<i64>,
}

/// Finds the running jobs of all users; returns also whether the list is complete. If a record and a
/// scheduler have the same job, the scheduler's place counts and the record's end.
///
/// # Errors
///
/// [`Error::Failed`] if the registry cannot be listed.
pub(crate) fn find_running_jobs(
    config: &Config,
    output: &mut Output<'_>,
) -> Result<(Vec<RunningJob>, bool), Error> {
    let mut records = Vec::new();
    let mut is_complete = true;
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
    let mut merged = BTreeSet::new();
    for &source in config.sources.iter().filter(|source| **source != SourceName::Registry) {
        match query_scheduler(source, config) {
            Ok((running, report)) => {
                for text in report.broken.iter().chain(&report.silent) {
                    output.warn(text);
                    is_complete = false;
                }
                for (uid, job) in running {
                    let has_job = |record: &&Record| record.uid == uid && job.has_name(&record.id);
                    let record = records.iter().find(has_job);
                    let ends = record.and_then(|record| record.ends);
                    merged.extend(record.map(|record| (uid, record.id.clone())));
                    jobs.push(RunningJob { id: job.id, uid, placement: job.placement, ends });
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
        let is_merged = merged.contains(&(uid, id.clone()));
        match target {
            LoginTarget::Cgroup(path) if is_registry_used && !is_merged => {
                jobs.push(RunningJob {
                    id,
                    uid,
                    placement: Placement::Cgroup { path, leaf },
                    ends,
                });
            }
            _ => {}
        }
    }
    Ok((jobs, is_complete))
}

impl RunningJob {
    /// Lists the processes of the job's logins, for Slurm all of the extern step; none if the job is over.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] if its cgroup cannot be found or read.
    pub(crate) fn list_login_processes(
        &self,
        deadline: Instant,
    ) -> Result<Listing<Process>, Error> {
        let none = Listing { all: Vec::new(), cut: None };
        let step = match &self.placement {
            Placement::Cgroup { .. } | Placement::Unit { .. } => {
                let Some(place) = self.open_cgroup()? else { return Ok(none) };
                return list_logins(place.dir()?, self.leaf(), self.uid, deadline);
            }
            Placement::Extern { spool, node } => {
                let Some(socket) = SocketName::from_job(node, &self.id) else { return Ok(none) };
                let path = Path::new(spool.as_str()).join(socket.to_string());
                match connect_to_daemon(&path, 0, Some(deadline)) {
                    Ok(Some(daemon)) => open_extern_step(daemon.pid)?,
                    Ok(None) | Err(schedulers::stepd::Error::SocketGone) => None,
                    Err(error) => return Err(Error::failed("query", path.display(), error)),
                }
            }
        };
        Ok(step.map_or(none, |step| read_processes(&step, deadline)))
    }

    /// Returns the name of the leaf in the job's record.
    pub(crate) fn leaf(&self) -> Option<&LeafName> {
        match &self.placement {
            Placement::Cgroup { leaf, .. } => leaf.as_ref(),
            Placement::Unit { .. } | Placement::Extern { .. } => None,
        }
    }

    /// Opens the job's cgroup; `None` if it is gone, and for a Slurm job.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] if cgroup v2 is not mounted, or the cgroup cannot be opened.
    pub(crate) fn open_cgroup(&self) -> Result<Option<CgroupChain>, Error> {
        match &self.placement {
            Placement::Cgroup { path, .. } | Placement::Unit { path, .. } => open_chain(path),
            Placement::Extern { .. } => Ok(None),
        }
    }
}

fn open_chain(path: &CgroupPath) -> Result<Option<CgroupChain>, Error> {
    Ok(ignore_gone(Mount::open()?.open_chain(path))?)
}

/// Opens the cgroup of the extern step of this daemon, on cgroup v1 in the freezer hierarchy; `None` if the
/// daemon has ended. The cgroup has logins and Slurm's own processes.
fn open_extern_step(daemon_pid: i32) -> Result<Option<Dir>, Error> {
    let Some(membership) = ignore_gone(Membership::read(daemon_pid))? else { return Ok(None) };
    if let Some(job) = v1::JobCgroups::from_daemon(&membership) {
        let levels = ignore_gone(job.open_freezers(&MountInfo::read_all()?))?;
        return Ok(levels.and_then(|levels| levels.last().cloned()));
    }
    let Some(path) = membership.unified().and_then(step_of_daemon) else { return Ok(None) };
    let place = open_chain(&path)?;
    Ok(place.as_ref().map(CgroupChain::dir).transpose()?.cloned())
}
