//! A job of Slurm on cgroup v1, with a directory in each hierarchy that Slurm uses.
//!
//! No filter can be attached there. The lines of `devices.list` tell little, since Slurm denies the
//! devices of other jobs and the kernel shows no list of denials. So the login must be where the job is,
//! and the module tries which devices it can open.

use super::slurm::{add, taken};
use super::{Joined, frozen, required};
use crate::kernel::cgroup::v1::{Job, frozen_level};
use crate::kernel::cgroup::{Dir, Membership, Mounted};
use crate::module::Failure;
use crate::module::probe::Tried;
use crate::module::ruling::Adoption;
use crate::module::undo::Undo;
use crate::protocol::{Containment, Reason};
use crate::schedulers::stepd::Daemon;

/// The cgroups of an extern step, and of its job.
#[derive(Debug)]
pub(crate) struct Step {
    job: Job,
    /// Its cgroups in the hierarchy of the freezer.
    freezers: Vec<Dir>,
    mounts: Vec<Mounted>,
}

impl Step {
    /// Opens them.
    ///
    /// # Errors
    /// [`Failure::Gone`] for a step that ended meanwhile; where the freezer is not mounted; for a
    /// frozen job.
    pub(super) fn open(job: Job) -> Result<Self, Failure> {
        let mounts = Mounted::all()?;
        let step = Self { freezers: job.freezers(&mounts)?, job, mounts };
        step.not_frozen()?;
        Ok(step)
    }

    /// Where the login will be, in every hierarchy.
    pub(crate) fn leaf(&self) -> String {
        self.job.step()
    }

    /// As `not_frozen` of cgroup v2.
    pub(super) fn not_frozen(&self) -> Result<(), Failure> {
        frozen_level(&self.freezers)?.map_or(Ok(()), |dir| Err(frozen(dir)))
    }

    /// What would hold for the login.
    ///
    /// # Errors
    /// Where a list is to be enforced, and for a job without a cgroup for its devices.
    pub(super) fn foresee(&self, adoption: &Adoption<'_>) -> Result<&'static str, Failure> {
        let containment = &adoption.plan.containment;
        let why = match containment {
            Containment::Inherit if !self.job.holds_devices() => {
                "Slurm was to constrain the job's devices, and has made no devices cgroup for it"
            }
            Containment::Enforce(_) | Containment::Both(_) => {
                "a list of devices cannot be enforced on cgroup v1, where filters are not to be had"
            }
            Containment::None | Containment::Inherit => return Ok(containment.as_str()),
        };
        Err(Failure::why(Reason::CannotConfine, why))
    }

    /// Has the daemon take the calling process in, and looks at it afterwards.
    ///
    /// # Errors
    /// For a login that is elsewhere, be it in a single hierarchy, for a hierarchy in which there is
    /// no way back, and where devices cannot be tried: what a login can open is all there is to see.
    pub(super) fn join(
        &self,
        daemon: &mut Daemon,
        adoption: &Adoption<'_>,
        undo: &mut Undo,
    ) -> Result<Joined, Failure> {
        let containment = required(self.foresee(adoption)?, adoption)?;
        undo.origin.require(&self.job.hierarchies, &self.mounts)?;
        add(daemon, adoption, undo)?;
        self.job.require(&Membership::own()?)?;
        let mut tried = Tried::of(&adoption.plan.probes);
        if let Some(trouble) = tried.trouble.take() {
            return Err(Failure::why(Reason::CannotConfine, trouble));
        }
        self.job.require(&Membership::own()?)?;
        let taken = taken(daemon, adoption)?;
        Ok(Joined { cgroup: self.leaf(), containment, tried, taken })
    }
}
