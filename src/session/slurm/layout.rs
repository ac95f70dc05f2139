//! How Slurm lays out a job's cgroups, by where the daemon of its extern step is.

use super::super::probe::Tried;
use super::super::undo::Undo;
use super::super::{Failure, Visit};
use super::{SlurmFailure, legacy, unified};
use crate::bpf::{Confinement, Level};
use crate::cgroup::{Membership, v1};
use crate::plan::Probe;
use crate::stepd;

/// The extern step's cgroups before the login is there.
#[derive(Debug)]
pub(super) enum Layout {
    /// On cgroup v2.
    Unified(unified::Step),
    /// On cgroup v1.
    Legacy(legacy::Step),
}

/// The login in the extern step, and what holds there. To be verified once more at the end.
#[derive(Debug)]
pub(super) enum Arrival {
    /// On cgroup v2.
    Unified(unified::Arrival),
    /// On cgroup v1.
    Legacy(legacy::Arrival),
}

impl Layout {
    /// Tells the layout by the daemon's cgroups, and opens them.
    ///
    /// # Errors
    /// [`SlurmFailure::Nowhere`] for a daemon that is in no step's, else as opening them.
    pub(super) fn open(daemon: &Membership) -> Result<Self, Failure> {
        if let Some(step) = daemon.unified().and_then(stepd::step_of) {
            return unified::Step::open(&step).map(Self::Unified);
        }
        if let Some(job) = v1::Job::of(daemon) {
            return legacy::Step::open(job).map(Self::Legacy);
        }
        let path = daemon.unified().or(daemon.of_controller("freezer"));
        Err(SlurmFailure::Nowhere(path.unwrap_or("/").to_owned()).into())
    }

    /// Where the login will be, for the log and for people.
    pub(super) fn leaf(&self) -> String {
        match self {
            Self::Unified(step) => step.leaf(),
            Self::Legacy(step) => step.leaf(),
        }
    }

    /// # Errors
    /// [`Failure::Frozen`] with the cgroup that is.
    pub(super) fn not_frozen(&self) -> Result<(), Failure> {
        match self {
            Self::Unified(step) => step.not_frozen(),
            Self::Legacy(step) => step.not_frozen(),
        }
    }

    /// What would hold for the login; changes nothing.
    ///
    /// # Errors
    /// As [`super::super::Target::foresee`].
    pub(super) fn foresee(&self, visit: &Visit<'_>) -> Result<&'static str, Failure> {
        match self {
            Self::Unified(step) => step.foresee(visit),
            Self::Legacy(step) => step.foresee(visit),
        }
    }

    /// The filters that decide.
    ///
    /// # Errors
    /// [`Failure::Bpf`].
    pub(super) fn filters(&self) -> Result<Vec<(String, Level)>, Failure> {
        match self {
            Self::Unified(step) => step.filters(),
            Self::Legacy(_) => Ok(Vec::new()),
        }
    }

    /// What has to be so before the login is moved: there is a way back out of every hierarchy that
    /// the job uses.
    ///
    /// # Errors
    /// [`Failure::Cgroup`].
    pub(super) fn require_ways(&self, undo: &Undo) -> Result<(), Failure> {
        match self {
            Self::Unified(_) => Ok(()),
            Self::Legacy(step) => undo.require_ways(step.hierarchies()),
        }
    }

    /// After the daemon has said that it added the login: reads back that it did, and makes the
    /// containment hold.
    ///
    /// # Errors
    /// [`Failure::Cgroup`] for a login that is elsewhere, [`Failure::Bpf`].
    pub(super) fn arrive(&self, visit: &Visit<'_>) -> Result<Arrival, Failure> {
        match self {
            Self::Unified(step) => step.arrive(visit).map(Arrival::Unified),
            Self::Legacy(step) => step.arrive(visit).map(Arrival::Legacy),
        }
    }
}

impl Arrival {
    /// Where the login is, for the log.
    pub(super) fn leaf(&self) -> String {
        match self {
            Self::Unified(arrival) => arrival.leaf().to_owned(),
            Self::Legacy(arrival) => arrival.leaf(),
        }
    }

    /// What holds for the login.
    pub(super) fn confinement(&self) -> &Confinement {
        match self {
            Self::Unified(arrival) => arrival.confinement(),
            Self::Legacy(arrival) => arrival.confinement(),
        }
    }

    /// Counts those of these devices that the login can open. On cgroup v2, where filters are what
    /// is relied on, a count that cannot be had is worth a line in the log; on cgroup v1 it is all
    /// there is to see.
    ///
    /// # Errors
    /// [`Failure::Probe`] on cgroup v1.
    pub(super) fn try_devices(&self, probes: &[Probe]) -> Result<Tried, Failure> {
        let tried = Tried::of(probes);
        match (self, tried) {
            (Self::Legacy(_), Tried { trouble: Some(trouble), .. }) => Err(Failure::Probe(trouble)),
            (_, tried) => Ok(tried),
        }
    }

    /// Looks once more whether it holds.
    ///
    /// # Errors
    /// [`Failure::Bpf`].
    pub(super) fn verify_filters(&self) -> Result<(), Failure> {
        match self {
            Self::Unified(arrival) => arrival.verify_filters(),
            Self::Legacy(_) => Ok(()),
        }
    }

    /// Looks once more where the login is.
    ///
    /// # Errors
    /// [`Failure::Cgroup`].
    pub(super) fn verify_place(&self) -> Result<(), Failure> {
        match self {
            Self::Unified(arrival) => arrival.verify_place(),
            Self::Legacy(arrival) => arrival.verify_place(),
        }
    }
}
