//! Carries a decision out, and proves it.

use super::compose::{Decision, Demand, Obstacle, decide};
use super::point::{Ours, Point};
use super::{Attached, Error, Ground, Level, Program, Result, allow, effective};
use crate::cgroup::Dir;
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
    /// The job's own filters hold, as they have to, and one of ours besides.
    Both(Vec<u32>),
}

impl Confinement {
    /// The name in the log.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Inherited(_) => "inherit",
            Self::Enforced(_) => "enforce",
            Self::Both(_) => "inherit+enforce",
        }
    }

    /// Ids of the programs that have to run at the leaf.
    pub fn required(&self) -> &[u32] {
        match self {
            Self::None => &[],
            Self::Inherited(ids) | Self::Enforced(ids) | Self::Both(ids) => ids,
        }
    }

    /// Checks at the leaf that every required program runs there.
    /// Errors: [`Error::NotEffective`] for the first that does not.
    pub fn verify(&self, leaf: &Dir) -> Result<()> {
        let running = effective(leaf)?;
        match self.required().iter().find(|id| !running.contains(id)) {
            None => Ok(()),
            Some(&program) => Err(Error::NotEffective { object: leaf.path().to_owned(), program }),
        }
    }
}

/// What the plan demands, in the words of the composition rules.
fn demand(containment: &Containment) -> Demand {
    match containment {
        Containment::None => Demand::None,
        Containment::Inherit => Demand::Inherit,
        Containment::Enforce(_) => Demand::Enforce,
        Containment::Both(_) => Demand::Both,
    }
}

