//! The lines of Slurm's configuration files: `Key=value` pairs, comments and continued lines.

use super::GresFault;

/// Most lines of a file.
const LINES_MAX: usize = 4096;

/// A line with its pairs.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// Its number from 1; of a continued line that of its first part.
    pub(super) number: usize,
    pairs: Vec<(String, String)>,
}

/// The lines that say something, in their order.
///
/// A `#` begins a comment and a backslash at the end of a line continues it, as in Slurm. Values
/// may be quoted; a backslash elsewhere is refused, since Slurm takes it away.
///
/// # Errors
/// The number of the line at fault, and what is wrong with it.
pub(super) fn lines(text: &str) -> Result<Vec<Line>, (usize, GresFault)> {
    let mut lines = Vec::new();
    let mut begun: Option<(usize, String)> = None;
    for (index, line) in text.lines().enumerate() {
        if index >= LINES_MAX {
            return Err((index + 1, GresFault::TooLong));
        }
        if line.contains("\\#") {
            return Err((index + 1, GresFault::Form));
        }
        let line = line.split('#').next().unwrap_or_default().trim_end();
        let (number, mut whole) = begun.take().unwrap_or((index + 1, String::new()));
        match line.strip_suffix('\\') {
            Some(front) => {
                whole.push_str(front);
                begun = Some((number, whole));
            }
            None => {
                whole.push_str(line);
                lines.push((number, whole));
            }
        }
    }
    lines.extend(begun);
    let said = lines.into_iter().filter(|(_, line)| !line.trim().is_empty());
    said.map(|(number, line)| {
        pairs(&line).map(|pairs| Line { number, pairs }).map_err(|fault| (number, fault))
    })
    .collect()
}

impl Line {
    /// The value of a key, whose case does not matter.
    pub(super) fn value(&self, key: &str) -> Option<&str> {
        let own = self.pairs.iter().find(|(own, _)| own.eq_ignore_ascii_case(key));
        own.map(|(_, value)| value.as_str())
    }

    /// The keys, as they are written.
    pub(super) fn keys(&self) -> impl Iterator<Item = &str> {
        self.pairs.iter().map(|(key, _)| key.as_str())
    }
}

fn pairs(line: &str) -> Result<Vec<(String, String)>, GresFault> {
    let mut pairs: Vec<(String, String)> = Vec::new();
    let mut rest = line.trim();
    while !rest.is_empty() {
        let (key, after) = rest.split_once('=').ok_or_else(|| unreadable(rest))?;
        let key = key.trim_end();
        if key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            return Err(unreadable(rest));
        }
        if pairs.iter().any(|(known, _)| known.eq_ignore_ascii_case(key)) {
            return Err(GresFault::Twice(key.to_owned()));
        }
        let (value, after) = value(after.trim_start())?;
        pairs.push((key.to_owned(), value.to_owned()));
        rest = after.trim_start();
    }
    Ok(pairs)
}

/// A value, quoted or up to the next blank, and what follows it.
fn value(text: &str) -> Result<(&str, &str), GresFault> {
    let (value, rest) = match text.strip_prefix('"') {
        Some(quoted) => quoted.split_once('"').ok_or(GresFault::Form)?,
        None => text.split_at(text.find(char::is_whitespace).unwrap_or(text.len())),
    };
    let apart = rest.is_empty() || rest.starts_with(char::is_whitespace);
    let plain = !value.is_empty() && !value.contains(['"', '\\']);
    if apart && plain { Ok((value, rest)) } else { Err(GresFault::Form) }
}

fn unreadable(line: &str) -> GresFault {
    let word = line.split_whitespace().next().unwrap_or_default();
    if word.eq_ignore_ascii_case("include") { GresFault::Include } else { GresFault::Form }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<(usize, Vec<(String, String)>)> {
        lines(text).unwrap().into_iter().map(|line| (line.number, line.pairs)).collect()
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
        assert_eq!(read(text), expected);
        assert_eq!(read("a=b\\"), [(1, vec![pair("a", "b")])]);
        assert_eq!(read("a=b=c,d\r\n"), [(1, vec![pair("a", "b=c,d")])]);
        let line = lines("NAME=x").unwrap().pop().unwrap();
        assert_eq!(line.value("Name"), Some("x"));
    }

    #[test]
    fn a_line_of_another_form_is_named() {
        for (text, number, fault) in [
            ("a=1\nName", 2, GresFault::Form),
            ("Name=", 1, GresFault::Form),
            ("=a", 1, GresFault::Form),
            ("a b=c", 1, GresFault::Form),
            ("a=\"b", 1, GresFault::Form),
            ("a=\"b\"c", 1, GresFault::Form),
            ("a=b\"c", 1, GresFault::Form),
            ("a=b\\c", 1, GresFault::Form),
            ("a=b\\#c\nd=e", 1, GresFault::Form),
            ("a=1 A=2", 1, GresFault::Twice("A".into())),
            ("\ninclude other.conf", 2, GresFault::Include),
        ] {
            assert_eq!(lines(text), Err((number, fault)), "{text:?}");
        }
    }

    #[test]
    fn a_file_of_too_many_lines_is_none() {
        assert!(lines(&"\n".repeat(LINES_MAX)).is_ok());
        assert_eq!(lines(&"\n".repeat(LINES_MAX + 1)), Err((LINES_MAX + 1, GresFault::TooLong)));
    }
}
