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
    width: usize,
}

impl HostList {
    /// Parses a list of names and commas, without blanks.
    ///
    /// # Errors
    ///
    /// [`HostListError`] for an empty name, a bracket that is not closed or not opened, an invalid
    /// range, a number of more than nine digits, or more than four brackets in a name.
    pub fn parse(text: &str) -> Result<Self, HostListError> {
        split_names(text)?.into_iter().map(parse_parts).collect::<Result<_, _>>().map(Self)
    }

    /// Returns whether a name is in the list. It does not expand the list, so the list may have any
    /// length.
    pub fn contains(&self, name: &str) -> bool {
        self.0.iter().any(|parts| matches_parts(parts, name))
    }

    /// Returns the names of the list, in its order. If a name has several brackets, the last one
    /// varies fastest.
    ///
    /// # Errors
    ///
    /// [`HostListError`] if there are more than `max` names.
    pub fn expand(&self, max: usize) -> Result<Vec<String>, HostListError> {
        let mut names = Vec::new();
        for parts in &self.0 {
            let capacity = max.saturating_sub(names.len());
            names.extend(expand_parts(parts, capacity)?);
        }
        Ok(names)
    }
}

/// Splits the text at its commas, except those between brackets.
fn split_names(text: &str) -> Result<Vec<&str>, HostListError> {
    let mut is_inside = false;
    let mut names = Vec::new();
    for name in text.split(|next| {
        is_inside = (is_inside || next == '[') && next != ']';
        next == ',' && !is_inside
    }) {
        names.push(name);
    }
    let is_valid = !is_inside && names.iter().all(|name| !name.is_empty());
    is_valid.then_some(names).ok_or(HostListError)
}

fn parse_parts(name: &str) -> Result<Vec<NamePart>, HostListError> {
    let mut parts = Vec::new();
    let mut rest = name;
    while let Some((before, after)) = rest.split_once('[') {
        let (inside, after) = after.split_once(']').ok_or(HostListError)?;
        parts.extend(parse_text(before)?);
        let ranges = inside.split(',').map(NumberRange::parse).collect::<Result<_, _>>()?;
        parts.push(NamePart::Numbers(ranges));
        rest = after;
    }
    parts.extend(parse_text(rest)?);
    let brackets = parts.iter().filter(|part| matches!(part, NamePart::Numbers(_))).count();
    if brackets > BRACKETS_MAX { Err(HostListError) } else { Ok(parts) }
}

fn parse_text(text: &str) -> Result<Option<NamePart>, HostListError> {
    let is_plain = !text.contains([']', '[', ' ']) && !text.chars().any(char::is_control);
    let part = || (!text.is_empty()).then(|| NamePart::Text(text.to_owned()));
    if is_plain { Ok(part()) } else { Err(HostListError) }
}

impl NumberRange {
    fn parse(text: &str) -> Result<Self, HostListError> {
        let (low, high) = text.split_once('-').unwrap_or((text, text));
        let range = Self { low: parse_number(low)?, high: parse_number(high)?, width: low.len() };
        if range.low <= range.high { Ok(range) } else { Err(HostListError) }
    }

    fn contains(self, digits: &str) -> bool {
        let number = parse_number(digits).ok().filter(|own| (self.low..=self.high).contains(own));
        number.is_some_and(|number| self.format_number(number) == digits)
    }

    fn format_number(self, number: u32) -> String {
        format!("{number:0width$}", width = self.width)
    }
}

fn parse_number(digits: &str) -> Result<u32, HostListError> {
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit()) && digits.len() <= DIGITS_MAX;
    plain.then(|| digits.parse().ok()).flatten().ok_or(HostListError)
}

fn matches_parts(parts: &[NamePart], name: &str) -> bool {
    match parts.split_first() {
        None => name.is_empty(),
        Some((NamePart::Text(text), after)) => {
            name.strip_prefix(text.as_str()).is_some_and(|rest| matches_parts(after, rest))
        }
        Some((NamePart::Numbers(ranges), after)) => (1..=DIGITS_MAX).any(|length| {
            let split = name.split_at_checked(length);
            split.is_some_and(|(digits, rest)| {
                ranges.iter().any(|range| range.contains(digits)) && matches_parts(after, rest)
            })
        }),
    }
}

fn expand_parts(parts: &[NamePart], max: usize) -> Result<Vec<String>, HostListError> {
    let mut prefixes = vec![String::new()];
    for part in parts {
        let mut longer = Vec::new();
        for prefix in &prefixes {
            match part {
                NamePart::Text(text) => longer.push(format!("{prefix}{text}")),
                NamePart::Numbers(ranges) => {
                    for range in ranges {
                        for number in range.low..=range.high {
                            if longer.len() >= max {
                                return Err(HostListError);
                            }
                            longer.push(format!("{prefix}{}", range.format_number(number)));
                        }
                    }
                }
            }
        }
        prefixes = longer;
    }
    if prefixes.len() > max { Err(HostListError) } else { Ok(prefixes) }
}

/// The error of a text that is no list of names, or a list of too many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("not a list of names as in gpu[001-016,020],login1, or of too many")]
pub struct HostListError;

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
        assert_eq!(names_of("r[9-10]n[1,0]x"), ["r9n1x", "r9n0x", "r10n1x", "r10n0x"]);
        assert_eq!(names_of("[3]"), ["3"]);
    }

    #[test]
    fn other_texts_are_no_list() {
        for text in [
            "", ",", "a,", ",a", "a,,b", "a[", "a]", "a[]", "a[1", "a1]", "a[1-]", "a[-1]",
            "a[2-1]", "a[1,]", "a[x]", "a[1-2-3]", "a[[1]]", "a[1 ]", "a b", "a[0000000001]",
            "a[1][1][1][1][1]", "a\n",
        ] {
            assert_eq!(HostList::parse(text), Err(HostListError), "{text:?}");
        }
    }

    #[test]
    fn huge_list_can_be_searched_but_not_expanded() {
        let list = HostList::parse("n[0-999999999][0-999999999]").unwrap();
        assert_eq!(list.expand(1024), Err(HostListError));
        assert!(list.contains("n12"));
        assert!(!list.contains("n1"));
        let list = HostList::parse("a,b,c").unwrap();
        assert_eq!(list.expand(2), Err(HostListError));
        assert_eq!(list.expand(3).unwrap().len(), 3);
    }

    #[test]
    fn list_contains_exactly_its_expanded_names() {
        let mut random = Random::new(3);
        let pieces = ["n", "1", "0", "[0-12]", "[08-11]", "[1,3,5]", "[00]"];
        let mut inside = 0;
        for _ in 0..5_000 {
            let text: String = (0..1 + random.below(3)).map(|_| random.one_of(&pieces)).collect();
            let name: String =
                (0..random.below(5)).map(|_| random.one_of(&["n", "0", "1", "5"])).collect();
            let list = HostList::parse(&text).unwrap();
            let all = list.expand(65_536).unwrap();
            assert_eq!(list.contains(&name), all.contains(&name), "{text} {name}");
            assert!(all.iter().all(|name| list.contains(name)), "{text}");
            inside += u32::from(all.contains(&name));
        }
        assert!(inside > 100, "{inside}");
    }
}
