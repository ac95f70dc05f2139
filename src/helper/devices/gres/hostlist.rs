//! Slurm's lists of names, such as `gpu[001-016,020],login1`.

use thiserror::Error;

/// Maximum brackets of one name.
const BRACKETS_MAX: usize = 4;
/// Maximum digits of a number between brackets.
const DIGITS_MAX: usize = 9;

/// A list of host names or of file names. Brackets contain numbers and ranges of numbers, which keep
/// the leading zeros of the lower end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostList(Vec<Vec<NamePart>>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum NamePart {
    Text(String),
    Numbers(Vec<NumberRange>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct NumberRange {
    low: u32,
    high: u32,
    /// The characters of each number at least, filled up with zeros.
    width: usize,
}

impl HostList {
    /// Parses a list of names, separated by commas, blanks or tabs, as Slurm does (`hostlist.c`). It
    /// may have no name.
    ///
    /// # Errors
    ///
    /// [`HostListError::Malformed`] for a text between brackets that is no list of ranges, which is
    /// an error for Slurm as well; [`HostListError::TooLong`] for a number of more than nine digits
    /// or more than four brackets in a name.
    pub fn parse(text: &str) -> Result<Self, HostListError> {
        split_names(text)
            .into_iter()
            .map(parse_parts)
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// Tells whether a name is in the list. It does not expand the list, so the list may have any
    /// length.
    pub fn contains(&self, name: &str) -> bool {
        self.0.iter().any(|parts| matches_parts(parts, name))
    }

    /// Expands the names of the list, in its order. If a name has several brackets, the last one
    /// varies fastest; of the others, the first one does.
    ///
    /// # Errors
    ///
    /// [`HostListError::TooLong`] if there are more than `max` names.
    pub fn expand(&self, max: usize) -> Result<Vec<String>, HostListError> {
        let mut names = Vec::new();
        for parts in &self.0 {
            let capacity = max.saturating_sub(names.len());
            names.extend(expand_parts(parts, capacity)?);
        }
        Ok(names)
    }
}

const SEPARATORS: [char; 3] = ['\t', ',', ' '];

/// Splits the text at its separators, except those between brackets (`_next_tok`).
fn split_names(text: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let mut rest = text.trim_start_matches(SEPARATORS);
    while !rest.is_empty() {
        let (name, after) = rest.split_at(name_length(rest));
        names.push(name);
        rest = after.trim_start_matches(SEPARATORS);
    }
    names
}

/// Measures the first name of a text. A pair of brackets that begins in the name ends in it, whatever
/// is between.
fn name_length(text: &str) -> usize {
    // The first separator that is in none of the brackets before `searched`.
    let mut end = find_from(text, 0, &SEPARATORS).unwrap_or(text.len());
    let mut searched = 0;
    loop {
        let open = find_from(text, searched, &['[']);
        let close = find_from(text, searched, &[']']);
        match (open, close) {
            (Some(open), Some(close)) if open < end && open < close => {
                if close > end {
                    end = find_from(text, close, &SEPARATORS).unwrap_or(text.len());
                }
                searched = close + 1;
            }
            // No further pair of brackets begins in the name.
            _ => return end,
        }
    }
}

/// Finds the first of these characters at or after `from`; `None` if there is none.
fn find_from(text: &str, from: usize, letters: &[char]) -> Option<usize> {
    Some(from + text.get(from..)?.find(letters)?)
}

/// Parses one name into its texts and its brackets.
///
/// # Errors
///
/// [`HostListError::Malformed`] for a bracket that is not closed or has another content than ranges;
/// [`HostListError::TooLong`].
fn parse_parts(name: &str) -> Result<Vec<NamePart>, HostListError> {
    let mut parts = Vec::new();
    let mut brackets = 0;
    let mut rest = name;
    while let Some((before, opened)) = rest.split_once('[') {
        let (inside, after) = opened.split_once(']').ok_or(HostListError::Malformed)?;
        parts.extend(text_part(before));
        let ranges = inside
            .split(',')
            .map(NumberRange::parse)
            .collect::<Result<_, _>>()?;
        parts.push(NamePart::Numbers(ranges));
        brackets += 1;
        rest = after;
    }
    parts.extend(text_part(rest));
    if brackets > BRACKETS_MAX {
        return Err(HostListError::TooLong);
    }
    Ok(parts)
}

/// Makes a part of a text; `None` for an empty one.
fn text_part(text: &str) -> Option<NamePart> {
    (!text.is_empty()).then(|| NamePart::Text(text.to_owned()))
}

impl NumberRange {
    /// Parses a range as Slurm does (`_parse_single_range`). The lower end gives the width, with the
    /// blanks before it; without an upper end the range is one number.
    fn parse(text: &str) -> Result<Self, HostListError> {
        let (low, high) = text.split_once('-').unwrap_or((text, ""));
        let width = low.len();
        let low = parse_number(low)?;
        let high = if high.is_empty() {
            low
        } else {
            parse_number(high)?
        };
        if low > high {
            return Err(HostListError::Malformed);
        }
        Ok(Self { low, high, width })
    }

    /// Tells whether a number is in the range, and written as the range writes it.
    fn contains(self, digits: &str) -> bool {
        let Ok(number) = parse_number(digits) else {
            return false;
        };
        (self.low..=self.high).contains(&number) && self.format_number(number) == digits
    }

    /// Writes a number with the range's width.
    fn format_number(self, number: u32) -> String {
        format!("{number:0width$}", width = self.width)
    }
}

/// Parses a number as strtoul(3) does, with blanks and a `+` before it.
///
/// # Errors
///
/// [`HostListError::Malformed`] for any other text; [`HostListError::TooLong`] for more than nine characters in all.
fn parse_number(text: &str) -> Result<u32, HostListError> {
    let signed = text.trim_start_matches([' ', '\t']);
    let digits = signed.strip_prefix('+').unwrap_or(signed);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(HostListError::Malformed);
    }
    if text.len() > DIGITS_MAX {
        return Err(HostListError::TooLong);
    }
    digits.parse().map_err(|_| HostListError::TooLong)
}

/// Tells whether a name consists of these parts. A bracket may match digits of several lengths, and each is tried.
fn matches_parts(parts: &[NamePart], name: &str) -> bool {
    match parts.split_first() {
        None => name.is_empty(),
        Some((NamePart::Text(text), after)) => name
            .strip_prefix(text.as_str())
            .is_some_and(|rest| matches_parts(after, rest)),
        Some((NamePart::Numbers(ranges), after)) => (1..=DIGITS_MAX).any(|length| {
            let split = name.split_at_checked(length);
            split.is_some_and(|(digits, rest)| {
                ranges.iter().any(|range| range.contains(digits)) && matches_parts(after, rest)
            })
        }),
    }
}

/// Lists the names that one name with brackets stands for, in Slurm's order.
///
/// # Errors
///
/// [`HostListError::TooLong`] if there are more than `max`.
fn expand_parts(parts: &[NamePart], max: usize) -> Result<Vec<String>, HostListError> {
    let mut brackets: Vec<&[NumberRange]> = Vec::new();
    for part in parts {
        if let NamePart::Numbers(ranges) = part {
            brackets.push(ranges);
        }
    }
    // Each choice has one number for each bracket, in the order of [`expansion_order`].
    let mut choices: Vec<Vec<String>> = vec![Vec::new()];
    for ranges in expansion_order(&brackets) {
        let mut longer = Vec::new();
        for choice in &choices {
            for range in ranges {
                for number in range.low..=range.high {
                    if longer.len() >= max {
                        return Err(HostListError::TooLong);
                    }
                    let mut numbers = choice.clone();
                    numbers.push(range.format_number(number));
                    longer.push(numbers);
                }
            }
        }
        choices = longer;
    }
    // Without brackets the name stands for itself.
    if choices.len() > max {
        return Err(HostListError::TooLong);
    }
    Ok(choices
        .iter()
        .map(|numbers| fill_in(parts, numbers))
        .collect())
}

/// Sorts the brackets into the order in which Slurm expands them, the slowest first: it takes the
/// last one but one, then those before it backwards, and the last one within all others
/// (`_push_range_list`).
fn expansion_order<'a>(brackets: &[&'a [NumberRange]]) -> Vec<&'a [NumberRange]> {
    let Some((last, others)) = brackets.split_last() else {
        return Vec::new();
    };
    others.iter().rev().chain([last]).copied().collect()
}

