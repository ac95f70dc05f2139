//! Parses service files into lines and words, as libpam does (pam.conf(5)).
//!
//! [`parse_lines`] reads as libpam 1.5 does, and [`find_misread_line`] finds what versions from 1.3
//! to 1.7 do not read alike.

use super::rejection::Rejection;

/// The bytes of a line that libpam before 1.6 reads at once. It takes the rest for a line of its own.
const LINE_BYTES_MAX: usize = 1023;

/// A line as libpam reads it, with its continuations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogicalLine {
    /// Number of its first physical line, from 1.
    pub number: usize,
    /// Number of its last one.
    pub last: usize,
    /// Its words, without the brackets of bracketed ones.
    pub words: Vec<String>,
}

/// Parses a file's lines: a backslash at the end joins the next line that is neither blank nor a
/// comment, and `#` ends a line at any position. `None` if the file ends after a backslash, which
/// libpam refuses.
pub fn parse_lines(text: &str) -> Option<Vec<LogicalLine>> {
    let mut lines = Vec::new();
    // A line that a backslash continues: the number of its first physical line, and its text so far.
    let mut pending: Option<(usize, String)> = None;
    // `str::lines` would drop a carriage return, which libpam takes as part of a word.
    for (index, physical) in text.split('\n').enumerate() {
        let Some(part) = parse_physical(physical) else {
            continue;
        };
        let (number, mut joined) = pending.take().unwrap_or((index + 1, String::new()));
        joined.push_str(part.text);
        if part.is_continued {
            joined.push(' ');
            pending = Some((number, joined));
        } else {
            lines.push(LogicalLine {
                number,
                last: index + 1,
                words: split_words(&joined),
            });
        }
    }
    pending.is_none().then_some(lines)
}

/// Finds the first line that some versions of libpam end elsewhere than [`parse_lines`] does, and returns its number and
/// the reason; `None` if all versions read the file alike. libpam counts the bytes of the file, whatever their encoding.
pub(super) fn find_misread_line(file: &[u8]) -> Option<(usize, Rejection)> {
    // The first physical line of a continued line, and the bytes that it takes so far.
    let mut begun: Option<(usize, usize)> = None;
    // Without the empty rest behind the end of the last line.
    let lines = file
        .strip_suffix(b"\n")
        .unwrap_or(file)
        .split(|byte| *byte == b'\n');
    for (index, physical) in lines.enumerate() {
        let (number, bytes_before) = begun.take().unwrap_or((index + 1, 0));
        let bytes = bytes_before + physical.len();
        if bytes > LINE_BYTES_MAX {
            return Some((number, Rejection::TooLong(bytes)));
        }
        let text = String::from_utf8_lossy(physical);
        let Some(part) = parse_physical(&text) else {
            // A gap within a continued line.
            if number != index + 1 {
                return Some((number, Rejection::ContinuedOverGap));
            }
            continue;
        };
        if part.is_continued {
            // The line's end counts as well.
            begun = Some((number, bytes + 1));
        }
    }
    None
}

/// The part of a physical line that counts.
struct Part<'a> {
    text: &'a str,
    /// Set if a backslash joins the next line.
    is_continued: bool,
}

/// Finds the part of a physical line that counts; `None` for an empty line and for a comment. A comment behind text
/// ends the line: no backslash before it joins the next one.
fn parse_physical(physical: &str) -> Option<Part<'_>> {
    let line = physical.trim_start_matches(BLANK);
    if line.is_empty() || line.starts_with('#') {
        return None;
    }
    if let Some((text, _)) = line.split_once('#') {
        return Some(Part {
            text,
            is_continued: false,
        });
    }
    let text = line.trim_end_matches(BLANK);
    let Some(text) = text.strip_suffix('\\') else {
        return Some(Part {
            text,
            is_continued: false,
        });
    };
    Some(Part {
        text,
        is_continued: true,
    })
}

const BLANK: [char; 2] = [' ', '\t'];

/// Returns whether an editor shows the character as a blank, as a line's end or not at all, while
/// libpam takes it for a part of a word.
pub(super) fn is_false_blank(c: char) -> bool {
    let is_invisible = matches!(
        c,
        '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2060}' | '\u{feff}'
    );
    !BLANK.contains(&c) && (c.is_whitespace() || c.is_control() || is_invisible)
}

