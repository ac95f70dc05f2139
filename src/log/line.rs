//! One line of the log: logfmt, keys in a fixed order.

use std::fmt::{self, Write};

/// How bad it is, with the numbers of syslog(3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// A knob opened a login, or one is where it should not be.
    Alert = 1,
    /// Our own fault, or the node's.
    Error = 3,
    /// Something that was asked for is not there.
    Warning = 4,
    /// A refusal.
    Notice = 5,
    /// Everything as it should be.
    Info = 6,
    /// Steps on the way.
    Debug = 7,
}

/// A line of `key=value` pairs. Values that are empty are left out; values that hold anything but
/// plain characters are quoted, and control characters never pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// How bad it is.
    pub severity: Severity,
    text: String,
}

/// Longest value; what follows is cut off.
const VALUE_MAX: usize = 600;

impl Line {
    /// A line without pairs.
    pub fn new(severity: Severity) -> Self {
        Self { severity, text: String::new() }
    }

    /// Adds a pair, unless the value is empty.
    pub fn with(mut self, key: &str, value: impl fmt::Display) -> Self {
        let value = value.to_string();
        if value.is_empty() {
            return self;
        }
        if !self.text.is_empty() {
            self.text.push(' ');
        }
        // Writing to a string cannot fail.
        let _ = write!(self.text, "{key}=");
        push_value(&mut self.text, &value);
        self
    }

    /// The line.
    pub fn text(&self) -> &str {
        &self.text
    }
}

fn push_value(text: &mut String, value: &str) {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.:@+-,%=".contains(&byte);
    if value.len() <= VALUE_MAX && value.bytes().all(plain) {
        text.push_str(value);
        return;
    }
    text.push('"');
    let mut room = VALUE_MAX;
    for character in value.chars() {
        let Some(left) = room.checked_sub(character.len_utf8()) else {
            text.push_str("...");
            break;
        };
        room = left;
        match character {
            '"' | '\\' => text.extend(['\\', character]),
            _ if is_control(character) => text.push('?'),
            _ => text.push(character),
        }
    }
    text.push('"');
}

/// Control characters of ASCII and Latin-1, line and paragraph separators, and the marks that
/// reverse the direction of what a terminal shows.
fn is_control(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(value: &str) -> String {
        Line::new(Severity::Info).with("k", value).text().to_owned()
    }

    #[test]
    fn plain_values_are_bare_and_others_quoted() {
        assert_eq!(line("4242"), "k=4242");
        assert_eq!(line("/a b"), "k=\"/a b\"");
        assert_eq!(line("say \"x\\\""), "k=\"say \\\"x\\\\\\\"\"");
        assert_eq!(line(""), "");
    }

    #[test]
    fn nothing_forges_a_line() {
        let forged = line("a\nb\rc\u{1b}[2Jd\0e\u{85}f\u{2028}g\u{202e}h");
        assert!(!forged.chars().any(is_control), "{forged:?}");
        assert_eq!(forged, "k=\"a?b?c?[2Jd?e?f?g?h\"");
    }

    #[test]
    fn long_values_are_cut() {
        assert!(line(&"x".repeat(5000)).len() < VALUE_MAX + 20);
        assert!(line(&"ä".repeat(5000)).ends_with("...\""));
    }
}
