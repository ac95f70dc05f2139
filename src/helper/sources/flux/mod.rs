//! Jobs of Flux's, by the units that its system instance runs them in.
//!
//! No broker is asked: the service manager of Flux's account has a unit for each job here, and who
//! the job's shell is in it says whose the job is. A unit without an IMP is what a job left behind,
//! and units of the same name in a user's own service manager are nobody's. The privileged half
//! looks at the chosen one once more.

mod id;
mod look;

use std::collections::BTreeMap;
use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Instant;

pub use id::FluxId;
use look::{Look, Seen};

use super::{Found, Job, Passing, Source, SourceError};
use crate::helper::{local_uid, printable};
use crate::kernel::proc::{self, Proc};
use crate::protocol::{CgroupPath, JobId, Placement, SourceName};
use crate::schedulers::flux::{self, Unit, folders};

/// Most names of a folder of units.
const NAMES_MAX: usize = 65_536;

/// Flux as a source.
#[derive(Debug)]
pub struct FluxSource {
    account: Account,
    mount: PathBuf,
    proc: Proc,
    run: PathBuf,
}

/// Jobs that run and jobs that are ending, with their owners, and what else was found.
type All = (Vec<(u32, Job)>, Vec<(u32, JobId)>, Found);

/// A unit of a job's, by its id and its broker's rank, and its cgroup's path below the mount.
type Units = BTreeMap<(FluxId, u32, String), PathBuf>;

impl FluxSource {
    /// A source over the units of an account, of cgroups at `mount`, on the node whose `proc` is
    /// below `root`.
    pub fn new(account: Account, mount: PathBuf, root: &Path) -> Self {
        Self { account, mount, proc: Proc::at(root.join("proc")), run: root.join("run") }
    }

    /// The running jobs of all users, each with its owner, and what cannot be told.
    pub fn everyones(&self, deadline: Instant) -> Result<(Vec<(u32, Job)>, Found), SourceError> {
        self.all(deadline).map(|(jobs, _, found)| (jobs, found))
    }

    /// The same, and the jobs that are ending, each with its owner.
    fn all(&self, deadline: Instant) -> Result<All, SourceError> {
        let flux = self.account.uid()?;
        let mut found = Found::default();
        let units = self.units(flux, &mut found)?;
        let look = Look { proc: &self.proc, flux, deadline };
        let (mut jobs, mut ending) = (BTreeMap::new(), Vec::new());
        let (mut running, mut waiting, mut left, mut late) = (0_usize, 0_usize, 0_usize, 0_usize);
        for ((id, _, path), dir) in units {
            match look.at(&dir) {
                Seen::Running { owner, started } => {
                    running += 1;
                    // Of several brokers' units of one job, that of the lowest rank comes first.
                    let job = job(id, &path, flux, started);
                    let other = |job: Job| found.skipped.extend(second(&job));
                    match jobs.get(&(id, owner)) {
                        Some(_) => job.map(other),
                        None => job.map(|job| drop(jobs.insert((id, owner), job))),
                    };
                }
                Seen::Waiting => {
                    waiting += 1;
                    found.skipped.push(format!("{path}: its shell is not there yet"));
                }
                Seen::Ending(owner) => {
                    waiting += 1;
                    ending.extend(id.to_string().parse().map(|id| (owner, id)));
                    found.skipped.push(format!("{path}: its shell has ended, and tasks linger"));
                }
                Seen::Full => {
                    left += 1;
                    let most = flux::LOOKED_AT;
                    found.skipped.push(format!("{path}: no IMP among its first {most} processes"));
                }
                Seen::Left => left += 1,
                Seen::Strange(why) => found.broken.push(format!("{path}: {why}")),
                Seen::Late => late += 1,
            }
        }
        if late > 0 {
            found.silent.push(format!("flux: {late} units could not be looked at in time"));
        }
        found.seen.push(format!(
            "account {}: {running} units run a job, {waiting} have no shell, {left} are left over",
            self.account
        ));
        let jobs = jobs.into_iter().map(|((_, owner), job)| (owner, job)).collect();
        Ok((jobs, ending, found))
    }

