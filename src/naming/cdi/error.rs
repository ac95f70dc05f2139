//! Why a file is no specification, and where in the file.

use std::fmt;

/// Why a file is no specification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecError {
    /// The place, such as `devices[0] "all": containerEdits.env[2]`; empty for the whole document.
    pub(super) at: String,
    why: String,
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.at.as_str() {
            "" => f.write_str(&self.why),
            at => write!(f, "{at}: {}", self.why),
        }
    }
}

impl std::error::Error for SpecError {}

impl SpecError {
    /// The error of a line that is no JSON or YAML, or breaks a limit.
    pub(super) fn at_line(line: usize, why: String) -> Self {
        Self {
            at: format!("line {line}"),
            why,
        }
    }

    /// The error of a broken rule. Callers add its place with [`AddPlace`].
    pub(super) fn rule(why: impl fmt::Display) -> Self {
        Self {
            at: String::new(),
            why: why.to_string(),
        }
    }
}

/// Adds the place of an error, from the inside out.
pub(super) trait AddPlace: Sized {
    /// Puts `place` before the place of the error, with `separator` between if both exist.
    fn add_place(self, place: &str, separator: &str) -> Self;

    /// Puts a key before the place of the error.
    fn add_key(self, key: &str) -> Self {
        self.add_place(key, ".")
    }
}

impl<T> AddPlace for Result<T, SpecError> {
    /// Puts the place before that of the error. An index (`[`) or a name in quotes, which begins with a blank, follows
    /// its list without a separator.
    fn add_place(self, place: &str, separator: &str) -> Self {
        self.map_err(|SpecError { at, why }| {
            let joint = if at.is_empty() || at.starts_with(['[', ' ']) {
                ""
            } else {
                separator
            };
            SpecError {
                at: format!("{place}{joint}{at}"),
                why,
            }
        })
    }
}
