//! Patterns of names, with the meaning of fnmatch(3).

use std::str::Chars;

use thiserror::Error;

/// Most bytes of a pattern; no name of a file has more (`NAME_MAX` of `linux/limits.h`).
const PATTERN_MAX: usize = 255;
/// The characters that make a text a pattern.
const WILD: [char; 3] = ['*', '?', '['];

/// A pattern of one name: `*` stands for any characters, `?` for one, `[abc]` and `[a-z]` for one
/// of these, `[!a]` and `[^a]` for any other. What fnmatch(3) knows besides, a backslash and the
/// named classes of characters, is no pattern here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glob(Vec<Token>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Char(char),
    One,
    Any,
    Set { negated: bool, ranges: Vec<(char, char)> },
}

impl Glob {
    /// Whether a text is meant as a pattern.
    pub fn is_wild(text: &str) -> bool {
        text.contains(WILD)
    }

    /// The pattern of a text of at most 255 bytes.
    /// Fails: [`GlobError`] where it is longer, has a backslash or a bracket that is not closed, is
    /// empty or holds a range that is reversed.
    pub fn parse(text: &str) -> Result<Self, GlobError> {
        if text.len() > PATTERN_MAX {
            return Err(GlobError);
        }
        let mut tokens = Vec::new();
        let mut chars = text.chars();
        while let Some(next) = chars.next() {
            let token = match next {
                '*' => Token::Any,
                '?' => Token::One,
                '[' => set(&mut chars)?,
                '\\' => return Err(GlobError),
                other => Token::Char(other),
            };
            tokens.push(token);
        }
        Ok(Self(tokens))
    }

