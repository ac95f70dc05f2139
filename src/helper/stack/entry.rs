//! A line of a flattened stack, and why a line of this module cannot be relied on.

use super::control::{Action, Control, Return};
use std::fmt;
use std::path::PathBuf;
use thiserror::Error;

/// File names of our module.
pub const MODULE_FILES: [&str; 2] = ["pam_job_adopt.so", "libpam_job_adopt.so"];

/// A line of a service file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileLine {
    /// The file.
    pub file: PathBuf,
    /// The number of its first line, from 1.
    pub line: usize,
}

impl fmt::Display for FileLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file.display(), self.line)
    }
}

/// A line of a flattened stack that calls a module, or begins a substack.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its file and line.
    pub place: FileLine,
    /// The module as the line names it.
    pub module: String,
    /// The module's arguments.
    pub arguments: Vec<String>,
    /// For a line of this module that does something, whether it can be relied on; `None` for any other line.
    pub ours: Option<Result<(), LineFault>>,
    /// The line of the service's own file that is or includes this one; 0 for lines of `other`.
    pub top: usize,
    /// The number of substacks around it.
    pub(super) level: usize,
    /// It has no module, or no group: whatever libpam does, it calls none.
    pub(super) has_mistake: bool,
    /// `None` for the start of a substack, which calls no module.
    pub(super) control: Option<Control>,
}

impl Entry {
    /// Returns the file name of the module.
    pub fn file(&self) -> &str {
        file_name(&self.module)
    }

    /// Returns whether the lines below run too and their refusals count, unless this one refuses.
    pub fn is_pass_through(&self) -> bool {
        let ends = |action| matches!(action, Action::Done | Action::Jump(_) | Action::Reset);
        self.control.as_ref().is_some_and(|control| {
            !control.fails_renewal() && control.outcomes().iter().all(|(_, action)| !ends(*action))
        })
    }

    /// Lists what may happen at the line, as [`Control::outcomes`] does; empty for the start of a substack. A line that libpam
    /// cannot understand always fails (`PAM_MUST_FAIL_CODE`).
    pub(super) fn outcomes(&self) -> Vec<(Return, Action)> {
        match &self.control {
            Some(control) if self.has_mistake => {
                vec![(Return::Other, control.action_at("perm_denied"))]
            }
            Some(control) => control.outcomes(),
            None => Vec::new(),
        }
    }

    /// Returns whether it may skip lines by their number.
    pub fn can_jump(&self) -> bool {
        let is_jump = |action| matches!(action, Action::Jump(_));
        self.control.as_ref().is_some_and(|control| {
            control
                .outcomes()
                .iter()
                .any(|(_, action)| is_jump(*action))
        })
    }

    /// Returns whether a login fails that reaches the line if the module cannot be loaded.
    pub fn needs_module(&self) -> bool {
        self.control
            .as_ref()
            .is_some_and(Control::fails_without_module)
    }

    /// Returns whether the line names our module, for whatever service.
    pub fn is_our_module(&self) -> bool {
        MODULE_FILES.contains(&self.file())
    }

    /// Returns whether it is a line of this module that does nothing. Such lines once left the job's namespaces.
    pub fn is_close_only(&self) -> bool {
        self.is_our_module() && is_close_only(&self.arguments)
    }

    /// Returns whether it is a line of this module that can be relied on.
    pub fn is_fit(&self) -> bool {
        self.ours == Some(Ok(()))
    }

    /// Returns whether it is a line of this module for this service, reliable or not.
    pub fn is_for_service(&self) -> bool {
        !matches!(self.ours, None | Some(Err(LineFault::OtherService(_))))
    }

    /// Returns whether it is a line of this module for this service that only observes.
    pub fn is_observing(&self) -> bool {
        self.is_for_service() && self.arguments.iter().any(|word| word == "observe")
    }
}

/// Why a line of this module cannot be relied on.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LineFault {
    /// Its control lets a session open although the module failed.
    #[error("is not required, requisite or an equal of theirs")]
    NotRequired,
    /// Its leading `-` lets a session open if the module cannot be loaded.
    #[error("has a leading -")]
    LeadingDash,
    /// Its `service=` names another service.
    #[error("is for service {0}")]
    OtherService(String),
    /// It observes, while an account line admits users.
    #[error("observes, and the account line does not")]
    ObservesAlone,
    /// An auth line of another module runs before or after both of ours.
    #[error("and a second one have to enclose all other auth lines")]
    NotOutermost,
    /// The auth stack has another number of lines of this module than two.
    #[error("is one of {0} auth lines of this module, where two are due")]
    NotTwo(usize),
}

/// Returns whether a line with these arguments does nothing.
pub fn is_close_only(arguments: &[String]) -> bool {
    arguments.iter().any(|word| word == "close_only")
}

/// Returns the part of a module's path that names its file.
pub(super) fn file_name(module: &str) -> &str {
    module.rsplit('/').next().unwrap_or_default()
}
