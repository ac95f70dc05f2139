//! Finds Flux jobs by the units in which the system instance runs them.
//!
//! This source queries no broker: the service manager of Flux's account has a unit for each job on
//! this node, and the user of the job's shell owns the job. A unit without an IMP is left over from
//! a job. Units of the same name in a user's own service manager do not count. The privileged half
//! checks the chosen unit again.

mod unit;

use super::doubt::{Doubt, Fault, FaultKind, JobsOfUsers};
use super::{Source, SourceError, SourceReport};
use crate::accounts::find_local_uid;
use crate::clock::Deadline;
use crate::jobs::FluxId;
use crate::jobs::Job;
use crate::jobs::describe_placement;
use crate::text::printable;
use kernel::proc::{self, Proc};
use protocol::{CgroupPath, JobId, Placement, SourceName};
use schedulers::flux::{self, Unit, unit_parents};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use unit::{UnitInspector, UnitState};

/// Maximum names read from a directory of units.
const NAMES_MAX: usize = 65_536;

/// The source of Flux jobs.
#[derive(Debug)]
pub struct FluxSource {
    account: String,
    mount: PathBuf,
    root: PathBuf,
}

/// What the units on this node show.
#[derive(Default)]
struct InspectedUnits {
    /// The running jobs, each with its owner.
    running: Vec<(u32, Job)>,
    ending: Vec<(u32, JobId)>,
    faults: Vec<Fault>,
    skipped: Vec<String>,
    seen: Vec<String>,
}

/// Units of jobs: id, broker's rank and cgroup path below the mount, with the directory.
type Units = BTreeMap<(FluxId, u32, String), PathBuf>;

impl FluxSource {
    /// A source that reads the units of an account, given by name or number, in the cgroups at
    /// `mount`, on the node whose `proc` and `run` are below `root`.
    pub fn new(account: &str, mount: PathBuf, root: &Path) -> Self {
        Self {
            account: account.to_owned(),
            mount,
            root: root.to_owned(),
        }
    }

    /// Finds the running jobs of all users, each with its owner, and what may be another.
    ///
    /// # Errors
    ///
    /// [`SourceError`] if the account or its slice is missing, or `/etc/passwd` cannot be read.
    pub fn jobs_of_all_users(&self, deadline: Deadline) -> Result<JobsOfUsers, SourceError> {
        let InspectedUnits {
            running, faults, ..
        } = self.inspect_units(deadline)?;
        Ok(JobsOfUsers {
            jobs: running,
            doubts: faults.into_iter().map(|fault| fault.doubt).collect(),
            without_logins: Vec::new(),
        })
    }

    /// Inspects all units until the deadline; returns the running and the ending jobs, each with its owner, and a
    /// report of all else.
    ///
    /// # Errors
    ///
    /// [`SourceError`] if the account or its slice is missing, or is root's, or `/etc/passwd` cannot be read.
    fn inspect_units(&self, deadline: Deadline) -> Result<InspectedUnits, SourceError> {
        let flux = account_uid(&self.account)?;
        let mut units_seen = InspectedUnits::default();
        let units = self.list_units(flux, &mut units_seen)?;
        let inspector = UnitInspector {
            proc: &Proc::with_root(self.root.join("proc")),
            flux,
            deadline,
        };
        let mut jobs = BTreeMap::new();
        let mut running: usize = 0;
        let mut without_shell: usize = 0;
        let mut left_over: usize = 0;
        let mut late: usize = 0;
        for ((id, _, path), dir) in units {
            match inspector.inspect(&dir) {
                UnitState::Running { owner, started } => {
                    running += 1;
                    // No login could be sent to a unit that a plan cannot name.
                    let Some(job) = unit_job(id, &path, flux, started) else {
                        continue;
                    };
                    // If several brokers have a unit of the job, the lowest rank comes first.
                    match jobs.entry((id, owner)) {
                        Entry::Vacant(entry) => _ = entry.insert(job),
                        Entry::Occupied(_) => units_seen.skipped.push(describe_second_broker(&job)),
                    }
                }
                UnitState::NoShell => {
                    without_shell += 1;
                    units_seen
                        .skipped
                        .push(format!("{path}: its shell is not there yet"));
                }
                UnitState::Ending(owner) => {
                    without_shell += 1;
                    // The canonical form of an id is always valid.
                    units_seen
                        .ending
                        .extend(id.to_string().parse().map(|id| (owner, id)));
                    units_seen
                        .skipped
                        .push(format!("{path}: its shell has ended, and tasks linger"));
                }
                UnitState::TooManyProcesses => {
                    left_over += 1;
                    let max = flux::UNIT_PROCESSES_MAX;
                    units_seen
                        .skipped
                        .push(format!("{path}: no IMP among its first {max} processes"));
                }
                UnitState::Over => left_over += 1,
                UnitState::Invalid { cause, owners } => {
                    let cause = format!("{path}: {cause}");
                    units_seen.faults.push(Fault {
                        doubt: Doubt {
                            cause,
                            owners,
                            job: None,
                        },
                        kind: FaultKind::Broken,
                    });
                }
                UnitState::TimedOut => late += 1,
            }
        }
        if late > 0 {
            let cause = format!("flux: {late} units could not be looked at in time");
            units_seen.faults.push(Fault {
                doubt: Doubt::about_anybody(cause),
                kind: FaultKind::Silent,
            });
        }
        units_seen.seen.push(format!(
            "account {}: {running} units run a job, {without_shell} have no shell, {left_over} are left over",
            self.account
        ));
        units_seen.running = jobs
            .into_iter()
            .map(|((_, owner), job)| (owner, job))
            .collect();
        Ok(units_seen)
    }

