//! Whether a service's PAM stack really runs our module.
//!
//! The account phase only admits; it is the session phase that puts the login into its job. A
//! stack with the one and without the other would admit users to the bare node, so the account
//! phase asks this module. It reads the service files as libpam does.

mod flatten;

use flatten::{Action, Instead, Return, flatten};
pub use flatten::{Entry, Line, MODULES, Place, Unfit, closes, lines};
use protocol::Stack;
use std::collections::HashSet;
use std::fmt;
use std::path::Path;

/// A group of PAM's: which of a module's functions a line has called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Who it is.
    Auth,
    /// Whether they may log in.
    Account,
    /// What is set up for the login.
    Session,
}

impl Group {
    /// The word that lines of it begin with.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auth => "auth",
            Self::Account => "account",
            Self::Session => "session",
        }
    }
}

/// What was found out about a service's stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// Nothing goes on unless the module of this line, or of another of ours, is content.
    Effective(Place),
    /// There is a line of ours, but this one can leap over it.
    Skipped {
        /// The line of ours.
        ours: Place,
        /// The line that leaps.
        by: Place,
    },
    /// There is a line of ours, but this one can undo its refusal.
    Undone {
        /// The line that undoes.
        by: Place,
    },
    /// The only lines of ours are unfit; the first one, and why.
    Unfit(Place, Unfit),
    /// There is no line of ours.
    Absent,
    /// The stack has too many ways through it to look at all.
    Maze,
    /// A file cannot be read, by libpam or by us.
    Unreadable(String),
}

impl Finding {
    /// The finding in one word, as the other half wants it.
    pub fn stack(&self) -> Stack {
        match self {
            Self::Effective(_) => Stack::Effective,
            _ => Stack::Missing,
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Effective(ours) => write!(f, "session line at {ours} is effective"),
            Self::Skipped { ours, by } => {
                write!(f, "session line at {ours} can be skipped by {by}")
            }
            Self::Undone { by } => write!(f, "refusal of the session line can be undone by {by}"),
            Self::Unfit(ours, why) => write!(f, "session line at {ours} {why}"),
            Self::Absent => f.write_str("no session line for pam_job_adopt.so"),
            Self::Maze => f.write_str("session stack has too many ways through it"),
            Self::Unreadable(what) => f.write_str(what),
        }
    }
}

/// Judges the session stack of `service` by the service files below `root`, which is `/` but in
/// tests.
pub fn judge(root: &Path, service: &str) -> Finding {
    judge_group(root, service, Group::Session)
}

/// The same of any group.
pub fn judge_group(root: &Path, service: &str, group: Group) -> Finding {
    judge_with(root, service, group, None)
}

/// The same, while one of the files has another text than it has on the disk.
pub fn judge_with(root: &Path, service: &str, group: Group, instead: Instead<'_>) -> Finding {
    match entries_with(root, service, group, instead) {
        Ok(stack) => judge_flat(&stack, group),
        Err(what) => Finding::Unreadable(what),
    }
}

/// The lines of the stack in the order in which libpam comes to them, includes resolved.
/// Fails: a text that names the file that libpam or we cannot read.
pub fn entries(root: &Path, service: &str, group: Group) -> Result<Vec<Entry>, String> {
    let mut stack = entries_with(root, service, group, None)?;
    stack.retain(|entry| entry.control.is_some());
    Ok(stack)
}

/// The same with the lines that begin substacks, while one of the files has another text than it
/// has on the disk.
/// Fails: as [`entries`].
pub fn entries_with(
    root: &Path,
    service: &str,
    group: Group,
    instead: Instead<'_>,
) -> Result<Vec<Entry>, String> {
    // As pam_start(3) does: the last component, in lower case.
    let file = service.rsplit('/').next().unwrap_or_default().to_ascii_lowercase();
    if file.is_empty() || file == "." || file == ".." {
        return Err("the service has no name".to_owned());
    }
    let mut stack = flatten(root, &file, group, instead)?;
    // While both lines observe, the site is only trying us.
    if group == Group::Session && stack.iter().any(Entry::observes) {
        let account = flatten(root, &file, Group::Account, instead)?;
        if account.iter().any(|entry| entry.is_for_service() && !entry.observes()) {
            let observing = stack.iter_mut().filter(|entry| entry.is_fit() && entry.observes());
            observing.for_each(|entry| entry.ours = Some(Err(Unfit::Observe)));
        }
    }
    Ok(stack)
}

fn judge_flat(stack: &[Entry], group: Group) -> Finding {
    let place = |index: usize| stack.get(index).map(|entry| entry.place.clone());
    let Some(ours) = stack.iter().find(|entry| entry.is_fit()).map(|entry| entry.place.clone())
    else {
        let unfit = stack.iter().find_map(|entry| match &entry.ours {
            Some(Err(why)) => Some(Finding::Unfit(entry.place.clone(), why.clone())),
            _ => None,
        });
        return unfit.unwrap_or(Finding::Absent);
    };
    match bypass(stack, group) {
        None => Finding::Effective(ours),
        Some(Bypass::Maze) => Finding::Maze,
        Some(Bypass::Reset { by }) => Finding::Undone { by: place(by).unwrap_or(ours) },
        Some(Bypass::Leap { by, ours: leapt }) => Finding::Skipped {
            by: place(by).unwrap_or_else(|| ours.clone()),
            ours: place(leapt).unwrap_or(ours),
        },
    }
}

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
enum Bypass {
    /// The line `by` can leap over the line `ours`.
    Leap { by: usize, ours: usize },
    /// The line `by` can undo the refusal of ours.
    Reset { by: usize },
    /// There are too many ways to look at.
    Maze,
}

/// A way to success on which our module has answered neither success nor `PAM_IGNORE`, its word for
/// "not my business"; `None` where there is none. Other modules may return anything: nothing is
/// known of them. An account whose password is due is let in by applications, which then have it
/// changed.
fn bypass(stack: &[Entry], group: Group) -> Option<Bypass> {
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

#[cfg(test)]
mod tests;
