//! The lines of Slurm's configuration files: `Key=value` pairs, comments and continued lines.

use std::fmt;
use std::path::Path;
use std::rc::Rc;
use thiserror::Error;

/// The error of a line that is not made of pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("not of the form Key=value Key=value")]
pub struct NoPairs;

/// A position in a configuration file: the path and the number of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfPosition {
    /// The file.
    pub file: Rc<Path>,
    /// Number of the line, from 1; for a continued line, of its first part.
    pub line: usize,
}

impl fmt::Display for ConfPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file.display(), self.line)
    }
}

/// A line that is not empty, with its continuation lines and without its comment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfLine {
    /// The place of the first part of the line.
    pub at: ConfPosition,
    /// The text without blanks at its end.
    pub text: String,
}

/// The pairs of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyValues {
    /// The place of the first part of the line.
    pub at: ConfPosition,
    pairs: Vec<(String, String)>,
    /// Set if no text remains behind the last pair.
    is_complete: bool,
}

/// Joins the logical lines of a text that are not empty, each with the number of its first part.
///
/// As in Slurm (`_get_next_line` in `parse_config.c`), a `#` begins a comment and a backslash at the
/// end of a line continues it, unless another backslash precedes them. Every other backslash is
/// removed, and the character after it stays.
pub fn join_lines(text: &str) -> Vec<(usize, String)> {
    let mut lines = Vec::new();
    // A line that a backslash continues: the number of its first part, and its text so far.
    let mut unfinished: Option<(usize, String)> = None;
    for (index, line) in text.lines().enumerate() {
        let line = without_comment(line).trim_end_matches(is_space);
        let (number, mut logical) = unfinished.take().unwrap_or((index + 1, String::new()));
        let backslashes = line.len() - line.trim_end_matches('\\').len();
        // In an even number each second one is escaped by the one before it, the last one too.
        if backslashes % 2 == 1 {
            logical.push_str(line.get(..line.len() - 1).unwrap_or_default());
            unfinished = Some((number, logical));
        } else {
            logical.push_str(line);
            lines.push((number, logical));
        }
    }
    lines.extend(unfinished);
    lines
        .into_iter()
        .map(|(number, line)| (number, without_escapes(line)))
        .filter(|(_, line)| !line.trim_matches(is_space).is_empty())
        .collect()
}

/// Cuts a line before its comment: a `#` that no backslash escapes.
fn without_comment(line: &str) -> &str {
    // Slurm's strings end at a NUL.
    let line = line.split_once('\0').map_or(line, |(text, _)| text);
    // A large cluster has a line for each node, without comments.
    if !line.contains('#') {
        return line;
    }
    let mut is_escaped = false;
    for (start, letter) in line.char_indices() {
        if letter == '#' && !is_escaped {
            return line.get(..start).unwrap_or(line);
        }
        is_escaped = letter == '\\' && !is_escaped;
    }
    line
}

/// Removes the backslashes that escape a character, which stays.
fn without_escapes(line: String) -> String {
    if !line.contains('\\') {
        return line;
    }
    let mut plain = String::with_capacity(line.len());
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        if letter == '\\' {
            plain.extend(letters.next());
        } else {
            plain.push(letter);
        }
    }
    plain
}

/// Tells whether C's `isspace` in the C locale is true, in which Slurm's daemons run.
fn is_space(letter: char) -> bool {
    matches!(letter, ' ' | '\t' | '\n' | '\x0b' | '\x0c' | '\r')
}

impl ConfLine {
    /// Parses the lines of a text that is the file of this name.
    pub fn parse_all(text: &str, file: &Path) -> Vec<Self> {
        let file: Rc<Path> = file.into();
        let mut lines = Vec::new();
        for (line, logical_line) in join_lines(text) {
            let at = ConfPosition {
                file: Rc::clone(&file),
                line,
            };
            lines.push(Self {
                at,
                text: logical_line,
            });
        }
        lines
    }

