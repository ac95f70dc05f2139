//! Walks every path through a stack, as libpam does, and finds one that passes our module.

use super::control::{Action, Return};
use super::entry::Entry;
use super::group::Group;
use std::collections::BTreeSet;

/// Maximum states that are visited; a real stack has some hundreds.
pub(super) const STATES_MAX: usize = 100_000;

/// The verdict that libpam has formed up to a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum StackVerdict {
    /// No line has decided.
    Open,
    /// Favourable, with the value to return.
    Positive(Return),
    /// Unfavourable, with the value to return: that of the first failure. Only a reset can change
    /// it, and a jump that leads too far.
    Negative(Return),
}

impl StackVerdict {
    /// Tells whether the verdict is unfavourable.
    pub(super) fn is_negative(self) -> bool {
        matches!(self, Self::Negative(_))
    }
}

/// Where a walk stands, and the verdict so far.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct WalkState {
    /// Index of the next line.
    pub(super) index: usize,
    /// Level of the previous line; 0 outside of substacks.
    level: usize,
    pub(super) verdict: StackVerdict,
    /// The verdict at the entry to each level, which a reset restores.
    entry_verdicts: Vec<StackVerdict>,
}

impl WalkState {
    /// Tells whether the stack would end with a request for a new password although a line failed.
    fn asks_for_password(&self) -> bool {
        self.verdict == StackVerdict::Negative(Return::Renew)
    }

    /// The state behind a line that calls no module, such as one that begins a substack.
    pub(super) fn after_line(&self) -> Self {
        Self {
            index: self.index + 1,
            ..self.clone()
        }
    }
}

/// How a login can succeed although our module has not accepted it. Lines are given by their index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bypass {
    /// The line `by` can pass over the line `ours`: by a jump, or as it ends the stack or substack.
    Jump { by: usize, ours: usize },
    /// The line `by` can undo our refusal.
    Reset { by: usize },
    /// The line `by` can ask for a new password, which then is the stack's result.
    Renewal { by: usize },
    /// The stack has too many states to visit.
    TooManyPaths,
}

/// Finds a path to success on which our module has returned neither success nor `PAM_IGNORE`;
/// `None` if every path to success passes our module. The analysis assumes that other modules can
/// return anything. Applications admit an account whose password is due and then ask for a new one.
pub(super) fn find_bypass(stack: &[Entry], group: Group) -> Option<Bypass> {
    let start = start_state();
    let mut visited = BTreeSet::from([start.clone()]);
    // Each state with the index of its predecessor; those from `next` on are still to be followed.
    let mut trail = vec![(start, None)];
    let mut next = 0;
    while let Some((state, _)) = trail.get(next) {
        let Some(entry) = stack.get(state.index) else {
            if admits(group, state.verdict) {
                return Some(blame_line(stack, &trail, next));
            }
            next += 1;
            continue;
        };
        for follower in next_states(stack, entry, state) {
            if visited.len() >= STATES_MAX {
                return Some(Bypass::TooManyPaths);
            }
            if visited.insert(follower.clone()) {
                trail.push((follower, Some(next)));
            }
        }
        next += 1;
    }
    None
}

/// Returns whether applications admit a login with this result of a group's stack.
pub(super) fn admits(group: Group, verdict: StackVerdict) -> bool {
    match verdict {
        StackVerdict::Positive(Return::Success) => true,
        StackVerdict::Positive(Return::Renew) | StackVerdict::Negative(Return::Renew) => {
            group == Group::Account
        }
        _ => false,
    }
}

/// Returns the state in front of the first line.
pub(super) fn start_state() -> WalkState {
    WalkState {
        index: 0,
        level: 0,
        verdict: StackVerdict::Open,
        entry_verdicts: vec![StackVerdict::Open],
    }
}

/// Enters the level of the next line: the verdict so far is the one at a substack's entry.
pub(super) fn enter_level(state: &mut WalkState, entry: &Entry) {
    if state.level < entry.level {
        state.entry_verdicts.resize(entry.level, StackVerdict::Open);
        state.entry_verdicts.push(state.verdict);
    }
    state.level = entry.level;
}

/// Returns every state that can follow the line `entry`, except those in which our module let the login pass: by
/// success, or by `PAM_IGNORE` for a login that it does not judge.
fn next_states(stack: &[Entry], entry: &Entry, state: &WalkState) -> Vec<WalkState> {
    let mut state = state.clone();
    enter_level(&mut state, entry);
    if entry.control.is_none() {
        return vec![state.after_line()];
    }
    let mut outcomes = entry.outcomes();
    if entry.is_fit() {
        // Only our failures continue here; all of them are bad or die (`Control::is_required`), and none
        // asks for a new password.
        outcomes.retain(|(code, action)| {
            *code != Return::Renew && matches!(action, Action::Bad | Action::Die)
        });
    }
    let outcomes = outcomes.into_iter();
    outcomes
        .map(|(code, action)| apply_action(stack, &state, code, action))
        .collect()
}

