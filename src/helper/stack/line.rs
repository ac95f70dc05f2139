//! Lines of a PAM service file, put together and cut into words as libpam does (pam.conf(5)).

/// A line as libpam reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Number of its first physical line, from 1.
    pub number: usize,
    /// Number of its last one.
    pub last: usize,
    /// Its words; a bracketed one is without its brackets.
    pub words: Vec<String>,
}

/// Puts a file's lines together: a backslash at the end joins the next line that is neither blank
/// nor a comment, and `#` ends a line wherever it stands. `None` where the file ends after a
/// backslash, which libpam refuses.
pub fn lines(text: &str) -> Option<Vec<Line>> {
    let mut lines = Vec::new();
    let mut pending: Option<(usize, String)> = None;
    // Not `str::lines`: to libpam a carriage return is part of a word.
    for (index, physical) in text.split('\n').enumerate() {
        let part = physical.trim_start_matches(BLANK);
        if part.is_empty() || part.starts_with('#') {
            continue;
        }
        let (number, mut joined) = pending.take().unwrap_or((index + 1, String::new()));
        let (part, goes_on) = match part.split_once('#') {
            Some((before, _)) => (before, false),
            None => {
                let part = part.trim_end_matches(BLANK);
                part.strip_suffix('\\').map_or((part, false), |part| (part, true))
            }
        };
        joined.push_str(part);
        if goes_on {
            joined.push(' ');
            pending = Some((number, joined));
        } else {
            lines.push(Line { number, last: index + 1, words: words(&joined) });
        }
    }
    pending.is_none().then_some(lines)
}

const BLANK: [char; 2] = [' ', '\t'];

/// Blanks separate words; one that begins with `[` ends at the first `]`, and `\]` stands for `]`.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = text.trim_start_matches(BLANK);
    while !rest.is_empty() {
        let (word, after) = match rest.strip_prefix('[') {
            Some(inner) => bracketed(inner),
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

fn bracketed(inner: &str) -> (String, &str) {
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
        let joined = |line: Line| (line.number, line.words.join("|"));
        lines(text).unwrap().into_iter().map(joined).collect()
    }

    #[test]
    fn blanks_comments_and_continuations() {
        assert_eq!(parse(" \n# c\n\ta  b#c\nd \\# e\n"), [(3, "a|b".into()), (4, "d|\\".into())]);
        assert_eq!(parse("a \\\n\n # c\n  b\\ \nc\nd"), [(1, "a|b|c".into()), (6, "d".into())]);
        assert_eq!(parse("a b\r\n"), [(1, "a|b\r".into())]);
        assert_eq!(lines("a \\\n"), None);
    }

    #[test]
    fn brackets_are_one_word() {
        assert_eq!(parse("s [a=1 b=2]x [c d] e[f g]"), [(1, "s|a=1 b=2|x|c d|e[f|g]".into())]);
        assert_eq!(parse("[a\\]b] [open c"), [(1, "a]b|open c".into())]);
    }
}
