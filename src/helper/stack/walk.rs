//! Every way that libpam can take through a flattened stack.
//!
//! Nothing is known of other modules, so each may return anything. What is looked for is a way
//! that ends in success without our module having answered success (or `PAM_IGNORE`, its own word
//! for "not my business"); while there is one, a login can happen without us.

use std::collections::HashSet;

use super::Group;
use super::flatten::{Action, Entry, Return};

/// Most states that are looked at; a real stack has some hundreds.
const STATES_MAX: usize = 100_000;

/// The verdict that libpam has formed so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Verdict {
    /// None yet.
    Open,
    /// Favourable, with the value to return.
    Positive(Return),
    /// Unfavourable, whatever follows but a reset.
    Negative,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    at: usize,
    /// Level of the line before.
    level: usize,
    verdict: Verdict,
    /// The verdict at the entry to each level, which a reset goes back to.
    entries: Vec<Verdict>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bypass {
    /// The line `by` can leap over the line `ours`.
    Leap { by: usize, ours: usize },
    /// The line `by` can undo the refusal of ours.
    Reset { by: usize },
    /// There are too many ways to look at.
    Maze,
}

/// A way to success that does not pass our module; `None` where there is none. An account whose
/// password is due is let in by applications, which then have it changed.
pub(super) fn bypass(stack: &[Entry], group: Group) -> Option<Bypass> {
    let lets_in = |verdict| match verdict {
        Verdict::Positive(Return::Success) => true,
        Verdict::Positive(Return::Renew) => group == Group::Account,
        _ => false,
    };
    let start = State { at: 0, level: 0, verdict: Verdict::Open, entries: vec![Verdict::Open] };
    let mut seen = HashSet::from([start.clone()]);
    // States with the index of the one that they follow.
    let mut trail = vec![(start, None)];
    let mut next = 0;
    while let Some((state, _)) = trail.get(next) {
        let Some(entry) = stack.get(state.at) else {
            if lets_in(state.verdict) {
                return Some(blame(stack, &trail, next));
            }
            next += 1;
            continue;
        };
        for follower in step(stack, entry, state) {
            if seen.len() >= STATES_MAX {
                return Some(Bypass::Maze);
            }
            if seen.insert(follower.clone()) {
                trail.push((follower, Some(next)));
            }
        }
        next += 1;
    }
    None
}

/// Every state that can follow, those aside in which our module was content.
fn step(stack: &[Entry], entry: &Entry, state: &State) -> Vec<State> {
    let mut state = state.clone();
    if state.level < entry.level {
        state.entries.resize(entry.level, Verdict::Open);
        state.entries.push(state.verdict);
    }
    state.level = entry.level;
    let Some(control) = &entry.control else {
        state.at += 1;
        return vec![state];
    };
    let is_ours = entry.is_fit();
    // Of ours only failures go on here, all of which are bad or die (`Control::is_required`).
    let goes_on = |action: &Action| !is_ours || matches!(action, Action::Bad | Action::Die);
    let outcomes = control.outcomes().into_iter().filter(|(_, action)| goes_on(action));
    outcomes.map(|(code, action)| act(stack, &state, code, action)).collect()
}

fn act(stack: &[Entry], state: &State, code: Return, action: Action) -> State {
    let mut state = state.clone();
    let mut last = state.at;
    match action {
        Action::Ignore => {}
        Action::Reset => {
            state.verdict = state.entries.get(state.level).copied().unwrap_or(Verdict::Open);
        }
        Action::Ok | Action::Done => {
            if matches!(state.verdict, Verdict::Open | Verdict::Positive(Return::Success)) {
                state.verdict = Verdict::Positive(code);
            }
            if action == Action::Done && state.verdict != Verdict::Negative {
                last = end_of_level(stack, last, state.level);
            }
        }
        Action::Bad | Action::Die => {
            state.verdict = Verdict::Negative;
            if action == Action::Die {
                last = end_of_level(stack, last, state.level);
            }
        }
        Action::Jump(count) => match jump(stack, last, state.level, count) {
            Some(target) => last = target,
            None => {
                state.verdict = Verdict::Negative;
                last = end_of_level(stack, last, state.level);
            }
        },
    }
    state.at = last + 1;
    state
}

/// The last line of the substack, or of the stack, that `at` stands in.
fn end_of_level(stack: &[Entry], at: usize, level: usize) -> usize {
    let rest = stack.iter().skip(at + 1);
    at + rest.take_while(|entry| entry.level >= level).count()
}

/// The last of `count` lines after `at`, a substack counting as one; `None` where fewer follow.
fn jump(stack: &[Entry], at: usize, level: usize, count: usize) -> Option<usize> {
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

/// Which line is to blame for the way to the state `end`: the last that leapt over one of ours,
/// else the last that undid a refusal.
fn blame(stack: &[Entry], trail: &[(State, Option<usize>)], end: usize) -> Bypass {
    let is_ours = |index: &usize| stack.get(*index).is_some_and(Entry::is_fit);
    let mut reset = None;
    let mut to = trail.get(end);
    while let Some((state, Some(parent))) = to {
        let from = trail.get(*parent);
        if let Some((before, _)) = from {
            if let Some(ours) = (before.at + 1..state.at).find(is_ours) {
                return Bypass::Leap { by: before.at, ours };
            }
            if before.verdict == Verdict::Negative && state.verdict != Verdict::Negative {
                reset = reset.or(Some(before.at));
            }
        }
        to = from;
    }
    Bypass::Reset { by: reset.unwrap_or_default() }
}
