//! Decides by the composition rules which filters may be attached where, attaches them, and verifies the
//! result. No filter of others is ever loosened.
//!
//! A program on a child replaces the programs of an `ALLOW_OVERRIDE` ancestor, runs besides the programs of
//! an `ALLOW_MULTI` ancestor, and is refused below flags 0 (`compute_effective_progs` and
//! `hierarchy_allows_attach` in `kernel/bpf/cgroup.c`). So our filters are always `ALLOW_MULTI`. If the
//! nearest filter above is an `ALLOW_OVERRIDE` one, its own program is first attached beside ours: the pin.

use super::error::{Error, Obstacle, Result};
use super::generate::{Insn, allow_rules};
use super::program::{AttachMode, CgroupPrograms, Program, detach, program_name, query_effective};
use crate::OperationError;
use crate::cgroup::{self, CgroupChain, Dir};
use crate::lock::Lock;
use crate::sys::bpf as kernel;
use protocol::Containment;
use std::os::fd::AsFd;
use std::time::Instant;

/// The cgroups to which our filter may be attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachScope {
    /// The job's own cgroup, where the filter holds for the whole job, or else a leaf below.
    Job,
    /// The leaf alone. The scheduler may attach to the job's own cgroup at any time, and our filter there
    /// would make that fail.
    Leaf,
}

/// The steps by which a containment holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Composition {
    /// No step leads to the containment.
    Refuse(Obstacle),
    /// The job has no filter and needs none.
    Uncontained,
    /// The filters of this level hold, and no other is needed.
    Keep { level: usize },
    /// Programs must be attached at the level `at`: first a pin of the program at the level `pin`, if there
    /// is one, then, with `ours`, our filter.
    Attach {
        at: usize,
        pin: Option<usize>,
        ours: bool,
    },
}

/// Decides by the composition rules, without side effects. The leaf is the first of `levels` and the root
/// the last. `job` is the index of the job's own cgroup, 0 if that is the leaf. With [`AttachScope::Leaf`]
/// the leaf must be below the job.
fn decide(
    levels: &[AttachMode],
    job: usize,
    scope: AttachScope,
    required: &Containment,
) -> Composition {
    match required {
        Containment::InheritAndEnforce(_) if nearest_own(levels, job).is_none() => {
            Composition::Refuse(Obstacle::NothingInForce)
        }
        Containment::Enforce(_) | Containment::InheritAndEnforce(_) => enforce(levels, job, scope),
        Containment::None | Containment::Inherit => inherit(levels, job, required),
    }
}

/// Finds the first level, up to the job, that has programs; `None` if none has. A filter above the job is not the
/// job's.
fn nearest_own(levels: &[AttachMode], job: usize) -> Option<usize> {
    let job_levels = levels.get(..=job).unwrap_or(levels);
    job_levels
        .iter()
        .position(|attached| *attached != AttachMode::Nothing)
}

/// The mode of a level; a level that does not exist has no program.
fn at(levels: &[AttachMode], index: usize) -> AttachMode {
    levels.get(index).copied().unwrap_or(AttachMode::Nothing)
}

/// Finds the nearest level above `index` with programs, if it is `ALLOW_OVERRIDE`: a filter at `index` replaces them.
/// `None` if that level is of another mode, or no level has programs: then nothing is replaced.
fn level_to_pin(levels: &[AttachMode], index: usize) -> Option<usize> {
    let mut above = levels.iter().enumerate().skip(index + 1);
    let (level, nearest) = above.find(|(_, attached)| **attached != AttachMode::Nothing)?;
    (*nearest == AttachMode::Override).then_some(level)
}

