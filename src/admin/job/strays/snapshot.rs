//! Which processes are outside of jobs, and who has a job. Facts are read first, from the kernel, the
//! registry and the schedulers, and judged after that.

use super::Stray;
use super::owner::{Owner, Person, PersonFinder};
use super::process::{ProcessInfo, ProcessTable};
use crate::error::Error;
use crate::job::running_jobs::query_scheduler;
use crate::process::own_ancestry;
use helper::Config;
use helper::jobs::records::{LoginTarget, ReadError, Record};
use helper::jobs::sources::{SourceError, account_uid};
use kernel::cgroup::{self, Dir, Membership, Mount, Occupants, ignore_gone};
use kernel::trust::Trust;
use nix::unistd::Uid;
use protocol::{LeafName, SourceName, is_within};
use std::collections::{BTreeMap, BTreeSet};
use std::thread::sleep;
use std::time::Duration;

/// Pause before a process of another account counts: a scheduler's daemon may be in a job for a moment
/// before it becomes the job's user.
const RECHECK_INTERVAL: Duration = Duration::from_millis(100);

/// The processes outside of jobs, and the users with jobs, at one moment.
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    /// The processes, also those of users who have a job.
    pub(crate) outside: Vec<Stray>,
    /// The processes outside of jobs whose owner is unknown: they may belong to root's containers.
    pub(super) unowned: Vec<Stray>,
    /// The uids of users who have a job.
    owners: BTreeSet<u32>,
    /// The reasons why there may be other jobs.
    pub(super) doubts: Vec<String>,
}

impl Snapshot {
    /// Reads the processes of one user, or of all users, and then the jobs: the list lacks processes that a
    /// job starts in between.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] for accounts, processes or records that cannot be read.
    pub(crate) fn read(config: &Config, user: Option<u32>) -> Result<Self, Error> {
        let table = ProcessTable::read(account_uid(&config.flux_user).ok())?;
        let owners = find_owners(&table, config, user)?;
        let uids = owners.people.values().map(|person| person.uid).collect();
        let registered = RegisteredJobs::read(config, &table, &uids)?;
        let scheduled = ScheduledJobs::read(config);
        Ok(judge(&table, owners, registered, scheduled))
    }

    /// Returns the processes of users who have no job.
    pub(super) fn into_strays(self) -> Vec<Stray> {
        let Self { mut outside, owners, .. } = self;
        outside.retain(|process| !owners.contains(&process.uid));
        outside
    }
}

/// The owners of processes, by the processes' numbers.
#[derive(Debug, Default)]
struct Owners {
    /// People who are not exempt.
    people: BTreeMap<i32, Person>,
    /// Uids without an account.
    unknown: BTreeMap<i32, u32>,
}

/// Finds the owners of the processes of one user, or of all processes.
fn find_owners(table: &ProcessTable, config: &Config, user: Option<u32>) -> Result<Owners, Error> {
    let mut finder = PersonFinder::read(config)?;
    let mut owners = Owners::default();
    for (pid, info) in &table.all {
        match finder.find_owner(info) {
            Owner::Person(person) if user.is_none_or(|user| user == person.uid) => {
                owners.people.insert(*pid, person);
            }
            Owner::Unknown(uid) if user.is_none() => {
                owners.unknown.insert(*pid, uid);
            }
            _ => {}
        }
    }
    Ok(owners)
}

/// Judges which of these processes are outside of jobs.
fn judge(
    table: &ProcessTable,
    owners: Owners,
    registered: RegisteredJobs,
    scheduled: ScheduledJobs,
) -> Snapshot {
    let ancestry = own_ancestry();
    let mut snapshot = Snapshot { doubts: scheduled.doubts, ..Snapshot::default() };
    snapshot.owners.extend(scheduled.owners);
    let is_inside = |info: &ProcessInfo, uid: u32| {
        table.is_in_service(info)
            || registered.has_process(info, uid)
            || ancestry.contains(&info.process.pid)
    };
    for (pid, person) in owners.people {
        let Some(info) = table.all.get(&pid) else { continue };
        if table.is_in_live_job(info) {
            snapshot.owners.insert(person.uid);
        } else if !is_inside(info, person.uid) {
            snapshot.outside.push(Stray::new(info, person, table));
        }
    }
    for (pid, uid) in owners.unknown {
        let Some(info) = table.all.get(&pid) else { continue };
        if !table.is_in_live_job(info) && !is_inside(info, uid) {
            let name = uid.to_string();
            snapshot.unowned.push(Stray::new(info, Person { uid, name }, table));
        }
    }
    snapshot.owners.extend(registered.owners);
    snapshot
}

/// The users with jobs in the registry, and the places of all its jobs.
#[derive(Debug, Default)]
struct RegisteredJobs {
    /// The uids of users who have a job. A broken record counts as one.
    owners: BTreeSet<u32>,
    places: Vec<JobPlace>,
}

