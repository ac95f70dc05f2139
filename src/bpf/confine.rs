//! Carries a decision out, and proves it.

use super::compose::{Decision, Demand, decide};
use super::{Attached, Error, Insn, Level, Program, Result, allow, effective};
use crate::cgroup::{Dir, Leaf};
use crate::lock::Lock;
use crate::plan::Containment;
use crate::sys::bpf as kernel;
use std::os::fd::AsFd;
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
    Done(Outcome),
    /// Something has to be changed, and the lock is not held.
    NeedLock,
}

/// Makes the containment hold at the leaf: attaches what is missing, reuses what is there.
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
    if let Attempt::Done(outcome) = attempt(leaf, containment, &insns, None)? {
        return Ok(outcome);
    }
    // The job's own cgroup: logins of one job meet there, whatever their leaf.
    let lock = Lock::take(inode(dir(leaf, leaf.job_level())?)?, deadline)?;
    match attempt(leaf, containment, &insns, Some(&lock))? {
        Attempt::Done(outcome) => Ok(outcome),
        Attempt::NeedLock => Err(Error::Locked { object: object(leaf) }),
    }
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
            let point = Point { dir: dir(leaf, at)?, level: get(&levels, at)? };
            let mut required = Vec::new();
            if let Some(pin) = pin {
                match point.pin(get(&levels, pin)?, lock)? {
                    Some(ids) => required.extend(ids),
                    None => return Ok(Attempt::NeedLock),
                }
            }
            if ours {
                match point.ours(insns, lock)? {
                    Some(id) => required.push(id),
                    None => return Ok(Attempt::NeedLock),
                }
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

/// The cgroup that filters are attached to, and what stands there already.
struct Point<'a> {
    dir: &'a Dir,
    level: &'a Level,
}

impl Point<'_> {
    /// Makes sure that every program of `above` is attached here too; without the lock, `None`
    /// where one is missing.
    fn pin(&self, above: &Level, lock: Option<&Lock>) -> Result<Option<Vec<u32>>> {
        let mut ids = Vec::new();
        for program in &above.programs {
            match self.level.programs.iter().find(|found| found.same_as(program)) {
                Some(found) => ids.push(found.id()),
                None if lock.is_none() => return Ok(None),
                None => {
                    self.attach(program, None)?;
                    ids.push(program.id());
                }
            }
        }
        Ok(Some(ids))
    }

    /// Makes sure that exactly one filter of ours is attached here, and that it is this one;
    /// without the lock, `None` where that takes a change.
    fn ours(&self, insns: &[Insn], lock: Option<&Lock>) -> Result<Option<u32>> {
        let found: Vec<&Program> =
            self.level.programs.iter().filter(|program| program.is_ours()).collect();
        if let [only] = found.as_slice() {
            if only.consists_of(insns) {
                return Ok(Some(only.id()));
            }
        }
        if lock.is_none() {
            return Ok(None);
        }
        let program = Program::load(insns)?;
        self.attach(&program, found.first().copied())?;
        for surplus in found.iter().skip(1) {
            kernel::prog_detach(self.dir.as_fd(), surplus.as_fd())
                .map_err(|error| Error::system("detach filter from", self.dir.path(), error))?;
        }
        Ok(Some(program.id()))
    }

    fn attach(&self, program: &Program, replace: Option<&Program>) -> Result<()> {
        let old = replace.map(AsFd::as_fd);
        let flags = kernel::BPF_F_ALLOW_MULTI;
        match kernel::prog_attach(self.dir.as_fd(), program.as_fd(), flags, old) {
            Ok(()) => Ok(()),
            // "The same program twice": it is attached already.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) && replace.is_none() => {
                let level = Level::read(self.dir)?;
                match level.ids().contains(&program.id()) {
                    true => Ok(()),
                    false => Err(Error::system("attach filter to", self.dir.path(), error)),
                }
            }
            Err(error) => Err(Error::system("attach filter to", self.dir.path(), error)),
        }
    }
}
