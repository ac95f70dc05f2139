//! Judges whether every login that succeeds runs our module.

use super::entry::{Entry, FileLine, LineFault};
use super::error::StackError;
use super::flatten::{FlatStack, flatten};
use super::group::Group;
use super::libpam::Reading;
use super::rejection::Rejection;
use super::service_file::{Files, Replacement};
use super::walk::{Bypass, find_bypass};
use protocol::SessionLine;
use std::fmt;
use std::path::Path;

/// The result of analysing a service's stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StackFinding {
    /// No login succeeds unless our module accepts it, in this line or another.
    Effective(FileLine),
    /// The stack has a line of this module, but another line can pass over it: by a jump, or as it ends the
    /// stack or substack.
    Skipped {
        /// The line of this module.
        ours: FileLine,
        /// The line that passes over it.
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
    Unreadable(StackError),
}

impl StackFinding {
    /// Returns the value of the reply's key `stack`.
    pub fn session_line(&self) -> SessionLine {
        match self {
            Self::Effective(_) => SessionLine::Effective,
            _ => SessionLine::Missing,
        }
    }
}

impl StackFinding {
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
            Self::Unreadable(why) => why.to_string(),
        }
    }
}

impl fmt::Display for StackFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.describe(Group::Session))
    }
}

/// Analyses the stack of `service` in one group, in the service files below `root`, which is `/` except in tests.
/// In the auth group the stack is effective if our two lines, which let a login join its job's private files, enclose
/// all others and none can skip the last one.
pub fn judge_stack(root: &Path, service: &str, group: Group) -> StackFinding {
    judge_stack_with(root, service, group, None)
}

/// Analyses the stack of `service` as if one file had the content of `replacement`.
pub fn judge_stack_with(
    root: &Path,
    service: &str,
    group: Group,
    replacement: Replacement<'_>,
) -> StackFinding {
    judge_files(
        &Files::new(root, replacement),
        &Reading::possible(root),
        service,
        group,
    )
}

/// Analyses the session stack and the auth stack of `service` in one pass over its files.
pub fn judge_stacks_of_login(root: &Path, service: &str) -> [StackFinding; 2] {
    let files = Files::new(root, None);
    let readings = Reading::possible(root);
    [Group::Session, Group::Auth].map(|group| judge_files(&files, &readings, service, group))
}

/// Analyses the stack of `service` by each way in which libpam may read it. The stack is effective only if it is so
/// by all of them; else the finding is that of the first way by which it is not. There is always one way at least.
fn judge_files(
    files: &Files<'_>,
    readings: &[Reading],
    service: &str,
    group: Group,
) -> StackFinding {
    let mut finding = StackFinding::Absent;
    for reading in readings {
        finding = match read_stack(files, service, group, *reading) {
            Ok(stack) if group == Group::Auth => judge_auth_lines(stack),
            Ok(stack) => judge_stack_lines(&stack, group),
            Err(why) => StackFinding::Unreadable(why),
        };
        if !matches!(finding, StackFinding::Effective(_)) {
            break;
        }
    }
    finding
}

/// Returns the stack's lines in the order in which libpam runs them, with includes resolved.
///
/// # Errors
///
/// Why neither libpam nor we can read the files.
pub fn read_entries(root: &Path, service: &str, group: Group) -> Result<Vec<Entry>, StackError> {
    let mut stack = read_entries_with(root, service, group, None)?;
    stack.retain(|entry| entry.control.is_some());
    Ok(stack)
}

/// Returns the lines of [`read_entries`] and those that begin substacks, as if one file had the
/// content of `replacement`. If libpam may read the files in several ways, they are
/// read in the first one.
///
/// # Errors
///
/// As [`read_entries`].
pub fn read_entries_with(
    root: &Path,
    service: &str,
    group: Group,
    replacement: Replacement<'_>,
) -> Result<Vec<Entry>, StackError> {
    let reading = Reading::possible(root)
        .first()
        .copied()
        .unwrap_or(Reading::WIDEST);
    Ok(read_stack(&Files::new(root, replacement), service, group, reading)?.entries)
}

/// Judges the auth lines of this module: they have to be the first and the last one, and no other may skip the
/// last one on a way to success.
fn judge_auth_lines(mut stack: FlatStack) -> StackFinding {
    // A line that libpam rejects comes before any fault of ours: the last call below reports it.
    if stack.rejected.is_none() {
        if let Some((place, fault)) = find_auth_fault(&stack.entries) {
            return StackFinding::Unreliable(place, fault);
        }
    }
    // The search for a way past our lines is content with one of them. No other line can skip the first one, so the
    // first one is not marked as ours, and the last one has to run.
    if let Some(first) = stack.entries.iter_mut().find(|entry| entry.is_our_module()) {
        first.ours = None;
    }
    judge_stack_lines(&stack, Group::Auth)
}

