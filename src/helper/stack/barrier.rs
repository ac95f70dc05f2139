//! Finds the line at which every login ends, whatever modules return: `check` names it, since no login gets as far as the
//! module's own text.

use super::control::{Action, Control, Return};
use super::dirs::SITE_DIR;
use super::entry::{Entry, FileLine};
use super::flatten::{FlatStack, flatten};
use super::group::Group;
use super::libpam::{Reading, is_missing_module};
use super::service_file::Files;
use super::walk::{
    STATES_MAX, WalkState, admits, apply_action, enter_level, find_last_skipped, start_state,
};
use std::collections::BTreeSet;
use std::path::Path;
use thiserror::Error;

/// The module that refuses everybody, and the one that refuses nobody.
const DENY_MODULE: &str = "pam_deny.so";
const PERMIT_MODULE: &str = "pam_permit.so";

/// Why nobody gets past a stack.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Barrier {
    /// The line fails without its module.
    #[error("names {0}, which does not exist")]
    MissingModule(String),
    /// The line is for that.
    #[error("calls {DENY_MODULE}")]
    Denies,
    /// The control makes every value a failure.
    #[error("has a control by which every result of its module refuses")]
    Control,
    /// A jump leads past the end of the stack or substack.
    #[error("jumps over more lines than there are behind it")]
    JumpPastEnd,
    /// The line cannot be understood.
    #[error("has no group or no module, and its control makes that a refusal")]
    Mistake,
    /// The service has no line of the group, and neither has the fallback.
    #[error("and /etc/pam.d/other have no line of this group")]
    NoLines,
    /// All lines are ignored, and a stack without any success refuses.
    #[error("is the last line, and none makes the stack succeed")]
    NoSuccess,
}

/// Finds the line of a service because of which no login succeeds, in the service files below `root`; `None` if one may
/// succeed, or if that cannot be told: libpam rejects a line, or the stack cannot be read or has too many paths. Modules
/// of others may return anything, but for those of which it is known.
pub fn find_barrier(root: &Path, service: &str, group: Group) -> Option<(FileLine, Barrier)> {
    let stack = read_stack(root, service, group)?;
    if stack.entries.is_empty() && stack.rejected.is_none() {
        let file = root.join(SITE_DIR).join(file_name(service));
        return Some((FileLine { file, line: 1 }, Barrier::NoLines));
    }
    find_in_stack(root, &stack, group)
}

/// Finds the first line of a service that jumps past the end of its stack or substack if its module succeeds, in the
/// service files below `root`. Logins that take the jump are refused; others may succeed, as [`find_barrier`] tells.
pub fn find_jump_past_end(root: &Path, service: &str, group: Group) -> Option<FileLine> {
    let stack = read_stack(root, service, group)?;
    if stack.rejected.is_some() {
        return None;
    }
    let entries = &stack.entries;
    let is_jump =
        |index: &usize| judge_line(root, entries, *index, group) == Some(Barrier::JumpPastEnd);
    let index = (0..entries.len()).find(is_jump)?;
    Some(entries.get(index)?.place.clone())
}

/// Reads the stack of a service; `None` if it cannot be read.
fn read_stack(root: &Path, service: &str, group: Group) -> Option<FlatStack> {
    let files = Files::new(root, None);
    let reading = Reading::possible(root).first().copied()?;
    flatten(&files, &file_name(service), group, reading).ok()
}

/// The name under which libpam looks for the file of a service.
fn file_name(service: &str) -> String {
    let name = service.rsplit('/').next().unwrap_or_default();
    name.to_ascii_lowercase()
}

