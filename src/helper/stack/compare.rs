//! Compares whom a stack admits before and after a change of its lines.
//!
//! Both stacks are walked side by side. A line that is in both returns the same value in both, and
//! each combination of values is tried. Accounts whose password is due are left out: applications
//! ask for a new one.

use super::control::{Action, ModuleReturn, Return};
use super::entry::Entry;
use super::walk::{
    STATES_MAX, StackVerdict, WalkState, apply_action, enter_level, find_last_skipped, start_state,
};
use std::collections::BTreeSet;

/// A line of one of the two stacks.
#[derive(Clone, Copy, Debug)]
pub struct ComparedLine {
    /// Its position. A line that is in both stacks has the same in both; they rise from line to
    /// line.
    pub position: usize,
    /// The values that its module may return.
    pub returns: ModuleReturn,
}

/// One of the two stacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The stack before the change.
    Before,
    /// The stack after the change.
    After,
}

/// A line on a path through both stacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Position of the line.
    pub position: usize,
    /// The only side on which the path reaches the line; `None` if it does on both.
    pub alone: Option<Side>,
    /// Set if its module returns success.
    pub succeeded: bool,
    /// Set if a side that reaches it has an unfavourable verdict behind it, and none of these sides had one before.
    pub refuses: bool,
}

/// The result of a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// The side that was asked about admits no login that the other side refuses.
    Same,
    /// The side that was asked about admits a login that the other side refuses, by these lines.
    Differs(Vec<Step>),
    /// The stacks have too many paths to compare them all.
    TooManyPaths,
}

/// Lines, and for each of them what is known of it.
type Stack<'a> = (&'a [Entry], &'a [ComparedLine]);
/// A state of each side, as [`Side`] orders them.
type Pair = [WalkState; 2];

/// A pair of states that was reached.
struct Visit {
    pair: Pair,
    /// Index of the visit before this one, and the line between both; `None` for the start.
    from: Option<(usize, Step)>,
}

/// Looks for a login that only `side` admits, on every pair of paths through both stacks. [`Comparison::Differs`] has
/// the first one that it finds.
pub fn compare_stacks(before: Stack<'_>, after: Stack<'_>, side: Side) -> Comparison {
    let stacks = [before, after];
    let start = [start_state(), start_state()];
    let mut visited = BTreeSet::from([start.clone()]);
    // The pairs from `next` on are still to be followed.
    let mut trail = vec![Visit {
        pair: start,
        from: None,
    }];
    let mut next = 0;
    while let Some(visit) = trail.get(next) {
        let current = visit.pair.clone();
        let positions = [0, 1].map(|index| position_of(stacks, &current, index));
        // Positions rise from line to line: the smaller of the two is passed first.
        let Some(position) = positions.into_iter().flatten().min() else {
            // Both stacks are at their end: does that side alone admit the login?
            if current.each_ref().map(is_admitted) == [side == Side::Before, side == Side::After] {
                return Comparison::Differs(path_to(&trail, next));
            }
            next += 1;
            continue;
        };
        let reached = positions.map(|of_side| of_side == Some(position));
        for (follower, step) in next_pairs(stacks, &current, reached, position) {
            if visited.len() >= STATES_MAX {
                return Comparison::TooManyPaths;
            }
            if visited.insert(follower.clone()) {
                trail.push(Visit {
                    pair: follower,
                    from: Some((next, step)),
                });
            }
        }
        next += 1;
    }
    Comparison::Same
}

/// Returns for each jump of the line with the index `at`, the shortest first, the index of the last line that it skips;
/// `None` for a jump past the end. Empty for a line without jumps.
pub fn jump_targets(stack: &[Entry], at: usize) -> Vec<Option<usize>> {
    let Some(entry) = stack.get(at) else {
        return Vec::new();
    };
    let outcomes = entry.control.iter().flat_map(|control| control.outcomes());
    let mut counts: Vec<usize> = outcomes
        .filter_map(|(_, action)| match action {
            Action::Jump(count) => Some(count),
            _ => None,
        })
        .collect();
    counts.sort_unstable();
    counts.dedup();
    counts
        .into_iter()
        .map(|count| find_last_skipped(stack, at, entry.level, count))
        .collect()
}

