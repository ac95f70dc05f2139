//! What led to an answer, line by line, for people.

use std::fmt;

use crate::legible::legible;

/// Lines of a word and what there is to say about it, in the order in which they came to light.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evidence(Vec<(&'static str, String)>);

impl Evidence {
    /// The lines.
    pub fn lines(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.0.iter().map(|(word, text)| (*word, text.as_str()))
    }

    pub(super) fn add(&mut self, word: &'static str, text: impl fmt::Display) {
        self.0.push((word, legible(&text.to_string())));
    }
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines().try_for_each(|(word, text)| writeln!(f, "{word}: {text}"))
    }
}