/// Finds the line of a stack because of which no login succeeds: one could, if that line let it in at once. Of several the
/// first one is named, but a line that is there to refuse only if there is no other.
fn find_in_stack(root: &Path, stack: &FlatStack, group: Group) -> Option<(FileLine, Barrier)> {
    let entries = &stack.entries;
    if stack.rejected.is_some() {
        return None;
    }
    if may_succeed(root, entries, group)? {
        return None;
    }
    let mut suspects = Vec::new();
    for (index, entry) in entries.iter().enumerate() {
        if let Some(barrier) = judge_line(root, entries, index, group) {
            suspects.push((index, entry, barrier));
        }
    }
    suspects.sort_by_key(|(.., barrier)| *barrier == Barrier::Denies);
    let is_cause = |index: usize| {
        let mut without = entries.clone();
        if let Some(entry) = without.get_mut(index) {
            entry.control = Some(Control::always(Action::Done));
            entry.has_mistake = false;
            PERMIT_MODULE.clone_into(&mut entry.module);
        }
        may_succeed(root, &without, group) == Some(true)
    };
    let cause = suspects.iter().find(|(index, ..)| is_cause(*index));
    // Where several lines each keep everybody out, the first one is as good as any.
    Some(match cause.or_else(|| suspects.first()) {
        Some((_, entry, barrier)) => (entry.place.clone(), barrier.clone()),
        None => (entries.last()?.place.clone(), Barrier::NoSuccess),
    })
}

/// Finds why a line may keep everybody out by itself; `None` if it may let logins pass. A jump past the end where its
/// module succeeds counts: that is what users' logins meet.
fn judge_line(root: &Path, stack: &[Entry], index: usize, group: Group) -> Option<Barrier> {
    let entry = stack.get(index)?;
    let outcomes = list_outcomes(root, entry, group);
    let jumps_past_end = |action: &Action| {
        matches!(action, Action::Jump(count)
            if find_last_skipped(stack, index, entry.level, *count).is_none())
    };
    let refuses =
        |action: &Action| matches!(action, Action::Bad | Action::Die) || jumps_past_end(action);
    let is_success = |code: &Return| *code == Return::Success;
    if outcomes
        .iter()
        .any(|(code, action)| is_success(code) && jumps_past_end(action))
    {
        return Some(Barrier::JumpPastEnd);
    }
    if outcomes.is_empty() || !outcomes.iter().all(|(_, action)| refuses(action)) {
        return None;
    }
    Some(if entry.has_mistake {
        Barrier::Mistake
    } else if is_missing_module(root, &entry.module) {
        Barrier::MissingModule(entry.module.clone())
    } else if entry.file() == DENY_MODULE {
        Barrier::Denies
    } else {
        Barrier::Control
    })
}

/// Lists what may happen at a line, as [`Control::outcomes`] does, as far as its module is known. Empty for the start of a
/// substack.
fn list_outcomes(root: &Path, entry: &Entry, group: Group) -> Vec<(Return, Action)> {
    let Some(control) = &entry.control else {
        return Vec::new();
    };
    if !entry.has_mistake && is_missing_module(root, &entry.module) {
        return vec![(Return::Other, control.action_at("module_unknown"))];
    }
    match entry.file() {
        PERMIT_MODULE => vec![(Return::Success, control.action_at("success"))],
        DENY_MODULE if group == Group::Session => {
            vec![(Return::Other, control.action_at("session_err"))]
        }
        DENY_MODULE => vec![(Return::Other, control.action_at("auth_err"))],
        _ => entry.outcomes(),
    }
}

/// Returns whether a way through the stack leads to success; `None` if it has too many ways.
fn may_succeed(root: &Path, stack: &[Entry], group: Group) -> Option<bool> {
    let outcomes: Vec<Vec<(Return, Action)>> = stack
        .iter()
        .map(|entry| list_outcomes(root, entry, group))
        .collect();
    let mut visited = BTreeSet::from([start_state()]);
    let mut pending = vec![start_state()];
    while let Some(state) = pending.pop() {
        let (Some(entry), Some(of_line)) = (stack.get(state.index), outcomes.get(state.index))
        else {
            if admits(group, state.verdict) {
                return Some(true);
            }
            continue;
        };
        for follower in follow(stack, entry, of_line, state) {
            if visited.len() >= STATES_MAX {
                return None;
            }
            if visited.insert(follower.clone()) {
                pending.push(follower);
            }
        }
    }
    Some(false)
}

/// Returns every state that can follow a line with these outcomes.
fn follow(
    stack: &[Entry],
    entry: &Entry,
    outcomes: &[(Return, Action)],
    mut state: WalkState,
) -> Vec<WalkState> {
    enter_level(&mut state, entry);
    if entry.control.is_none() {
        return vec![state.after_line()];
    }
    let outcomes = outcomes.iter();
    outcomes
        .map(|(code, action)| apply_action(stack, &state, *code, *action))
        .collect()
}
