//! Finds out whether a service's PAM stack runs our module in every login that succeeds.
//!
//! The account phase only admits; the session phase puts the login into its job. A stack with the
//! one and without the other would admit users to the bare node, so the account phase asks this
//! module. It reads the service files as libpam does. A line that libpam rejects, or that its
//! versions from 1.3 to 1.7 do not read alike, makes a stack one that does not.

mod compare;
mod control;
mod dirs;
mod flatten;
mod libpam;
mod lines;
mod rejection;

pub use compare::{
    ComparedLine, Comparison, ModuleReturn, Side, Step, compare_stacks, jump_targets,
};
use control::{Action, Return};
pub use dirs::service_dirs;
pub use flatten::{Entry, FileLine, LineFault, MODULE_FILES, is_close_only};
use flatten::{Files, FlatStack, Replacement, flatten};
use libpam::Reading;
pub use libpam::{find_module, find_module_folder, is_missing_module};
pub use lines::{LogicalLine, parse_lines};
use protocol::SessionLine;
pub use rejection::Rejection;
use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

/// A PAM management group: the function of a module that a line calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Authentication.
    Auth,
    /// Permission to log in.
    Account,
    /// Setting up the login.
    Session,
}

impl Group {
    /// Returns the word that lines of the group begin with.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auth => "auth",
            Self::Account => "account",
            Self::Session => "session",
        }
    }
}

/// The result of analysing a service's stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// No login succeeds unless our module accepts it, in this line or another.
    Effective(FileLine),
    /// The stack has a line of this module, but another line can jump over it.
    Skipped {
        /// The line of this module.
        ours: FileLine,
        /// The line that jumps.
        by: FileLine,
    },
    /// The stack has a line of this module, but another line can undo its refusal.
    Undone {
        /// The line that undoes.
        by: FileLine,
    },
    /// The stack has a line of this module, but its refusal does not count where another line asks
    /// for a new password: libpam keeps the first failure, and applications go on with that one.
    Outweighed {
        /// The line of this module.
        ours: FileLine,
        /// The line that asks for a new password.
        by: FileLine,
    },
    /// libpam rejects a line, or its versions read it differently.
    Rejected(FileLine, Rejection),
    /// No line of this module can be relied on; the first one, and why.
    Unreliable(FileLine, LineFault),
    /// The stack has no line of this module.
    Absent,
    /// The stack has too many paths to check them all.
    TooManyPaths,
    /// Neither libpam nor we can read a file that the text names.
    Unreadable(String),
}

impl Finding {
    /// Returns the value of the reply's key `stack`.
    pub fn session_line(&self) -> SessionLine {
        match self {
            Self::Effective(_) => SessionLine::Effective,
            _ => SessionLine::Missing,
        }
    }
}

