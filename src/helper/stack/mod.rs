//! Whether a service's PAM stack really runs our module.
//!
//! The account phase only admits; it is the session phase that puts the login into its job. A
//! stack with the one and without the other would admit users to the bare node, so the account
//! phase asks this module. It reads the service files as libpam does.

mod flatten;
mod walk;

use std::fmt;
use std::path::Path;

use crate::protocol::Stack;
pub use flatten::{Entry, Line, MODULES, Place, Unfit, lines};
use flatten::{Instead, flatten};
use walk::{Bypass, bypass};

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

#[cfg(test)]
mod tests;