    /// The jobs of this user whose prolog runs. Its wrapper leaves the environment in a file for the
    /// time; since flux-core 0.89 only root can read that.
    fn starting(&self, uid: u32) -> impl Iterator<Item = JobId> {
        let own = format!("FLUX_JOB_USERID={uid}");
        let entries = std::fs::read_dir(&self.run).into_iter().flatten().flatten();
        entries.filter_map(move |entry| {
            let name = entry.file_name();
            let id = name.to_str()?.strip_prefix("flux-prolog@")?.strip_suffix(".env")?;
            let text = proc::read(entry.path()).ok()?;
            text.lines().any(|line| line == own).then(|| FluxId::job(id))?
        })
    }

    /// The units of jobs that there are.
    /// Fails: [`SourceError::Absent`] where the account has no slice here.
    fn units(&self, flux: u32, found: &mut Found) -> Result<Units, SourceError> {
        let slice = format!("/user.slice/user-{flux}.slice");
        let mut units = Units::new();
        if !self.at(&slice).is_dir() {
            return Err(SourceError::Absent(format!(
                "account {} has no cgroup {slice}: Flux runs no jobs here by sdexec",
                self.account
            )));
        }
        for folder in folders(flux) {
            let entries = match std::fs::read_dir(self.at(&folder)) {
                Ok(entries) => entries.take(NAMES_MAX),
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => {
                    found.broken.push(format!("{folder}: {error}"));
                    continue;
                }
            };
            for entry in entries {
                match entry {
                    Ok(entry) => {
                        let name = entry.file_name();
                        let unit = name.to_str().and_then(Unit::parse);
                        let id =
                            unit.and_then(|unit| Some((FluxId::canonical(unit.id)?, unit.rank)));
                        let path = format!("{folder}/{}", name.to_string_lossy());
                        units.extend(id.map(|(id, rank)| ((id, rank, path), entry.path())));
                    }
                    Err(error) => found.broken.push(format!("{folder}: {error}")),
                }
            }
        }
        Ok(units)
    }

    fn at(&self, path: &str) -> PathBuf {
        self.mount.join(path.trim_start_matches('/'))
    }
}

impl Source for FluxSource {
    fn name(&self) -> SourceName {
        SourceName::Flux
    }

    fn jobs(&self, uid: u32, deadline: Instant) -> Result<Found, SourceError> {
        let (jobs, ending, mut found) = self.all(deadline)?;
        found.jobs.extend(jobs.into_iter().filter(|(owner, _)| *owner == uid).map(|(_, job)| job));
        if found.jobs.is_empty() {
            let ending = ending.into_iter().filter(|(owner, _)| *owner == uid);
            found.passing.extend(self.starting(uid).map(Passing::Starting));
            found.passing.extend(ending.map(|(_, id)| Passing::Ending(id)));
        }
        Ok(found)
    }
}

/// The cgroup in which the prolog of a job runs, by the unit that flux-core has for it.
pub(super) fn prolog(id: &JobId) -> Option<CgroupPath> {
    format!("/system.slice/system-flux\\x2dprolog.slice/flux-prolog@{id}.service").parse().ok()
}

fn job(id: FluxId, path: &str, flux: u32, started: i64) -> Option<Job> {
    let (id, path): (JobId, CgroupPath) = (id.to_string().parse().ok()?, path.parse().ok()?);
    let placement = Placement::Unit { path, flux };
    Some(Job { id, started, ends: None, placement, record: None })
}

fn second(job: &Job) -> Option<String> {
    let shown = printable(&job.placement.shown(&job.id));
    Some(format!("{shown}: another broker of this node has the job as well"))
}

/// An account, by name or by number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Account {
    /// As the configuration has it: a name in `/etc/passwd`, or a number.
    Name(String),
    /// Looked up already.
    Uid(u32),
}

impl Account {
    /// Its number; never root's, since everything of root's would look like an IMP.
    /// Errors: [`SourceError::Absent`] where there is no such account.
    pub fn uid(&self) -> Result<u32, SourceError> {
        let uid = match self {
            Self::Uid(uid) => *uid,
            Self::Name(name) => match local_uid(name) {
                Ok(Some(uid)) => uid,
                Ok(None) => {
                    return Err(SourceError::Absent(format!("no account {name} in /etc/passwd")));
                }
                Err(error) => return Err(SourceError::Failed(format!("/etc/passwd: {error}"))),
            },
        };
        match uid {
            0 => Err(SourceError::Failed(format!("flux_user {self} is root, which Flux is not"))),
            uid => Ok(uid),
        }
    }
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Uid(uid) => uid.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests;
