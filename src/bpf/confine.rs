//! Carries a decision out, and proves it.

use super::compose::{Decision, Demand, decide};
use super::point::Point;
use super::{Attached, Error, Insn, Level, Result, allow, effective};
use crate::cgroup::{Dir, Leaf};
use crate::lock::Lock;
use crate::plan::Containment;
use std::time::Instant;

/// What holds at a leaf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Confinement {
    /// No filter at the job, and none was asked for.
    None,
    /// The job's own filters hold.
    Inherited(Vec<u32>),
    /// A filter of ours holds, beside whatever else is in force.
    Enforced(Vec<u32>),
}

impl Confinement {
    /// The name in the log.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Inherited(_) => "inherit",
            Self::Enforced(_) => "enforce",
        }
    }

    /// Ids of the programs that have to run at the leaf.
    #[must_use]
    pub fn required(&self) -> &[u32] {
        match self {
            Self::None => &[],
            Self::Inherited(ids) | Self::Enforced(ids) => ids,
        }
    }

    /// Checks at the leaf that every required program runs there.
    ///
    /// # Errors
    /// [`Error::NotEffective`] for the first that does not.
    pub fn verify(&self, leaf: &Dir) -> Result<()> {
        let running = effective(leaf)?;
        match self.required().iter().find(|id| !running.contains(id)) {
            None => Ok(()),
            Some(&program) => Err(Error::NotEffective { object: leaf.path().to_owned(), program }),
        }
    }
}

/// What the plan demands, in the words of the composition rules.
#[must_use]
fn demand(containment: &Containment) -> Demand {
    match containment {
        Containment::None => Demand::None,
        Containment::Inherit => Demand::Inherit,
        Containment::Enforce(_) => Demand::Enforce,
    }
}

/// What would be decided at a leaf; changes nothing. `missing_child`: the leaf is a child of
/// `levels` that is not there yet.
///
/// # Errors
/// [`Error::Obstacle`] where the rules leave no way, else as [`Level::read`].
pub fn foresee(
    levels: &[Dir],
    job: usize,
    missing_child: bool,
    containment: &Containment,
) -> Result<Decision> {
    let mut attached = Vec::new();
    for dir in levels {
        attached.push(Level::read(dir)?.attached);
    }
    let mut job = job;
    if missing_child {
        attached.insert(0, Attached::Nothing);
        job += 1;
    }
    let mut decision = decide(&attached, job, demand(containment));
    if decision == Decision::NeedChild {
        attached.insert(0, Attached::Nothing);
        decision = decide(&attached, job + 1, demand(containment));
    }
    match (decision, levels.first()) {
        (Decision::Refuse(why), Some(dir)) => {
            Err(Error::Obstacle { object: dir.path().to_owned(), why })
        }
        _ => Ok(decision),
    }
}

/// How [`confine`] went.
#[derive(Debug)]
pub enum Outcome {
    /// It holds, and was verified.
    Holds(Confinement),
    /// The job's own cgroup cannot take a filter of ours: a child leaf is needed first.
    NeedChild,
}

/// One look at the levels, and what came of it.
enum Attempt {
    /// Everything was in place, and was verified.
    Done(Outcome),
    /// Something had to be changed: it was, where the lock is held, and takes another look.
    NotYet,
}

/// Looks under the lock before giving up: each changes something, and somebody else may as well.
const LOOKS: usize = 8;

/// Makes the containment hold at the leaf: attaches what is missing, reuses what is there. Only a
/// look that finds everything in place and changes nothing counts, since a scheduler may attach
/// its own filter at any moment, also between our look and our change.
///
/// # Errors
/// [`Error::Obstacle`] where the rules leave no way; whatever `bpf(2)` answers. Nothing that was
/// attached is taken off again: another login may rely on it.
pub fn confine(leaf: &Leaf, containment: &Containment, deadline: Instant) -> Result<Outcome> {
    let insns = match containment {
        Containment::Enforce(list) => allow(list),
        _ => Vec::new(),
    };
    // Nearly every login finds everything in place and needs no lock.
    match attempt(leaf, containment, &insns, None) {
        Ok(Attempt::Done(outcome)) => return Ok(outcome),
        // Not yet, or no longer: another login is changing it.
        Ok(Attempt::NotYet) | Err(Error::NotEffective { .. }) => {}
        Err(error) => return Err(error),
    }
    // The job's own cgroup: logins of one job meet there, whatever their leaf.
    let lock = Lock::take(inode(dir(leaf, leaf.job_level())?)?, deadline)?;
    for _ in 0..LOOKS {
        if let Attempt::Done(outcome) = attempt(leaf, containment, &insns, Some(&lock))? {
            return Ok(outcome);
        }
    }
    Err(Error::Unsettled { object: object(leaf) })
}

fn attempt(
    leaf: &Leaf,
    containment: &Containment,
    insns: &[Insn],
    lock: Option<&Lock>,
) -> Result<Attempt> {
    let levels: Vec<Level> = leaf.levels().iter().map(Level::read).collect::<Result<_>>()?;
    let confinement = match decide_on(&levels, leaf.job_level(), containment) {
        Decision::Refuse(why) => return Err(Error::Obstacle { object: object(leaf), why }),
        Decision::NeedChild => return Ok(Attempt::Done(Outcome::NeedChild)),
        Decision::Uncontained => Confinement::None,
        Decision::Keep { level } => Confinement::Inherited(ids(&levels, level)),
        Decision::Attach { at, pin, ours } => {
            let point = Point { dir: dir(leaf, at)?, level: get(&levels, at)?, lock };
            // The pin first: ours alone would take the place of what it copies.
            let pinned = match pin {
                Some(pin) => point.pin(get(&levels, pin)?)?,
                None => Some(Vec::new()),
            };
            let Some(mut required) = pinned else { return Ok(Attempt::NotYet) };
            if ours {
                let Some(id) = point.ours(insns)? else { return Ok(Attempt::NotYet) };
                required.push(id);
                Confinement::Enforced(required)
            } else {
                Confinement::Inherited(required)
            }
        }
    };
    confinement.verify(dir(leaf, 0)?)?;
    Ok(Attempt::Done(Outcome::Holds(confinement)))
}

fn object(leaf: &Leaf) -> String {
    leaf.levels().first().map(|dir| dir.path().to_owned()).unwrap_or_default()
}

fn dir(leaf: &Leaf, index: usize) -> Result<&Dir> {
    leaf.levels().get(index).ok_or_else(|| gone("find level of", object(leaf)))
}

fn get(levels: &[Level], index: usize) -> Result<&Level> {
    levels.get(index).ok_or_else(|| gone("find filters of level", index.to_string()))
}

fn gone(operation: &'static str, object: String) -> Error {
    Error::system(operation, object, std::io::Error::from(std::io::ErrorKind::NotFound))
}

fn ids(levels: &[Level], index: usize) -> Vec<u32> {
    levels.get(index).map(Level::ids).unwrap_or_default()
}

fn decide_on(levels: &[Level], job: usize, containment: &Containment) -> Decision {
    let attached: Vec<_> = levels.iter().map(|level| level.attached).collect();
    decide(&attached, job, demand(containment))
}

/// The number that a cgroup's lock goes by.
fn inode(dir: &Dir) -> Result<u64> {
    let identity = dir.identity().map_err(|error| {
        Error::system("identify", dir.path(), std::io::Error::other(error.to_string()))
    })?;
    Ok(identity.1)
}