/// Returns the state behind a line whose module returns `code`, for which its control has `action`. `die`, and `done`
/// unless a line has failed, end the stack or substack; `reset` restores the verdict at its entry; a jump past its
/// end refuses.
pub(super) fn apply_action(
    stack: &[Entry],
    state: &WalkState,
    code: Return,
    action: Action,
) -> WalkState {
    let mut state = state.clone();
    // The last line that is run or skipped.
    let mut last = state.index;
    match action {
        Action::Ignore => {}
        Action::Reset => {
            state.verdict = state
                .entry_verdicts
                .get(state.level)
                .copied()
                .unwrap_or(StackVerdict::Open);
        }
        Action::Ok | Action::Done => {
            // As in libpam, a favourable value other than success stays.
            if matches!(
                state.verdict,
                StackVerdict::Open | StackVerdict::Positive(Return::Success)
            ) {
                state.verdict = StackVerdict::Positive(code);
            }
            if action == Action::Done && !state.verdict.is_negative() {
                last = last_of_level(stack, last, state.level);
            }
        }
        Action::Bad | Action::Die => {
            if !state.verdict.is_negative() {
                let code = if code == Return::Renew {
                    code
                } else {
                    Return::Other
                };
                state.verdict = StackVerdict::Negative(code);
            }
            if action == Action::Die {
                last = last_of_level(stack, last, state.level);
            }
        }
        Action::Jump(count) => match find_last_skipped(stack, last, state.level, count) {
            Some(target) => last = target,
            None => {
                state.verdict = StackVerdict::Negative(Return::Other);
                last = last_of_level(stack, last, state.level);
            }
        },
    }
    state.index = last + 1;
    state
}

/// Returns the index of the last line of the substack, or of the stack, that contains `at`.
fn last_of_level(stack: &[Entry], at: usize, level: usize) -> usize {
    let rest = stack.iter().skip(at + 1);
    at + rest.take_while(|entry| entry.level >= level).count()
}

/// Returns the index of the last of `count` lines after `at`, whose own level is `level`: a substack counts as one line
/// with its start. `None` if fewer follow in the stack, or in the substack that contains `at`.
pub(super) fn find_last_skipped(
    stack: &[Entry],
    at: usize,
    level: usize,
    count: usize,
) -> Option<usize> {
    let level_of = |index: usize| stack.get(index).map(|entry| entry.level);
    let mut last = at;
    for _ in 0..count {
        if level_of(last + 1).is_none_or(|next| next < level) {
            return None;
        }
        last += 1;
        while level_of(last + 1).is_some_and(|next| next > level) {
            last += 1;
        }
    }
    Some(last)
}

/// Names the line to blame for the path that ends at `end`, in a stack with a line of this module: the last one
/// that passed over such a line, by a jump or because it ended the stack or substack (`sufficient`); else, if the
/// path ends with a request for a new password, the last one that made it; else the last one that undid a refusal.
fn blame_line(stack: &[Entry], trail: &[(WalkState, Option<usize>)], end: usize) -> Bypass {
    let is_ours = |index: &usize| stack.get(*index).is_some_and(Entry::is_fit);
    let mut reset = None;
    let mut renewal = None;
    // Backwards: what comes first is the last on the path.
    let mut current = end;
    while let Some((state, Some(parent))) = trail.get(current) {
        let Some((before, _)) = trail.get(*parent) else {
            break;
        };
        if let Some(ours) = (before.index + 1..state.index).find(is_ours) {
            return Bypass::Jump {
                by: before.index,
                ours,
            };
        }
        if before.verdict.is_negative() && !state.verdict.is_negative() {
            reset = reset.or(Some(before.index));
        }
        if state.asks_for_password() && !before.asks_for_password() {
            renewal = renewal.or(Some(before.index));
        }
        current = *parent;
    }
    let ends_by_asking = trail
        .get(end)
        .is_some_and(|(state, _)| state.asks_for_password());
    match renewal {
        Some(by) if ends_by_asking => Bypass::Renewal { by },
        // Our line failed and was not passed over, so that a line after it has undone that: `reset` is there.
        _ => Bypass::Reset {
            by: reset.unwrap_or_default(),
        },
    }
}
