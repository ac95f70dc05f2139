//! Which processes are outside of jobs, and who has a job. Facts are read first, from the kernel, the
//! registry and the schedulers, and judged after that.

use super::owner::{Owner, Person, PersonFinder};
use super::process::{ProcessInfo, ProcessTable};
use super::unrecorded_job::find_unrecorded_job;
use super::{SearchMemory, Stray};
use crate::jobs::{Records, doubt_unread_record, query_schedulers};
use crate::process::own_ancestry;
use command::error::Error;
use helper::Config;
use helper::jobs::records::{LoginTarget, Record};
use helper::jobs::sources::{Doubt, Sought, account_uid};
use kernel::cgroup::{self, Dir, Membership, Mount, Occupants, ignore_gone};
use kernel::trust::Trust;
use nix::unistd::Uid;
use protocol::{LeafName, SourceName, is_within};
use std::collections::BTreeSet;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

/// Pause before a process of another account counts: a scheduler's daemon may be in a job for a moment
/// before it becomes the job's user.
const RECHECK_INTERVAL: Duration = Duration::from_millis(100);

/// The processes outside of jobs, and the users with jobs, at one moment.
#[derive(Debug, Default)]
pub struct Snapshot {
    /// The processes, also those of users who have a job, but for these users' service managers: each login starts one.
    outside: Vec<Stray>,
    /// The processes outside of jobs whose owner is unknown: they may belong to root's containers.
    pub unowned: Vec<Stray>,
    /// The uids of users who have a job.
    owners: BTreeSet<u32>,
    /// The reasons why users with processes outside of jobs may have a job that is not known.
    pub doubts: Vec<Doubt>,
    /// Those of them that are jobs which logins cannot find, since only a stamp shows them.
    unrecorded: Vec<String>,
}

impl Snapshot {
    /// Reads a snapshot of one user, or of all users, for a call that reads no other: [`Snapshot::read_again`].
    ///
    /// # Errors
    ///
    /// As [`Snapshot::read_again`].
    pub fn read(config: &Config, user: Option<u32>) -> Result<Self, Error> {
        Self::read_again(config, user, &mut SearchMemory::default())
    }

    /// Reads the processes of one user, or of all users, and then the jobs. A job that starts in between is then seen
    /// without its processes: none of them counts as outside of jobs. The schedulers are asked only about users with
    /// processes outside of known jobs; `memory` has what was found out before in the same call.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] for accounts, processes or records that cannot be read.
    pub fn read_again(
        config: &Config,
        user: Option<u32>,
        memory: &mut SearchMemory,
    ) -> Result<Self, Error> {
        let people = match &mut memory.people {
            Some(people) => people,
            none => none.insert(PersonFinder::read(config)?),
        };
        // A node without Flux has no such account. The source reports any other fault of it.
        let table = ProcessTable::read(account_uid(&config.flux_user).ok())?;
        let judged = find_judged_processes(&table, people, user);
        let uids = judged
            .of_people
            .iter()
            .map(|(_, person)| person.uid)
            .collect();
        let mut registered = RegisteredJobs::read(config, &table, &uids)?;
        let mut unread = std::mem::take(&mut registered.unread);
        let facts = Facts {
            table: &table,
            registered,
            registry: config.registry.dir(),
            ancestry: own_ancestry(),
        };
        let PlacedProcesses {
            mut outside,
            managers,
            unowned,
            mut owners,
            unrecorded,
        } = facts.place(judged);
        let unsettled: BTreeSet<u32> = outside
            .iter()
            .map(|process| process.uid)
            .filter(|uid| !owners.contains(uid))
            .collect();
        let scheduled = ScheduledJobs::read(config, &unsettled, memory);
        owners.extend(scheduled.owners);
        // Who has a job is known only now. Their service managers count as no process outside, since each login starts one.
        outside
            .retain(|process| !(managers.contains(&process.pid) && owners.contains(&process.uid)));
        let causes = unrecorded.iter().map(|doubt| doubt.cause.clone()).collect();
        let mut doubts = scheduled.doubts;
        doubts.extend(unrecorded);
        unread.retain(|doubt| {
            doubt.owners.include_one_of(&unsettled) && !doubt.owners.include_one_of(&owners)
        });
        doubts.extend(unread);
        Ok(Self {
            outside,
            unowned,
            owners,
            doubts,
            unrecorded: causes,
        })
    }

