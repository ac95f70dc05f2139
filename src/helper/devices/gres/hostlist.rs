//! Slurm's lists of names, `gpu[001-016,020],login1`.

use thiserror::Error;

/// Most brackets of one name.
const BRACKETS_MAX: usize = 4;
/// Most digits of a number between brackets.
const DIGITS_MAX: usize = 9;

/// A list of host names or of file names. Between brackets stand numbers and ranges of numbers,
/// which keep the leading zeros that the lower end has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostList(Vec<Vec<Part>>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Numbers(Vec<Range>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    low: u32,
    high: u32,
    width: usize,
}

impl HostList {
    /// Reads a list: names and commas, no blanks.
    /// Fails: [`HostListError`] for an empty name, a bracket that is not closed or not opened, what
    /// is no range, a number of more than nine digits, and more than four brackets in a name.
    pub fn parse(text: &str) -> Result<Self, HostListError> {
        names(text)?.into_iter().map(parts).collect::<Result<_, _>>().map(Self)
    }

    /// Whether a name is in the list. Nothing is written out for it, so that a list of any length
    /// can be asked.
    pub fn contains(&self, name: &str) -> bool {
        self.0.iter().any(|parts| stands_for(parts, name))
    }

    /// The names of the list, in its order; of several brackets the last one runs fastest.
    /// Fails: [`HostListError`] where there are more than `limit`.
    pub fn names(&self, limit: usize) -> Result<Vec<String>, HostListError> {
        let mut all = Vec::new();
        for parts in &self.0 {
            let left = limit.saturating_sub(all.len());
            all.extend(written_out(parts, left)?);
        }
        Ok(all)
    }
}

/// The text at its commas, but for those between brackets.
fn names(text: &str) -> Result<Vec<&str>, HostListError> {
    let mut inside = false;
    let mut names = Vec::new();
    for name in text.split(|next| {
        inside = (inside || next == '[') && next != ']';
        next == ',' && !inside
    }) {
        names.push(name);
    }
    let good = !inside && names.iter().all(|name| !name.is_empty());
    good.then_some(names).ok_or(HostListError)
}

fn parts(name: &str) -> Result<Vec<Part>, HostListError> {
    let mut parts = Vec::new();
    let mut rest = name;
    while let Some((before, after)) = rest.split_once('[') {
        let (inside, after) = after.split_once(']').ok_or(HostListError)?;
        parts.extend(text_of(before)?);
        let ranges = inside.split(',').map(Range::parse).collect::<Result<_, _>>()?;
        parts.push(Part::Numbers(ranges));
        rest = after;
    }
    parts.extend(text_of(rest)?);
    let brackets = parts.iter().filter(|part| matches!(part, Part::Numbers(_))).count();
    if brackets > BRACKETS_MAX { Err(HostListError) } else { Ok(parts) }
}

fn text_of(text: &str) -> Result<Option<Part>, HostListError> {
    let plain = !text.contains([']', '[', ' ']) && !text.chars().any(char::is_control);
    let part = || (!text.is_empty()).then(|| Part::Text(text.to_owned()));
    if plain { Ok(part()) } else { Err(HostListError) }
}

impl Range {
    fn parse(text: &str) -> Result<Self, HostListError> {
        let (low, high) = text.split_once('-').unwrap_or((text, text));
        let range = Self { low: number(low)?, high: number(high)?, width: low.len() };
        if range.low <= range.high { Ok(range) } else { Err(HostListError) }
    }

    fn holds(self, digits: &str) -> bool {
        let number = number(digits).ok().filter(|own| (self.low..=self.high).contains(own));
        number.is_some_and(|number| self.shown(number) == digits)
    }

    fn shown(self, number: u32) -> String {
        format!("{number:0width$}", width = self.width)
    }
}

fn number(digits: &str) -> Result<u32, HostListError> {
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit()) && digits.len() <= DIGITS_MAX;
    plain.then(|| digits.parse().ok()).flatten().ok_or(HostListError)
}

fn stands_for(parts: &[Part], name: &str) -> bool {
    match parts.split_first() {
        None => name.is_empty(),
        Some((Part::Text(text), after)) => {
            name.strip_prefix(text.as_str()).is_some_and(|rest| stands_for(after, rest))
        }
        Some((Part::Numbers(ranges), after)) => (1..=DIGITS_MAX).any(|length| {
            let split = name.split_at_checked(length);
            split.is_some_and(|(digits, rest)| {
                ranges.iter().any(|range| range.holds(digits)) && stands_for(after, rest)
            })
        }),
    }
}

fn written_out(parts: &[Part], limit: usize) -> Result<Vec<String>, HostListError> {
    let mut all = vec![String::new()];
    for part in parts {
        let mut longer = Vec::new();
        for before in &all {
            match part {
                Part::Text(text) => longer.push(format!("{before}{text}")),
                Part::Numbers(ranges) => {
                    for range in ranges {
                        for number in range.low..=range.high {
                            if longer.len() >= limit {
                                return Err(HostListError);
                            }
                            longer.push(format!("{before}{}", range.shown(number)));
                        }
                    }
                }
            }
        }
        all = longer;
    }
    if all.len() > limit { Err(HostListError) } else { Ok(all) }
}

/// A text is no list of names, or a list of too many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("not a list of names as in gpu[001-016,020],login1, or of too many")]
pub struct HostListError;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;

    fn names_of(text: &str) -> Vec<String> {
        HostList::parse(text).unwrap().names(1024).unwrap()
    }

    #[test]
    fn lists_are_written_out_in_their_order_with_their_zeros() {
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
    fn anything_else_is_none() {
        for text in [
            "", ",", "a,", ",a", "a,,b", "a[", "a]", "a[]", "a[1", "a1]", "a[1-]", "a[-1]",
            "a[2-1]", "a[1,]", "a[x]", "a[1-2-3]", "a[[1]]", "a[1 ]", "a b", "a[0000000001]",
            "a[1][1][1][1][1]", "a\n",
        ] {
            assert_eq!(HostList::parse(text), Err(HostListError), "{text:?}");
        }
    }

    #[test]
    fn a_list_of_too_many_is_asked_but_not_written_out() {
        let list = HostList::parse("n[0-999999999][0-999999999]").unwrap();
        assert_eq!(list.names(1024), Err(HostListError));
        assert!(list.contains("n12"));
        assert!(!list.contains("n1"));
        let list = HostList::parse("a,b,c").unwrap();
        assert_eq!(list.names(2), Err(HostListError));
        assert_eq!(list.names(3).unwrap().len(), 3);
    }

    #[test]
    fn a_name_is_in_a_list_exactly_where_it_is_written_out() {
        let mut random = Random::new(3);
        let pieces = ["n", "1", "0", "[0-12]", "[08-11]", "[1,3,5]", "[00]"];
        let mut inside = 0;
        for _ in 0..5_000 {
            let text: String = (0..1 + random.below(3)).map(|_| random.one_of(&pieces)).collect();
            let name: String =
                (0..random.below(5)).map(|_| random.one_of(&["n", "0", "1", "5"])).collect();
            let list = HostList::parse(&text).unwrap();
            let all = list.names(65_536).unwrap();
            assert_eq!(list.contains(&name), all.contains(&name), "{text} {name}");
            assert!(all.iter().all(|name| list.contains(name)), "{text}");
            inside += u32::from(all.contains(&name));
        }
        assert!(inside > 100, "{inside}");
    }
}