/// Returns the position of the side's next line; `None` at its end.
fn position_of(stacks: [Stack<'_>; 2], pair: &Pair, side: usize) -> Option<usize> {
    let state = pair.get(side)?;
    let (_, lines) = stacks.get(side)?;
    lines.get(state.index).map(|line| line.position)
}

/// Tells whether the stack admits the login if it ends in this state.
fn is_admitted(state: &WalkState) -> bool {
    state.verdict == StackVerdict::Positive(Return::Success)
}

/// Returns every pair of states that can follow the line at `position`, each with the step to it. `reached` tells for
/// each side whether its next line is that one; a side that has not reached it stays where it is. At least one has.
fn next_pairs(
    stacks: [Stack<'_>; 2],
    pair: &Pair,
    reached: [bool; 2],
    position: usize,
) -> Vec<(Pair, Step)> {
    let alone = match reached {
        [true, false] => Some(Side::Before),
        [false, true] => Some(Side::After),
        _ => None,
    };
    // On both sides it is the same line.
    let side = usize::from(alone == Some(Side::After));
    let line = pair
        .get(side)
        .zip(stacks.get(side))
        .and_then(|(state, (entries, lines))| {
            Some((entries.get(state.index)?, lines.get(state.index)?))
        });
    let Some((entry, line)) = line else {
        return Vec::new();
    };
    // A line that only the stack after the change reaches succeeds with these modules ([`ModuleReturn`]).
    let returns = match line.returns {
        ModuleReturn::AccountCheck | ModuleReturn::IgnorableAccountCheck
            if alone == Some(Side::After) =>
        {
            ModuleReturn::Success
        }
        other => other,
    };
    // A line that begins a substack calls no module, and has one outcome.
    let outcomes: Vec<Option<(Return, Action)>> = match &entry.control {
        None => vec![None],
        Some(control) => control.returning(returns).into_iter().map(Some).collect(),
    };
    let mut followers = Vec::new();
    for outcome in outcomes {
        let (follower, refuses) = pass_line(stacks, pair, reached, entry, outcome);
        let step = Step {
            position,
            alone,
            succeeded: outcome.is_some_and(|(code, _)| code == Return::Success),
            refuses,
        };
        followers.push((follower, step));
    }
    followers
}

/// Moves those sides past the line `entry` that have `reached` it, with what its module returns and the action for
/// that; `None` for a line that begins a substack. Returns the pair behind the line, and [`Step::refuses`].
fn pass_line(
    stacks: [Stack<'_>; 2],
    pair: &Pair,
    reached: [bool; 2],
    entry: &Entry,
    outcome: Option<(Return, Action)>,
) -> (Pair, bool) {
    let mut next = pair.clone();
    let mut was_refused = false;
    let mut is_refused = false;
    for ((state, (entries, _)), is_reached) in next.iter_mut().zip(stacks).zip(reached) {
        if !is_reached {
            continue;
        }
        was_refused |= state.verdict.is_negative();
        enter_level(state, entry);
        *state = match outcome {
            Some((code, action)) => apply_action(entries, state, code, action),
            None => state.after_line(),
        };
        is_refused |= state.verdict.is_negative();
    }
    (next, is_refused && !was_refused)
}

/// Collects the steps from the start to the visit with the index `end`.
fn path_to(trail: &[Visit], end: usize) -> Vec<Step> {
    let mut path = Vec::new();
    let mut current = trail.get(end);
    while let Some((from, step)) = current.and_then(|visit| visit.from) {
        path.push(step);
        current = trail.get(from);
    }
    path.reverse();
    path
}