    /// The processes of users who have a job.
    pub fn of_job_owners(&self) -> impl Iterator<Item = &Stray> {
        self.outside
            .iter()
            .filter(|process| self.owners.contains(&process.uid))
    }

    /// What the jobs are that logins cannot find, since only a stamp shows them.
    pub fn unrecorded_jobs(&self) -> impl Iterator<Item = &str> {
        self.unrecorded.iter().map(String::as_str)
    }

    /// The processes of users who have no job.
    pub fn into_strays(self) -> Vec<Stray> {
        let Self {
            mut outside,
            owners,
            ..
        } = self;
        outside.retain(|process| !owners.contains(&process.uid));
        outside
    }

    /// The processes of users who have no job, without a doubt.
    pub fn into_certain_strays(mut self) -> Vec<Stray> {
        let doubts = std::mem::take(&mut self.doubts);
        let mut strays = self.into_strays();
        strays.retain(|stray| !doubts.iter().any(|doubt| doubt.owners.include(stray.uid)));
        strays
    }
}

/// The processes that may be strays.
#[derive(Debug, Default)]
struct JudgedProcesses<'a> {
    /// Those of people who are not exempt.
    of_people: Vec<(&'a ProcessInfo, Person)>,
    /// Those with a uid that has no account.
    of_unknown: Vec<(&'a ProcessInfo, u32)>,
}

/// Finds the processes of one user, or of all users, that may be strays. Those without an account are only found with
/// the processes of all users.
fn find_judged_processes<'a>(
    table: &'a ProcessTable,
    people: &mut PersonFinder,
    user: Option<u32>,
) -> JudgedProcesses<'a> {
    let mut judged = JudgedProcesses::default();
    for info in table.all.values() {
        match people.find_owner(info) {
            Owner::Person(person) if user.is_none_or(|user| user == person.uid) => {
                judged.of_people.push((info, person));
            }
            Owner::Unknown(uid) if user.is_none() => judged.of_unknown.push((info, uid)),
            Owner::Person(_) | Owner::Unknown(_) | Owner::Exempt => {}
        }
    }
    judged
}

/// Where a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// In the directory of a scheduler's job that still runs: whose process it is, has a job.
    LiveJob,
    /// Where the admin lets it be: in a registered job, in a service, or this command itself.
    Allowed,
    Outside,
}

/// What is known about jobs and processes.
struct Facts<'a> {
    table: &'a ProcessTable,
    registered: RegisteredJobs,
    /// The folder of the records.
    registry: &'a Path,
    /// This process and its ancestors.
    ancestry: Vec<i32>,
}

/// Processes that may be strays, by where they are.
struct PlacedProcesses {
    outside: Vec<Stray>,
    /// The service managers of users among them, with or without a job.
    managers: BTreeSet<i32>,
    /// The processes outside of jobs whose owner is unknown.
    unowned: Vec<Stray>,
    /// The users with a registered job, and those with a process in a scheduler's job.
    owners: BTreeSet<u32>,
    /// The jobs that only a stamp shows.
    unrecorded: Vec<Doubt>,
}