    /// Finds the user's jobs whose prolog runs: meanwhile flux-core keeps the prolog's environment, with the uid of the
    /// job, in `/run/flux-prolog@ID.env`. What cannot be listed or read is passed over; since flux-core 0.89 only root
    /// can read these files.
    fn jobs_in_prolog(&self, uid: u32) -> impl Iterator<Item = JobId> {
        let owner_line = format!("FLUX_JOB_USERID={uid}");
        let entries = std::fs::read_dir(self.root.join("run"))
            .into_iter()
            .flatten()
            .flatten();
        entries.filter_map(move |entry| {
            let name = entry.file_name();
            let id = name
                .to_str()?
                .strip_prefix("flux-prolog@")?
                .strip_suffix(".env")?;
            let text = proc::read(entry.path()).ok()?;
            if text.lines().any(|line| line == owner_line) {
                FluxId::parse_job_id(id)
            } else {
                None
            }
        })
    }

    /// Lists the units of jobs, in the order of id, rank and path; `seen` gets the directories that cannot be listed.
    ///
    /// # Errors
    ///
    /// [`SourceError::Absent`] if the account has no slice on this node.
    fn list_units(&self, flux: u32, seen: &mut InspectedUnits) -> Result<Units, SourceError> {
        let slice = format!("/user.slice/user-{flux}.slice");
        let mut units = Units::new();
        if !self.locate(&slice).is_dir() {
            return Err(SourceError::Absent(format!(
                "account {} has no cgroup {slice}: Flux runs no jobs here by sdexec",
                self.account
            )));
        }
        for folder in unit_parents(flux) {
            let entries = match std::fs::read_dir(self.locate(&folder)) {
                Ok(entries) => entries.take(NAMES_MAX),
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => {
                    seen.add_broken(format!("{folder}: {error}"));
                    continue;
                }
            };
            for entry in entries {
                let entry = match entry {
                    Ok(entry) => entry,
                    Err(error) => {
                        seen.add_broken(format!("{folder}: {error}"));
                        continue;
                    }
                };
                let name = entry.file_name();
                let Some(unit) = name.to_str().and_then(Unit::parse) else {
                    continue;
                };
                if let Some(id) = FluxId::parse_canonical(unit.id) {
                    let path = format!("{folder}/{}", name.to_string_lossy());
                    units.insert((id, unit.rank, path), entry.path());
                }
            }
        }
        Ok(units)
    }

    /// The directory of a cgroup.
    fn locate(&self, path: &str) -> PathBuf {
        self.mount.join(path.trim_start_matches('/'))
    }
}

impl InspectedUnits {
    /// Adds what may be anybody's job and cannot be judged.
    fn add_broken(&mut self, cause: String) {
        self.faults.push(Fault {
            doubt: Doubt::about_anybody(cause),
            kind: FaultKind::Broken,
        });
    }
}

impl Source for FluxSource {
    fn name(&self) -> SourceName {
        SourceName::Flux
    }

    /// Reports the user's running jobs. Starting and ending jobs are reported only if none runs: they are only the
    /// reason for a refusal.
    fn jobs(&self, uid: u32, deadline: Deadline) -> Result<SourceReport, SourceError> {
        let units = self.inspect_units(deadline)?;
        let mut report = SourceReport {
            skipped: units.skipped,
            seen: units.seen,
            ..SourceReport::default()
        };
        report.add_faults(units.faults, uid);
        let own = units.running.into_iter().filter(|(owner, _)| *owner == uid);
        report.jobs.extend(own.map(|(_, job)| job));
        if report.jobs.is_empty() {
            let ending = units.ending.into_iter().filter(|(owner, _)| *owner == uid);
            report.starting.extend(self.jobs_in_prolog(uid));
            report.ending.extend(ending.map(|(_, id)| id));
        }
        Ok(report)
    }
}

/// The cgroup of flux-core's unit for a job's prolog; `None` if the id gives no valid path.
pub(super) fn prolog_cgroup(id: &JobId) -> Option<CgroupPath> {
    format!("/system.slice/system-flux\\x2dprolog.slice/flux-prolog@{id}.service")
        .parse()
        .ok()
}

/// Makes a running job of a unit; `None` if its path or id cannot be in a plan.
fn unit_job(id: FluxId, path: &str, flux: u32, started: i64) -> Option<Job> {
    let placement = Placement::Unit {
        path: path.parse().ok()?,
        flux,
    };
    Some(Job {
        id: id.to_string().parse().ok()?,
        started,
        ends: None,
        placement,
        slurm: None,
        record: None,
    })
}

/// Describes a unit that is left out, since a broker of lower rank has the job.
fn describe_second_broker(job: &Job) -> String {
    let shown = printable(&describe_placement(&job.placement, &job.id));
    format!("{shown}: another broker of this node has the job as well")
}

/// Finds the uid of an account of `/etc/passwd`, or of a number. It is never root's: all processes
/// of root would look like an IMP.
///
/// # Errors
///
/// [`SourceError::Absent`] if there is no such account, [`SourceError::Failed`] for root and if
/// `/etc/passwd` cannot be read.
pub fn account_uid(account: &str) -> Result<u32, SourceError> {
    match find_local_uid(account) {
        Ok(Some(0)) => Err(SourceError::Failed(format!(
            "flux_user {account} is root, which Flux is not"
        ))),
        Ok(Some(uid)) => Ok(uid),
        Ok(None) => Err(SourceError::Absent(format!(
            "no account {account} in /etc/passwd"
        ))),
        Err(error) => Err(SourceError::Failed(format!("/etc/passwd: {error}"))),
    }
}

#[cfg(test)]
mod tests;
