//! The facts that led to a reply.

use crate::text::printable;
use std::fmt;

/// The facts that led to a reply, in order: lines of a word and a text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evidence(Vec<(&'static str, String)>);

impl Evidence {
    /// Makes evidence of one line.
    pub(super) fn of_line(word: &'static str, text: impl fmt::Display) -> Self {
        let mut evidence = Self::default();
        evidence.add(word, text);
        evidence
    }

    /// Iterates over the lines: a word of a fixed set, and a text without control characters.
    pub fn lines(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.0.iter().map(|(word, text)| (*word, text.as_str()))
    }

    /// Adds a line. Characters that would break it become `?`.
    pub(super) fn add(&mut self, word: &'static str, text: impl fmt::Display) {
        self.0.push((word, printable(&text.to_string())));
    }

    /// Adds a line for each of several texts.
    pub(super) fn add_all(
        &mut self,
        word: &'static str,
        texts: impl IntoIterator<Item = impl fmt::Display>,
    ) {
        for text in texts {
            self.add(word, text);
        }
    }

    /// Adds the lines of later evidence.
    pub(super) fn extend(&mut self, later: Self) {
        self.0.extend(later.0);
    }
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (word, text) in self.lines() {
            writeln!(f, "{word}: {text}")?;
        }
        Ok(())
    }
}
