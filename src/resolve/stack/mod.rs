//! Whether a service's PAM stack really runs our session module.
//!
//! The account phase only admits; it is the session phase that puts the login into its job. A
//! stack with the one and without the other would admit users to the bare node, so the account
//! phase asks this module. It reads the service files as libpam does.

mod control;
mod flatten;
mod line;
mod walk;

use std::fmt;
use std::path::Path;

use crate::plan::Stack;
use flatten::{Handler, Kind, flatten};
pub use flatten::{Place, Unfit};
use walk::{Bypass, bypass};

/// What was found out about a service's session stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// No session opens unless the module of this line, or of another of ours, is content.
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
    #[must_use]
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
#[must_use]
pub fn judge(root: &Path, service: &str) -> Finding {
    // As pam_start(3) does: the last component, in lower case.
    let file = service.rsplit('/').next().unwrap_or_default().to_ascii_lowercase();
    if file.is_empty() || file == "." || file == ".." {
        return Finding::Unreadable("the service has no name".to_owned());
    }
    match flatten(root, &file) {
        Ok(stack) => judge_flat(&stack),
        Err(what) => Finding::Unreadable(what),
    }
}

fn judge_flat(stack: &[Handler]) -> Finding {
    let place = |index: usize| stack.get(index).map(|handler| handler.place.clone());
    let ours = stack.iter().find(|handler| matches!(handler.kind, Kind::Ours(_)));
    let Some(ours) = ours.map(|handler| handler.place.clone()) else {
        let unfit = stack.iter().find_map(|handler| match &handler.kind {
            Kind::Unfit(_, why) => Some(Finding::Unfit(handler.place.clone(), why.clone())),
            _ => None,
        });
        return unfit.unwrap_or(Finding::Absent);
    };
    match bypass(stack) {
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