/// Finds what is wrong with the places and controls of our auth lines; `None` if nothing is, and also if there are
/// none.
fn find_auth_fault(stack: &[Entry]) -> Option<(FileLine, LineFault)> {
    let calls: Vec<&Entry> = stack
        .iter()
        .filter(|entry| entry.control.is_some())
        .collect();
    let ours: Vec<&Entry> = calls
        .iter()
        .copied()
        .filter(|entry| entry.is_our_module())
        .collect();
    let first = ours.first()?;
    let outermost = [calls.first(), calls.last()];
    if outermost
        .into_iter()
        .flatten()
        .any(|entry| !entry.is_our_module())
    {
        return Some((first.place.clone(), LineFault::NotOutermost));
    }
    if ours.len() != 2 {
        return Some((first.place.clone(), LineFault::NotTwo(ours.len())));
    }
    // Their places are right: what is left is a fault of one of them by itself.
    ours.iter()
        .find_map(|entry| Some((entry.place.clone(), entry.ours.clone()?.err()?)))
}

/// Reads the lines of a group. Marks session lines that observe while an account line does not.
///
/// # Errors
///
/// [`StackError::UnnamedService`]; why neither libpam nor we can read the files.
fn read_stack(
    files: &Files<'_>,
    service: &str,
    group: Group,
    reading: Reading,
) -> Result<FlatStack, StackError> {
    // pam_start(3) takes the last component, in lower case.
    let file = service
        .rsplit('/')
        .next()
        .unwrap_or_default()
        .to_ascii_lowercase();
    if file.is_empty() || file == "." || file == ".." {
        return Err(StackError::UnnamedService);
    }
    let mut stack = flatten(files, &file, group, reading)?;
    if group == Group::Session && stack.entries.iter().any(Entry::is_observing) {
        let account = flatten(files, &file, Group::Account, reading)?.entries;
        mark_lone_observers(&mut stack.entries, &account);
    }
    Ok(stack)
}

/// Marks the session lines that observe as unreliable if an account line of this module does not observe: that line
/// admits users, whom these lines would leave outside of their jobs. If the lines of both groups observe, the site
/// only tries the module.
fn mark_lone_observers(session: &mut [Entry], account: &[Entry]) {
    let account_enforces = account
        .iter()
        .any(|entry| entry.is_for_service() && !entry.is_observing());
    if !account_enforces {
        return;
    }
    for entry in session {
        if entry.is_fit() && entry.is_observing() {
            entry.ours = Some(Err(LineFault::ObservesAlone));
        }
    }
}

/// Judges the lines of a group: whether one of this module can be relied on, and whether no way to success passes it.
fn judge_stack_lines(
    FlatStack {
        entries: stack,
        rejected,
    }: &FlatStack,
    group: Group,
) -> StackFinding {
    if let Some((place, why)) = rejected {
        return StackFinding::Rejected(place.clone(), why.clone());
    }
    // Never `None`: a bypass names lines of this stack.
    let place = |index: usize| stack.get(index).map(|entry| entry.place.clone());
    let Some(ours) = stack
        .iter()
        .find(|entry| entry.is_fit())
        .map(|entry| entry.place.clone())
    else {
        let unfit = stack.iter().find_map(|entry| match &entry.ours {
            Some(Err(why)) => Some(StackFinding::Unreliable(entry.place.clone(), why.clone())),
            _ => None,
        });
        return unfit.unwrap_or(StackFinding::Absent);
    };
    match find_bypass(stack, group) {
        None => StackFinding::Effective(ours),
        Some(Bypass::TooManyPaths) => StackFinding::TooManyPaths,
        Some(Bypass::Reset { by }) => StackFinding::Undone {
            by: place(by).unwrap_or(ours),
        },
        Some(Bypass::Renewal { by }) => StackFinding::Outweighed {
            by: place(by).unwrap_or_else(|| ours.clone()),
            ours,
        },
        Some(Bypass::Jump { by, ours: skipped }) => StackFinding::Skipped {
            by: place(by).unwrap_or_else(|| ours.clone()),
            ours: place(skipped).unwrap_or(ours),
        },
    }
}
