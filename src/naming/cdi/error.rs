//! Why a file is no specification, and where in the file.

use std::fmt;

/// Why a file is no specification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecError {
    /// The way from the fault to the document, whose own step comes last; empty for a fault of the whole document.
    steps: Vec<Step>,
    why: String,
}

/// One step on the way to a place in a document.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    /// A line of the text.
    Line(usize),
    /// A key of an object, as messages show it.
    Key(String),
    /// An item of a list, by its index.
    Item(usize),
    /// The name that the item before has.
    Name(String),
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place().as_str() {
            "" => f.write_str(&self.why),
            place => write!(f, "{place}: {}", self.why),
        }
    }
}

impl std::error::Error for SpecError {}

impl SpecError {
    /// The error of a line that is no JSON or YAML, or breaks a limit.
    pub(super) fn at_line(line: usize, why: String) -> Self {
        Self {
            steps: vec![Step::Line(line)],
            why,
        }
    }

    /// The error of a broken rule. Callers add its place with [`AddPlace`].
    pub(super) fn rule(why: impl fmt::Display) -> Self {
        Self {
            steps: Vec::new(),
            why: why.to_string(),
        }
    }

    /// Adds the step that comes before all that the error has.
    fn inside(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }

    /// The place, such as `devices[0] "all": containerEdits.env[2]`; empty for the whole document.
    pub(super) fn place(&self) -> String {
        let mut place = String::new();
        let mut outer: Option<&Step> = None;
        for step in self.steps.iter().rev() {
            match (outer, step) {
                (None, Step::Key(key)) => place.push_str(key),
                (Some(Step::Name(_)), Step::Key(key)) => place += &format!(": {key}"),
                (Some(_), Step::Key(key)) => place += &format!(".{key}"),
                (_, Step::Item(index)) => place += &format!("[{index}]"),
                (_, Step::Name(name)) => place += &format!(" {name:?}"),
                (_, Step::Line(line)) => place += &format!("line {line}"),
            }
            outer = Some(step);
        }
        place
    }
}

/// Adds the place of an error, a step at a time, from the inside out.
pub(super) trait AddPlace: Sized {
    /// Adds that the fault is in the value of this key.
    fn in_key(self, key: &str) -> Self;

    /// Adds that the fault is in the item of this index.
    fn in_item(self, index: usize) -> Self;

    /// Adds that the fault is in the item that has this name.
    fn in_named(self, name: &str) -> Self;
}

impl<T> AddPlace for Result<T, SpecError> {
    fn in_key(self, key: &str) -> Self {
        self.map_err(|error| error.inside(Step::Key(key.to_owned())))
    }

    fn in_item(self, index: usize) -> Self {
        self.map_err(|error| error.inside(Step::Item(index)))
    }

    fn in_named(self, name: &str) -> Self {
        self.map_err(|error| error.inside(Step::Name(name.to_owned())))
    }
}