impl Finding {
    /// Describes the finding about the stack of a group.
    pub fn describe(&self, group: Group) -> String {
        let group = group.as_str();
        match self {
            Self::Effective(ours) => format!("{group} line at {ours} is effective"),
            Self::Skipped { ours, by } => format!("{group} line at {ours} can be skipped by {by}"),
            Self::Undone { by } => format!("refusal of the {group} line can be undone by {by}"),
            Self::Outweighed { ours, by } => {
                format!(
                    "refusal of the {group} line at {ours} does not count where {by} asks for a new password"
                )
            }
            Self::Rejected(place, why) => format!("{place} {why}"),
            Self::Unreliable(ours, why) => format!("{group} line at {ours} {why}"),
            Self::Absent => format!("no {group} line for pam_job_adopt.so"),
            Self::TooManyPaths => format!("{group} stack has too many ways through it"),
            Self::Unreadable(what) => what.clone(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.describe(Group::Session))
    }
}

/// Analyses the stack of `service` in one group, in the service files below `root`, which is `/` except in tests.
/// In the auth group it is effective if a login can join private files.
pub fn judge_stack(root: &Path, service: &str, group: Group) -> Finding {
    judge_stack_with(root, service, group, None)
}

/// Analyses the stack of `service` as if one file had the content of `replacement`.
pub fn judge_stack_with(
    root: &Path,
    service: &str,
    group: Group,
    replacement: Replacement<'_>,
) -> Finding {
    judge_files(&Files::new(root, replacement), &Reading::possible(root), service, group)
}

/// Analyses the session stack and the auth stack of `service` in one pass over its files.
pub fn judge_stacks_of_login(root: &Path, service: &str) -> [Finding; 2] {
    let files = Files::new(root, None);
    let readings = Reading::possible(root);
    [Group::Session, Group::Auth].map(|group| judge_files(&files, &readings, service, group))
}

fn judge_files(files: &Files<'_>, readings: &[Reading], service: &str, group: Group) -> Finding {
    let mut finding = Finding::Absent;
    for reading in readings {
        finding = match read_stack(files, service, group, *reading) {
            Ok(stack) if group == Group::Auth => judge_auth_lines(stack),
            Ok(stack) => judge_stack_lines(&stack, group),
            Err(what) => Finding::Unreadable(what),
        };
        if !matches!(finding, Finding::Effective(_)) {
            break;
        }
    }
    finding
}

/// Returns the stack's lines in the order in which libpam runs them, with includes resolved.
///
/// # Errors
///
/// A text that names the file that neither libpam nor we can read.
pub fn read_entries(root: &Path, service: &str, group: Group) -> Result<Vec<Entry>, String> {
    let mut stack = read_entries_with(root, service, group, None)?;
    stack.retain(|entry| entry.control.is_some());
    Ok(stack)
}

/// Returns the lines of [`read_entries`] and those that begin substacks, as if one file had the
/// content of `replacement`.
///
/// # Errors
///
/// As [`read_entries`].
pub fn read_entries_with(
    root: &Path,
    service: &str,
    group: Group,
    replacement: Replacement<'_>,
) -> Result<Vec<Entry>, String> {
    let reading = Reading::possible(root).first().copied().unwrap_or(Reading::WIDEST);
    Ok(read_stack(&Files::new(root, replacement), service, group, reading)?.entries)
}

/// Judges the auth lines of this module: they have to be the first and the last one, and no other may skip the
/// last one on a way to success.
fn judge_auth_lines(mut stack: FlatStack) -> Finding {
    if let (Some((place, fault)), None) = (find_auth_fault(&stack.entries), &stack.rejected) {
        return Finding::Unreliable(place, fault);
    }
    // Only the last one has to run: no other line can skip the first one.
    if let Some(first) = stack.entries.iter_mut().find(|entry| entry.is_our_module()) {
        first.ours = None;
    }
    judge_stack_lines(&stack, Group::Auth)
}

/// Finds what is wrong with the places and controls of our auth lines; `None` also if there are none.
fn find_auth_fault(stack: &[Entry]) -> Option<(FileLine, LineFault)> {
    let calls: Vec<&Entry> = stack.iter().filter(|entry| entry.control.is_some()).collect();
    let ours: Vec<&Entry> = calls.iter().copied().filter(|entry| entry.is_our_module()).collect();
    let first = ours.first()?;
    let outermost = [calls.first(), calls.last()];
    if outermost.into_iter().flatten().any(|entry| !entry.is_our_module()) {
        return Some((first.place.clone(), LineFault::NotOutermost));
    }
    if ours.len() != 2 {
        return Some((first.place.clone(), LineFault::NotTwo(ours.len())));
    }
    ours.iter().find_map(|entry| Some((entry.place.clone(), entry.ours.clone()?.err()?)))
}

fn read_stack(
    files: &Files<'_>,
    service: &str,
    group: Group,
    reading: Reading,
) -> Result<FlatStack, String> {
    // pam_start(3) takes the last component, in lower case.
    let file = service.rsplit('/').next().unwrap_or_default().to_ascii_lowercase();
    if file.is_empty() || file == "." || file == ".." {
        return Err("the service has no name".to_owned());
    }
    let mut stack = flatten(files, &file, group, reading)?;
    // If both lines observe, the site only tries the module.
    if group == Group::Session && stack.entries.iter().any(Entry::is_observing) {
        let account = flatten(files, &file, Group::Account, reading)?.entries;
        if account.iter().any(|entry| entry.is_for_service() && !entry.is_observing()) {
            for entry in &mut stack.entries {
                if entry.is_fit() && entry.is_observing() {
                    entry.ours = Some(Err(LineFault::ObservesAlone));
                }
            }
        }
    }
    Ok(stack)
}

fn judge_stack_lines(FlatStack { entries: stack, rejected }: &FlatStack, group: Group) -> Finding {
    if let Some((place, why)) = rejected {
        return Finding::Rejected(place.clone(), why.clone());
    }
    let place = |index: usize| stack.get(index).map(|entry| entry.place.clone());
    let Some(ours) = stack.iter().find(|entry| entry.is_fit()).map(|entry| entry.place.clone())
    else {
        let unfit = stack.iter().find_map(|entry| match &entry.ours {
            Some(Err(why)) => Some(Finding::Unreliable(entry.place.clone(), why.clone())),
            _ => None,
        });
        return unfit.unwrap_or(Finding::Absent);
    };
    match find_bypass(stack, group) {
        None => Finding::Effective(ours),
        Some(Bypass::TooManyPaths) => Finding::TooManyPaths,
        Some(Bypass::Reset { by }) => Finding::Undone { by: place(by).unwrap_or(ours) },
        Some(Bypass::Renewal { by }) => {
            Finding::Outweighed { by: place(by).unwrap_or_else(|| ours.clone()), ours }
        }
        Some(Bypass::Jump { by, ours: skipped }) => Finding::Skipped {
            by: place(by).unwrap_or_else(|| ours.clone()),
            ours: place(skipped).unwrap_or(ours),
        },
    }
}

/// Maximum states that are visited; a real stack has some hundreds.
const STATES_MAX: usize = 100_000;

/// The verdict that libpam has formed up to a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum StackVerdict {
    /// No line has decided.
    Open,
    /// Favourable, with the value to return.
    Positive(Return),
    /// Unfavourable, with the value to return: that of the first failure. Only a reset can change
    /// it, and a jump that leads too far.
    Negative(Return),
}