/// Makes the name with these numbers, which are in the order of [`expansion_order`].
fn fill_in(parts: &[NamePart], numbers: &[String]) -> String {
    let (others, last) = numbers.split_at(numbers.len().saturating_sub(1));
    let mut in_name_order = others.iter().rev().chain(last);
    let mut name = String::new();
    for part in parts {
        name.push_str(match part {
            NamePart::Text(text) => text,
            NamePart::Numbers(_) => in_name_order.next().map(String::as_str).unwrap_or_default(),
        });
    }
    name
}

/// Why a text is no usable list of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum HostListError {
    /// The text has another form, for Slurm as well.
    #[error("not a list of names as in gpu[001-016,020],login1, or of too many")]
    Malformed,
    /// Slurm may read the text, but it is beyond the bounds here.
    #[error("not a list of names as in gpu[001-016,020],login1, or of too many")]
    TooLong,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;

    fn names_of(text: &str) -> Vec<String> {
        HostList::parse(text).unwrap().expand(1024).unwrap()
    }

    #[test]
    fn list_expands_in_order_with_leading_zeros() {
        assert_eq!(names_of("a"), ["a"]);
        assert_eq!(
            names_of("gpu[009-011,020],login1"),
            ["gpu009", "gpu010", "gpu011", "gpu020", "login1"]
        );
        assert_eq!(
            names_of("/dev/nvidia[0,2-3]"),
            ["/dev/nvidia0", "/dev/nvidia2", "/dev/nvidia3"]
        );
        assert_eq!(
            names_of("r[9-10]n[1,0]x"),
            ["r9n1x", "r9n0x", "r10n1x", "r10n0x"]
        );
        assert_eq!(names_of("[3]"), ["3"]);
    }

    #[test]
    fn other_texts_are_no_list() {
        for text in [
            "a[", "a[]", "a[1", "a[-1]", "a[2-1]", "a[1,]", "a[x]", "a[1-2-3]", "a[[1]]", "a[1 ]",
            "a[,1]", "a[1--2]", "a[1- ]",
        ] {
            assert_eq!(
                HostList::parse(text),
                Err(HostListError::Malformed),
                "{text:?}"
            );
        }
        for text in ["a[0000000001]", "a[1][1][1][1][1]"] {
            assert_eq!(
                HostList::parse(text),
                Err(HostListError::TooLong),
                "{text:?}"
            );
        }
    }

    /// Slurm 22.05 makes these names of the lists.
    #[test]
    fn blanks_and_repeated_commas_separate_names() {
        for (text, names) in [
            ("", vec![]),
            (",", vec![]),
            ("a,", vec!["a"]),
            (",a", vec!["a"]),
            ("a,,b", vec!["a", "b"]),
            ("a, b\tc d", vec!["a", "b", "c", "d"]),
            ("a]", vec!["a]"]),
            ("a1],b", vec!["a1]", "b"]),
            ("a[1-],b", vec!["a1", "b"]),
            ("a[1, 2]", vec!["a1", "a02"]),
            ("a[+1]", vec!["a01"]),
            ("a[1,2]b[3,4] c", vec!["a1b3", "a1b4", "a2b3", "a2b4", "c"]),
            (
                "[1-2]a[1-2]b[1-2]",
                vec![
                    "1a1b1", "1a1b2", "2a1b1", "2a1b2", "1a2b1", "1a2b2", "2a2b1", "2a2b2",
                ],
            ),
        ] {
            assert_eq!(names_of(text), names, "{text:?}");
        }
    }

    #[test]
    fn huge_list_can_be_searched_but_not_expanded() {
        let list = HostList::parse("n[0-999999999][0-999999999]").unwrap();
        assert_eq!(list.expand(1024), Err(HostListError::TooLong));
        assert!(list.contains("n12"));
        assert!(!list.contains("n1"));
        let short = HostList::parse("a,b,c").unwrap();
        assert_eq!(short.expand(2), Err(HostListError::TooLong));
        assert_eq!(short.expand(3).unwrap().len(), 3);
    }

    #[test]
    fn list_contains_exactly_its_expanded_names() {
        let mut random = Random::new(3);
        let pieces = ["n", "1", "0", "[0-12]", "[08-11]", "[1,3,5]", "[00]"];
        let mut inside = 0;
        for _ in 0..5_000 {
            let text: String = (0..1 + random.below(3))
                .map(|_| random.one_of(&pieces))
                .collect();
            let name: String = (0..random.below(5))
                .map(|_| random.one_of(&["n", "0", "1", "5"]))
                .collect();
            let list = HostList::parse(&text).unwrap();
            let all = list.expand(65_536).unwrap();
            assert_eq!(list.contains(&name), all.contains(&name), "{text} {name}");
            assert!(all.iter().all(|expanded| list.contains(expanded)), "{text}");
            inside += u32::from(all.contains(&name));
        }
        assert!(inside > 100, "{inside}");
    }
}
