//! A job of Slurm on cgroup v1, with a directory in each hierarchy that Slurm uses.
//!
//! Nothing can be attached there, and what its devices' lines say tells little: Slurm denies those
//! that are not the job's, and a list of what is denied cannot be read. So the login must be where the
//! job is, and which devices it can open is tried.

use super::Joined;
use super::slurm::{SlurmFailure, add};
use crate::kernel::bpf::Confinement;
use crate::kernel::cgroup::v1::{Job, frozen_level};
use crate::kernel::cgroup::{Dir, Membership};
use crate::module::Failure;
use crate::module::probe::Tried;
use crate::module::ruling::Adoption;
use crate::module::undo::Undo;
use crate::protocol::Containment;
use crate::schedulers::stepd::Daemon;

/// The cgroups of an extern step, and of its job.
#[derive(Debug)]
pub(crate) struct Step {
    job: Job,
    /// Its cgroups in the hierarchy of the freezer.
    freezers: Vec<Dir>,
}

impl Step {
    /// Opens them.
    ///
    /// # Errors
    /// [`Failure::Gone`] for a step that ended meanwhile; [`Failure::Cgroup`] where the freezer is
    /// not mounted; [`Failure::Frozen`].
    pub(super) fn open(job: Job) -> Result<Self, Failure> {
        let step = Self { freezers: job.freezers()?, job };
        step.not_frozen()?;
        Ok(step)
    }

    /// Where the login will be, in every hierarchy.
    pub(crate) fn leaf(&self) -> String {
        self.job.step()
    }

    /// # Errors
    /// [`Failure::Frozen`] with the cgroup that is.
    pub(super) fn not_frozen(&self) -> Result<(), Failure> {
        match frozen_level(&self.freezers)? {
            Some(dir) => Err(Failure::Frozen(dir.path().to_owned())),
            None => Ok(()),
        }
    }

    /// What would hold for the login.
    ///
    /// # Errors
    /// [`SlurmFailure::NoLists`] where a list is to be enforced, [`SlurmFailure::Unconstrained`]
    /// for a job without a cgroup for its devices, [`Failure::Uncontained`].
    pub(super) fn foresee(
        &self,
        containment: &Containment,
        require_devices: bool,
    ) -> Result<Confinement, Failure> {
        match containment {
            Containment::None if require_devices => Err(Failure::Uncontained),
            Containment::None => Ok(Confinement::None),
            Containment::Inherit if self.job.holds_devices() => {
                Ok(Confinement::Inherited(Vec::new()))
            }
            Containment::Inherit => Err(SlurmFailure::Unconstrained.into()),
            Containment::Enforce(_) | Containment::Both(_) => Err(SlurmFailure::NoLists.into()),
        }
    }

    /// Has the daemon take the calling process in, and looks at it afterwards.
    ///
    /// # Errors
    /// [`Failure::Cgroup`] for a login that is elsewhere, be it in a single hierarchy, and for a
    /// hierarchy in which there is no way back; [`Failure::Probe`]: what a login can open is all
    /// there is to see here.
    pub(super) fn join(
        &self,
        daemon: &mut Daemon,
        adoption: &Adoption<'_>,
        undo: &mut Undo,
    ) -> Result<Joined, Failure> {
        let confinement = self.foresee(&adoption.plan.containment, adoption.require_devices)?;
        undo.require_ways(self.job.hierarchies())?;
        add(daemon, adoption, undo)?;
        self.job.require(&Membership::own()?)?;
        let mut tried = Tried::of(&adoption.plan.probes);
        if let Some(trouble) = tried.trouble.take() {
            return Err(Failure::Probe(trouble));
        }
        self.job.require(&Membership::own()?)?;
        Ok(Joined { cgroup: self.leaf(), confinement, tried })
    }
}
