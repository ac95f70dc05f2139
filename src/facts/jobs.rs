//! Finds the jobs of this node, by records and by schedulers, and the reasons why there may be others, each with those
//! whose jobs these may be. Who wants less of them leaves out the rest; nobody else puts records and schedulers' jobs
//! together.

use command::error::Error;
use command::options::QUERY_TIMEOUT;
use helper::jobs::records::{LoginTarget, ReadError, Record, Registry, UnusableFile};
use helper::jobs::sources::{
    AskedDaemons, Doubt, FluxSource, JobsOfUsers, PossibleOwners, SlurmSource, Sought, SourceError,
};
use helper::jobs::{self, Job};
use helper::node::Tree;
use helper::slurm_conf::SlurmConfSearch;
use helper::{Config, Deadline};
use kernel::cgroup::Mount;
use kernel::trust::{Trust, TrustError};
use protocol::{CgroupPath, JobId, Placement, SourceName};
use schedulers::stepd::ROOT_UID;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Queries the running jobs of a scheduler, of all users. The registry is no scheduler and has none.
///
/// # Errors
///
/// The errors of the source: [`SourceError::Absent`] for a scheduler that is not on this node.
pub fn query_scheduler(source: SourceName, config: &Config) -> Result<JobsOfUsers, SourceError> {
    query_scheduler_for(source, config, Sought::All, &mut AskedDaemons::default())
}

