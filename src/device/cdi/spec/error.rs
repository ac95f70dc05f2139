//! Why a file is no specification, and where in it.

use std::fmt;

use crate::device::cdi::document::DocumentError;

/// Why a file is no specification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpecError {
    /// More bytes than a file of its format may have, which is this many.
    Long(usize),
    /// No document of the format, or written in a way that is not taken.
    Syntax {
        /// The line, from 1.
        line: usize,
        /// What is wrong there.
        why: String,
    },
    /// A rule of the specification is broken.
    Rule {
        /// Where, as `devices[0] "all": containerEdits.env[2]`; empty for the whole document.
        at: String,
        /// What is wrong there.
        why: String,
    },
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Long(most) => write!(f, "longer than {most} bytes"),
            Self::Syntax { line, why } => write!(f, "line {line}: {why}"),
            Self::Rule { at, why } if at.is_empty() => f.write_str(why),
            Self::Rule { at, why } => write!(f, "{at}: {why}"),
        }
    }
}

impl std::error::Error for SpecError {}

impl From<DocumentError> for SpecError {
    fn from(error: DocumentError) -> Self {
        Self::Syntax { line: error.line, why: error.why }
    }
}

impl SpecError {
    /// A broken rule; where is told by who knows, with [`Within`].
    pub(super) fn rule(why: impl fmt::Display) -> Self {
        Self::Rule { at: String::new(), why: why.to_string() }
    }
}

/// Tells an error where it happened, from the inside out.
pub(super) trait Within: Sized {
    /// What went wrong, went wrong in what `place` names, which ends in `separator` where more
    /// follows.
    fn within(self, place: &str, separator: &str) -> Self;

    /// It went wrong in the value of this key.
    fn in_key(self, key: &str) -> Self {
        self.within(key, ".")
    }
}

impl<T> Within for Result<T, SpecError> {
    fn within(self, place: &str, separator: &str) -> Self {
        self.map_err(|error| match error {
            SpecError::Rule { at, why } => {
                let joint =
                    if at.is_empty() || at.starts_with(['[', ' ']) { "" } else { separator };
                SpecError::Rule { at: format!("{place}{joint}{at}"), why }
            }
            other => other,
        })
    }
}
