//! The lines of Slurm's configuration files: `Key=value` pairs, comments and continued lines.

use std::fmt;
use std::path::Path;
use std::rc::Rc;

/// Fault of a line that is not made of pairs.
const NO_PAIRS: &str = "not of the form Key=value Key=value";

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
    /// The text without blanks at its ends.
    pub text: String,
}

/// The pairs of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyValues {
    /// The place of the first part of the line.
    pub at: ConfPosition,
    pairs: Vec<(String, String)>,
}

/// Returns the logical lines of a text that are not empty, each with the number of its first part.
///
/// As in Slurm, a `#` begins a comment and a backslash at the end of a line continues it, unless
/// another backslash precedes them.
pub fn join_lines(text: &str) -> Vec<(usize, String)> {
    let mut lines = Vec::new();
    let mut unfinished: Option<(usize, String)> = None;
    for (index, line) in text.lines().enumerate() {
        let line = without_comment(line).trim_end();
        let (number, mut logical) = unfinished.take().unwrap_or((index + 1, String::new()));
        let front = line.trim_end_matches('\\');
        if (line.len() - front.len()) % 2 == 1 {
            logical.push_str(line.get(..line.len() - 1).unwrap_or_default());
            unfinished = Some((number, logical));
        } else {
            logical.push_str(line);
            lines.push((number, logical));
        }
    }
    lines.extend(unfinished);
    let trimmed = lines.into_iter().map(|(number, line)| (number, line.trim().to_owned()));
    trimmed.filter(|(_, line)| !line.is_empty()).collect()
}

fn without_comment(line: &str) -> &str {
    let mut is_escaped = false;
    let start = line.find(|letter| {
        let is_comment = letter == '#' && !is_escaped;
        is_escaped = letter == '\\' && !is_escaped;
        is_comment
    });
    start.and_then(|start| line.get(..start)).unwrap_or(line)
}

impl ConfLine {
    /// Returns the name of the file that the line includes, without expansion.
    pub fn included_name(&self) -> Option<&str> {
        let (word, rest) = self.text.split_at_checked("include".len())?;
        let is_include =
            word.eq_ignore_ascii_case("include") && rest.starts_with(char::is_whitespace);
        is_include.then(|| rest.split_whitespace().next().unwrap_or_default())
    }

    /// Returns the value of a key at the beginning of the line, in any case; `None` if the line
    /// begins with another key, and a fault if the value is malformed.
    pub fn value_of(&self, key: &str) -> Option<Result<&str, String>> {
        let (own_key, after) = self.text.split_once('=')?;
        let is_key = own_key.trim_end().eq_ignore_ascii_case(key);
        is_key.then(|| split_value(after.trim_start()).map(|(value, _)| value))
    }

    /// Parses all pairs of the line. A backslash is refused, since Slurm would remove it.
    ///
    /// # Errors
    ///
    /// The line has another form, or a key occurs twice.
    pub fn parse_pairs(&self) -> Result<KeyValues, String> {
        let mut pairs: Vec<(String, String)> = Vec::new();
        let mut rest = self.text.as_str();
        while !rest.is_empty() {
            let (key, after) = rest.split_once('=').ok_or(NO_PAIRS)?;
            let key = key.trim_end();
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
            if key.is_empty() || !key.bytes().all(is_plain) {
                return Err(NO_PAIRS.to_owned());
            }
            if pairs.iter().any(|(known, _)| known.eq_ignore_ascii_case(key)) {
                return Err(format!("key {key} stands twice"));
            }
            let (value, after) = split_value(after.trim_start())?;
            pairs.push((key.to_owned(), value.to_owned()));
            rest = after.trim_start();
        }
        Ok(KeyValues { at: self.at.clone(), pairs })
    }
}

impl KeyValues {
    /// Returns the value of a key, without regard to upper and lower case. A key occurs once.
    pub fn value(&self, key: &str) -> Option<&str> {
        let pair = self.pairs.iter().find(|(own_key, _)| own_key.eq_ignore_ascii_case(key));
        pair.map(|(_, value)| value.as_str())
    }

    /// Returns the keys in their own case.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.pairs.iter().map(|(key, _)| key.as_str())
    }
}

/// Splits a text after its first value, which is quoted or ends at the next blank.
fn split_value(text: &str) -> Result<(&str, &str), String> {
    let (value, rest) = match text.strip_prefix('"') {
        Some(quoted) => quoted.split_once('"').ok_or(NO_PAIRS)?,
        None => text.split_at(text.find(char::is_whitespace).unwrap_or(text.len())),
    };
    let is_separate = rest.is_empty() || rest.starts_with(char::is_whitespace);
    let is_plain = !value.is_empty() && !value.contains(['"', '\\']);
    if is_separate && is_plain { Ok((value, rest)) } else { Err(NO_PAIRS.to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logical_line((line, text): (usize, String)) -> ConfLine {
        ConfLine { at: ConfPosition { file: Path::new("/x").into(), line }, text }
    }

    type Pairs = Vec<(String, String)>;

    fn read(file: &str) -> Result<Vec<(usize, Pairs)>, String> {
        let lines = join_lines(file).into_iter().map(|line| logical_line(line).parse_pairs());
        lines.map(|line| line.map(|line| (line.at.line, line.pairs))).collect()
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
        assert_eq!(read("a=b=c,d\r\n").unwrap(), [(1, vec![pair("a", "b=c,d")])]);
        assert_eq!(read("a=b # \\\nc=d").unwrap().len(), 2, "a comment is not continued");
    }

    #[test]
    fn keys_match_in_any_case() {
        let line = logical_line((1, "NAME=x".into()));
        assert_eq!(line.parse_pairs().unwrap().value("Name"), Some("x"));
        assert_eq!(line.value_of("name"), Some(Ok("x")));
        assert_eq!(line.value_of("nam"), None);
        let malformed = logical_line((1, "Name =\"x\"y".into()));
        assert_eq!(malformed.value_of("name"), Some(Err(NO_PAIRS.to_owned())));
    }

    #[test]
    fn malformed_line_is_an_error() {
        for (text, fault) in [
            ("Name", NO_PAIRS),
            ("Name=", NO_PAIRS),
            ("=a", NO_PAIRS),
            ("a b=c", NO_PAIRS),
            ("a=\"b", NO_PAIRS),
            ("a=\"b\"c", NO_PAIRS),
            ("a=b\"c", NO_PAIRS),
            ("a=b\\c", NO_PAIRS),
            ("a=b\\#c", NO_PAIRS),
            ("a=b\\\\", NO_PAIRS),
            ("a=1 A=2", "key A stands twice"),
            ("include other.conf", NO_PAIRS),
        ] {
            assert_eq!(read(text), Err(fault.to_owned()), "{text:?}");
        }
    }

    #[test]
    fn include_needs_its_word_and_a_blank() {
        let included =
            |line: &str| logical_line((1, line.into())).included_name().map(str::to_owned);
        assert_eq!(included("InCLude\ta.conf b"), Some("a.conf".into()));
        for other in ["Includea", "include", "include=a", "xinclude a", "\u{e4}nclude a"] {
            assert_eq!(included(other), None, "{other}");
        }
    }
}
