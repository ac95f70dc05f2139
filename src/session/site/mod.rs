//! A job whose logins go into a leaf that we choose: its own cgroup, or a child of it.

mod join;

pub(super) use join::adopt;

use super::claim::Claim;
use super::target::{self, Foreseen, not_frozen};
use super::{Failure, Visit, flux};
use crate::bpf::{self, Branch, Level, Reach};
use crate::cgroup::{Leaf, LeafKind, Mount, Place, Stamp};
use crate::plan::{CgroupPath, LeafName};

/// Where the helper says that the job is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Spot<'a> {
    /// In a cgroup that carries our stamp.
    Stamped {
        /// The job's cgroup.
        path: &'a CgroupPath,
        /// The child that the record wants its logins in.
        leaf: Option<&'a LeafName>,
    },
    /// In a unit of Flux's.
    Unit {
        /// The unit's cgroup.
        path: &'a CgroupPath,
        /// Uid of the account that Flux runs as.
        flux: u32,
    },
}

/// A job's cgroup that is there, is the user's, and is not frozen.
#[derive(Debug)]
pub struct Site {
    /// The job's cgroup and those above it.
    place: Place,
    /// Which cgroup takes the login.
    kind: LeafKind,
    /// What says that the job is the user's, and alive.
    pub(super) claim: Claim,
}

impl Site {
    /// Opens and checks the job's cgroup. The helper's word for whose it is does not count: the
    /// claim does.
    ///
    /// # Errors
    /// [`Failure::Gone`], [`Failure::Frozen`], [`Failure::Flux`], or [`Failure::Cgroup`] for a
    /// cgroup that is not the user's or can take no login.
    pub(super) fn open(visit: &Visit<'_>, spot: Spot<'_>) -> Result<Self, Failure> {
        match spot {
            Spot::Stamped { path, leaf } => {
                let place = Mount::open()?.place(path)?;
                let stamp = Stamp { uid: visit.login.uid, job: visit.plan.job.clone() };
                stamp.require(place.dir()?)?;
                not_frozen(place.levels())?;
                let kind = LeafKind::choose(place.dir()?, leaf)?;
                Ok(Self { place, kind, claim: Claim::Stamp(stamp) })
            }
            Spot::Unit { path, flux } => {
                flux::require_unit(visit, path, flux)?;
                let place = Mount::open()?.place(path)?;
                let imp = flux::Imp::find(place.dir()?, flux, visit.login.uid)?;
                not_frozen(place.levels())?;
                // Never the unit itself: Flux waits until nothing is in it.
                Ok(Self { place, kind: LeafKind::default_child()?, claim: Claim::Imp(imp) })
            }
        }
    }

    /// Whether a filter of somebody else's sits right at the job.
    ///
    /// # Errors
    /// [`Failure::Bpf`].
    pub(super) fn has_filter(&self) -> Result<bool, Failure> {
        let level = Level::read(self.place.dir()?)?;
        Ok(level.programs.iter().any(|program| !program.is_ours()))
    }

    /// As [`super::Target::foresee`].
    pub(super) fn foresee(self, visit: &Visit<'_>) -> Result<Foreseen, Failure> {
        let containment = &visit.plan.containment;
        let cgroup = self.place.dir()?.path().to_owned();
        self.claim.foresee(visit)?;
        let decision = match Leaf::open(self.place, self.kind)? {
            Ok(leaf) => {
                not_frozen(leaf.levels())?;
                bpf::foresee(Branch::of(&leaf), 0, containment)?
            }
            Err(job) => {
                let branch = Branch { levels: job.levels(), job: 0, reach: Reach::Job };
                bpf::foresee(branch, 1, containment)?
            }
        };
        Ok(Foreseen { cgroup, containment: target::name(decision, visit)? })
    }

    /// As [`super::Target::leaf`].
    pub(super) fn leaf(&self) -> String {
        self.kind.child().map_or_else(|| "the job's own".to_owned(), ToString::to_string)
    }

    /// As [`super::Target::filters`].
    pub(super) fn filters(&self) -> Result<Vec<(String, Level)>, Failure> {
        let mut found = target::filters(self.place.levels())?;
        if let Some(name) = self.kind.child() {
            if let Ok(leaf) = self.place.dir()?.child(name.as_str()) {
                found.extend(target::filters([&leaf])?);
            }
        }
        Ok(found)
    }
}
