//! Changes of a line in files of others, in words for a person: the file and line, what stands there, and what should.

use helper::stack::FileLine;
use std::fmt::{self, Display};
use std::path::{Path, PathBuf};

/// A change of one line of a file, and what makes it count.
///
/// Its text has one form for all files, so that what a person does by it can be tested: the tests apply it word for word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileEdit {
    place: FileLine,
    change: Change,
    /// The command after which the change counts; empty if it counts at once.
    then: String,
}

/// What becomes of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Change {
    /// The text `new` in place of `old`, which may be a part of the line.
    Replace { old: String, new: String },
    /// The line goes.
    Remove { old: String },
    /// A new line above this one.
    InsertAbove { new: String },
    /// A new last line.
    Append { new: String },
}

impl FileEdit {
    fn new(place: FileLine, change: Change) -> Self {
        Self {
            place,
            change,
            then: String::new(),
        }
    }

    /// The text `new` stands in place of the text `old` of a line.
    pub(super) fn replace(
        place: &FileLine,
        old: impl Into<String>,
        new: impl Into<String>,
    ) -> Self {
        let (old, new) = (old.into(), new.into());
        Self::new(place.clone(), Change::Replace { old, new })
    }

    /// A line goes.
    pub(super) fn remove(place: &FileLine, old: impl Into<String>) -> Self {
        Self::new(place.clone(), Change::Remove { old: old.into() })
    }

    /// A new line stands above another one.
    pub(super) fn insert_above(place: &FileLine, new: impl Into<String>) -> Self {
        Self::new(place.clone(), Change::InsertAbove { new: new.into() })
    }

    /// A new line stands at the end of a file, which may be missing.
    pub(super) fn append(file: &Path, new: impl Into<String>) -> Self {
        let place = FileLine {
            file: PathBuf::from(file),
            line: 0,
        };
        Self::new(place, Change::Append { new: new.into() })
    }

    /// The change counts after this command, which edits nothing.
    pub(super) fn then(self, command: impl Into<String>) -> Self {
        Self {
            then: command.into(),
            ..self
        }
    }
}

impl Display for FileEdit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            place,
            change,
            then,
        } = self;
        match change {
            Change::Replace { old, new } => {
                write!(f, "{place}: in place of \"{old}\" write \"{new}\"")?;
            }
            Change::Remove { old } => write!(f, "{place}: remove the line \"{old}\"")?,
            Change::InsertAbove { new } => write!(f, "{place}: above it write \"{new}\"")?,
            Change::Append { new } => {
                write!(f, "{}: at its end write \"{new}\"", place.file.display())?;
            }
        }
        if !then.is_empty() {
            write!(f, ", then: {then}")?;
        }
        Ok(())
    }
}