impl Facts<'_> {
    /// Finds which of these processes are outside of jobs, and who has a job by records and processes.
    fn place(self, judged: JudgedProcesses<'_>) -> PlacedProcesses {
        let mut placed = PlacedProcesses {
            outside: Vec::new(),
            managers: BTreeSet::new(),
            unowned: Vec::new(),
            owners: self.registered.owners.clone(),
            unrecorded: Vec::new(),
        };
        // Cgroups that were looked at for a stamp, by the uid.
        let mut examined = BTreeSet::new();
        for (info, person) in judged.of_people {
            match self.find_place(info, person.uid) {
                Place::LiveJob => _ = placed.owners.insert(person.uid),
                Place::Allowed => {}
                Place::Outside => {
                    if info.is_user_manager(person.uid) {
                        placed.managers.insert(info.process.pid);
                    }
                    // Who has a job is spared anyway, and one whose record is broken counts as such.
                    let is_spared = self.registered.owners.contains(&person.uid)
                        || self.registered.has_path(info.path());
                    if !is_spared && examined.insert((info.path(), person.uid)) {
                        let job = find_unrecorded_job(info.path(), person.uid, self.registry);
                        placed.unrecorded.extend(job);
                    }
                    placed.outside.push(Stray::new(info, person, self.table));
                }
            }
        }
        for (info, uid) in judged.of_unknown {
            if self.find_place(info, uid) == Place::Outside {
                let nameless = Person {
                    uid,
                    name: uid.to_string(),
                };
                placed.unowned.push(Stray::new(info, nameless, self.table));
            }
        }
        placed
    }

    /// Judges whether a process of `uid` is in a scheduler's running job, at an allowed place, or outside.
    fn find_place(&self, info: &ProcessInfo, uid: u32) -> Place {
        if self.table.is_in_live_job(info) {
            return Place::LiveJob;
        }
        let is_allowed = self.table.is_in_service(info)
            || self.registered.has_process(info, uid)
            || self.ancestry.contains(&info.process.pid);
        if is_allowed {
            Place::Allowed
        } else {
            Place::Outside
        }
    }
}

/// The users with jobs in the registry, and the places of all its jobs.
#[derive(Debug, Default)]
struct RegisteredJobs {
    /// The uids of users who have a job. A broken record counts as one.
    owners: BTreeSet<u32>,
    places: Vec<JobPlace>,
    /// The jobs of records that no login reads.
    unread: Vec<Doubt>,
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
    /// Reads the records of all users. A user counts as one with a job if a record is broken or the user's records
    /// cannot be trusted. It looks at the cgroups of these `uids` alone: nobody else has processes that are judged.
    fn read(config: &Config, table: &ProcessTable, uids: &BTreeSet<u32>) -> Result<Self, Error> {
        let mut jobs = Self::default();
        let records = Records::read(&config.registry, &Trust::root())?;
        let reads_records = config.sources.contains(&SourceName::Registry);
        jobs.owners
            .extend(records.unreadable.iter().map(|(uid, _)| uid));
        jobs.owners
            .extend(records.broken.iter().map(|(uid, _)| uid));
        for record in &records.usable {
            if !jobs.add_place(record, table, uids.contains(&record.uid))? {
                continue;
            }
            if reads_records {
                jobs.owners.insert(record.uid);
            } else {
                jobs.unread.push(doubt_unread_record(record));
            }
        }
        Ok(jobs)
    }