/// Decides where our filter goes and what must be pinned before it, with the arguments of [`decide`]. It goes to the
/// job's own cgroup, or to the leaf if `scope` says so or the job's cgroup has an `ALLOW_OVERRIDE` filter. It cannot
/// be attached if a level has a filter with flags 0, or beside an `ALLOW_OVERRIDE` one.
fn enforce(levels: &[AttachMode], job: usize, scope: AttachScope) -> Composition {
    if levels.contains(&AttachMode::Exclusive) {
        return Composition::Refuse(Obstacle::Exclusive);
    }
    // At the job's own cgroup our filter holds for the job and every login. Beside an ALLOW_OVERRIDE filter
    // of the scheduler there it cannot be attached, so it goes to the leaf.
    let is_at_leaf = scope == AttachScope::Leaf || at(levels, job) == AttachMode::Override;
    let point = if is_at_leaf { 0 } else { job };
    match at(levels, point) {
        AttachMode::Override if job == 0 => Composition::Refuse(Obstacle::NeedChild),
        AttachMode::Override => Composition::Refuse(Obstacle::LeafOverridden),
        _ => Composition::Attach {
            at: point,
            pin: level_to_pin(levels, point),
            ours: true,
        },
    }
}

/// Decides how the scheduler's own filter holds at the leaf, with the arguments of [`decide`]; `required` is
/// `Inherit`, or `None` for a job that needs no filter. The filter of the nearest level, up to the job, is kept, and
/// pinned at the leaf if it is an `ALLOW_OVERRIDE` one above. A filter with flags 0 must be that nearest one: it
/// would not run otherwise. An `ALLOW_OVERRIDE` filter at the leaf itself is not kept, although it is in force: a
/// filter below would replace it, so it needs a pin, which cannot be attached beside it. A child of the job's cgroup, where it can be
/// pinned, must take the login; if the leaf is that child already, the login is refused.
fn inherit(levels: &[AttachMode], job: usize, required: &Containment) -> Composition {
    let job_levels = levels.get(..=job).unwrap_or(levels);
    let Some(nearest) = nearest_own(levels, job) else {
        return match required {
            Containment::Inherit => Composition::Refuse(Obstacle::NothingInForce),
            _ => Composition::Uncontained,
        };
    };
    let exclusive = job_levels
        .iter()
        .position(|attached| *attached == AttachMode::Exclusive);
    if let Some(level) = exclusive {
        if level != nearest {
            return Composition::Refuse(Obstacle::ExclusiveSkipped);
        }
        return Composition::Keep { level };
    }
    match (at(job_levels, 0), level_to_pin(job_levels, 0)) {
        (AttachMode::Override, _) if job == 0 => Composition::Refuse(Obstacle::NeedChild),
        (AttachMode::Override, _) => Composition::Refuse(Obstacle::LeafOverridden),
        (_, Some(level)) => Composition::Attach {
            at: 0,
            pin: Some(level),
            ours: false,
        },
        (_, None) => Composition::Keep { level: nearest },
    }
}

/// A leaf with every cgroup above it, and the cgroups to which our filter may be attached.
#[derive(Clone, Copy, Debug)]
pub struct AttachTarget<'a> {
    /// The leaf first, the root of the mount last.
    pub levels: &'a [Dir],
    /// Index of the job's own cgroup in `levels`.
    pub job: usize,
    /// Cgroups to which our filter may be attached.
    pub scope: AttachScope,
}

impl<'a> AttachTarget<'a> {
    /// The target for a leaf of a job to which no scheduler attaches filters.
    ///
    /// # Errors
    ///
    /// A chain without the job's own cgroup.
    pub fn from_leaf(leaf: &'a CgroupChain) -> Result<Self> {
        Ok(Self {
            levels: leaf.levels(),
            job: leaf.job()?.1,
            scope: AttachScope::Job,
        })
    }

    /// Reads the programs of every level.
    fn read(self) -> Result<Vec<CgroupPrograms>> {
        self.levels.iter().map(CgroupPrograms::read).collect()
    }

    /// The error that names the leaf and the obstacle.
    fn obstacle_error(self, why: Obstacle) -> Error {
        nth(self.levels, 0).map_or_else(|error| error, |leaf| Error::obstacle(leaf, why))
    }