/// The cgroup of a job in the registry.
#[derive(Debug)]
struct JobPlace {
    path: String,
    owner: u32,
    /// A scheduler has given the cgroup to another account's job.
    reused: bool,
}

impl RegisteredJobs {
    /// Reads the records of all users. It looks at the cgroups of these `uids` alone: nobody else has
    /// processes that are judged.
    fn read(config: &Config, table: &ProcessTable, uids: &BTreeSet<u32>) -> Result<Self, Error> {
        let mut jobs = Self::default();
        for uid in config.registry.list_users()? {
            let records = match config.registry.read_user(&Trust::root(), uid) {
                Ok(records) => records,
                Err(ReadError::NoRegistry) => continue,
                Err(ReadError::Distrusted(_)) => {
                    jobs.owners.insert(uid);
                    continue;
                }
            };
            if !records.broken.is_empty() {
                jobs.owners.insert(uid);
            }
            for record in records.records {
                jobs.add(&record, table, uids.contains(&uid))?;
            }
        }
        Ok(jobs)
    }

    fn add(&mut self, record: &Record, table: &ProcessTable, is_judged: bool) -> Result<(), Error> {
        // The scheduler's own source reports its jobs.
        let LoginTarget::Cgroup(path) = &record.target else { return Ok(()) };
        let mut reused = false;
        if is_judged {
            match ignore_gone(Mount::open()?.open_chain(path)) {
                Ok(None) => return Ok(()),
                Ok(Some(place)) => reused = is_reused(place.dir()?, record, table),
                // A job whose cgroup cannot be opened may run.
                Err(_) => {}
            }
            if !reused {
                self.owners.insert(record.uid);
            }
        }
        self.places.push(JobPlace { path: path.to_string(), owner: record.uid, reused });
        Ok(())
    }

    /// Returns whether a process of `uid` is in a job. The previous user of a reused cgroup is in none.
    fn has_process(&self, info: &ProcessInfo, uid: u32) -> bool {
        self.places.iter().any(|place| {
            is_within(info.path(), &place.path) && !(place.reused && place.owner == uid)
        })
    }
}

/// Returns whether a scheduler has given the cgroup of this record to another account's job: it has
/// another owner, or a process of another account. The user must have no process there besides logins: an
/// ended process cannot be restored. Without root's rights it returns false.
fn is_reused(dir: &Dir, record: &Record, table: &ProcessTable) -> bool {
    if !Uid::effective().is_root() {
        return false;
    }
    let Ok(occupants) = Occupants::read(dir, record.uid) else { return false };
    let inside = || table.all.values().filter(|info| is_within(info.path(), dir.path()));
    let leaf = record.leaf.as_ref().map_or(LeafName::DEFAULT, LeafName::as_str);
    let leaf = format!("{}/{leaf}", dir.path());
    let has_job_process = inside().any(|info| {
        info.uid() == record.uid
            && !is_within(info.path(), &leaf)
            && !table.is_of_login(info, record.uid)
    });
    if has_job_process {
        return false;
    }
    if matches!(occupants.require_owner(dir), Err(cgroup::Error::UnexpectedState(_))) {
        return true;
    }
    let is_stranger = |pid: i32| {
        matches!(occupants.stranger_uid(pid), Ok(Some(_)))
            && Membership::read(pid).is_ok_and(|membership| {
                membership.unified().is_some_and(|path| is_within(path, dir.path()))
            })
    };
    let mut strangers: Vec<i32> = inside().map(|info| info.process.pid).collect();
    strangers.retain(|pid| is_stranger(*pid));
    if strangers.is_empty() {
        return false;
    }
    sleep(RECHECK_INTERVAL);
    strangers.into_iter().any(is_stranger)
}

/// The users with jobs of the schedulers.
#[derive(Debug, Default)]
struct ScheduledJobs {
    owners: BTreeSet<u32>,
    /// The reasons why there may be other jobs.
    doubts: Vec<String>,
}

impl ScheduledJobs {
    fn read(config: &Config) -> Self {
        let mut jobs = Self::default();
        for source in SourceName::ALL.into_iter().filter(|name| config.sources.contains(name)) {
            match query_scheduler(source, config) {
                Ok((running, report)) => {
                    jobs.owners.extend(running.into_iter().map(|(uid, _)| uid));
                    jobs.doubts.extend(report.broken.into_iter().chain(report.silent));
                    // Slurm skips jobs that take no logins, and jobs of another node's name.
                    if source == SourceName::Slurm {
                        jobs.doubts.extend(report.skipped);
                    }
                }
                Err(SourceError::Absent(_) | SourceError::Unused(_)) => {}
                Err(error) => jobs.doubts.push(format!("{}: {error}", source.as_str())),
            }
        }
        jobs
    }
}