    /// Whether the pattern stands for the whole of `name`. Takes time in proportion to the lengths
    /// of both multiplied: only the last `*` is ever gone back to, since what an earlier one could
    /// take in addition the last one can take as well.
    pub fn matches(&self, name: &str) -> bool {
        let mut tokens = self.0.as_slice();
        let mut rest = name.chars();
        let mut last: Option<(&[Token], Chars<'_>)> = None;
        loop {
            if let Some((Token::Any, after)) = tokens.split_first() {
                tokens = after;
                last = Some((after, rest.clone()));
                continue;
            }
            let mut ahead = rest.clone();
            match (tokens.split_first(), ahead.next()) {
                (None, None) => return true,
                (Some((token, after)), Some(next)) if token.takes(next) => {
                    tokens = after;
                    rest = ahead;
                }
                _ => {
                    // The last star takes one character more, if there is a star and one is left.
                    let Some((after, mut from)) = last else { return false };
                    if from.next().is_none() {
                        return false;
                    }
                    tokens = after;
                    rest = from.clone();
                    last = Some((after, from));
                }
            }
        }
    }
}

impl Token {
    fn takes(&self, next: char) -> bool {
        match self {
            Self::Char(own) => *own == next,
            Self::One | Self::Any => true,
            Self::Set { negated, ranges } => {
                ranges.iter().any(|(low, high)| (*low..=*high).contains(&next)) != *negated
            }
        }
    }
}

/// The rest of a set, after its opening bracket. A `]` that comes first stands for itself, and so
/// does a `-` that comes first or last.
fn set(chars: &mut Chars<'_>) -> Result<Token, GlobError> {
    let mut next = chars.next().ok_or(GlobError)?;
    let negated = matches!(next, '!' | '^');
    if negated {
        next = chars.next().ok_or(GlobError)?;
    }
    let mut ranges = Vec::new();
    loop {
        if next == ']' && !ranges.is_empty() {
            return Ok(Token::Set { negated, ranges });
        }
        if matches!(next, '[' | '\\') {
            return Err(GlobError);
        }
        let high = range_end(chars)?.unwrap_or(next);
        if high < next {
            return Err(GlobError);
        }
        ranges.push((next, high));
        next = chars.next().ok_or(GlobError)?;
    }
}

/// The upper end of a range, where `-` and something else than the end of the set follows.
fn range_end(chars: &mut Chars<'_>) -> Result<Option<char>, GlobError> {
    let mut ahead = chars.clone();
    match (ahead.next(), ahead.next()) {
        (Some('-'), Some(high)) if high != ']' => {
            *chars = ahead;
            if matches!(high, '[' | '\\') { Err(GlobError) } else { Ok(Some(high)) }
        }
        _ => Ok(None),
    }
}

/// A text is no pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("not a pattern of *, ? and [abc], [a-z] or [!a] with at most 255 bytes in a name")]
pub struct GlobError;

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, name: &str) -> bool {
        Glob::parse(pattern).unwrap().matches(name)
    }

    #[test]
    fn the_three_wild_characters_mean_what_fnmatch_says() {
        for (pattern, name) in [
            ("", ""),
            ("*", ""),
            ("*", "a/.b"),
            ("nvidia*", "nvidia"),
            ("nvidia*", "nvidia-caps"),
            ("*a*b", "aabab"),
            ("sd[a-c]?", "sdb1"),
            ("[]x]", "]"),
            ("[!]x]", "a"),
            ("[a-]", "-"),
            ("[-a]", "-"),
            ("[^0-9]", "x"),
            ("[a-c-e]", "-"),
            ("\u{e4}?", "\u{e4}\u{20ac}"),
        ] {
            assert!(matches(pattern, name), "{pattern:?} {name:?}");
        }
        for (pattern, name) in [
            ("", "a"),
            ("?", ""),
            ("nvidia*", "nvidi"),
            ("nvidia", "nvidia0"),
            ("NVIDIA*", "nvidia0"),
            ("sd[a-c]", "sdd"),
            ("[!a]", "a"),
            ("[a-c-e]", "d"),
            ("a*b", "abc"),
            ("[a]", "[a]"),
        ] {
            assert!(!matches(pattern, name), "{pattern:?} {name:?}");
        }
    }

    #[test]
    fn what_is_half_a_pattern_is_none() {
        for text in ["[", "[]", "[a", "[!", "[!]", "a\\*", "[\\]]", "[z-a]", "[[:alpha:]]", "[a-["]
        {
            assert_eq!(Glob::parse(text), Err(GlobError), "{text:?}");
        }
        assert!(Glob::parse(&"x".repeat(PATTERN_MAX)).is_ok());
        assert_eq!(Glob::parse(&"x".repeat(PATTERN_MAX + 1)), Err(GlobError));
    }

    /// The meaning of a pattern, token by token.
    fn naive(tokens: &[Token], name: &[char]) -> bool {
        match (tokens.split_first(), name.split_first()) {
            (None, None) => true,
            (None, Some(_)) => false,
            (Some((Token::Any, after)), _) => {
                (0..=name.len()).any(|taken| naive(after, &name[taken..]))
            }
            (Some((token, after)), Some((next, rest))) => token.takes(*next) && naive(after, rest),
            (Some(_), None) => false,
        }
    }

    #[test]
    fn random_patterns_match_what_the_definition_matches() {
        let mut random = crate::random::Random::new(7);
        let pieces = ["a", "b", "*", "?", "[ab]", "[!a]", "**"];
        let mut matched = 0;
        for _ in 0..20_000 {
            let pattern: String = (0..random.below(7)).map(|_| random.one_of(&pieces)).collect();
            let name: String = (0..random.below(8)).map(|_| random.one_of(&["a", "b"])).collect();
            let glob = Glob::parse(&pattern).unwrap();
            let expected = naive(&glob.0, &name.chars().collect::<Vec<_>>());
            assert_eq!(glob.matches(&name), expected, "{pattern:?} {name:?}");
            matched += u32::from(expected);
        }
        assert!(matched > 1_000, "{matched}");
    }

    #[test]
    fn many_stars_take_no_time() {
        let pattern = "*a".repeat(100);
        let name = format!("{}b", "a".repeat(50_000));
        let start = std::time::Instant::now();
        assert!(!matches(&pattern, &name));
        assert!(start.elapsed() < std::time::Duration::from_secs(5));
    }
}
