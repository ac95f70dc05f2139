//! The lines of Slurm's configuration files: `Key=value` pairs, comments and continued lines.

use std::fmt;
use std::path::Path;
use std::rc::Rc;

/// What is wrong with a line that is not pairs.
const FORM: &str = "not of the form Key=value Key=value";

/// Where a line stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct At {
    /// The file.
    pub file: Rc<Path>,
    /// Its number from 1; of a continued line that of its first part.
    pub line: usize,
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file.display(), self.line)
    }
}

/// A line that says something: continued lines in one, without comment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    /// Where it stands.
    pub at: At,
    /// What it says, blanks around it left out.
    pub text: String,
}

/// A line with its pairs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Where it stands.
    pub at: At,
    pairs: Vec<(String, String)>,
}

/// The lines of a text that say something, each with the number of its first part.
///
/// A `#` begins a comment and a backslash at the end of a line continues it, unless another
/// backslash stands before them, as in Slurm.
pub fn joined(text: &str) -> Vec<(usize, String)> {
    let mut lines = Vec::new();
    let mut begun: Option<(usize, String)> = None;
    for (index, line) in text.lines().enumerate() {
        let line = without_comment(line).trim_end();
        let (number, mut whole) = begun.take().unwrap_or((index + 1, String::new()));
        let front = line.trim_end_matches('\\');
        if (line.len() - front.len()) % 2 == 1 {
            whole.push_str(line.get(..line.len() - 1).unwrap_or_default());
            begun = Some((number, whole));
        } else {
            whole.push_str(line);
            lines.push((number, whole));
        }
    }
    lines.extend(begun);
    let said = lines.into_iter().map(|(number, line)| (number, line.trim().to_owned()));
    said.filter(|(_, line)| !line.is_empty()).collect()
}

fn without_comment(line: &str) -> &str {
    let mut escaped = false;
    let start = line.find(|letter| {
        let comment = letter == '#' && !escaped;
        escaped = letter == '\\' && !escaped;
        comment
    });
    start.and_then(|at| line.get(..at)).unwrap_or(line)
}

impl Text {
    /// The name of the file that the line includes, as it is written.
    pub fn includes(&self) -> Option<&str> {
        let (word, rest) = self.text.split_at_checked("include".len())?;
        let is = word.eq_ignore_ascii_case("include") && rest.starts_with(char::is_whitespace);
        is.then(|| rest.split_whitespace().next().unwrap_or_default())
    }

    /// The value that the line gives to a key whose case does not matter; `None` where it begins
    /// with another, and a fault where the value cannot be told.
    pub fn setting(&self, key: &str) -> Option<Result<&str, String>> {
        let (own, after) = self.text.split_once('=')?;
        let own = own.trim_end();
        own.eq_ignore_ascii_case(key).then(|| value(after.trim_start()).map(|(value, _)| value))
    }

    /// All pairs of the line. A backslash is refused, since Slurm takes it away.
    /// Fails: the line is of another form, or a key stands twice.
    pub fn pairs(&self) -> Result<Line, String> {
        let mut pairs: Vec<(String, String)> = Vec::new();
        let mut rest = self.text.as_str();
        while !rest.is_empty() {
            let (key, after) = rest.split_once('=').ok_or(FORM)?;
            let key = key.trim_end();
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
            if key.is_empty() || !key.bytes().all(plain) {
                return Err(FORM.to_owned());
            }
            if pairs.iter().any(|(known, _)| known.eq_ignore_ascii_case(key)) {
                return Err(format!("key {key} stands twice"));
            }
            let (value, after) = value(after.trim_start())?;
            pairs.push((key.to_owned(), value.to_owned()));
            rest = after.trim_start();
        }
        Ok(Line { at: self.at.clone(), pairs })
    }
}

impl Line {
    /// The value of a key, whose case does not matter.
    pub fn value(&self, key: &str) -> Option<&str> {
        let own = self.pairs.iter().find(|(own, _)| own.eq_ignore_ascii_case(key));
        own.map(|(_, value)| value.as_str())
    }

    /// The keys, as they are written.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.pairs.iter().map(|(key, _)| key.as_str())
    }
}

/// A value, quoted or up to the next blank, and what follows it.
fn value(text: &str) -> Result<(&str, &str), String> {
    let (value, rest) = match text.strip_prefix('"') {
        Some(quoted) => quoted.split_once('"').ok_or(FORM)?,
        None => text.split_at(text.find(char::is_whitespace).unwrap_or(text.len())),
    };
    let apart = rest.is_empty() || rest.starts_with(char::is_whitespace);
    let plain = !value.is_empty() && !value.contains(['"', '\\']);
    if apart && plain { Ok((value, rest)) } else { Err(FORM.to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text((line, text): (usize, String)) -> Text {
        Text { at: At { file: Path::new("/x").into(), line }, text }
    }

    type Pairs = Vec<(String, String)>;

    fn read(file: &str) -> Result<Vec<(usize, Pairs)>, String> {
        let lines = joined(file).into_iter().map(|line| text(line).pairs());
        lines.map(|line| line.map(|line| (line.at.line, line.pairs))).collect()
    }

    fn pair(key: &str, value: &str) -> (String, String) {
        (key.to_owned(), value.to_owned())
    }

    #[test]
    fn pairs_comments_quotes_and_continued_lines_are_read() {
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
    fn the_case_of_keys_does_not_matter() {
        let line = text((1, "NAME=x".into()));
        assert_eq!(line.pairs().unwrap().value("Name"), Some("x"));
        assert_eq!(line.setting("name"), Some(Ok("x")));
        assert_eq!(line.setting("nam"), None);
        assert_eq!(text((1, "Name =\"x\"y".into())).setting("name"), Some(Err(FORM.to_owned())));
    }

    #[test]
    fn a_line_of_another_form_is_named() {
        for (text, fault) in [
            ("Name", FORM),
            ("Name=", FORM),
            ("=a", FORM),
            ("a b=c", FORM),
            ("a=\"b", FORM),
            ("a=\"b\"c", FORM),
            ("a=b\"c", FORM),
            ("a=b\\c", FORM),
            ("a=b\\#c", FORM),
            ("a=b\\\\", FORM),
            ("a=1 A=2", "key A stands twice"),
            ("include other.conf", FORM),
        ] {
            assert_eq!(read(text), Err(fault.to_owned()), "{text:?}");
        }
    }

    #[test]
    fn an_include_needs_its_word_and_a_blank() {
        let included = |line: &str| text((1, line.into())).includes().map(str::to_owned);
        assert_eq!(included("InCLude\ta.conf b"), Some("a.conf".into()));
        for other in ["Includea", "include", "include=a", "xinclude a", "\u{e4}nclude a"] {
            assert_eq!(included(other), None, "{other}");
        }
    }
}
