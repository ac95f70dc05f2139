//! The job that a login joins. The kinds differ in how the module learns whose the job is.
//!
//! It does not believe the helper. A registered job's cgroup carries our stamp; for a Slurm job it asks
//! the daemon of the extern step; for a Flux job it looks at the unit's processes.

mod flux;
mod leaf;
mod slurm;

pub(super) use flux::Started;

use super::Failure;
use super::probe::Tried;
use super::ruling::Adoption;
use super::undo::Undo;
use flux::Imp;
use kernel::cgroup::{Dir, Mount, Stamp, choose, frozen_level};
use kernel::namespace::Namespace;
pub use leaf::{Cgroups, Owner};
use protocol::{Containment, LeafName, Placement, Plan, Reason, Variable};
use schedulers::stepd::Daemon;

/// A job that is there, is the user's, and is not frozen.
#[derive(Debug)]
pub enum Job {
    /// Of a record or of Flux: its logins go into a leaf that we choose.
    Leaf(Cgroups),
    /// Of Slurm on cgroup v2, with the daemon of its extern step.
    Slurm(Daemon, slurm::Step),
    /// Of Slurm on cgroup v1.
    SlurmV1(Daemon, slurm::StepV1),
}

/// Where a login is or would be, its containment there, and what it takes from its job.
#[derive(Debug, Default)]
pub struct Joined {
    pub(crate) cgroup: String,
    /// As the log has it.
    pub containment: &'static str,
    /// The outcome of the plan's probes.
    pub(super) tried: Tried,
    /// The job's namespaces, which it joins last.
    pub(super) namespaces: Vec<Namespace>,
    /// The variables of the job's X11 display.
    pub(super) display: Vec<Variable>,
}

impl Job {
    /// Finds and checks the job; changes nothing.
    /// Errors: for a job that is over, is not the user's, is frozen or can take no login.
    pub(super) fn open(adoption: &Adoption<'_>) -> Result<Self, Failure> {
        let uid = adoption.uid();
        match &adoption.plan.placement {
            Placement::Cgroup { path, leaf } => {
                let place = Mount::open()?.place(path)?;
                let stamp = Stamp { uid, job: adoption.plan.job.clone() };
                leaf::require_stamp(&stamp, place.dir()?, adoption.deadline())?;
                not_frozen(place.levels())?;
                let child = choose(place.dir()?, leaf.as_ref())?;
                Ok(Self::Leaf(Cgroups { place, child, owner: Owner::Stamp(stamp) }))
            }
            Placement::Extern { spool, node } => slurm::open(adoption, spool, node),
            Placement::Unit { path, flux } => {
                flux::require_unit(adoption, path, *flux)?;
                let place = Mount::open()?.place(path)?;
                let owner = Owner::Imp(Imp::find(place.dir()?, *flux, uid)?);
                not_frozen(place.levels())?;
                // Never the unit itself: Flux waits until nothing is in it.
                Ok(Self::Leaf(Cgroups { place, child: Some(LeafName::default()), owner }))
            }
        }
    }

    /// The text of the unit's file, where the plan relies on the IMP's filter and there is none: the
    /// helper must read it first.
    pub(super) fn unread(&self, plan: &Plan) -> Result<Option<String>, Failure> {
        let Self::Leaf(cgroups @ Cgroups { owner: Owner::Imp(imp), .. }) = self else {
            return Ok(None);
        };
        match &plan.containment {
            Containment::Inherit | Containment::InheritAndEnforce(_)
                if !cgroups.has_filter()? =>
            {
                Ok(Some(imp.unit_text(&cgroups.place)?))
            }
            _ => Ok(None),
        }
    }

    /// Whether the login could be confined here; changes nothing.
    /// Errors: where the composition rules leave no way, where nothing holds and the admin requires
    /// something, and for a keeper that is not fit to be run.
    pub(super) fn foresee(&self, adoption: &Adoption<'_>) -> Result<Joined, Failure> {
        let (cgroup, containment) = match self {
            Self::Leaf(cgroups) => cgroups.foresee(adoption)?,
            Self::Slurm(_, step) => (step.leaf(), step.foresee(adoption)?),
            Self::SlurmV1(_, step) => (step.leaf(), step.foresee(adoption)?),
        };
        let containment = required(containment, adoption)?;
        Ok(Joined { cgroup, containment, ..Joined::default() })
    }

    /// Takes the calling process into the job.
    /// Errors: any [`Failure`]; the process is then where it was, a leaf made by this call is gone, and a
    /// filter stays: it belongs to the job, and another login may rely on it.
    pub(super) fn join(
        &mut self,
        adoption: &Adoption<'_>,
        undo: &mut Undo,
    ) -> Result<Joined, Failure> {
        match self {
            Self::Leaf(cgroups) => cgroups.join(adoption, undo),
            Self::Slurm(daemon, step) => step.join(daemon, adoption, undo).map_err(|failure| {
                slurm::explain(undo.back(failure), adoption, not_frozen(step.levels()))
            }),
            Self::SlurmV1(daemon, step) => step
                .join(daemon, adoption, undo)
                .map_err(|failure| slurm::explain(undo.back(failure), adoption, step.not_frozen())),
        }
    }
}

/// Passes on the name of what holds, or would.
/// Errors: where nothing does, and the admin requires something.
fn required(name: &'static str, adoption: &Adoption<'_>) -> Result<&'static str, Failure> {
    if adoption.means.settings.require_devices && name == Containment::None.as_str() {
        let why = "the job has no device containment, and require_devices is set";
        return Err(Failure::why(Reason::CannotConfine, why));
    }
    Ok(name)
}

fn not_frozen(levels: &[Dir]) -> Result<(), Failure> {
    frozen_level(levels)?.map_or(Ok(()), |dir| Err(frozen(dir)))
}

fn frozen(dir: &Dir) -> Failure {
    Failure::Why(Reason::Suspended, format!("cgroup {} is frozen", dir.path()))
}
