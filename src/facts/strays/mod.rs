//! The processes of users outside of their jobs.

mod adoption;
mod owner;
mod process;
mod slurm_owners;
mod snapshot;
mod unrecorded_job;

pub use adoption::require_adoption;
pub use snapshot::Snapshot;

use command::error::Error;
use helper::jobs::sources::AskedDaemons;
use helper::{Config, printable};
use owner::{Person, PersonFinder};
use process::{ProcessInfo, ProcessTable};
use serde::Serialize;
use slurm_owners::SlurmOwners;

/// A process of a user outside of their jobs, in the form of a report.
#[derive(Debug, Serialize)]
pub struct Stray {
    /// Its number.
    pub pid: i32,
    /// The uid of the user.
    pub uid: u32,
    /// The name of the user.
    pub user: String,
    /// Its origin, or `unknown`.
    pub origin: String,
    /// The open devices that a closed slice would refuse; `None` if this user cannot read them.
    pub devices: Option<Vec<String>>,
    /// The name of the program.
    pub command: String,
    /// The path of its cgroup.
    pub cgroup: String,
    /// The start time in ticks since boot.
    #[serde(skip)]
    pub start: u64,
}

impl Stray {
    /// Describes a process of a person for the report. Its devices are unknown (`None`) until the caller
    /// looks for them.
    fn new(info: &ProcessInfo, Person { uid, name }: Person, table: &ProcessTable) -> Self {
        Self {
            pid: info.process.pid,
            uid,
            user: name,
            origin: printable(&table.describe_origin(info)),
            devices: None,
            command: printable(&info.stat.name),
            cgroup: printable(info.path()),
            start: info.stat.start,
        }
    }
}

/// What the searches of one call have found out, and need not again.
#[derive(Debug, Default)]
pub struct SearchMemory {
    /// Whose processes are judged. Files and accounts are read once: between two looks at the processes there is no time
    /// for it, as new ones may come all the time.
    people: Option<PersonFinder>,
    daemons: AskedDaemons,
    owners: SlurmOwners,
}

/// Counts the strays; `None` if there may be users with an unknown job.
///
/// # Errors
///
/// The errors of [`Snapshot::read`].
pub fn count_strays(config: &Config) -> Result<Option<usize>, Error> {
    let snapshot = Snapshot::read(config, None)?;
    Ok(snapshot
        .doubts
        .is_empty()
        .then(|| snapshot.into_strays().len()))
}