    /// Decides by the programs of the present levels, for a leaf that will be `missing` levels below them; 0 if it
    /// exists. A required filter of the scheduler must be there: one of ours, from an earlier login, is not enough.
    fn decide(
        self,
        levels: &[CgroupPrograms],
        missing: usize,
        required: &Containment,
    ) -> Composition {
        let job_levels = levels.get(..=self.job).unwrap_or(levels);
        let is_constrained = job_levels
            .iter()
            .any(|level| others(level).next().is_some());
        let needs_scheduler = matches!(
            required,
            Containment::Inherit | Containment::InheritAndEnforce(_)
        );
        if !is_constrained && needs_scheduler {
            return Composition::Refuse(Obstacle::NothingInForce);
        }
        let mut modes = vec![AttachMode::Nothing; missing];
        modes.extend(levels.iter().map(|level| level.mode));
        decide(&modes, self.job + missing, self.scope, required)
    }

    /// Lists the ids of the scheduler's programs that must run at the leaf: the programs of the nearest level, up to
    /// the job, that has any. Empty if no level has any, or if a pin at the leaf copies them.
    fn scheduler_ids(self, levels: &[CgroupPrograms], pin: Option<usize>) -> Vec<u32> {
        let job_levels = levels.get(..=self.job).unwrap_or(levels);
        let nearest = job_levels
            .iter()
            .position(|level| others(level).next().is_some());
        if nearest == pin {
            return Vec::new();
        }
        match nearest.and_then(|index| levels.get(index)) {
            Some(level) => others(level).map(Program::id).collect(),
            None => Vec::new(),
        }
    }
}

/// Iterates over the programs of a level that are not ours. A pin counts as a program of the scheduler.
fn others(level: &CgroupPrograms) -> impl Iterator<Item = &Program> {
    level.programs.iter().filter(|program| !program.is_ours())
}

/// The containment that holds at a leaf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Confinement {
    /// Name of the containment in protocol and log: a word of [`Containment`].
    pub name: &'static str,
    /// Ids of the programs that must run at the leaf.
    required: Vec<u32>,
}

impl Confinement {
    /// Verifies that every required program runs at the leaf.
    ///
    /// # Errors
    ///
    /// [`Obstacle::NotEffective`] for the first program that does not; as [`query_effective`].
    pub fn verify(&self, leaf: &Dir) -> Result<()> {
        let running = query_effective(leaf)?;
        for id in &self.required {
            if !running.contains(id) {
                return Err(Error::obstacle(leaf, Obstacle::NotEffective(*id)));
            }
        }
        Ok(())
    }
}

/// The name of the containment after a decision. If a job needs no filter but has one, the filter is
/// kept and the containment is `inherit`.
fn containment_name(decision: Composition, required: &Containment) -> &'static str {
    match (decision, required) {
        (Composition::Uncontained, _) => Containment::None.as_str(),
        (_, Containment::None) => Containment::Inherit.as_str(),
        (_, required) => required.as_str(),
    }
}

/// Predicts the name of the containment at a leaf, and changes nothing. `missing` is the number of levels,
/// the leaf among them, that do not exist yet below those of the target.
///
/// # Errors
///
/// [`Error::Obstacle`] if the rules allow no containment; as [`CgroupPrograms::read`].
pub fn predict_containment(
    target: AttachTarget<'_>,
    missing: usize,
    required: &Containment,
) -> Result<&'static str> {
    let levels = target.read()?;
    let mut decision = target.decide(&levels, missing, required);
    // The login would go into a child of the job's own cgroup.
    if decision == Composition::Refuse(Obstacle::NeedChild) {
        decision = target.decide(&levels, missing + 1, required);
    }
    match decision {
        Composition::Refuse(why) => Err(target.obstacle_error(why)),
        decision => Ok(containment_name(decision, required)),
    }
}

/// Maximum rounds under the lock. Each may attach one program; others may change filters meanwhile.
const LOCKED_ROUNDS_MAX: usize = 8;

/// The treatment of a filter that we attached for another list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OldFilter {
    /// The new filter replaces it.
    Replace,
    /// It stays, and the login is refused: the containment comes from a carried reply, which may be older
    /// than the filter.
    Keep,
}

