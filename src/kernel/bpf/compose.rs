//! The composition rules: what may be attached where, so that nobody's filter is ever loosened; and a
//! decision by them carried out, and proved.
//!
//! A program on a child takes the place of an `ALLOW_OVERRIDE` ancestor's, comes on top of an
//! `ALLOW_MULTI` ancestor's, and is refused below flags 0 (`compute_effective_progs` and
//! `hierarchy_allows_attach` in `kernel/bpf/cgroup.c`). So ours are `ALLOW_MULTI` always, and
//! where the nearest filter above is an `ALLOW_OVERRIDE` one, its own program is attached beside
//! ours first: the pin.

use super::program::{Level, Program, effective, program_name};
use super::{Attached, Error, Insn, Result, allow_rules};
use crate::Failed;
use crate::cgroup::{self, Dir, Place};
use crate::lock::Lock;
use crate::sys::bpf as kernel;
use protocol::Containment;
use std::os::fd::AsFd;
use std::time::Instant;
use thiserror::Error as ThisError;

/// Where ours may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// To the job's own cgroup, where it holds for the whole job, and else to a leaf below.
    Job,
    /// To the leaf alone: the scheduler may attach anew to the job's own cgroup at any time, and
    /// would fail beside our filter.
    Leaf,
}

/// Why the demand is not met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ThisError)]
pub enum Obstacle {
    /// The scheduler should constrain the job, and its filter is not there.
    #[error("the scheduler's device filter is not in force")]
    NothingInForce,
    /// A filter with flags 0 at or above the leaf: the kernel lets nothing be added.
    #[error("a filter attached with flags 0 lets no other be added")]
    Exclusive,
    /// A filter with flags 0 at the job does not run at the leaf.
    #[error("the filter attached with flags 0 does not run here")]
    ExclusiveSkipped,
    /// The job's own cgroup carries an `ALLOW_OVERRIDE` filter and cannot take ours beside it: a
    /// child leaf is needed, and then a new decision.
    #[error(
        "an ALLOW_OVERRIDE filter of its own lets no other be added: a child has to take logins"
    )]
    NeedChild,
    /// The leaf itself, a child, carries an `ALLOW_OVERRIDE` filter: no pin fits beside it.
    #[error("an ALLOW_OVERRIDE filter of its own lets no other be added")]
    LeafOverridden,
    /// After all was done, this program must run at the leaf and does not.
    #[error("program {0} is not in force there")]
    NotEffective(u32),
    /// Filters were changed by others as fast as we looked.
    #[error("others keep changing the filters there")]
    Unsettled,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Decision {
    /// It cannot be done.
    Refuse(Obstacle),
    /// The job carries no filter and asks for none.
    Uncontained,
    /// The filters of this level hold; nothing is to be attached.
    Keep { level: usize },
    /// Attach at this level: first a pin of that level's program, where there is one, then ours, where
    /// demanded.
    Attach { at: usize, pin: Option<usize>, ours: bool },
}

/// Decides; pure. `levels` are the leaf first and the root last; `job` is the index of the job's own
/// cgroup, 0 where that is the leaf. With [`Reach::Leaf`] the leaf must be below the job.
fn decide(levels: &[Attached], job: usize, reach: Reach, wanted: &Containment) -> Decision {
    match wanted {
        Containment::InheritAndEnforce(_) if nearest_own(levels, job).is_none() => {
            Decision::Refuse(Obstacle::NothingInForce)
        }
        Containment::Enforce(_) | Containment::InheritAndEnforce(_) => enforce(levels, job, reach),
        Containment::None | Containment::Inherit => inherit(levels, job, wanted),
    }
}

/// The first level, up to the job, that has programs: one above is not the job's.
fn nearest_own(levels: &[Attached], job: usize) -> Option<usize> {
    let own = levels.get(..=job).unwrap_or(levels);
    own.iter().position(|attached| *attached != Attached::Nothing)
}

fn at(levels: &[Attached], index: usize) -> Attached {
    levels.get(index).copied().unwrap_or(Attached::Nothing)
}

/// The level whose program a filter at `index` would take the place of: the first above that has any.
fn to_pin(levels: &[Attached], index: usize) -> Option<usize> {
    let mut above = levels.iter().enumerate().skip(index + 1);
    let (level, nearest) = above.find(|(_, attached)| **attached != Attached::Nothing)?;
    (*nearest == Attached::Override).then_some(level)
}

fn enforce(levels: &[Attached], job: usize, reach: Reach) -> Decision {
    if levels.contains(&Attached::Exclusive) {
        return Decision::Refuse(Obstacle::Exclusive);
    }
    // At the job's own cgroup ours holds for the job and every login. Where the scheduler has an
    // ALLOW_OVERRIDE filter right there, ours would not fit beside it and goes to the leaf.
    let leaf = reach == Reach::Leaf || at(levels, job) == Attached::Override;
    let point = if leaf { 0 } else { job };
    match at(levels, point) {
        Attached::Override if job == 0 => Decision::Refuse(Obstacle::NeedChild),
        Attached::Override => Decision::Refuse(Obstacle::LeafOverridden),
        _ => Decision::Attach { at: point, pin: to_pin(levels, point), ours: true },
    }
}

