//! The composition rules: what may be attached where, so that nobody's filter is ever loosened.
//!
//! A program on a child takes the place of an `ALLOW_OVERRIDE` ancestor's, comes on top of an
//! `ALLOW_MULTI` ancestor's, and is refused below flags 0 (`compute_effective_progs` and
//! `hierarchy_allows_attach` in `kernel/bpf/cgroup.c`). So ours are `ALLOW_MULTI` always, and
//! where the nearest filter above is an `ALLOW_OVERRIDE` one, its own program is attached beside
//! ours first: the pin.
//!
//! Pure: levels in, decision out.

use super::Attached;
use crate::protocol::Containment;
use thiserror::Error;

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
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
pub(super) enum Decision {
    /// It cannot be done.
    Refuse(Obstacle),
    /// The job carries no filter and asks for none.
    Uncontained,
    /// The filters of this level hold; nothing is to be attached.
    Keep {
        /// Index of the level.
        level: usize,
    },
    /// Attach at this level: first the pin, where there is one, then ours, where demanded.
    Attach {
        /// Index of the level.
        at: usize,
        /// Level whose program is to be pinned.
        pin: Option<usize>,
        /// Whether a filter of ours is to follow.
        ours: bool,
    },
}

/// Decides. `levels` are the leaf first and the root last; `job` is the index of the job's own
/// cgroup, 0 where that is the leaf. With [`Reach::Leaf`] the leaf must be below the job.
pub(super) fn decide(
    levels: &[Attached],
    job: usize,
    reach: Reach,
    wanted: &Containment,
) -> Decision {
    match wanted {
        Containment::Both(_) if nearest_own(levels, job).is_none() => {
            Decision::Refuse(Obstacle::NothingInForce)
        }
        Containment::Enforce(_) | Containment::Both(_) => enforce(levels, job, reach),
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

/// The first level above `index` that has programs.
fn nearest_above(levels: &[Attached], index: usize) -> Option<(usize, Attached)> {
    let above = levels.iter().copied().enumerate().skip(index + 1);
    above.into_iter().find(|(_, attached)| *attached != Attached::Nothing)
}

/// The level whose program a filter at `index` would take the place of.
fn to_pin(levels: &[Attached], index: usize) -> Option<usize> {
    match nearest_above(levels, index) {
        Some((level, Attached::Override)) => Some(level),
        _ => None,
    }
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
        let list = crate::protocol::Allowlist::new;
        let wanted = [
            Containment::None,
            Containment::Inherit,
            Containment::Enforce(list()),
            Containment::Both(list()),
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