/// Makes the containment hold at the leaf: attaches missing programs and reuses present ones.
///
/// Only a round that finds everything in place and changes nothing counts, since a scheduler may attach its
/// own filter at any moment, also between our query and our change. An attached filter stays after an error:
/// another login may rely on it.
///
/// # Errors
///
/// [`Obstacle::NeedChild`]; another obstacle if the rules allow no containment, or if our older filter may not
/// be replaced; as `bpf(2)`; as [`Lock::take`].
pub fn confine(
    target: AttachTarget<'_>,
    containment: &Containment,
    old_filter: OldFilter,
    deadline: Instant,
) -> Result<Confinement> {
    let filter = DesiredFilter::new(containment, old_filter);
    // Nearly every login finds everything in place and needs no lock.
    if let Some(confinement) = filter.find(target)? {
        return Ok(confinement);
    }
    // All logins of a job lock the job's own cgroup, whatever their leaf.
    let lock = Lock::take(nth(target.levels, target.job)?.identity()?.1, deadline)?;
    for _ in 0..LOCKED_ROUNDS_MAX {
        if let Some(confinement) = filter.check_or_attach(target, Some(&lock))? {
            return Ok(confinement);
        }
    }
    Err(target.obstacle_error(Obstacle::ChangedByOthers))
}

/// Finds the containment that holds at the leaf, and changes nothing; `None` if [`confine`] would attach a program.
///
/// # Errors
///
/// As [`confine`].
pub fn find_confinement(
    target: AttachTarget<'_>,
    containment: &Containment,
) -> Result<Option<Confinement>> {
    DesiredFilter::new(containment, OldFilter::Keep).find(target)
}

/// A required containment, and our filter for it, which is not loaded yet.
struct DesiredFilter<'a> {
    containment: &'a Containment,
    old_filter: OldFilter,
    /// Name by which later logins find the filter.
    name: String,
    insns: Vec<Insn>,
}

impl<'a> DesiredFilter<'a> {
    /// Composes the filter: our program for the list of allowed devices. Without a list the program is empty, and is
    /// never loaded.
    fn new(containment: &'a Containment, old_filter: OldFilter) -> Self {
        let insns = containment
            .list()
            .map(|list| allow_rules(list.rules()))
            .unwrap_or_default();
        Self {
            containment,
            old_filter,
            name: program_name(&insns),
            insns,
        }
    }

    /// Verifies that the filters hold; `None` if a program is missing, or another login is changing the filters.
    fn find(&self, target: AttachTarget<'_>) -> Result<Option<Confinement>> {
        match self.check_or_attach(target, None) {
            Err(Error::Obstacle {
                why: Obstacle::NotEffective(_),
                ..
            }) => Ok(None),
            result => result,
        }
    }

    /// Reads all levels once and verifies that the filters hold; `None` if a program was missing. With the
    /// lock that program is attached by then, and the caller must check again.
    fn check_or_attach(
        &self,
        target: AttachTarget<'_>,
        lock: Option<&Lock>,
    ) -> Result<Option<Confinement>> {
        let levels = target.read()?;
        let decision = target.decide(&levels, 0, self.containment);
        let mut required = Vec::new();
        match decision {
            Composition::Refuse(why) => return Err(target.obstacle_error(why)),
            Composition::Uncontained => {}
            Composition::Keep { level } => required = nth(&levels, level)?.ids(),
            Composition::Attach { at, pin, ours } => {
                let dir = nth(target.levels, at)?;
                let point = AttachPoint {
                    dir,
                    level: nth(&levels, at)?,
                    lock,
                };
                // The pin comes first: our filter alone would replace the programs that it copies.
                if let Some(pin) = pin {
                    let pin_ids = point.find_or_attach_pin(nth(&levels, pin)?)?;
                    let Some(pin_ids) = pin_ids else {
                        return Ok(None);
                    };
                    required = pin_ids;
                }
                if ours {
                    let Some(id) = point.find_or_attach_ours(self)? else {
                        return Ok(None);
                    };
                    required.push(id);
                }
                if let Containment::InheritAndEnforce(_) = self.containment {
                    // The scheduler's filter must run besides ours, whether it is pinned or stays as it is.
                    required.extend(target.scheduler_ids(&levels, pin));
                }
            }
        }
        let name = containment_name(decision, self.containment);
        let confinement = Confinement { name, required };
        confinement.verify(nth(target.levels, 0)?)?;
        Ok(Some(confinement))
    }
}

