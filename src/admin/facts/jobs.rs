//! Finds the running jobs of this node, by records and by schedulers.

use crate::error::Error;
use crate::output::Output;
use helper::jobs::records::{LoginTarget, ReadError, Record, Registry};
use helper::jobs::sources::{
    AskedDaemons, FluxSource, JobsOfUsers, SlurmSource, Sought, SourceError,
};
use helper::jobs::{self, Job};
use helper::node::Tree;
use helper::slurm_conf::SlurmConfSearch;
use helper::{Config, Deadline};
use kernel::cgroup::Mount;
use kernel::trust::Trust;
use protocol::{CgroupPath, JobId, Placement, SourceName};
use schedulers::stepd::ROOT_UID;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Longest query of Slurm's daemons, and longest walk through Flux's units.
pub(crate) const QUERY_TIMEOUT: Duration = Duration::from_secs(5);

/// Queries the running jobs of a scheduler, of all users. The registry is no scheduler and has none.
///
/// # Errors
///
/// The errors of the source: [`SourceError::Absent`] for a scheduler that is not on this node.
pub(crate) fn query_scheduler(
    source: SourceName,
    config: &Config,
) -> Result<JobsOfUsers, SourceError> {
    query_scheduler_for(source, config, Sought::All, &mut AskedDaemons::default())
}

