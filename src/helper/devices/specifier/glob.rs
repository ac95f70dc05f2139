//! Patterns of one name.

use super::error::SpecifierError;
use std::str::Chars;

/// Maximum bytes of a pattern. No file name has more (`NAME_MAX` of `linux/limits.h`).
const PATTERN_BYTES_MAX: usize = 255;
/// The characters that make a text a pattern.
const WILD_CHARACTERS: [char; 3] = ['*', '?', '['];

/// A pattern of one name: `*` stands for any characters, `?` for one, `[abc]` and `[a-z]` for one
/// of these, `[!a]` and `[^a]` for any other. Unlike in fnmatch(3), a text with a backslash or with
/// a named character class is no pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glob(Vec<Token>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Char(char),
    /// `?`
    One,
    /// `*`
    Any,
    Set {
        negated: bool,
        ranges: Vec<(char, char)>,
    },
}

impl Glob {
    /// Tells whether a text has a character that makes it a pattern.
    pub fn is_wild(text: &str) -> bool {
        text.contains(WILD_CHARACTERS)
    }

    /// Parses a pattern of at most 255 bytes.
    ///
    /// # Errors
    ///
    /// [`SpecifierError::InvalidPattern`] if the text is longer, has a backslash, or has a bracket
    /// that is not closed, is empty or contains a reversed range.
    pub fn parse(text: &str) -> Result<Self, SpecifierError> {
        if text.len() > PATTERN_BYTES_MAX {
            return Err(SpecifierError::InvalidPattern);
        }
        let mut tokens = Vec::new();
        let mut chars = text.chars();
        while let Some(next) = chars.next() {
            let token = match next {
                '*' => Token::Any,
                '?' => Token::One,
                '[' => parse_set(&mut chars)?,
                '\\' => return Err(SpecifierError::InvalidPattern),
                other => Token::Char(other),
            };
            tokens.push(token);
        }
        Ok(Self(tokens))
    }

    /// Tells whether the pattern matches the whole of `name`. The time is proportional to the
    /// product of both lengths: it only ever backtracks to the last `*`, since that one can match
    /// whatever an earlier `*` could match in addition.
    pub fn matches(&self, name: &str) -> bool {
        let mut tokens = self.0.as_slice();
        let mut rest = name.chars();
        // The tokens behind the last star, and the part of the name from which they are tried.
        let mut last_star: Option<(&[Token], Chars<'_>)> = None;
        loop {
            if let Some((Token::Any, after)) = tokens.split_first() {
                tokens = after;
                last_star = Some((after, rest.clone()));
                continue;
            }
            let mut ahead = rest.clone();
            match (tokens.split_first(), ahead.next()) {
                (None, None) => return true,
                (Some((token, after)), Some(next)) if token.matches_char(next) => {
                    tokens = after;
                    rest = ahead;
                }
                _ => {
                    // Let the last star match one more character, if both exist.
                    let Some((after, mut from)) = last_star else {
                        return false;
                    };
                    if from.next().is_none() {
                        return false;
                    }
                    tokens = after;
                    rest = from.clone();
                    last_star = Some((after, from));
                }
            }
        }
    }
}

impl Token {
    /// Tells whether a character can stand where this token is; `*` counts as one character here.
    fn matches_char(&self, next: char) -> bool {
        match self {
            Self::Char(own) => *own == next,
            Self::One | Self::Any => true,
            Self::Set { negated, ranges } => {
                ranges
                    .iter()
                    .any(|(low, high)| (*low..=*high).contains(&next))
                    != *negated
            }
        }
    }
}

/// Parses the rest of a set after its opening bracket. A `]` in the first place stands for itself,
/// and so does a `-` in the first or the last place.
fn parse_set(chars: &mut Chars<'_>) -> Result<Token, SpecifierError> {
    let mut next = chars.next().ok_or(SpecifierError::InvalidPattern)?;
    let negated = matches!(next, '!' | '^');
    if negated {
        next = chars.next().ok_or(SpecifierError::InvalidPattern)?;
    }
    let mut ranges = Vec::new();
    loop {
        if next == ']' && !ranges.is_empty() {
            return Ok(Token::Set { negated, ranges });
        }
        if matches!(next, '[' | '\\') {
            return Err(SpecifierError::InvalidPattern);
        }
        let high = parse_range_end(chars)?.unwrap_or(next);
        if high < next {
            return Err(SpecifierError::InvalidPattern);
        }
        ranges.push((next, high));
        next = chars.next().ok_or(SpecifierError::InvalidPattern)?;
    }
}

/// Parses the upper end of a range, if `-` follows and is not the last character of the set; `None` if no range
/// begins.
fn parse_range_end(chars: &mut Chars<'_>) -> Result<Option<char>, SpecifierError> {
    let mut ahead = chars.clone();
    match (ahead.next(), ahead.next()) {
        (Some('-'), Some(high)) if high != ']' => {
            *chars = ahead;
            if matches!(high, '[' | '\\') {
                Err(SpecifierError::InvalidPattern)
            } else {
                Ok(Some(high))
            }
        }
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, name: &str) -> bool {
        Glob::parse(pattern).unwrap().matches(name)
    }

    #[test]
    fn wild_characters_match_as_in_fnmatch() {
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
    fn incomplete_patterns_are_refused() {
        for text in [
            "[",
            "[]",
            "[a",
            "[!",
            "[!]",
            "a\\*",
            "[\\]]",
            "[z-a]",
            "[[:alpha:]]",
            "[a-[",
        ] {
            assert_eq!(
                Glob::parse(text),
                Err(SpecifierError::InvalidPattern),
                "{text:?}"
            );
        }
        assert!(Glob::parse(&"x".repeat(PATTERN_BYTES_MAX)).is_ok());
        assert_eq!(
            Glob::parse(&"x".repeat(PATTERN_BYTES_MAX + 1)),
            Err(SpecifierError::InvalidPattern)
        );
    }

    /// Matches token by token, by the definition of a pattern.
    fn matches_naively(tokens: &[Token], name: &[char]) -> bool {
        match (tokens.split_first(), name.split_first()) {
            (None, None) => true,
            (None, Some(_)) => false,
            (Some((Token::Any, after)), _) => {
                (0..=name.len()).any(|length| matches_naively(after, &name[length..]))
            }
            (Some((token, after)), Some((next, rest))) => {
                token.matches_char(*next) && matches_naively(after, rest)
            }
            (Some(_), None) => false,
        }
    }

    #[test]
    fn random_patterns_match_by_the_definition() {
        let mut random = crate::testing::Random::new(7);
        let pieces = ["a", "b", "*", "?", "[ab]", "[!a]", "**"];
        let mut matched = 0;
        for _ in 0..20_000 {
            let pattern: String = (0..random.below(7))
                .map(|_| random.one_of(&pieces))
                .collect();
            let name: String = (0..random.below(8))
                .map(|_| random.one_of(&["a", "b"]))
                .collect();
            let glob = Glob::parse(&pattern).unwrap();
            let expected = matches_naively(&glob.0, &name.chars().collect::<Vec<_>>());
            assert_eq!(glob.matches(&name), expected, "{pattern:?} {name:?}");
            matched += u32::from(expected);
        }
        assert!(matched > 1_000, "{matched}");
    }

    #[test]
    fn many_stars_match_in_time() {
        let pattern = "*a".repeat(100);
        let name = format!("{}b", "a".repeat(50_000));
        let start = std::time::Instant::now();
        assert!(!matches(&pattern, &name));
        assert!(start.elapsed() < std::time::Duration::from_secs(5));
    }
}
