//! The job that a login is to join, checked: the part that both phases share.
//!
//! Whose a job is, the helper is not believed: the registry's carry our stamp, Slurm's are asked
//! for at the daemon of their extern step, of Flux's the processes are looked at.

use super::site::{self, Spot};
use super::{Failure, Visit, slurm};
use crate::bpf::{Decision, Level};
use crate::cgroup::{Dir, frozen_level};
use crate::plan::{Containment, Placement};

/// A job that is there, is the user's, and is not frozen.
#[derive(Debug)]
pub enum Target {
    /// A job with a leaf of ours: the registry's and Flux's.
    Site(site::Site),
    /// A job of Slurm's.
    Slurm(slurm::Job),
}

/// What would become of a login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Foreseen {
    /// Where it would be.
    pub cgroup: String,
    /// What would hold there, as the log has it.
    pub containment: &'static str,
}

impl Target {
    /// Finds and checks the job; changes nothing.
    ///
    /// # Errors
    /// [`Failure::Gone`], [`Failure::Frozen`], [`Failure::Cgroup`], [`Failure::Slurm`] or
    /// [`Failure::Flux`] for a job that is over, is not the user's or can take no login.
    pub fn open(visit: &Visit<'_>) -> Result<Self, Failure> {
        match &visit.plan.placement {
            Placement::Cgroup { path, leaf } => {
                let spot = Spot::Stamped { path, leaf: leaf.as_ref() };
                site::Site::open(visit, spot).map(Self::Site)
            }
            Placement::Extern { spool, node } => {
                slurm::Job::open(visit, spool, node).map(Self::Slurm)
            }
            Placement::Unit { path, flux } => {
                site::Site::open(visit, Spot::Unit { path, flux: *flux }).map(Self::Site)
            }
        }
    }

    /// Whether the login could be confined here; changes nothing.
    ///
    /// # Errors
    /// [`Failure::Bpf`] where the composition rules leave no way, [`Failure::Uncontained`] where
    /// nothing holds and the admin requires something.
    pub fn foresee(self, visit: &Visit<'_>) -> Result<Foreseen, Failure> {
        match self {
            Self::Site(job) => job.foresee(visit),
            Self::Slurm(job) => job.foresee(visit),
        }
    }

    /// What says whose the job is, in a word and a text, for `job-adopt resolve`.
    #[must_use]
    pub fn proof(&self) -> (&'static str, String) {
        match self {
            Self::Site(job) => job.claim.shown(),
            Self::Slurm(job) => ("daemon", job.shown()),
        }
    }

    /// Which cgroup takes the login, for `job-adopt resolve`.
    #[must_use]
    pub fn leaf(&self) -> String {
        match self {
            Self::Site(job) => job.leaf(),
            Self::Slurm(job) => job.leaf(),
        }
    }

    /// The cgroups whose filters decide, as far as they are there.
    ///
    /// # Errors
    /// [`Failure::Bpf`] where these cannot be read.
    pub fn filters(&self) -> Result<Vec<(String, Level)>, Failure> {
        match self {
            Self::Site(job) => job.filters(),
            Self::Slurm(job) => job.filters(),
        }
    }
}

/// The filters of each of these cgroups.
///
/// # Errors
/// [`Failure::Bpf`].
pub(super) fn filters<'a>(
    levels: impl IntoIterator<Item = &'a Dir>,
) -> Result<Vec<(String, Level)>, Failure> {
    let read = |dir: &Dir| Ok((dir.path().to_owned(), Level::read(dir)?));
    levels.into_iter().map(read).collect()
}

/// The name in the log of what a decision comes to.
///
/// # Errors
/// [`Failure::Uncontained`] where nothing holds and the admin requires something.
pub(super) fn name(decision: Decision, visit: &Visit<'_>) -> Result<&'static str, Failure> {
    match (decision, &visit.plan.containment) {
        (Decision::Uncontained, _) if visit.require_devices => Err(Failure::Uncontained),
        (Decision::Uncontained, _) => Ok(Containment::None.as_str()),
        (_, Containment::None) => Ok(Containment::Inherit.as_str()),
        (_, containment) => Ok(containment.as_str()),
    }
}

/// # Errors
/// [`Failure::Frozen`] with the cgroup that is.
pub(super) fn not_frozen(levels: &[Dir]) -> Result<(), Failure> {
    match frozen_level(levels)? {
        Some(dir) => Err(Failure::Frozen(dir.path().to_owned())),
        None => Ok(()),
    }
}