/// Queries the running jobs of a scheduler, as far as those who are sought may have one. `asked` has what earlier
/// queries of the same call have found out.
///
/// # Errors
///
/// As [`query_scheduler`].
pub(crate) fn query_scheduler_for(
    source: SourceName,
    config: &Config,
    sought: Sought<'_>,
    asked: &mut AskedDaemons,
) -> Result<JobsOfUsers, SourceError> {
    let deadline = Deadline::after(QUERY_TIMEOUT);
    match source {
        SourceName::Registry => Ok(JobsOfUsers::default()),
        SourceName::Slurm => {
            let devices = config.devices.clone();
            let slurm_conf = SlurmConfSearch::new(Tree::host(), devices.slurm_conf);
            SlurmSource::new(slurm_conf, devices.node_name, config.slurm_spool.clone())
                .with_records(config.registry.clone())
                .jobs_of_users(sought, asked, deadline)
        }
        SourceName::Flux => {
            let mount = Mount::open().map_err(|error| SourceError::Failed(error.to_string()))?;
            FluxSource::new(
                &config.flux_user,
                PathBuf::from(mount.path()),
                Path::new("/"),
            )
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

/// What one kind of source knows, as far as it could be read.
#[derive(Debug)]
pub(crate) struct Known<T> {
    pub(crate) all: Vec<T>,
    /// The reasons why there may be others.
    pub(crate) doubts: Vec<String>,
}

/// Reads the usable records of all users. A broken record is left out without a doubt; a user whose records cannot be
/// read at all is one.
///
/// # Errors
///
/// [`Error::Failed`] if the registry cannot be listed.
pub(crate) fn read_records(registry: &Registry, trust: &Trust) -> Result<Known<Record>, Error> {
    let mut known = Known {
        all: Vec::new(),
        doubts: Vec::new(),
    };
    for uid in registry.list_users()? {
        match registry.read_user(trust, uid) {
            Ok(found) => known.all.extend(found.records),
            Err(ReadError::NoRegistry) => {}
            Err(error) => known.doubts.push(error.to_string()),
        }
    }
    Ok(known)
}

/// Queries the running jobs of all schedulers of the configuration, each with the uid of its user. A scheduler that is
/// not on this node has none, and is no doubt.
pub(crate) fn query_schedulers(config: &Config) -> Known<(u32, Job)> {
    let mut known = Known {
        all: Vec::new(),
        doubts: Vec::new(),
    };
    for source in &config.sources {
        match query_scheduler(*source, config) {
            Ok(found) => {
                known.all.extend(found.jobs);
                known
                    .doubts
                    .extend(found.doubts.into_iter().map(|doubt| doubt.cause));
            }
            Err(SourceError::Absent(_) | SourceError::Unused(_)) => {}
            Err(error) => known.doubts.push(format!("{}: {error}", source.as_str())),
        }
    }
    known
}

/// The running jobs of all users of this node.
#[derive(Debug, Default)]
pub(crate) struct NodeJobs {
    pub(crate) jobs: Vec<RunningJob>,
    /// False if the records of a user, or a scheduler, could not be read. Broken records do not count.
    pub(crate) is_complete: bool,
}

/// Finds the running jobs of all users, and warns of each reason why there may be others.
///
/// # Errors
///
/// [`Error::Failed`] if the registry cannot be listed.
pub(crate) fn find_running_jobs(
    config: &Config,
    output: &mut Output<'_>,
) -> Result<NodeJobs, Error> {
    let records = read_records(&config.registry, &Trust::root())?;
    let scheduled = query_schedulers(config);
    for doubt in records.doubts.iter().chain(&scheduled.doubts) {
        output.warn(doubt);
    }
    let is_complete = records.doubts.is_empty() && scheduled.doubts.is_empty();
    let is_registry_used = config.sources.contains(&SourceName::Registry);
    let jobs = merge_jobs(records.all, scheduled.all, is_registry_used);
    Ok(NodeJobs { jobs, is_complete })
}

/// Merges the jobs of records and of schedulers. Of a job that both have, the scheduler's place counts and
/// the record's end. Of the other records those with a cgroup are jobs, if the registry is a source of jobs.
fn merge_jobs(
    records: Vec<Record>,
    scheduled: Vec<(u32, Job)>,
    is_registry_used: bool,
) -> Vec<RunningJob> {
    let mut jobs = Vec::new();
    let mut merged = BTreeSet::new();
    for (uid, job) in scheduled {
        let record = records
            .iter()
            .find(|record| record.uid == uid && job.has_name(&record.id));
        if let Some(record) = record {
            merged.insert((uid, record.id.clone()));
        }
        let ends = record.and_then(|record| record.ends);
        jobs.push(RunningJob {
            id: job.id,
            uid,
            placement: job.placement,
            ends,
        });
    }
    if !is_registry_used {
        return jobs;
    }
    for Record {
        id,
        uid,
        target,
        leaf,
        ends,
        ..
    } in records
    {
        if merged.contains(&(uid, id.clone())) {
            continue;
        }
        if let LoginTarget::Cgroup(path) = target {
            jobs.push(RunningJob {
                id,
                uid,
                placement: Placement::Cgroup { path, leaf },
                ends,
            });
        }
    }
    jobs
}

/// Finds the cgroup of a scheduler's job on cgroup v2. That of a Slurm job only its step daemon knows: `None` if that does
/// not answer, or is elsewhere.
pub(crate) fn find_cgroup(id: &JobId, placement: &Placement) -> Option<CgroupPath> {
    jobs::find_cgroup(id, placement, ROOT_UID, Instant::now() + QUERY_TIMEOUT)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(id: &str, target: &str) -> Record {
        let text = format!(r#"{{"version":1,"id":"{id}","uid":5,"ends":9,{target}}}"#);
        Record::parse(text.as_bytes()).unwrap()
    }

    fn scheduled(id: &str) -> (u32, Job) {
        let placement = Placement::Extern {
            spool: "/var/spool/slurmd".parse().unwrap(),
            node: "n1".parse().unwrap(),
        };
        (
            5,
            Job {
                id: id.parse().unwrap(),
                started: 1,
                ends: None,
                placement,
                slurm: None,
                record: None,
            },
        )
    }

    #[test]
    fn job_of_record_and_scheduler_has_place_of_scheduler_and_end_of_record() {
        let records = vec![
            record("7", r#""cgroup":"/a""#),
            record("8", r#""via":"slurm""#),
        ];
        let jobs = merge_jobs(
            records,
            vec![scheduled("7"), scheduled("8"), scheduled("9")],
            true,
        );
        assert!(
            jobs.iter()
                .all(|job| job.placement.source() == SourceName::Slurm)
        );
        let ends: Vec<_> = jobs.iter().map(|job| (job.id.as_str(), job.ends)).collect();
        assert_eq!(ends, [("7", Some(9)), ("8", Some(9)), ("9", None)]);
    }

    #[test]
    fn job_of_record_alone_counts_if_registry_is_a_source() {
        let records = || {
            vec![
                record("7", r#""cgroup":"/a""#),
                record("8", r#""via":"slurm""#),
            ]
        };
        let [job] = merge_jobs(records(), Vec::new(), true).try_into().unwrap();
        assert_eq!(job.id.as_str(), "7");
        assert!(matches!(job.placement, Placement::Cgroup { .. }));
        assert!(merge_jobs(records(), Vec::new(), false).is_empty());
    }
}