/// The item of a level.
///
/// # Errors
///
/// `NotFound` for an index past the end, which no caller has.
fn nth<T>(levels: &[T], index: usize) -> Result<&T> {
    levels.get(index).ok_or_else(|| {
        OperationError::new(
            "find level",
            index.to_string(),
            std::io::ErrorKind::NotFound,
        )
        .into()
    })
}

/// A cgroup and the programs on it. With the lock these may be changed.
struct AttachPoint<'a> {
    dir: &'a Dir,
    level: &'a CgroupPrograms,
    lock: Option<&'a Lock>,
}

impl AttachPoint<'_> {
    /// Finds the ids of the pins that copy the programs of `above`; `None` if one was missing. With the
    /// lock it is attached by then.
    fn find_or_attach_pin(&self, above: &CgroupPrograms) -> Result<Option<Vec<u32>>> {
        let mut ids = Vec::new();
        for program in &above.programs {
            match self
                .level
                .programs
                .iter()
                .find(|pin| pin.is_same_program(program))
            {
                Some(pin) => ids.push(pin.id()),
                None => {
                    self.attach_pin(program)?;
                    return Ok(None);
                }
            }
        }
        Ok(Some(ids))
    }

    /// Attaches a pin; without the lock it does nothing. The pin replaces the one of an earlier login, whose original
    /// the scheduler has replaced since. Otherwise each step of a job would leave a pin.
    fn attach_pin(&self, program: &Program) -> Result<()> {
        if self.lock.is_none() {
            return Ok(());
        }
        let stale_id = cgroup::pinned_program_id(self.dir)?;
        let stale = self
            .level
            .programs
            .iter()
            .find(|pin| Some(pin.id()) == stale_id);
        self.attach(program, stale)?;
        Ok(cgroup::store_pinned_program_id(self.dir, program.id())?)
    }

    /// Finds the id of our filter; `None` if it is missing, or if an older one is there. With the
    /// lock only the desired one is attached by then.
    fn find_or_attach_ours(&self, filter: &DesiredFilter<'_>) -> Result<Option<u32>> {
        let ours: Vec<&Program> = self
            .level
            .programs
            .iter()
            .filter(|program| program.is_ours())
            .collect();
        if let [only] = ours.as_slice() {
            if only.name() == filter.name {
                return Ok(Some(only.id()));
            }
        }
        if self.lock.is_none() {
            return Ok(None);
        }
        if filter.old_filter == OldFilter::Keep && !ours.is_empty() {
            return Err(Error::obstacle(self.dir, Obstacle::ChangedByOthers));
        }
        let program = Program::load(&filter.name, &filter.insns)?;
        // The first of ours is replaced, and any further one goes.
        self.attach(&program, ours.first().copied())?;
        for surplus in ours.iter().skip(1) {
            detach(self.dir, surplus)?;
        }
        Ok(None)
    }

    /// Attaches a program here, in place of `replace`, if given. Otherwise a program that is attached here already is
    /// no error.
    ///
    /// # Errors
    ///
    /// As [`kernel::prog_attach`].
    fn attach(&self, program: &Program, replace: Option<&Program>) -> Result<()> {
        let old = replace.map(AsFd::as_fd);
        let flags = kernel::BPF_F_ALLOW_MULTI;
        let Err(error) = kernel::prog_attach(self.dir.as_fd(), program.as_fd(), flags, old) else {
            return Ok(());
        };
        // The kernel refuses to attach a program twice by EINVAL, which has other reasons too.
        let may_be_attached = error.raw_os_error() == Some(libc::EINVAL) && replace.is_none();
        if may_be_attached {
            let attached = CgroupPrograms::read(self.dir)?.ids();
            if attached.contains(&program.id()) {
                // The next round will find it.
                return Ok(());
            }
        }
        Err(self.dir.failed("attach filter to", "", error).into())
    }
}

