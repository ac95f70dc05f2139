//! The facts that led to a reply.

use crate::text::printable;
use std::fmt;

/// The facts that led to a reply, in order: lines of a word and a text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evidence(Vec<(&'static str, String)>);

impl Evidence {
    /// Iterates over the lines.
    pub fn lines(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.0.iter().map(|(word, text)| (*word, text.as_str()))
    }

    pub(super) fn add(&mut self, word: &'static str, text: impl fmt::Display) {
        self.0.push((word, printable(&text.to_string())));
    }
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines().try_for_each(|(word, text)| writeln!(f, "{word}: {text}"))
    }
}
