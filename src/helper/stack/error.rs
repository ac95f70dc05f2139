//! Why a service's stack cannot be read.

use super::entry::FileLine;
use super::group::Group;
use super::lines::is_false_blank;
use super::rejection::name_false_blank;
use std::path::PathBuf;
use thiserror::Error;

/// Maximum nesting of includes and substacks, as in libpam.
pub(super) const DEPTH_MAX: usize = 16;
/// Maximum lines of one group, with those of included files.
pub(super) const ENTRIES_MAX: usize = 1000;

/// Names the first character of a file's name that editors do not show, behind the rest of a message.
fn describe_false_blank(name: &str) -> String {
    let mut characters = name.chars();
    match characters.find(|c| is_false_blank(*c)) {
        Some(c) => format!(" (its name has {})", name_false_blank(c)),
        None => String::new(),
    }
}

/// Why neither libpam nor we can read a service's stack.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum StackError {
    /// The name of the service names no file.
    #[error("the service has no name")]
    UnnamedService,
    /// Files include each other, or too many one another.
    #[error("{place}: {name}: included more than {DEPTH_MAX} deep")]
    NestedTooDeep {
        /// The line that includes the file.
        place: FileLine,
        /// The name of the file.
        name: String,
    },
    /// An included file is not there.
    #[error("{place}: {name}: no such service file{}", describe_false_blank(name))]
    MissingFile {
        /// The line that includes the file.
        place: FileLine,
        /// The name of the file.
        name: String,
    },
    /// The group has more lines than are checked.
    #[error("{place}: more than {ENTRIES_MAX} {} lines", group.as_str())]
    TooManyLines {
        /// The first line that is too many.
        place: FileLine,
        /// The group.
        group: Group,
    },
    /// A file cannot be read.
    #[error("{}: {cause}", path.display())]
    UnreadableFile {
        /// The file.
        path: PathBuf,
        /// The error of the system call, or what the file is instead of a text.
        cause: String,
    },
}