    /// Finds the name of the file that the line includes, without expansion; `None` for another line, an empty name
    /// for a line that names no file. The word must begin the line.
    pub fn included_name(&self) -> Option<&str> {
        let (word, rest) = self.text.split_at_checked("include".len())?;
        let is_include = word.eq_ignore_ascii_case("include") && rest.starts_with(is_space);
        is_include.then(|| {
            rest.split(is_space)
                .find(|name| !name.is_empty())
                .unwrap_or_default()
        })
    }

    /// Finds the value of a key at the beginning of the line, in any case; `None` if the line
    /// begins with another key, and a fault if the value is missing.
    pub fn value_of(&self, key: &str) -> Option<Result<&str, NoPairs>> {
        let (own_key, _) = split_key(&self.text)?;
        if !own_key.eq_ignore_ascii_case(key) {
            return None;
        }
        Some(match split_pair(&self.text) {
            Some((_, value, _)) => Ok(value),
            None => Err(NoPairs),
        })
    }

    /// Parses the pairs of the line, up to a text that is no pair.
    pub fn parse_pairs(&self) -> KeyValues {
        let mut pairs = Vec::new();
        let mut rest = self.text.as_str();
        while let Some((key, value, after)) = split_pair(rest) {
            pairs.push((key.to_owned(), value.to_owned()));
            rest = after;
        }
        let is_complete = rest.trim_matches(is_space).is_empty();
        KeyValues {
            at: self.at.clone(),
            pairs,
            is_complete,
        }
    }
}