impl StackVerdict {
    fn is_negative(self) -> bool {
        matches!(self, Self::Negative(_))
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct WalkState {
    /// Index of the next line.
    index: usize,
    /// Level of the previous line.
    level: usize,
    verdict: StackVerdict,
    /// The verdict at the entry to each level, which a reset restores.
    entries: Vec<StackVerdict>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bypass {
    /// The line `by` can jump over the line `ours`.
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
fn find_bypass(stack: &[Entry], group: Group) -> Option<Bypass> {
    let admits = |verdict| match verdict {
        StackVerdict::Positive(Return::Success) => true,
        StackVerdict::Positive(Return::Renew) | StackVerdict::Negative(Return::Renew) => {
            group == Group::Account
        }
        _ => false,
    };
    let start = start_state();
    let mut visited = BTreeSet::from([start.clone()]);
    // Each state with the index of its predecessor.
    let mut trail = vec![(start, None)];
    let mut next = 0;
    while let Some((state, _)) = trail.get(next) {
        let Some(entry) = stack.get(state.index) else {
            if admits(state.verdict) {
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

/// Returns the state in front of the first line.
fn start_state() -> WalkState {
    WalkState { index: 0, level: 0, verdict: StackVerdict::Open, entries: vec![StackVerdict::Open] }
}

/// Enters the level of the next line: the verdict so far is the one at a substack's entry.
fn enter_level(state: &mut WalkState, entry: &Entry) {
    if state.level < entry.level {
        state.entries.resize(entry.level, StackVerdict::Open);
        state.entries.push(state.verdict);
    }
    state.level = entry.level;
}

/// Returns every state that can follow, except those in which our module accepted the login.
fn next_states(stack: &[Entry], entry: &Entry, state: &WalkState) -> Vec<WalkState> {
    let mut state = state.clone();
    enter_level(&mut state, entry);
    let Some(control) = &entry.control else {
        state.index += 1;
        return vec![state];
    };
    let mut outcomes = control.outcomes();
    if entry.is_fit() {
        // Only our failures continue here; all of them are bad or die (`Control::is_required`), and none
        // asks for a new password.
        outcomes.retain(|(code, action)| {
            *code != Return::Renew && matches!(action, Action::Bad | Action::Die)
        });
    }
    let outcomes = outcomes.into_iter();
    outcomes.map(|(code, action)| apply_action(stack, &state, code, action)).collect()
}

fn apply_action(stack: &[Entry], state: &WalkState, code: Return, action: Action) -> WalkState {
    let mut state = state.clone();
    let mut last = state.index;
    match action {
        Action::Ignore => {}
        Action::Reset => {
            state.verdict = state.entries.get(state.level).copied().unwrap_or(StackVerdict::Open);
        }
        Action::Ok | Action::Done => {
            if matches!(state.verdict, StackVerdict::Open | StackVerdict::Positive(Return::Success))
            {
                state.verdict = StackVerdict::Positive(code);
            }
            if action == Action::Done && !state.verdict.is_negative() {
                last = last_of_level(stack, last, state.level);
            }
        }
        Action::Bad | Action::Die => {
            if !state.verdict.is_negative() {
                let code = if code == Return::Renew { code } else { Return::Other };
                state.verdict = StackVerdict::Negative(code);
            }
            if action == Action::Die {
                last = last_of_level(stack, last, state.level);
            }
        }
        Action::Jump(count) => match find_jump_target(stack, last, state.level, count) {
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

/// Returns the index of the last of `count` lines after `at`, counting a substack as one line;
/// `None` if fewer follow.
fn find_jump_target(stack: &[Entry], at: usize, level: usize, count: usize) -> Option<usize> {
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

/// Returns the line that makes the path to the state `end` possible: the last one that jumped over
/// a line of this module, or else the last one that asked for a new password or undid a refusal.
fn blame_line(stack: &[Entry], trail: &[(WalkState, Option<usize>)], end: usize) -> Bypass {
    let is_ours = |index: &usize| stack.get(*index).is_some_and(Entry::is_fit);
    let mut reset = None;
    let mut renewal = None;
    let renews = StackVerdict::Negative(Return::Renew);
    let mut current = trail.get(end);
    while let Some((state, Some(parent))) = current {
        let from = trail.get(*parent);
        if let Some((before, _)) = from {
            if let Some(ours) = (before.index + 1..state.index).find(is_ours) {
                return Bypass::Jump { by: before.index, ours };
            }
            if before.verdict.is_negative() && !state.verdict.is_negative() {
                reset = reset.or(Some(before.index));
            }
            if state.verdict == renews && before.verdict != renews {
                renewal = renewal.or(Some(before.index));
            }
        }
        current = from;
    }
    match (trail.get(end), renewal) {
        (Some((state, _)), Some(by)) if state.verdict == renews => Bypass::Renewal { by },
        _ => Bypass::Reset { by: reset.unwrap_or_default() },
    }
}

#[cfg(test)]
mod tests;
