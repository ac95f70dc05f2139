//! Slurm's lists of names, such as `gpu[001-016,020],login1`.

use super::dialect::ListSyntax;
use thiserror::Error;

/// Maximum brackets of one name.
const BRACKETS_MAX: usize = 4;
/// Maximum digits of a number between brackets.
const DIGITS_MAX: usize = 9;
/// Maximum numbers of a range, and of a bracket that another one follows (`MAX_RANGE` and `MAX_PREFIX_CNT` in
/// `hostlist.h`). For Slurm a list beyond them is malformed.
const NUMBERS_MAX: u32 = 64 * 1024;

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
    /// [`HostListError::Malformed`] for a list that is an error for Slurm as well, with all its names: a text between
    /// brackets that is no list of ranges, too many numbers, or what `syntax` refuses; [`HostListError::TooLong`] for a
    /// list that Slurm may read: a number of more than nine digits, more than four brackets in a name, or a bracket
    /// whose fault Slurm may not see.
    pub fn parse(text: &str, syntax: ListSyntax) -> Result<Self, HostListError> {
        split_names(text)
            .into_iter()
            .map(|name| parse_parts(name, syntax))
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

/// Parses one name into its texts and its brackets, from the last bracket to the first, as Slurm does
/// (`_hostlist_create_bracketed`, `_push_range_list`).
///
/// # Errors
///
/// As [`HostList::parse`].
fn parse_parts(name: &str, syntax: ListSyntax) -> Result<Vec<NamePart>, HostListError> {
    let Some((before, last)) = name.rsplit_once('[') else {
        return Ok(text_part(name).into_iter().collect());
    };
    let Some((inside, suffix)) = last.split_once(']') else {
        return parse_unclosed(before, last, syntax);
    };
    if !suffix.is_empty() && syntax != ListSyntax::HasSuffixes {
        return Err(HostListError::Malformed);
    }
    // The parts, the last one first.
    let mut parts = Vec::from_iter(text_part(suffix));
    parts.push(NamePart::Numbers(parse_ranges(inside)?));
    let mut prefix = before;
    let mut brackets = 1;
    // A bracket that is not closed belongs to the text.
    while let Some((left, numbers, between)) = split_last_bracket(prefix) {
        let ranges = parse_ranges(numbers).and_then(require_prefix_count);
        // Slurm reports a fault in one of the two last brackets only, and drops the name for one before them.
        let ranges = match ranges {
            Err(HostListError::Malformed) if brackets > 1 => Err(HostListError::TooLong),
            ranges => ranges,
        };
        parts.extend(text_part(between));
        parts.push(NamePart::Numbers(ranges?));
        brackets += 1;
        prefix = left;
    }
    parts.extend(text_part(prefix));
    if brackets > BRACKETS_MAX {
        return Err(HostListError::TooLong);
    }
    parts.reverse();
    Ok(parts)
}

/// Reads a name whose last bracket, between these texts, is not closed. Slurm up to 22.05 took such a bracket for a part
/// of the name, and put another bracket in its place.
fn parse_unclosed(
    before: &str,
    after: &str,
    syntax: ListSyntax,
) -> Result<Vec<NamePart>, HostListError> {
    if syntax != ListSyntax::UnclosedIsName {
        return Err(HostListError::Malformed);
    }
    let name = match before {
        "" => after.to_owned(),
        _ => format!("{before}]"),
    };
    Ok(text_part(&name).into_iter().collect())
}

/// Splits a text at its last bracket into what is before, within and behind it; `None` without a bracket, or if it is
/// not closed. It ends at the last bracket that closes one.
fn split_last_bracket(text: &str) -> Option<(&str, &str, &str)> {
    let (left, rest) = text.rsplit_once('[')?;
    let (inside, behind) = rest.rsplit_once(']')?;
    Some((left, inside, behind))
}

/// Makes a part of a text; `None` for an empty one.
fn text_part(text: &str) -> Option<NamePart> {
    (!text.is_empty()).then(|| NamePart::Text(text.to_owned()))
}

/// Parses the ranges within a bracket.
fn parse_ranges(inside: &str) -> Result<Vec<NumberRange>, HostListError> {
    inside.split(',').map(NumberRange::parse).collect()
}

/// Requires that a bracket before another one has no more numbers than Slurm takes there.
fn require_prefix_count(ranges: Vec<NumberRange>) -> Result<Vec<NumberRange>, HostListError> {
    let mut count: u32 = 0;
    for range in &ranges {
        count = count.saturating_add(range.count());
    }
    if count > NUMBERS_MAX {
        return Err(HostListError::Malformed);
    }
    Ok(ranges)
}

impl NumberRange {
    /// Parses a range as Slurm does (`_parse_single_range`). The lower end gives the width, with the
    /// blanks before it; without an upper end the range is one number.
    ///
    /// # Errors
    ///
    /// As [`HostList::parse`].
    fn parse(text: &str) -> Result<Self, HostListError> {
        // A range of boxes, of several dimensions.
        if text.contains('x') {
            return Err(HostListError::Malformed);
        }
        let (low_text, high_text) = text.split_once('-').unwrap_or((text, ""));
        let width = low_text.len();
        let (low, high) = if high_text.is_empty() {
            let number = parse_number(low_text)?;
            (number, number)
        } else {
            let high = parse_number(high_text)?;
            // Slurm ignores what follows the digits of a lower end.
            let low = match parse_number(low_text) {
                Err(_) if begins_number(low_text) => return Err(HostListError::TooLong),
                low => low?,
            };
            (low, high)
        };
        let range = Self { low, high, width };
        if low > high || range.count() > NUMBERS_MAX {
            return Err(HostListError::Malformed);
        }
        Ok(range)
    }

    /// The count of numbers in the range, whose lower end is not above the upper one.
    fn count(self) -> u32 {
        (self.high - self.low).saturating_add(1)
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

/// Blanks that strtoul(3) skips.
const BLANKS: [char; 6] = [' ', '\t', '\n', '\x0b', '\x0c', '\r'];

/// Parses a number as strtoul(3) does, with blanks and a `+` before it.
///
/// # Errors
///
/// [`HostListError::Malformed`] for any other text; [`HostListError::TooLong`] for more than nine characters in all.
fn parse_number(text: &str) -> Result<u32, HostListError> {
    let digits = skip_sign(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(HostListError::Malformed);
    }
    if text.len() > DIGITS_MAX {
        return Err(HostListError::TooLong);
    }
    digits.parse().map_err(|_| HostListError::TooLong)
}

/// Tells whether strtoul(3) finds a number at the beginning of a text.
fn begins_number(text: &str) -> bool {
    skip_sign(text).starts_with(|digit: char| digit.is_ascii_digit())
}

/// Skips the blanks and the sign before a number.
fn skip_sign(text: &str) -> &str {
    let signed = text.trim_start_matches(BLANKS);
    signed.strip_prefix('+').unwrap_or(signed)
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

    use ListSyntax::{HasSuffixes, Plain, UnclosedIsName};

    fn names_of(text: &str) -> Vec<String> {
        let list = HostList::parse(text, HasSuffixes).unwrap();
        list.expand(1024).unwrap()
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
            "a[",
            "a[]",
            "a[1",
            "a[-1]",
            "a[2-1]",
            "a[1,]",
            "a[x]",
            "a[1-2-3]",
            "a[1 ]",
            "a[,1]",
            "a[1--2]",
            "a[1- ]",
            "a[0-65536]",
            "a[0-65535,65536]b[1]",
            "a[]b[1]",
            "a[1x-2]",
        ] {
            assert_eq!(
                HostList::parse(text, HasSuffixes),
                Err(HostListError::Malformed),
                "{text:?}"
            );
        }
        for text in [
            "a[0000000001]",
            "a[1][1][1][1][1]",
            "a[]b[1]c[1]",
            "a[1y-2]",
        ] {
            assert_eq!(
                HostList::parse(text, HasSuffixes),
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
    fn release_decides_about_brackets() {
        for (text, name, results) in [
            ("n[1-2]-gpu", "n1-gpu", [None, None, Some(true)]),
            ("n[1-2]-gpu,n1", "n1", [None, None, Some(true)]),
            ("n[1-2]-gpu", "n1", [None, None, Some(false)]),
            ("a[1-2]b[1]c,n1", "a1b1c", [None, None, Some(true)]),
            ("n[1,n2", "n2", [Some(true), None, None]),
            ("n[1,n2", "n1", [Some(false), None, None]),
            ("[1", "1", [Some(true), None, None]),
            ("a[[1]],n1", "n1", [None, None, Some(true)]),
            ("a[b[1],n1", "n1", [Some(true); 3]),
            ("a[1]b[2]", "a1b2", [Some(true); 3]),
        ] {
            let read = |syntax| match HostList::parse(text, syntax) {
                Ok(list) => Some(list.contains(name)),
                Err(error) => {
                    assert_eq!(error, HostListError::Malformed, "{text}");
                    None
                }
            };
            let read = [UnclosedIsName, Plain, HasSuffixes].map(read);
            assert_eq!(read, results, "{text} {name}");
        }
    }

    #[test]
    fn huge_list_can_be_searched_but_not_expanded() {
        let list = HostList::parse("n[0-65535][1-65536,65537-99999]", HasSuffixes).unwrap();
        assert_eq!(list.expand(1024), Err(HostListError::TooLong));
        assert!(list.contains("n12"));
        assert!(!list.contains("n1"));
        let short = HostList::parse("a,b,c", Plain).unwrap();
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
            let list = HostList::parse(&text, HasSuffixes).unwrap();
            let all = list.expand(65_536).unwrap();
            assert_eq!(list.contains(&name), all.contains(&name), "{text} {name}");
            assert!(all.iter().all(|expanded| list.contains(expanded)), "{text}");
            inside += u32::from(all.contains(&name));
        }
        assert!(inside > 100, "{inside}");
    }
}
