//! A job whose cgroup carries our stamp.

mod join;

pub(super) use join::adopt;

use super::target::{self, Foreseen, not_frozen};
use super::{Failure, Visit};
use crate::bpf::{self, Ground, Level, Reach};
use crate::cgroup::{Leaf, LeafKind, Mount, Place, Stamp};
use crate::plan::{CgroupPath, LeafName};

/// Where the helper says that the job is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spot<'a> {
    /// The job's cgroup.
    pub(super) path: &'a CgroupPath,
    /// The child that the record wants its logins in.
    pub(super) leaf: Option<&'a LeafName>,
}

/// A job's cgroup that is there, is the user's, and is not frozen.
#[derive(Debug)]
pub struct Job {
    /// The job's cgroup and those above it.
    place: Place,
    /// Which cgroup takes the login.
    kind: LeafKind,
    /// What the job's cgroup is stamped with.
    pub(super) stamp: Stamp,
}

impl Job {
    /// Opens and checks the job's cgroup. The helper's word for whose it is does not count: the
    /// stamp does.
    ///
    /// # Errors
    /// [`Failure::Gone`], [`Failure::Frozen`], or [`Failure::Cgroup`] for a cgroup that is not
    /// the user's or can take no login.
    pub(super) fn open(visit: &Visit<'_>, spot: Spot<'_>) -> Result<Self, Failure> {
        let place = Mount::open()?.place(spot.path)?;
        let stamp = Stamp { uid: visit.login.uid, job: visit.plan.job.clone() };
        stamp.require(place.dir()?)?;
        not_frozen(place.levels())?;
        let kind = LeafKind::choose(place.dir()?, spot.leaf)?;
        Ok(Self { place, kind, stamp })
    }

    /// As [`super::Target::foresee`].
    pub(super) fn foresee(self, visit: &Visit<'_>) -> Result<Foreseen, Failure> {
        let containment = &visit.plan.containment;
        let cgroup = self.place.dir()?.path().to_owned();
        let decision = match Leaf::open(self.place, self.kind)? {
            Ok(leaf) => {
                not_frozen(leaf.levels())?;
                bpf::foresee(Ground::of(&leaf), 0, containment)?
            }
            Err(job) => {
                let ground = Ground { levels: job.levels(), job: 0, reach: Reach::Job };
                bpf::foresee(ground, 1, containment)?
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