#[cfg(test)]
mod tests {
    use super::AttachMode::{Exclusive, Multi, Nothing, Override};
    use super::Composition::{Attach, Keep, Refuse, Uncontained};
    use super::*;

    /// Checks the decisions for none, inherit and enforce. The levels are `[job, slice, root]` if the job's
    /// own cgroup is the leaf, and else `[leaf, job, slice, root]`.
    fn check(levels: &[AttachMode], job: usize, expected: [Composition; 3]) {
        let [none, inherit, enforce] = expected;
        // With a filter of the scheduler, "inherit+enforce" decides as "enforce" does.
        let both = if inherit == NOTHING { NOTHING } else { enforce };
        check_scope(
            levels,
            job,
            AttachScope::Job,
            [none, inherit, enforce, both],
        );
    }

    /// Checks the decisions for the levels `[task_special, user, step_extern, job, scope, root]`.
    fn check_slurm(levels: &[AttachMode; 6], expected: [Composition; 4]) {
        check_scope(levels, 3, AttachScope::Leaf, expected);
    }

    fn check_scope(
        levels: &[AttachMode],
        job: usize,
        scope: AttachScope,
        expected: [Composition; 4],
    ) {
        let list = protocol::Allowlist::new;
        let required = [
            Containment::None,
            Containment::Inherit,
            Containment::Enforce(list()),
            Containment::InheritAndEnforce(list()),
        ];
        for (each_required, each_expected) in required.iter().zip(expected) {
            let decision = decide(levels, job, scope, each_required);
            assert_eq!(
                decision, each_expected,
                "{levels:?} {job} {scope:?} {required:?}"
            );
        }
    }

    const OURS: Composition = Attach {
        at: 0,
        pin: None,
        ours: true,
    };
    const OURS_AT_JOB: Composition = Attach {
        at: 1,
        pin: None,
        ours: true,
    };
    const NOTHING: Composition = Refuse(Obstacle::NothingInForce);
    const BARRED: Composition = Refuse(Obstacle::Exclusive);

    #[test]
    fn job_without_filter_gets_ours_or_refuses_inherit() {
        check(&[Nothing; 3], 0, [Uncontained, NOTHING, OURS]);
        check(&[Nothing; 4], 1, [Uncontained, NOTHING, OURS_AT_JOB]);
    }

    #[test]
    fn filter_above_job_does_not_count_as_its_own() {
        check(&[Nothing, Multi, Nothing], 0, [Uncontained, NOTHING, OURS]);
        let pinned = Attach {
            at: 0,
            pin: Some(1),
            ours: true,
        };
        check(
            &[Nothing, Override, Nothing],
            0,
            [Uncontained, NOTHING, pinned],
        );
        let other_pinned = Attach {
            at: 1,
            pin: Some(2),
            ours: true,
        };
        check(
            &[Nothing, Nothing, Override, Nothing],
            1,
            [Uncontained, NOTHING, other_pinned],
        );
        check(
            &[Nothing, Exclusive, Nothing],
            0,
            [Uncontained, NOTHING, BARRED],
        );
    }

    #[test]
    fn multi_filter_is_kept_and_ours_added() {
        check(
            &[Multi, Nothing, Nothing],
            0,
            [Keep { level: 0 }, Keep { level: 0 }, OURS],
        );
        let keep = Keep { level: 1 };
        check(&[Nothing, Multi, Nothing], 1, [keep, keep, OURS_AT_JOB]);
        check(
            &[Multi, Multi, Nothing],
            1,
            [Keep { level: 0 }, Keep { level: 0 }, OURS_AT_JOB],
        );
    }

    #[test]
    fn override_filter_above_leaf_is_pinned() {
        let pin = Attach {
            at: 0,
            pin: Some(1),
            ours: false,
        };
        let both = Attach {
            at: 0,
            pin: Some(1),
            ours: true,
        };
        check(&[Nothing, Override, Nothing], 1, [pin, pin, both]);
        check(&[Nothing, Override, Override], 1, [pin, pin, both]);
        // A pin of an earlier login is at the leaf: it is compared again, not trusted.
        check(&[Multi, Override, Nothing], 1, [pin, pin, both]);
    }

