//! Carries a decision out, and proves it.

use super::compose::{Decision, Obstacle, Reach, decide};
use super::program::{Level, Program, effective, program_name};
use super::{Attached, Error, Insn, Result, allow};
use crate::kernel::cgroup::{self, Dir, Place};
use crate::kernel::failed::Failed;
use crate::kernel::lock::Lock;
use crate::kernel::sys::bpf as kernel;
use crate::protocol::Containment;
use std::os::fd::AsFd;
use std::time::Instant;

/// A leaf and every cgroup above it, and how far ours may reach.
#[derive(Clone, Copy, Debug)]
pub struct Branch<'a> {
    /// The leaf first, the root of the mount last.
    pub levels: &'a [Dir],
    /// Index of the job's own cgroup.
    pub job: usize,
    /// Where ours may go.
    pub reach: Reach,
}

impl<'a> Branch<'a> {
    /// That of a leaf of a job that nobody else attaches filters to.
    pub fn of(leaf: &'a Place) -> Result<Self> {
        Ok(Self { levels: leaf.levels(), job: leaf.job()?.1, reach: Reach::Job })
    }

    fn read(self) -> Result<Vec<Level>> {
        self.levels.iter().map(Level::read).collect()
    }

    fn refused(self, why: Obstacle) -> Error {
        let object = self.levels.first().map(|dir| dir.path().to_owned()).unwrap_or_default();
        Error::Obstacle { object, why }
    }

    /// Decides, with so many levels to come below those that are there.
    fn decide(self, levels: &[Level], missing: usize, wanted: &Containment) -> Decision {
        let own = levels.get(..=self.job).unwrap_or(levels);
        // Ours may stand here from a login under another configuration: that does not count.
        let scheduled = own.iter().any(|level| others(level).next().is_some());
        if !scheduled && matches!(wanted, Containment::Inherit | Containment::Both(_)) {
            return Decision::Refuse(Obstacle::NothingInForce);
        }
        let mut attached = vec![Attached::Nothing; missing];
        attached.extend(levels.iter().map(|level| level.attached));
        decide(&attached, self.job + missing, self.reach, wanted)
    }

    /// Ids of the scheduler's programs that must run at the leaf: those of the nearest level, up
    /// to the job, that has any, unless a pin stands for them.
    fn kept(self, levels: &[Level], pin: Option<usize>) -> Vec<u32> {
        let own = levels.get(..=self.job).unwrap_or(levels);
        let nearest = own.iter().position(|level| others(level).next().is_some());
        let level = nearest.filter(|_| nearest != pin).and_then(|index| levels.get(index));
        level.into_iter().flat_map(others).map(Program::id).collect()
    }
}

/// The programs of a level but ours. A pin counts as one of the scheduler's.
fn others(level: &Level) -> impl Iterator<Item = &Program> {
    level.programs.iter().filter(|program| !program.is_ours())
}

/// What holds at a leaf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Confinement {
    /// As in [`Containment`], and as the log has it.
    pub name: &'static str,
    /// Ids of the programs that must run there.
    required: Vec<u32>,
}

impl Confinement {
    /// Checks at the leaf that every required program runs there.
    /// Errors: [`Obstacle::NotEffective`] for the first that does not.
    pub fn verify(&self, leaf: &Dir) -> Result<()> {
        let running = effective(leaf)?;
        match self.required.iter().find(|id| !running.contains(id)) {
            None => Ok(()),
            Some(&id) => {
                let why = Obstacle::NotEffective(id);
                Err(Error::Obstacle { object: leaf.path().to_owned(), why })
            }
        }
    }
}

/// What a decision comes to: a filter that is found at a job that asks for none is kept.
fn name(decision: Decision, wanted: &Containment) -> &'static str {
    match (decision, wanted) {
        (Decision::Uncontained, _) => Containment::None.as_str(),
        (_, Containment::None) => Containment::Inherit.as_str(),
        (_, wanted) => wanted.as_str(),
    }
}

/// What would hold at a leaf, by its name; changes nothing. `missing`: so many levels are not there
/// yet below those of the branch, the leaf among them.
/// Errors: [`Error::Obstacle`] where the rules leave no way, else as [`Level::read`].
pub fn foresee(branch: Branch<'_>, missing: usize, wanted: &Containment) -> Result<&'static str> {
    let levels = branch.read()?;
    let mut decision = branch.decide(&levels, missing, wanted);
    if decision == Decision::Refuse(Obstacle::NeedChild) {
        decision = branch.decide(&levels, missing + 1, wanted);
    }
    match decision {
        Decision::Refuse(why) => Err(branch.refused(why)),
        decision => Ok(name(decision, wanted)),
    }
}

/// Looks under the lock before giving up: each changes something, and somebody else may as well.
const LOOKS: usize = 8;

/// Makes the containment hold at the leaf: attaches what is missing, reuses what is there. Only a
/// look that finds everything in place and changes nothing counts, since a scheduler may attach
/// its own filter at any moment, also between our look and our change.
/// `replace`: this filter may replace our older one, since the containment is not a carried one.
/// Errors: [`Obstacle::NeedChild`]; another obstacle where the rules allow nothing, or where our older
/// filter may not be replaced; any error of `bpf(2)`. An attached filter stays: another login may rely
/// on it.
pub fn confine(
    branch: Branch<'_>,
    containment: &Containment,
    replace: bool,
    deadline: Instant,
) -> Result<Confinement> {
    let insns = containment.list().map(allow).unwrap_or_default();
    let want = Want { containment, replace, name: program_name(&insns), insns };
    // Nearly every login finds everything in place and needs no lock.
    match want.look(branch, None) {
        Ok(Some(confinement)) => return Ok(confinement),
        // Not yet, or no longer: another login is changing it.
        Ok(None) | Err(Error::Obstacle { why: Obstacle::NotEffective(_), .. }) => {}
        Err(error) => return Err(error),
    }
    // The job's own cgroup: logins of one job meet there, whatever their leaf.
    let lock = Lock::take(nth(branch.levels, branch.job)?.identity()?.1, deadline)?;
    for _ in 0..LOOKS {
        if let Some(confinement) = want.look(branch, Some(&lock))? {
            return Ok(confinement);
        }
    }
    Err(branch.refused(Obstacle::Unsettled))
}

/// The containment that is wanted, and our filter for it, which is not loaded yet.
struct Want<'a> {
    containment: &'a Containment,
    replace: bool,
    /// By it the filter is found again.
    name: String,
    insns: Vec<Insn>,
}