/// Queries the running jobs of a scheduler, as far as those who are sought may have one. `asked` has what earlier
/// queries of the same call have found out.
///
/// # Errors
///
/// As [`query_scheduler`].
pub fn query_scheduler_for(
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

/// Queries the running jobs of all schedulers of the configuration, as far as those who are sought may have one. A
/// scheduler that is not on this node has none; one that fails is a doubt about everybody.
pub fn query_schedulers(
    config: &Config,
    sought: Sought<'_>,
    asked: &mut AskedDaemons,
) -> JobsOfUsers {
    let mut all = JobsOfUsers::default();
    for source in SourceName::ALL {
        if !config.sources.contains(&source) {
            continue;
        }
        match query_scheduler_for(source, config, sought, asked) {
            Ok(found) => {
                all.jobs.extend(found.jobs);
                all.doubts.extend(found.doubts);
                all.without_logins.extend(found.without_logins);
            }
            Err(SourceError::Absent(_) | SourceError::Unused(_)) => {}
            Err(error) => {
                let cause = format!("{}: {error}", source.as_str());
                all.doubts.push(Doubt::about_anybody(cause));
            }
        }
    }
    all
}

/// The records of jobs, as far as they can be read.
#[derive(Debug, Default)]
pub struct Records {
    /// Those that can be used, by uid and id.
    pub usable: Vec<Record>,
    /// Files that cannot be used, each with the uid whose it is.
    pub broken: Vec<(u32, UnusableFile)>,
    /// The uids whose records cannot be read at all, with the cause.
    pub unreadable: Vec<(u32, TrustError)>,
}

impl Records {
    /// Reads the records of all users.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] if the registry cannot be listed.
    pub fn read(registry: &Registry, trust: &Trust) -> Result<Self, Error> {
        Ok(Self::read_of(&registry.list_users()?, registry, trust))
    }

    /// Reads the records of these users. A registry that does not exist has none.
    pub fn read_of(users: &[u32], registry: &Registry, trust: &Trust) -> Self {
        let mut records = Self::default();
        for uid in users.iter().copied() {
            match registry.read_user(trust, uid) {
                Ok(found) => {
                    records.usable.extend(found.records);
                    let broken = found.broken.into_iter().map(|file| (uid, file));
                    records.broken.extend(broken);
                }
                Err(ReadError::NoRegistry) => {}
                Err(ReadError::Distrusted(error)) => records.unreadable.push((uid, error)),
            }
        }
        records
    }
}

/// The doubt about the job of a record that no login reads: nothing shows whether it runs.
pub fn doubt_unread_record(record: &Record) -> Doubt {
    Doubt {
        cause: format!(
            "job {}: no login reads its record, since registry is not among the sources",
            record.id
        ),
        owners: PossibleOwners::Only([record.uid].into()),
        job: Some(record.id.clone()),
    }
}

/// A running job.
#[derive(Clone, Debug)]
pub struct NodeJob {
    /// The scheduler's id, or that of the record.
    pub id: JobId,
    /// The uid of its owner.
    pub uid: u32,
    /// Where its logins are placed.
    pub placement: Placement,
    /// When it started, in seconds since the epoch, if that is known.
    pub started: Option<i64>,
    /// When it ends, in seconds since the epoch, if its record has that.
    pub ends: Option<i64>,
    /// `None` for a scheduler's job that is not registered.
    pub record: Option<Record>,
}

/// The jobs of this node.
#[derive(Debug, Default)]
pub struct NodeJobs {
    /// Those that run: the registered ones first, by uid and id. Logins find them, but for a scheduler's job whose record
    /// is broken.
    pub running: Vec<NodeJob>,
    /// The records of which logins find no job: no login reads records by the configuration, or a record leaves the place
    /// to a scheduler that has no such job.
    pub unfound: Vec<Record>,
    /// The reasons why there may be other jobs. A broken record is none.
    pub doubts: Vec<Doubt>,
}

impl NodeJobs {
    /// Reads the jobs of all users.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] if the registry cannot be listed.
    pub fn read(config: &Config) -> Result<Self, Error> {
        let records = Records::read(&config.registry, &Trust::root())?;
        Ok(Self::read_beside(records, config))
    }

    /// Reads the jobs of the schedulers, of all users, and merges them with these records.
    pub fn read_beside(records: Records, config: &Config) -> Self {
        let scheduled = query_schedulers(config, Sought::All, &mut AskedDaemons::default());
        Self::merge(records, scheduled, config)
    }

    /// Merges the jobs of records and of schedulers. Of a job that both have, the scheduler's place counts and the record's
    /// end. Of the other records those with a cgroup are jobs, if the registry is a source of jobs.
    fn merge(records: Records, scheduled: JobsOfUsers, config: &Config) -> Self {
        let mut jobs = Self::default();
        for (uid, error) in records.unreadable {
            jobs.doubts.push(Doubt {
                cause: error.to_string(),
                owners: PossibleOwners::Only([uid].into()),
                job: None,
            });
        }
        jobs.doubts.extend(scheduled.doubts);
        let reads_records = config.sources.contains(&SourceName::Registry);
        let mut scheduled = scheduled.jobs;
        for record in records.usable {
            let is_same = |(uid, job): &(u32, Job)| *uid == record.uid && job.has_name(&record.id);
            if let Some(index) = scheduled.iter().position(is_same) {
                let (uid, job) = scheduled.remove(index);
                jobs.running
                    .push(NodeJob::from_scheduler(uid, job, Some(record)));
                continue;
            }
            match &record.target {
                LoginTarget::Cgroup(path) if reads_records => {
                    let path = path.clone();
                    jobs.running.push(NodeJob::from_record(record, path));
                }
                LoginTarget::Cgroup(_) | LoginTarget::Via(_) => jobs.unfound.push(record),
            }
        }
        let unregistered = scheduled
            .into_iter()
            .map(|(uid, job)| NodeJob::from_scheduler(uid, job, None));
        jobs.running.extend(unregistered);
        jobs
    }
}

impl NodeJob {
    fn from_scheduler(uid: u32, job: Job, record: Option<Record>) -> Self {
        Self {
            id: job.id,
            uid,
            placement: job.placement,
            started: Some(job.started),
            ends: record.as_ref().and_then(|record| record.ends),
            record,
        }
    }

    /// The job of a record whose logins are placed in the cgroup `path`.
    fn from_record(record: Record, path: CgroupPath) -> Self {
        Self {
            id: record.id.clone(),
            uid: record.uid,
            placement: Placement::Cgroup {
                path,
                leaf: record.leaf.clone(),
            },
            started: record.started,
            ends: record.ends,
            record: Some(record),
        }
    }
}

/// Finds the cgroup of a scheduler's job on cgroup v2. That of a Slurm job only its step daemon knows: `None` if that does
/// not answer, or is elsewhere.
pub fn find_cgroup(id: &JobId, placement: &Placement) -> Option<CgroupPath> {
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

    fn merge(records: Vec<Record>, scheduled: Vec<(u32, Job)>, sources: &[SourceName]) -> NodeJobs {
        let records = Records {
            usable: records,
            ..Records::default()
        };
        let scheduled = JobsOfUsers {
            jobs: scheduled,
            ..JobsOfUsers::default()
        };
        let mut config = Config::default();
        config.sources.retain(|source| sources.contains(source));
        NodeJobs::merge(records, scheduled, &config)
    }

    #[test]
    fn job_of_record_and_scheduler_has_place_of_scheduler_and_end_of_record() {
        let records = vec![
            record("7", r#""cgroup":"/a""#),
            record("8", r#""via":"slurm""#),
        ];
        let scheduled = vec![scheduled("9"), scheduled("8"), scheduled("7")];
        let jobs = merge(records, scheduled, &SourceName::ALL);
        assert!(
            jobs.running
                .iter()
                .all(|job| job.placement.source() == SourceName::Slurm)
        );
        let ends = jobs.running.iter().map(|job| (job.id.as_str(), job.ends));
        assert_eq!(
            ends.collect::<Vec<_>>(),
            [("7", Some(9)), ("8", Some(9)), ("9", None)]
        );
        assert!(jobs.unfound.is_empty());
    }

    #[test]
    fn job_of_record_alone_runs_if_registry_is_a_source() {
        let merged = |sources: &[SourceName]| {
            let records = vec![
                record("7", r#""cgroup":"/a""#),
                record("8", r#""via":"slurm""#),
            ];
            let jobs = merge(records, Vec::new(), sources);
            let running: Vec<_> = jobs.running.into_iter().map(|job| job.id).collect();
            let unfound: Vec<_> = jobs.unfound.into_iter().map(|record| record.id).collect();
            (running, unfound)
        };
        let id = |text: &str| text.parse::<JobId>().unwrap();
        assert_eq!(merged(&SourceName::ALL), (vec![id("7")], vec![id("8")]));
        assert_eq!(
            merged(&[SourceName::Slurm]),
            (Vec::new(), vec![id("7"), id("8")])
        );
    }

    #[test]
    fn records_that_cannot_be_read_are_a_doubt_about_their_user() {
        let error = TrustError::new(Path::new("/r/5"), kernel::trust::Distrust::WrongOwner(7));
        let records = Records {
            unreadable: vec![(5, error)],
            ..Records::default()
        };
        let jobs = NodeJobs::merge(records, JobsOfUsers::default(), &Config::default());
        let [doubt] = &jobs.doubts[..] else {
            panic!("{:?}", jobs.doubts);
        };
        assert!(doubt.owners.include(5) && !doubt.owners.include(6));
    }
}