/// Splits a line at its blanks. A word that begins with `[` ends at the first `]`, and `\]` stands
/// for `]`.
fn split_words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = text.trim_start_matches(BLANK);
    while !rest.is_empty() {
        let (word, after) = match rest.strip_prefix('[') {
            Some(inner) => split_bracketed(inner),
            None => {
                let end = rest.find(BLANK).unwrap_or(rest.len());
                let (word, after) = rest.split_at(end);
                (word.to_owned(), after)
            }
        };
        words.push(word);
        rest = after.trim_start_matches(BLANK);
    }
    words
}

/// Splits a text after the first `]` that no backslash escapes: the word before it, and the rest. Without such a
/// bracket the word is all of the text.
fn split_bracketed(inner: &str) -> (String, &str) {
    let mut word = String::new();
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        match c {
            ']' => break,
            '\\' if chars.as_str().starts_with(']') => word.extend(chars.next()),
            c => word.push(c),
        }
    }
    (word, chars.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Vec<(usize, String)> {
        let joined = |line: LogicalLine| (line.number, line.words.join("|"));
        parse_lines(text).unwrap().into_iter().map(joined).collect()
    }

    #[test]
    fn lines_join_continuations_and_skip_comments() {
        assert_eq!(
            parse(" \n# c\n\ta  b#c\nd \\# e\n"),
            [(3, "a|b".into()), (4, "d|\\".into())]
        );
        assert_eq!(
            parse("a \\\n\n # c\n  b\\ \nc\nd"),
            [(1, "a|b|c".into()), (6, "d".into())]
        );
        assert_eq!(parse("a b\r\n"), [(1, "a|b\r".into())]);
        assert_eq!(parse_lines("a \\\n"), None);
    }

    #[test]
    fn bracketed_text_is_one_word() {
        assert_eq!(
            parse("s [a=1 b=2]x [c d] e[f g]"),
            [(1, "s|a=1 b=2|x|c d|e[f|g]".into())]
        );
        assert_eq!(parse("[a\\]b] [open c"), [(1, "a]b|open c".into())]);
    }

    #[test]
    fn line_that_versions_read_differently_is_found() {
        let x = |count: usize| "x".repeat(count);
        for (text, expected) in [
            ("a \\\n\nb\n".to_owned(), (1, Rejection::ContinuedOverGap)),
            (
                "a\nb \\\n c \\ \n\t# d\ne\n".to_owned(),
                (2, Rejection::ContinuedOverGap),
            ),
            ("\\\n#\n".to_owned(), (1, Rejection::ContinuedOverGap)),
            (format!("a\n{}\n", x(1024)), (2, Rejection::TooLong(1024))),
            (format!("#{}", x(1023)), (1, Rejection::TooLong(1024))),
            (format!("a #{}\n", x(1023)), (1, Rejection::TooLong(1026))),
            (
                format!("{}\\\n{}", x(500), x(522)),
                (1, Rejection::TooLong(1024)),
            ),
        ] {
            assert_eq!(
                find_misread_line(text.as_bytes()),
                Some(expected),
                "{text:?}"
            );
        }
        for text in [
            format!("a\n{}\n\n#{}\nb \\\nc\n", x(1023), x(1022)),
            format!("{}\\\n{}\n\n", x(500), x(521)),
            "# c \\\n\n# d\r\na # e\u{a0}\n\u{e4}\tb\n".to_owned(),
            "a \\# b\n\nc\n".to_owned(),
            "a b\r\n".to_owned(),
            "a b \\\n".to_owned(),
            String::new(),
        ] {
            assert_eq!(find_misread_line(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn length_of_line_is_that_of_its_bytes() {
        let comment = |count: usize| [b"a\n#".as_slice(), &vec![0xe9; count], b"\n"].concat();
        assert_eq!(find_misread_line(&comment(1022)), None);
        assert_eq!(
            find_misread_line(&comment(1023)),
            Some((2, Rejection::TooLong(1024)))
        );
        // In UTF-8 the character has two bytes.
        let utf8 = format!("#{}\n", "\u{e9}".repeat(512));
        assert_eq!(
            find_misread_line(utf8.as_bytes()),
            Some((1, Rejection::TooLong(1025)))
        );
    }
}