impl Want<'_> {
    /// Looks at the levels once and verifies which filters hold. `None` where one was missing. With the
    /// lock it has been attached by then, and the caller looks again.
    fn look(&self, branch: Branch<'_>, lock: Option<&Lock>) -> Result<Option<Confinement>> {
        let levels = branch.read()?;
        let decision = branch.decide(&levels, 0, self.containment);
        let mut required = Vec::new();
        match decision {
            Decision::Refuse(why) => return Err(branch.refused(why)),
            Decision::Uncontained => {}
            Decision::Keep { level } => required = nth(&levels, level)?.ids(),
            Decision::Attach { at, pin, ours } => {
                let point = Point { dir: nth(branch.levels, at)?, level: nth(&levels, at)?, lock };
                // The pin first: ours alone would take the place of what it copies.
                if let Some(pin) = pin {
                    let Some(pinned) = point.pin(nth(&levels, pin)?)? else { return Ok(None) };
                    required = pinned;
                }
                if ours {
                    let Some(id) = point.ours(self)? else { return Ok(None) };
                    required.push(id);
                }
                if let Containment::Both(_) = self.containment {
                    // One that is kept must run beside ours as well as one that is pinned.
                    required.extend(branch.kept(&levels, pin));
                }
            }
        }
        let confinement = Confinement { name: name(decision, self.containment), required };
        confinement.verify(nth(branch.levels, 0)?)?;
        Ok(Some(confinement))
    }
}

fn nth<T>(levels: &[T], index: usize) -> Result<&T> {
    let missing = || Failed::new("find level", index.to_string(), std::io::ErrorKind::NotFound);
    levels.get(index).ok_or_else(|| missing().into())
}

/// A cgroup, the programs on it, and the right to change them where the lock is held.
struct Point<'a> {
    dir: &'a Dir,
    level: &'a Level,
    lock: Option<&'a Lock>,
}

impl Point<'_> {
    /// The ids here of the programs that stand for those of `above`; `None` where one was missing
    /// and, with the lock, has been attached now.
    fn pin(&self, above: &Level) -> Result<Option<Vec<u32>>> {
        let mut ids = Vec::new();
        for program in &above.programs {
            match self.level.programs.iter().find(|found| found.same_as(program)) {
                Some(found) => ids.push(found.id()),
                None => {
                    self.attach_pin(program)?;
                    return Ok(None);
                }
            }
        }
        Ok(Some(ids))
    }

    /// Attaches a pin, in place of the one that an earlier login attached and that the scheduler
    /// has since replaced by another program. Without that, each step of a job would leave a pin.
    fn attach_pin(&self, program: &Program) -> Result<()> {
        if self.lock.is_none() {
            return Ok(());
        }
        let stale = cgroup::pin(self.dir)?;
        let stale = self.level.programs.iter().find(|found| Some(found.id()) == stale);
        self.attach(program, stale)?;
        Ok(cgroup::mark_pin(self.dir, program.id())?)
    }

    /// The id of our filter; `None` where it is missing, or where an older one of ours is there. With
    /// the lock that has been repaired: exactly one of ours is attached then.
    fn ours(&self, want: &Want<'_>) -> Result<Option<u32>> {
        let found: Vec<&Program> =
            self.level.programs.iter().filter(|program| program.is_ours()).collect();
        if let [only] = found.as_slice() {
            if only.name() == want.name {
                return Ok(Some(only.id()));
            }
        }
        if self.lock.is_some() {
            if !want.replace && !found.is_empty() {
                let object = self.dir.path().to_owned();
                return Err(Error::Obstacle { object, why: Obstacle::Unsettled });
            }
            let program = Program::load(&want.name, &want.insns)?;
            self.attach(&program, found.first().copied())?;
            for surplus in found.iter().skip(1) {
                kernel::prog_detach(self.dir.as_fd(), surplus.as_fd())
                    .map_err(|error| self.dir.failed("detach filter from", "", error))?;
            }
        }
        Ok(None)
    }

    fn attach(&self, program: &Program, replace: Option<&Program>) -> Result<()> {
        let (old, flags) = (replace.map(AsFd::as_fd), kernel::BPF_F_ALLOW_MULTI);
        match kernel::prog_attach(self.dir.as_fd(), program.as_fd(), flags, old) {
            // "The same program twice": then the next look will find it.
            Err(error)
                if error.raw_os_error() == Some(libc::EINVAL)
                    && replace.is_none()
                    && Level::read(self.dir)?.ids().contains(&program.id()) =>
            {
                Ok(())
            }
            result => Ok(result.map_err(|error| self.dir.failed("attach filter to", "", error))?),
        }
    }
}
