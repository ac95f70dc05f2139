//! What keys of the configuration may say, beside texts, numbers and paths.

use std::path::PathBuf;
use std::time::Duration;

use crate::callerid::Networks;

/// Where logins are judged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Enforce {
    /// Everywhere.
    #[default]
    Always,
    /// On nodes where this path exists.
    IfExists(PathBuf),
}

/// What a site says about Slurm, beside where `slurm.conf` is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slurm {
    /// `SlurmdSpoolDir`, where `slurm.conf` is not to be asked.
    pub spool: Option<PathBuf>,
    /// What contains the logins to jobs whose record, if there is one, has no list of devices.
    pub devices: SlurmDevices,
}

/// What contains the logins to Slurm's jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SlurmDevices {
    /// Slurm's own filter.
    #[default]
    Inherit,
    /// Beside it, the standard devices, all of Slurm's generic resources, and `always_allowed`.
    Closed,
}

/// What of a job's environment its logins are given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JobEnvironment {
    /// Nothing.
    None,
    /// The job's id, as its scheduler names the variable.
    #[default]
    Id,
    /// What the scheduler gives a shell in the allocation.
    Full,
}

/// Who may say which job an ssh client runs in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Callers {
    /// The hosts that are asked, and that are answered.
    pub networks: Networks,
    /// How long an answer is waited for, connecting included.
    pub timeout: Duration,
}

impl Default for Callers {
    fn default() -> Self {
        Self { networks: Networks::default(), timeout: Duration::from_millis(300) }
    }
}
