//! A job whose logins go into a leaf that we choose: the job's own cgroup, or a child of it. Jobs of
//! records and of Flux are such.

use super::flux::{Imp, ensure_keeper, keeper_executable};
use super::{Joined, not_frozen, required};
use crate::Failure;
use crate::probe::Tried;
use crate::ruling::Adoption;
use crate::undo::Undo;
use kernel::bpf::{self, Branch, Confinement, Level, Obstacle, Reach};
use kernel::cgroup::{self, Dir, Occupants, Place, Stamp};
use kernel::namespace::Namespace;
use protocol::{LeafName, Reason};
use std::time::Instant;

/// A job's cgroup and those above it, and what says whose it is.
#[derive(Debug)]
pub struct Cgroups {
    /// What says whose job it is.
    pub owner: Owner,
    /// The cgroups.
    pub place: Place,
    /// The child that takes the login; `None` where the job's own cgroup does.
    pub child: Option<LeafName>,
}

/// What says whose the job is, and that it is alive.
#[derive(Debug)]
pub enum Owner {
    /// Of a record: our stamp on its cgroup.
    Stamp(Stamp),
    /// Of Flux: the process in its unit that has started the job's shell.
    Imp(Imp),
}

impl Owner {
    /// Errors: any [`Failure`] for a job that is over, or not the user's.
    fn require(&self, job: &Dir, deadline: Instant) -> Result<(), Failure> {
        match self {
            Self::Imp(imp) => imp.require(job),
            // It was there when the job was opened, and `unregister` withdraws it first of all.
            Self::Stamp(stamp) => match Stamp::read(job)? {
                None => Err(Failure::why(Reason::Ended, "the job's stamp was withdrawn")),
                Some(_) => require_stamp(stamp, job, deadline),
            },
        }
    }
}

/// Requires this stamp, and that no other account uses the cgroup: a scheduler may have given it, with the
/// stamp on it, to the next job.
pub(super) fn require_stamp(stamp: &Stamp, job: &Dir, deadline: Instant) -> Result<(), Failure> {
    stamp.require(job)?;
    Ok(Occupants::read(job, stamp.uid)?.require(job, deadline)?)
}

impl Cgroups {
    /// Whether a filter of somebody else's sits right at the job.
    pub(super) fn has_filter(&self) -> Result<bool, Failure> {
        let level = Level::read(self.place.dir()?)?;
        Ok(level.programs.iter().any(|program| !program.is_ours()))
    }

    /// The cgroup of the login, and what would hold there.
    pub(super) fn foresee(
        &self,
        adoption: &Adoption<'_>,
    ) -> Result<(String, &'static str), Failure> {
        if let Owner::Imp(_) = self.owner {
            keeper_executable(adoption)?;
        }
        let wanted = &adoption.plan.containment;
        let containment = match self.place.try_clone()?.leaf(self.child.as_ref())? {
            Ok(leaf) => {
                self.child.as_ref().map_or(Ok(()), |_| not_frozen(leaf.levels()))?;
                bpf::foresee(Branch::of(&leaf)?, 0, wanted)?
            }
            Err(job) => {
                let branch = Branch { levels: job.levels(), job: 0, reach: Reach::Job };
                bpf::foresee(branch, 1, wanted)?
            }
        };
        Ok((self.place.dir()?.path().to_owned(), containment))
    }

    /// Takes the calling process into the job. A leaf can go away while this login is on its way
    /// into it, when another login that made it fails: then it is tried once more.
    pub(super) fn join(&self, adoption: &Adoption<'_>, undo: &mut Undo) -> Result<Joined, Failure> {
        let mut again = true;
        loop {
            match self.attempt(adoption, undo).map_err(|failure| undo.back(failure)) {
                // It may be the job that has gone, or only its leaf, which is no end of the job.
                // Nothing is made in a cgroup that may be another's by now.
                Err(Failure::Gone(error)) if self.require(adoption).is_ok() => {
                    if !std::mem::take(&mut again) {
                        return Err(Failure::why(Reason::AdoptionFailed, error));
                    }
                }
                result => return result,
            }
        }
    }

    /// Requires that the job is there, the user's, and not frozen.
    fn require(&self, adoption: &Adoption<'_>) -> Result<(), Failure> {
        self.owner.require(self.place.dir()?, adoption.deadline())?;
        not_frozen(self.place.levels())
    }

