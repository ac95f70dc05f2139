//! The job's cgroup, checked: the part that both phases share.

use super::{Failure, Login};
use crate::bpf::{self, Decision};
use crate::cgroup::{Dir, Leaf, LeafKind, Mount, Place, Stamp, frozen_level};
use crate::plan::{Containment, Plan};

/// A job's cgroup that is there, is the user's, and is not frozen.
#[derive(Debug)]
pub struct Target {
    /// The job's cgroup and those above it.
    pub place: Place,
    /// Which cgroup takes the login.
    pub kind: LeafKind,
    /// What the job's cgroup is stamped with.
    pub stamp: Stamp,
}

impl Target {
    /// Opens and checks the job's cgroup. The helper's word for whose it is does not count: the
    /// stamp does.
    ///
    /// # Errors
    /// [`Failure::Gone`], [`Failure::Frozen`], or [`Failure::Cgroup`] for a cgroup that is not
    /// the user's or can take no login.
    pub fn open(plan: &Plan, login: &Login) -> Result<Self, Failure> {
        let place = Mount::open()?.place(&plan.cgroup)?;
        let stamp = Stamp { uid: login.uid, job: plan.job.clone() };
        stamp.require(place.dir()?)?;
        not_frozen(place.levels())?;
        let kind = LeafKind::choose(place.dir()?, plan.leaf.as_ref())?;
        Ok(Self { place, kind, stamp })
    }

    /// Whether the login could be confined here; changes nothing.
    ///
    /// # Errors
    /// [`Failure::Bpf`] where the composition rules leave no way, [`Failure::Uncontained`] where
    /// nothing holds and the admin requires something.
    pub fn foresee(self, plan: &Plan, require_devices: bool) -> Result<&'static str, Failure> {
        let containment = &plan.containment;
        let decision = match Leaf::open(self.place, self.kind)? {
            Ok(leaf) => {
                not_frozen(leaf.levels())?;
                bpf::foresee(leaf.levels(), leaf.job_level(), false, containment)?
            }
            Err(job) => bpf::foresee(job.levels(), 0, true, containment)?,
        };
        match (decision, containment) {
            (Decision::Uncontained, _) if require_devices => Err(Failure::Uncontained),
            (Decision::Uncontained, _) => Ok("none"),
            (_, Containment::Enforce(_)) => Ok("enforce"),
            _ => Ok("inherit"),
        }
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