    #[test]
    fn override_on_own_cgroup_of_job_needs_child() {
        check(
            &[Override, Nothing, Nothing],
            0,
            [Refuse(Obstacle::NeedChild); 3],
        );
    }

    #[test]
    fn override_on_child_leaf_refuses() {
        let refused = Refuse(Obstacle::LeafOverridden);
        check(
            &[Override, Nothing, Nothing],
            1,
            [refused, refused, OURS_AT_JOB],
        );
        check(&[Override, Override, Nothing], 1, [refused; 3]);
    }

    #[test]
    fn flags_0_filter_is_kept_or_refuses() {
        check(
            &[Exclusive, Nothing],
            0,
            [Keep { level: 0 }, Keep { level: 0 }, BARRED],
        );
        check(
            &[Nothing, Exclusive],
            1,
            [Keep { level: 1 }, Keep { level: 1 }, BARRED],
        );
        let skipped = Refuse(Obstacle::ExclusiveSkipped);
        check(&[Multi, Exclusive], 1, [skipped, skipped, BARRED]);
    }

    #[test]
    fn override_above_multi_job_is_pinned() {
        // Our filter goes beside the job's own MULTI filter, which has switched the slice's off already. The
        // slice's is pinned nevertheless: the job gets a stricter containment, never a looser one.
        let both = Attach {
            at: 0,
            pin: Some(1),
            ours: true,
        };
        check(
            &[Multi, Override, Nothing],
            0,
            [Keep { level: 0 }, Keep { level: 0 }, both],
        );
    }

    #[test]
    fn filter_of_slurm_is_pinned_at_leaf_where_ours_goes() {
        let pin = Attach {
            at: 0,
            pin: Some(3),
            ours: false,
        };
        let both = Attach {
            at: 0,
            pin: Some(3),
            ours: true,
        };
        let job = [Nothing, Nothing, Nothing, Override, Nothing, Nothing];
        check_slurm(&job, [pin, pin, both, both]);
        // Pins and filters of earlier logins are at the leaf.
        let again = [Multi, Nothing, Nothing, Override, Nothing, Nothing];
        check_slurm(&again, [pin, pin, both, both]);
        // Without a filter of Slurm, too, the job's own cgroup gets none of our filters.
        check_slurm(&[Nothing; 6], [Uncontained, NOTHING, OURS, NOTHING]);
    }

    #[test]
    fn pin_holds_without_filter_of_slurm() {
        let keep = Keep { level: 0 };
        check_slurm(
            &[Multi, Nothing, Nothing, Nothing, Nothing, Nothing],
            [keep, keep, OURS, OURS],
        );
    }

    #[test]
    fn filter_above_job_of_slurm_does_not_count() {
        let slice = Attach {
            at: 0,
            pin: Some(4),
            ours: true,
        };
        let above = [Nothing, Nothing, Nothing, Nothing, Override, Nothing];
        check_slurm(&above, [Uncontained, NOTHING, slice, NOTHING]);
    }

    #[test]
    fn nearest_filter_of_slurm_is_pinned() {
        for (level, step) in [(1, [Override, Nothing]), (2, [Nothing, Override])] {
            let pin = |ours| Attach {
                at: 0,
                pin: Some(level),
                ours,
            };
            let [user, step] = step;
            let levels = [Nothing, user, step, Override, Nothing, Nothing];
            check_slurm(&levels, [pin(false), pin(false), pin(true), pin(true)]);
        }
    }

    #[test]
    fn filter_that_excludes_others_refuses() {
        let refused = Refuse(Obstacle::LeafOverridden);
        check_slurm(
            &[Override, Nothing, Nothing, Override, Nothing, Nothing],
            [refused; 4],
        );
        let keep = Keep { level: 1 };
        let flags_0 = [Nothing, Exclusive, Nothing, Nothing, Nothing, Nothing];
        check_slurm(&flags_0, [keep, keep, BARRED, BARRED]);
    }
}