    /// Adds the cgroup of a record to the places of jobs, in which processes may be, unless it is gone. `is_judged` tells
    /// whether processes of the owner are judged; only then is the cgroup looked at. Returns whether such an owner may
    /// have the job: the cgroup is there or cannot be opened, and no other account's job has it now ([`is_reused`]).
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] if cgroup v2 cannot be opened.
    fn add_place(
        &mut self,
        record: &Record,
        table: &ProcessTable,
        is_judged: bool,
    ) -> Result<bool, Error> {
        // The scheduler's own source reports its jobs.
        let LoginTarget::Cgroup(path) = &record.target else {
            return Ok(false);
        };
        let mut reused = false;
        if is_judged {
            match ignore_gone(Mount::open()?.open_chain(path)) {
                Ok(None) => return Ok(false),
                Ok(Some(place)) => reused = is_reused(place.dir()?, record, table),
                // A job whose cgroup cannot be opened may run.
                Err(_) => {}
            }
        }
        self.places.push(JobPlace {
            path: path.to_string(),
            owner: record.uid,
            reused,
        });
        Ok(is_judged && !reused)
    }

    /// Whether a record is of this cgroup or of one above it.
    fn has_path(&self, path: &str) -> bool {
        self.places.iter().any(|place| is_within(path, &place.path))
    }

    /// Whether a process of `uid` is in a job. The previous user of a reused cgroup is in none.
    fn has_process(&self, info: &ProcessInfo, uid: u32) -> bool {
        self.places.iter().any(|place| {
            is_within(info.path(), &place.path) && !(place.reused && place.owner == uid)
        })
    }
}

/// Whether a scheduler has given the cgroup of this record to another account's job: it has another owner, or a
/// process of another account, also in a second check. In doubt it returns false, since an ended process cannot be
/// restored: if the user has a process there that is no login, if the job's accounts cannot be read, or without root's
/// rights. A login, which can be tried again, is refused for a process of another account whoever else is in there, and
/// `list` shows that.
fn is_reused(dir: &Dir, record: &Record, table: &ProcessTable) -> bool {
    if !Uid::effective().is_root() {
        return false;
    }
    let Ok(occupants) = Occupants::read(dir, record.uid) else {
        return false;
    };
    let leaf_name = record
        .leaf
        .as_ref()
        .map_or(LeafName::DEFAULT, LeafName::as_str);
    let leaf = format!("{}/{leaf_name}", dir.path());
    // The processes in the cgroup.
    let mut pids = Vec::new();
    for info in table
        .all
        .values()
        .filter(|info| is_within(info.path(), dir.path()))
    {
        let is_users = info.uid() == record.uid;
        if is_users && !is_within(info.path(), &leaf) && !table.is_of_login(info, record.uid) {
            return false;
        }
        pids.push(info.process.pid);
    }
    if matches!(
        occupants.require_owner(dir),
        Err(cgroup::Error::UnexpectedState(_))
    ) {
        return true;
    }
    pids.retain(|pid| is_stranger_in(dir, *pid, &occupants));
    if pids.is_empty() {
        return false;
    }
    sleep(RECHECK_INTERVAL);
    pids.into_iter()
        .any(|pid| is_stranger_in(dir, pid, &occupants))
}

/// Whether a process of another account than these is in a cgroup or below it, now.
fn is_stranger_in(dir: &Dir, pid: i32, occupants: &Occupants) -> bool {
    if !matches!(occupants.stranger_uid(pid), Ok(Some(_))) {
        return false;
    }
    Membership::read(pid).is_ok_and(|membership| {
        membership
            .unified()
            .is_some_and(|path| is_within(path, dir.path()))
    })
}

/// The users with jobs of the schedulers.
#[derive(Debug, Default)]
struct ScheduledJobs {
    owners: BTreeSet<u32>,
    /// The reasons why there may be other jobs of those who are sought.
    doubts: Vec<Doubt>,
}

impl ScheduledJobs {
    /// Queries the schedulers that the configuration names, unless nobody is `sought`.
    fn read(config: &Config, sought: &BTreeSet<u32>, memory: &mut SearchMemory) -> Self {
        if sought.is_empty() {
            return Self::default();
        }
        let found = query_schedulers(config, Sought::Users(sought), &mut memory.daemons);
        let mut jobs = Self {
            owners: found.jobs.into_iter().map(|(uid, _)| uid).collect(),
            doubts: found.doubts,
        };
        jobs.doubts.extend(found.without_logins);
        memory.owners.limit(&mut jobs.doubts, config);
        jobs.doubts
            .retain(|doubt| doubt.owners.include_one_of(sought));
        jobs
    }
}