impl KeyValues {
    /// The first pair, by which Slurm recognizes the kind of a line; `None` for a line that begins with none.
    pub fn first(&self) -> Option<(&str, &str)> {
        self.pairs
            .first()
            .map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// Finds the value of a key after the first pair, without regard to upper and lower case; `None` without the key.
    /// Of several values Slurm uses the last one.
    pub fn value(&self, key: &str) -> Option<&str> {
        let mut later = self.pairs.iter().skip(1).rev();
        let pair = later.find(|(own_key, _)| own_key.eq_ignore_ascii_case(key));
        pair.map(|(_, value)| value.as_str())
    }

    /// The keys after the first pair, in their own case.
    pub fn later_keys(&self) -> impl Iterator<Item = &str> {
        self.pairs.iter().skip(1).map(|(key, _)| key.as_str())
    }

    /// Checks that the line consists of pairs.
    ///
    /// # Errors
    ///
    /// The line has text that belongs to no pair.
    pub fn require_complete(&self) -> Result<(), NoPairs> {
        if self.is_complete {
            Ok(())
        } else {
            Err(NoPairs)
        }
    }
}

/// Splits a text after its first key and the `=`, before which Slurm accepts an operator: returns the key and what
/// follows the `=`. `None` for a text that begins with no key.
fn split_key(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_start_matches(is_space);
    let end =
        text.find(|letter: char| !letter.is_ascii_alphanumeric() && !"_.".contains(letter))?;
    let (key, rest) = text.split_at(end);
    let operator = rest.trim_start_matches(is_space);
    let value = operator
        .strip_prefix(['-', '*', '+', '/'])
        .unwrap_or(operator)
        .strip_prefix('=')?;
    (!key.is_empty()).then_some((key, value))
}

/// Splits a text after its first pair, as Slurm's regular expression does (`keyvalue_pattern`), and
/// returns the key, the value and the rest. The value is quoted and followed by a blank or the end, or
/// ends at the next blank. `None` for a text that begins with no pair.
fn split_pair(text: &str) -> Option<(&str, &str, &str)> {
    let (key, after_key) = split_key(text)?;
    let after = after_key.trim_start_matches(is_space);
    if let Some((value, rest)) = after
        .strip_prefix('"')
        .and_then(|quoted| quoted.split_once('"'))
    {
        if rest.is_empty() || rest.starts_with(is_space) {
            return Some((key, value, rest));
        }
    }
    let (value, rest) = after.split_at(after.find(is_space).unwrap_or(after.len()));
    (!value.is_empty()).then_some((key, value, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logical_line((line, text): (usize, String)) -> ConfLine {
        ConfLine {
            at: ConfPosition {
                file: Path::new("/x").into(),
                line,
            },
            text,
        }
    }

    type Pairs = Vec<(String, String)>;

    fn read(file: &str) -> Result<Vec<(usize, Pairs)>, NoPairs> {
        let lines = join_lines(file)
            .into_iter()
            .map(|line| logical_line(line).parse_pairs());
        lines
            .map(|line| line.require_complete().map(|()| (line.at.line, line.pairs)))
            .collect()
    }

    fn pair(key: &str, value: &str) -> (String, String) {
        (key.to_owned(), value.to_owned())
    }

    #[test]
    fn pairs_comments_quotes_and_continued_lines_are_parsed() {
        let text = "# nothing\n\n Name=gpu  Type = a100 # File=/dev/x\nFile=\"a b\"\\\n  NAME=x\n";
        let expected = vec![
            (3, vec![pair("Name", "gpu"), pair("Type", "a100")]),
            (4, vec![pair("File", "a b"), pair("NAME", "x")]),
        ];
        assert_eq!(read(text).unwrap(), expected);
        assert_eq!(read("a=b\\").unwrap(), [(1, vec![pair("a", "b")])]);
        assert_eq!(
            read("a=b=c,d\r\n").unwrap(),
            [(1, vec![pair("a", "b=c,d")])]
        );
        assert_eq!(
            read("a=b # \\\nc=d").unwrap().len(),
            2,
            "a comment is not continued"
        );
        assert_eq!(
            read("a=b \\ # c\nc=d").unwrap().len(),
            1,
            "a blank may follow"
        );
    }

    /// The values are those of Slurm 22.05's regular expression.
    #[test]
    fn values_are_those_of_slurm() {
        for (text, value) in [
            ("a=\"\"", ""),
            ("a=\"b\"", "b"),
            ("a=\"b\"c", "\"b\"c"),
            ("a=b\"c", "b\"c"),
            ("a=\"b", "\"b"),
            ("a=\\\"b\\\"", "b"),
            ("a=b\\c", "bc"),
            ("a=b\\#c", "b#c"),
            ("a=b\\\\", "b\\"),
            ("a+=b", "b"),
            ("a = b=c", "b=c"),
            ("a=\u{a0}b", "\u{a0}b"),
            ("a=b\0c", "b"),
        ] {
            assert_eq!(
                read(text).unwrap(),
                [(1, vec![pair("a", value)])],
                "{text:?}"
            );
        }
        let twice = read("a=1 a= b=c A=2").unwrap();
        assert_eq!(
            twice,
            [(1, vec![pair("a", "1"), pair("a", "b=c"), pair("A", "2")])]
        );
    }

    #[test]
    fn keys_match_in_any_case() {
        let line = logical_line((1, "NAME=x name=y Name=z".into()));
        assert_eq!(line.parse_pairs().first(), Some(("NAME", "x")));
        assert_eq!(line.parse_pairs().value("Name"), Some("z"));
        assert_eq!(line.value_of("name"), Some(Ok("x")));
        assert_eq!(line.value_of("nam"), None);
        let malformed = logical_line((1, "Name = ".into()));
        assert_eq!(malformed.value_of("name"), Some(Err(NoPairs)));
    }

    #[test]
    fn malformed_line_is_an_error() {
        for text in [
            "Name",
            "Name=",
            "=a",
            "a b=c",
            "a=\"b c",
            "a=b c",
            "include other.conf",
            "a==",
            "-=b",
        ] {
            let is_value = text == "a==";
            assert_eq!(read(text).is_ok(), is_value, "{text:?}");
        }
    }

    #[test]
    fn include_needs_its_word_and_a_blank() {
        let included = |line: &str| {
            logical_line((1, line.into()))
                .included_name()
                .map(str::to_owned)
        };
        assert_eq!(included("InCLude\ta.conf b"), Some("a.conf".into()));
        for other in [
            "Includea",
            "include",
            "include=a",
            " include a",
            "\u{e4}nclude a",
        ] {
            assert_eq!(included(other), None, "{other}");
        }
    }
}
