//! A job's cgroups on cgroup v1, a directory in each hierarchy that Slurm uses.
//!
//! Nothing can be attached there, and what its devices' lines say tells little: Slurm denies those
//! that are not the job's, and a list of what is denied is not to be read. So the login has to be
//! where the job is, and which devices it can open is tried.

use super::super::{Failure, Visit};
use super::SlurmFailure;
use crate::bpf::Confinement;
use crate::cgroup::v1::{Job, frozen_level};
use crate::cgroup::{Dir, Membership};
use crate::plan::Containment;

/// The cgroups of an extern step, and of its job.
#[derive(Debug)]
pub(super) struct Step {
    job: Job,
    /// Its cgroups in the hierarchy of the freezer.
    freezers: Vec<Dir>,
}

impl Step {
    /// Opens them.
    ///
    /// # Errors
    /// [`Failure::Gone`] for a step that ended meanwhile; [`Failure::Cgroup`] where the freezer is
    /// not mounted.
    pub(super) fn open(job: Job) -> Result<Self, Failure> {
        let freezers = job.freezers()?;
        Ok(Self { job, freezers })
    }

    /// Where the login will be, in every hierarchy.
    pub(super) fn leaf(&self) -> String {
        self.job.step()
    }

    /// Controllers of each hierarchy that the job uses.
    pub(super) fn hierarchies(&self) -> impl Iterator<Item = &str> {
        self.job.hierarchies()
    }

    /// # Errors
    /// [`Failure::Frozen`] with the cgroup that is.
    pub(super) fn not_frozen(&self) -> Result<(), Failure> {
        match frozen_level(&self.freezers)? {
            Some(dir) => Err(Failure::Frozen(dir.path().to_owned())),
            None => Ok(()),
        }
    }

    /// # Errors
    /// [`SlurmFailure::NoLists`] where a list is to be enforced, [`SlurmFailure::Unconstrained`]
    /// for a job without a cgroup for its devices, [`Failure::Uncontained`].
    pub(super) fn foresee(&self, visit: &Visit<'_>) -> Result<&'static str, Failure> {
        let confinement = self.confinement(&visit.plan.containment)?;
        match confinement {
            Confinement::None if visit.require_devices => Err(Failure::Uncontained),
            confinement => Ok(confinement.as_str()),
        }
    }

    fn confinement(&self, wanted: &Containment) -> Result<Confinement, SlurmFailure> {
        match wanted {
            Containment::None => Ok(Confinement::None),
            Containment::Inherit if self.job.holds_devices() => {
                Ok(Confinement::Inherited(Vec::new()))
            }
            Containment::Inherit => Err(SlurmFailure::Unconstrained),
            Containment::Enforce(_) | Containment::Both(_) => Err(SlurmFailure::NoLists),
        }
    }

    /// Reads back that the login is in the step.
    ///
    /// # Errors
    /// [`Failure::Cgroup`] for one that is elsewhere, be it in a single hierarchy; else as
    /// [`Step::foresee`].
    pub(super) fn arrive(&self, visit: &Visit<'_>) -> Result<Arrival, Failure> {
        let confinement = self.confinement(&visit.plan.containment)?;
        let arrival = Arrival { job: self.job.clone(), confinement };
        arrival.verify_place()?;
        Ok(arrival)
    }
}

/// A login in the extern step.
#[derive(Debug)]
pub(super) struct Arrival {
    job: Job,
    confinement: Confinement,
}

impl Arrival {
    /// As [`Step::leaf`].
    pub(super) fn leaf(&self) -> String {
        self.job.step()
    }

    /// What holds for it; no filter has to.
    pub(super) fn confinement(&self) -> &Confinement {
        &self.confinement
    }

    /// # Errors
    /// [`Failure::Cgroup`].
    pub(super) fn verify_place(&self) -> Result<(), Failure> {
        Ok(self.job.require(&Membership::own()?)?)
    }
}
