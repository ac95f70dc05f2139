//! The move into the leaf: confine, enter, verify.

use super::super::adopt::Joined;
use super::super::probe::Tried;
use super::super::target::not_frozen;
use super::super::undo::Undo;
use super::super::{Failure, Visit};
use super::{Claim, Site, Spot};
use crate::bpf::{self, Branch, Confinement, Outcome};
use crate::cgroup::{self, Entry, Leaf, LeafKind, Place};

/// Takes the calling process into the job. A leaf can go away while this login is on its way into
/// it, when another login that made it fails: then it is tried once more.
///
/// # Errors
/// Any [`Failure`]; the process is then where it was, a leaf made by this call is gone, and a
/// filter stays: it belongs to the job, and another login may rely on it.
pub(in super::super) fn adopt(
    visit: &Visit<'_>,
    spot: Spot<'_>,
    undo: &mut Undo,
) -> Result<Joined, Failure> {
    let mut again = true;
    loop {
        let failure = match attempt(visit, spot, undo) {
            Ok(joined) => return Ok(joined),
            Err(failure) => undo.back(failure),
        };
        match leaf_or_job(failure, visit, spot) {
            Failure::LeafVanished(_) if std::mem::take(&mut again) => {}
            failure => return Err(failure),
        }
    }
}

/// Whether it is the job that has gone, or only its leaf, which is no end of the job's.
fn leaf_or_job(failure: Failure, visit: &Visit<'_>, spot: Spot<'_>) -> Failure {
    match failure {
        Failure::Gone(error) if Site::open(visit, spot).is_ok() => Failure::LeafVanished(error),
        failure => failure,
    }
}

fn attempt(visit: &Visit<'_>, spot: Spot<'_>, undo: &mut Undo) -> Result<Joined, Failure> {
    let Site { place, kind, claim } = Site::open(visit, spot)?;
    let (leaf, confinement) = confined_leaf(place, kind, visit, undo)?;
    if confinement == Confinement::None && visit.require_devices {
        return Err(Failure::Uncontained);
    }
    enter(&leaf, &claim, &confinement, visit, undo)
        .map_err(|failure| explain(failure, &leaf, &claim))?;
    Ok(Joined { cgroup: leaf.dir()?.path().to_owned(), confinement, tried: Tried::default() })
}

/// A leaf on which the containment holds.
fn confined_leaf(
    place: Place,
    kind: LeafKind,
    visit: &Visit<'_>,
    undo: &mut Undo,
) -> Result<(Leaf, Confinement), Failure> {
    let leaf = open_or_make(place, kind, undo)?;
    if leaf.kind().child().is_some() {
        not_frozen(leaf.levels())?;
    }
    let deadline = visit.budget.deadline();
    match bpf::confine(Branch::of(&leaf), &visit.plan.containment, deadline)? {
        Outcome::Holds(confinement) => Ok((leaf, confinement)),
        // Only the job's own cgroup asks for a child, so this goes one level deep.
        Outcome::NeedChild => {
            confined_leaf(leaf.into_job(), LeafKind::default_child()?, visit, undo)
        }
    }
}

fn open_or_make(place: Place, kind: LeafKind, undo: &mut Undo) -> Result<Leaf, Failure> {
    let job = match Leaf::open(place, kind.clone())? {
        Ok(leaf) => return Ok(leaf),
        Err(job) => job,
    };
    if let Some(name) = kind.child() {
        undo.make_leaf(job.dir()?, name)?;
    }
    let object = job.dir()?.path().to_owned();
    let why = "lost the leaf that was just made";
    Leaf::open(job, kind)?.map_err(|_| Failure::LeafVanished(cgroup::Error::Unfit { object, why }))
}

/// Moves, and proves that all is as it should be: what ends the login with the job alive, the job
/// still the user's and alive, every required filter in force, the login in the leaf. Where the
/// login is comes last, when nobody watches any more who could still move it.
fn enter(
    leaf: &Leaf,
    claim: &Claim,
    confinement: &Confinement,
    visit: &Visit<'_>,
    undo: &mut Undo,
) -> Result<(), Failure> {
    let entry = Entry::open(leaf.dir()?)?;
    let keep = claim.keep(leaf, visit, undo)?;
    if visit.budget.left().is_zero() {
        return Err(Failure::Late);
    }
    undo.moving();
    entry.enter()?;
    #[cfg(feature = "provoke-panic")]
    provoke_panic(visit);
    if let Some(keep) = keep {
        keep.verify()?;
    }
    claim.require(leaf.job()?)?;
    confinement.verify(leaf.dir()?)?;
    entry.verify(leaf.root()?)?;
    Ok(())
}

/// Stands in for a fault nobody has thought of, at the worst moment.
#[cfg(feature = "provoke-panic")]
#[allow(clippy::panic)]
fn provoke_panic(visit: &Visit<'_>) {
    if visit.plan.job.as_str() == "provoke-panic" {
        panic!("provoked");
    }
}

/// The end of a job that was alive when it was checked is the reason, and not what came of it.
fn explain(failure: Failure, leaf: &Leaf, claim: &Claim) -> Failure {
    match leaf.job() {
        Ok(job) => claim.explain(failure, job),
        Err(_) => failure,
    }
}