fn inherit(levels: &[Attached], job: usize, wanted: &Containment) -> Decision {
    let own = levels.get(..=job).unwrap_or(levels);
    let Some(nearest) = nearest_own(levels, job) else {
        return match wanted {
            Containment::Inherit => Decision::Refuse(Obstacle::NothingInForce),
            _ => Decision::Uncontained,
        };
    };
    if let Some(exclusive) = own.iter().position(|attached| *attached == Attached::Exclusive) {
        return match exclusive == nearest {
            true => Decision::Keep { level: exclusive },
            false => Decision::Refuse(Obstacle::ExclusiveSkipped),
        };
    }
    match (at(own, 0), to_pin(own, 0)) {
        (Attached::Override, _) if job == 0 => Decision::Refuse(Obstacle::NeedChild),
        (Attached::Override, _) => Decision::Refuse(Obstacle::LeafOverridden),
        (_, Some(level)) => Decision::Attach { at: 0, pin: Some(level), ours: false },
        (_, None) => Decision::Keep { level: nearest },
    }
}

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
        nth(self.levels, 0).map_or_else(|error| error, |leaf| Error::obstacle(leaf, why))
    }

    /// Decides, with so many levels to come below those that are there.
    fn decide(self, levels: &[Level], missing: usize, wanted: &Containment) -> Decision {
        let own = levels.get(..=self.job).unwrap_or(levels);
        // Ours may stand here from a login under another configuration: that does not count.
        let scheduled = own.iter().any(|level| others(level).next().is_some());
        if !scheduled && matches!(wanted, Containment::Inherit | Containment::InheritAndEnforce(_))
        {
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
            Some(&id) => Err(Error::obstacle(leaf, Obstacle::NotEffective(id))),
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
    let insns = containment.list().map(|list| allow_rules(list.rules())).unwrap_or_default();
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
                if let Containment::InheritAndEnforce(_) = self.containment {
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
                return Err(Error::obstacle(self.dir, Obstacle::Unsettled));
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

#[cfg(test)]
mod tests {
    use super::Attached::{Exclusive, Multi, Nothing, Override};
    use super::Decision::{Attach, Keep, Refuse, Uncontained};
    use super::*;

    /// Leaf and job are one: `[job, slice, root]`. Leaf below the job: `[leaf, job, slice, root]`.
    fn check(levels: &[Attached], job: usize, expected: [Decision; 3]) {
        let [none, inherit, enforce] = expected;
        // A list besides the scheduler's filter: as the list alone, where there is a filter.
        let both = if inherit == NOTHING { NOTHING } else { enforce };
        check_reach(levels, job, Reach::Job, [none, inherit, enforce, both]);
    }

    /// `[task_special, user, step_extern, job, scope, root]`.
    fn check_slurm(levels: &[Attached; 6], expected: [Decision; 4]) {
        check_reach(levels, 3, Reach::Leaf, expected);
    }

    fn check_reach(levels: &[Attached], job: usize, reach: Reach, expected: [Decision; 4]) {
        let list = protocol::Allowlist::new;
        let wanted = [
            Containment::None,
            Containment::Inherit,
            Containment::Enforce(list()),
            Containment::InheritAndEnforce(list()),
        ];
        for (wanted, expected) in wanted.iter().zip(expected) {
            let decision = decide(levels, job, reach, wanted);
            assert_eq!(decision, expected, "{levels:?} {job} {reach:?} {wanted:?}");
        }
    }

    const OURS: Decision = Attach { at: 0, pin: None, ours: true };
    const OURS_AT_JOB: Decision = Attach { at: 1, pin: None, ours: true };
    const NOTHING: Decision = Refuse(Obstacle::NothingInForce);
    const BARRED: Decision = Refuse(Obstacle::Exclusive);

    #[test]
    fn no_filter_anywhere() {
        check(&[Nothing; 3], 0, [Uncontained, NOTHING, OURS]);
        check(&[Nothing; 4], 1, [Uncontained, NOTHING, OURS_AT_JOB]);
    }

    #[test]
    fn a_filter_above_the_job_is_not_the_jobs() {
        check(&[Nothing, Multi, Nothing], 0, [Uncontained, NOTHING, OURS]);
        let pinned = Attach { at: 0, pin: Some(1), ours: true };
        check(&[Nothing, Override, Nothing], 0, [Uncontained, NOTHING, pinned]);
        let pinned = Attach { at: 1, pin: Some(2), ours: true };
        check(&[Nothing, Nothing, Override, Nothing], 1, [Uncontained, NOTHING, pinned]);
        check(&[Nothing, Exclusive, Nothing], 0, [Uncontained, NOTHING, BARRED]);
    }

    #[test]
    fn nearest_is_multi() {
        check(&[Multi, Nothing, Nothing], 0, [Keep { level: 0 }, Keep { level: 0 }, OURS]);
        let kept = Keep { level: 1 };
        check(&[Nothing, Multi, Nothing], 1, [kept, kept, OURS_AT_JOB]);
        check(&[Multi, Multi, Nothing], 1, [Keep { level: 0 }, Keep { level: 0 }, OURS_AT_JOB]);
    }

    #[test]
    fn nearest_is_override_above_the_leaf() {
        let pin = Attach { at: 0, pin: Some(1), ours: false };
        let both = Attach { at: 0, pin: Some(1), ours: true };
        check(&[Nothing, Override, Nothing], 1, [pin, pin, both]);
        check(&[Nothing, Override, Override], 1, [pin, pin, both]);
        // A pin of an earlier login stands at the leaf: it is looked for again, not trusted.
        check(&[Multi, Override, Nothing], 1, [pin, pin, both]);
    }

    #[test]
    fn override_on_the_jobs_own_cgroup() {
        check(&[Override, Nothing, Nothing], 0, [Refuse(Obstacle::NeedChild); 3]);
    }

    #[test]
    fn override_on_a_child_leaf() {
        let refused = Refuse(Obstacle::LeafOverridden);
        check(&[Override, Nothing, Nothing], 1, [refused, refused, OURS_AT_JOB]);
        check(&[Override, Override, Nothing], 1, [refused; 3]);
    }

    #[test]
    fn flags_0() {
        check(&[Exclusive, Nothing], 0, [Keep { level: 0 }, Keep { level: 0 }, BARRED]);
        check(&[Nothing, Exclusive], 1, [Keep { level: 1 }, Keep { level: 1 }, BARRED]);
        let skipped = Refuse(Obstacle::ExclusiveSkipped);
        check(&[Multi, Exclusive], 1, [skipped, skipped, BARRED]);
    }

    #[test]
    fn override_above_a_multi_job() {
        // Ours goes beside the job's own MULTI filter; the slice's, switched off by that filter
        // already, is pinned all the same: more than the job had, never less.
        let both = Attach { at: 0, pin: Some(1), ours: true };
        check(&[Multi, Override, Nothing], 0, [Keep { level: 0 }, Keep { level: 0 }, both]);
    }

    #[test]
    fn slurms_filter_is_pinned_at_the_leaf_and_ours_goes_there_alone() {
        let pin = Attach { at: 0, pin: Some(3), ours: false };
        let both = Attach { at: 0, pin: Some(3), ours: true };
        let job = [Nothing, Nothing, Nothing, Override, Nothing, Nothing];
        check_slurm(&job, [pin, pin, both, both]);
        // Pins and filters of earlier logins stand at the leaf.
        let again = [Multi, Nothing, Nothing, Override, Nothing, Nothing];
        check_slurm(&again, [pin, pin, both, both]);
        // Without a filter of Slurm's the job's own cgroup stays free of ours as well.
        check_slurm(&[Nothing; 6], [Uncontained, NOTHING, OURS, NOTHING]);
    }

    #[test]
    fn a_pin_holds_when_slurms_filter_has_gone() {
        let kept = Keep { level: 0 };
        check_slurm(
            &[Multi, Nothing, Nothing, Nothing, Nothing, Nothing],
            [kept, kept, OURS, OURS],
        );
    }

    #[test]
    fn a_filter_above_slurms_job_is_not_the_jobs() {
        let slice = Attach { at: 0, pin: Some(4), ours: true };
        let above = [Nothing, Nothing, Nothing, Nothing, Override, Nothing];
        check_slurm(&above, [Uncontained, NOTHING, slice, NOTHING]);
    }

    #[test]
    fn the_nearest_of_slurms_filters_is_pinned() {
        for (level, step) in [(1, [Override, Nothing]), (2, [Nothing, Override])] {
            let pin = |ours| Attach { at: 0, pin: Some(level), ours };
            let [user, step] = step;
            let levels = [Nothing, user, step, Override, Nothing, Nothing];
            check_slurm(&levels, [pin(false), pin(false), pin(true), pin(true)]);
        }
    }

    #[test]
    fn what_takes_no_filter_beside_it_refuses() {
        let refused = Refuse(Obstacle::LeafOverridden);
        check_slurm(&[Override, Nothing, Nothing, Override, Nothing, Nothing], [refused; 4]);
        let kept = Keep { level: 1 };
        let flags_0 = [Nothing, Exclusive, Nothing, Nothing, Nothing, Nothing];
        check_slurm(&flags_0, [kept, kept, BARRED, BARRED]);
    }
}