    fn attempt(&self, adoption: &Adoption<'_>, undo: &mut Undo) -> Result<Joined, Failure> {
        let place = self.place.try_clone()?;
        let (leaf, confinement) = confined(place, self.child.as_ref(), adoption, undo)?;
        let containment = required(confinement.name, adoption)?;
        self.enter(&leaf, &confinement, adoption, undo).map_err(|failure| {
            // The end of a job that was alive when it was checked is the reason.
            let job = leaf.job().map_err(Failure::from);
            match job.and_then(|(job, _)| self.owner.require(job, adoption.deadline())) {
                Err(over @ Failure::Why(Reason::Ended, _)) => over,
                _ => failure,
            }
        })?;
        let tried = Tried::of(&adoption.plan.probes);
        let (cgroup, job) = (leaf.dir()?.path().to_owned(), self.place.dir()?);
        let mut joined = Joined { cgroup, containment, tried, ..Joined::default() };
        let wanted = adoption.means.settings.join_container;
        if let (true, Some(name)) = (wanted, cgroup::namespace(job)?) {
            joined.namespaces.push(Namespace::open(&name)?);
        }
        Ok(joined)
    }

    /// Moves, and proves that all is as it must be: what ends the login with the job alive, the job
    /// still the user's and alive, every required filter in force, the login in the leaf.
    fn enter(
        &self,
        leaf: &Place,
        confinement: &Confinement,
        adoption: &Adoption<'_>,
        undo: &mut Undo,
    ) -> Result<(), Failure> {
        let procs = leaf.dir()?.open_procs()?;
        // Before the login goes in, what ends it with the job where the scheduler does not.
        let keep = match &self.owner {
            Owner::Imp(imp) => Some(ensure_keeper(leaf, imp, adoption, undo)?),
            Owner::Stamp(_) => None,
        };
        if adoption.means.budget.left().is_zero() {
            let why = "the time budget was used up before the move";
            return Err(Failure::why(Reason::Timeout, why));
        }
        undo.moved = true;
        cgroup::enter(leaf.dir()?.path(), &procs)?;
        #[cfg(debug_assertions)]
        provoke_panic(adoption);
        if let Some(keep) = keep {
            keep.verify()?;
        }
        self.owner.require(leaf.job()?.0, adoption.deadline())?;
        confinement.verify(leaf.dir()?)?;
        Ok(cgroup::stands_in(leaf.dir()?, leaf.root()?)?)
    }
}

/// A leaf on which the containment holds.
fn confined(
    place: Place,
    child: Option<&LeafName>,
    adoption: &Adoption<'_>,
    undo: &mut Undo,
) -> Result<(Place, Confinement), Failure> {
    let leaf = open_or_make(place, child, undo)?;
    if child.is_some() {
        not_frozen(leaf.levels())?;
    }
    let deadline = adoption.deadline();
    let containment = &adoption.plan.containment;
    match bpf::confine(Branch::of(&leaf)?, containment, !adoption.is_carried(), deadline) {
        // Only the job's own cgroup asks for a child, so this goes one level deep.
        Err(bpf::Error::Obstacle { why: Obstacle::NeedChild, .. }) => {
            confined(leaf, Some(&LeafName::default()), adoption, undo)
        }
        confinement => Ok((leaf, confinement?)),
    }
}

fn open_or_make(place: Place, child: Option<&LeafName>, undo: &mut Undo) -> Result<Place, Failure> {
    let job = match place.leaf(child)? {
        Ok(leaf) => return Ok(leaf),
        Err(job) => job,
    };
    if let Some(name) = child {
        undo.make_leaf(job.dir()?, name)?;
    }
    let lost = cgroup::Error::unfit(job.dir()?.path(), "lost the leaf that was just made");
    job.leaf(child)?.map_err(|_| Failure::Gone(lost))
}

/// Stands in for a fault nobody has thought of, at the worst moment; for one test. What is installed
/// is no debug build.
#[cfg(debug_assertions)]
#[allow(clippy::panic)]
fn provoke_panic(adoption: &Adoption<'_>) {
    if adoption.plan.job.as_str() == "provoke-panic" {
        panic!("provoked");
    }
}