/// What would be decided at a leaf; changes nothing. `missing`: so many levels are not there yet
/// below those of `ground`, the leaf among them.
/// Errors: [`Error::Obstacle`] where the rules leave no way, else as [`Level::read`].
pub fn foresee(ground: Ground<'_>, missing: usize, containment: &Containment) -> Result<Decision> {
    let mut found = Vec::new();
    for dir in ground.levels {
        found.push(Seen::of(&Level::read(dir)?));
    }
    let with = |missing: usize| {
        let seen = [vec![Seen::NOTHING; missing], found.clone()].concat();
        decide_on(&seen, Ground { job: ground.job + missing, ..ground }, demand(containment))
    };
    let mut decision = with(missing);
    if decision == Decision::NeedChild {
        decision = with(missing + 1);
    }
    match decision {
        Decision::Refuse(why) => Err(Error::Obstacle { object: object(ground), why }),
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

/// What is to hold, and the filter of ours for it.
struct Want {
    demand: Demand,
    ours: Ours,
}

/// Makes the containment hold at the leaf: attaches what is missing, reuses what is there. Only a
/// look that finds everything in place and changes nothing counts, since a scheduler may attach
/// its own filter at any moment, also between our look and our change.
/// Errors: [`Error::Obstacle`] where the rules leave no way; whatever `bpf(2)` answers. Nothing
/// that was attached is taken off again: another login may rely on it.
pub fn confine(
    ground: Ground<'_>,
    containment: &Containment,
    deadline: Instant,
) -> Result<Outcome> {
    let insns = containment.list().map(allow).unwrap_or_default();
    let ours = Ours::new(insns);
    let want = Want { demand: demand(containment), ours };
    // Nearly every login finds everything in place and needs no lock.
    if let Some(outcome) = look(ground, &want)? {
        return Ok(outcome);
    }
    // The job's own cgroup: logins of one job meet there, whatever their leaf.
    settle(ground, &want, &lock(dir(ground, ground.job)?, deadline)?)
}

/// What holds; `None` where something has to be changed first. Changes nothing.
fn look(ground: Ground<'_>, want: &Want) -> Result<Option<Outcome>> {
    match attempt(ground, want, None) {
        Ok(Attempt::Done(outcome)) => Ok(Some(outcome)),
        // Not yet, or no longer: another login is changing it.
        Ok(Attempt::NotYet) | Err(Error::NotEffective { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Makes it hold. The lock is that of the job's own cgroup.
fn settle(ground: Ground<'_>, want: &Want, lock: &Lock) -> Result<Outcome> {
    for _ in 0..LOOKS {
        if let Attempt::Done(outcome) = attempt(ground, want, Some(lock))? {
            return Ok(outcome);
        }
    }
    Err(Error::Unsettled { object: object(ground) })
}

/// The right to change the filters of a cgroup, where nobody else has it.
fn lock(dir: &Dir, deadline: Instant) -> Result<Lock> {
    Ok(Lock::take(inode(dir)?, deadline)?)
}

fn attempt(ground: Ground<'_>, want: &Want, lock: Option<&Lock>) -> Result<Attempt> {
    let levels: Vec<Level> = ground.levels.iter().map(Level::read).collect::<Result<_>>()?;
    let seen: Vec<Seen> = levels.iter().map(Seen::of).collect();
    let confinement = match decide_on(&seen, ground, want.demand) {
        Decision::Refuse(why) => return Err(Error::Obstacle { object: object(ground), why }),
        Decision::NeedChild => return Ok(Attempt::Done(Outcome::NeedChild)),
        Decision::Uncontained => Confinement::None,
        Decision::Keep { level } => Confinement::Inherited(ids(&levels, level)),
        Decision::Attach { at, pin, ours } => {
            let point = Point { dir: dir(ground, at)?, level: get(&levels, at)?, lock };
            // The pin first: ours alone would take the place of what it copies.
            let pinned = match pin {
                Some(pin) => point.pin(get(&levels, pin)?)?,
                None => Some(Vec::new()),
            };
            let Some(mut required) = pinned else { return Ok(Attempt::NotYet) };
            if ours {
                let Some(id) = point.ours(&want.ours)? else { return Ok(Attempt::NotYet) };
                required.push(id);
            }
            match want.demand {
                Demand::Both => {
                    // One that is kept has to run beside ours as well as one that is pinned.
                    required.extend(kept(&levels, ground, pin));
                    Confinement::Both(required)
                }
                _ if ours => Confinement::Enforced(required),
                _ => Confinement::Inherited(required),
            }
        }
    };
    confinement.verify(dir(ground, 0)?)?;
    Ok(Attempt::Done(Outcome::Holds(confinement)))
}

fn object(ground: Ground<'_>) -> String {
    ground.levels.first().map(|dir| dir.path().to_owned()).unwrap_or_default()
}

fn dir(ground: Ground<'_>, index: usize) -> Result<&Dir> {
    ground.levels.get(index).ok_or_else(|| gone("find level of", object(ground)))
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

/// What a decision has to know of a level.
#[derive(Clone, Copy)]
struct Seen {
    attached: Attached,
    /// Some program there is none of ours.
    others: bool,
}

impl Seen {
    const NOTHING: Self = Self { attached: Attached::Nothing, others: false };

    fn of(level: &Level) -> Self {
        Self { attached: level.attached, others: others(level).next().is_some() }
    }
}

/// The programs of a level that are none of ours; a pin is its original's owner's.
fn others(level: &Level) -> impl Iterator<Item = &Program> {
    level.programs.iter().filter(|program| !program.is_ours())
}

fn decide_on(levels: &[Seen], ground: Ground<'_>, demand: Demand) -> Decision {
    let own = levels.get(..=ground.job).unwrap_or(levels);
    // One of ours, left by a login under another configuration, is none of the scheduler's.
    let scheduled = own.iter().any(|level| level.others);
    if !scheduled && matches!(demand, Demand::Inherit | Demand::Both) {
        return Decision::Refuse(Obstacle::NothingInForce);
    }
    let attached: Vec<_> = levels.iter().map(|level| level.attached).collect();
    decide(&attached, ground.job, ground.reach, demand)
}

/// Ids of the scheduler's programs that have to run at the leaf: those of the nearest level, up to
/// the job, that has any, unless a pin stands for them.
fn kept(levels: &[Level], ground: Ground<'_>, pin: Option<usize>) -> Vec<u32> {
    let own = levels.get(..=ground.job).unwrap_or(levels);
    match own.iter().position(|level| others(level).next().is_some()) {
        nearest if nearest == pin => Vec::new(),
        nearest => {
            let level = nearest.and_then(|index| levels.get(index));
            level.into_iter().flat_map(others).map(Program::id).collect()
        }
    }
}

/// The number that a cgroup's lock goes by.
fn inode(dir: &Dir) -> Result<u64> {
    let identity = dir.identity().map_err(|error| {
        Error::system("identify", dir.path(), std::io::Error::other(error.to_string()))
    })?;
    Ok(identity.1)
}
