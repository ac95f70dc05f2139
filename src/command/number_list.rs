//! Lists of numbers in the kernel's form, as `0-3,8`: cores and memory nodes.

use protocol::parse_decimal;
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// Greatest number in a list: no kernel has more than 8,192 cores (`NR_CPUS_RANGE_END` in `arch/x86/Kconfig`).
const NUMBER_MAX: u32 = 8191;
/// A mask of systemd has so many numbers in each byte.
const BYTE_BITS: u32 = 8;

/// A list of cores or of memory nodes, never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumberList(BTreeSet<u32>);

/// A text that is no list in the kernel's form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a list of numbers up to {NUMBER_MAX}, as 0-3,8")]
pub struct MalformedList;

impl NumberList {
    /// Collects numbers; `None` for none.
    pub fn from_numbers(numbers: impl IntoIterator<Item = u32>) -> Option<Self> {
        let numbers: BTreeSet<u32> = numbers.into_iter().collect();
        (!numbers.is_empty()).then_some(Self(numbers))
    }

    /// Returns the numbers in ascending order.
    pub fn numbers(&self) -> impl Iterator<Item = u32> {
        self.0.iter().copied()
    }

    /// Tells whether the number is in the list.
    pub fn contains(&self, number: u32) -> bool {
        self.0.contains(&number)
    }

    /// Tells whether all numbers of the other list are in this one.
    pub fn contains_all(&self, other: &Self) -> bool {
        self.0.is_superset(&other.0)
    }

    /// Tells whether the lists have a number in common.
    pub fn has_any_of(&self, other: &Self) -> bool {
        !self.0.is_disjoint(&other.0)
    }

    /// Returns the numbers that the other list lacks; `None` if it has all.
    pub fn without(&self, other: &Self) -> Option<Self> {
        Self::from_numbers(self.0.difference(&other.0).copied())
    }

    /// Builds the mask that systemd takes (org.freedesktop.systemd1(5), `AllowedCPUs`): number 0 is the lowest bit of
    /// the first byte.
    pub fn mask(&self) -> Vec<u8> {
        let bytes = self.0.last().map_or(0, |last| last / BYTE_BITS + 1);
        let byte = |index: u32| {
            let bits = (0..BYTE_BITS).filter(|bit| self.0.contains(&(index * BYTE_BITS + bit)));
            bits.fold(0, |byte, bit| byte | 1 << bit)
        };
        (0..bytes).map(byte).collect()
    }
}

impl FromStr for NumberList {
    type Err = MalformedList;

    fn from_str(text: &str) -> Result<Self, MalformedList> {
        let mut numbers = BTreeSet::new();
        for range in text.split(',') {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let first: u32 = parse_decimal(first).ok_or(MalformedList)?;
            let last: u32 = parse_decimal(last).ok_or(MalformedList)?;
            if first > last || last > NUMBER_MAX {
                return Err(MalformedList);
            }
            numbers.extend(first..=last);
        }
        Ok(Self(numbers))
    }
}

impl fmt::Display for NumberList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut numbers = self.0.iter().copied().peekable();
        let mut separator = "";
        while let Some(first) = numbers.next() {
            let mut last = first;
            while let Some(next) = numbers.next_if_eq(&(last + 1)) {
                last = next;
            }
            write!(f, "{separator}{first}")?;
            if last > first {
                write!(f, "-{last}")?;
            }
            separator = ",";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    mod masks;

    use super::*;

    fn list(text: &str) -> NumberList {
        text.parse().unwrap()
    }

    #[test]
    fn list_is_shown_as_the_kernel_shows_it() {
        for (text, shown) in [
            ("0", "0"),
            ("0-3,8", "0-3,8"),
            ("8,3,2,1,0,9", "0-3,8-9"),
            ("5-5,5", "5"),
            ("8191", "8191"),
        ] {
            assert_eq!(list(text).to_string(), shown);
        }
        for wrong in [
            "",
            ",",
            "0,",
            "3-0",
            "-1",
            "0-",
            "all",
            "0-3:1/2",
            " 0",
            "01",
            "8192",
            "0-4294967295",
        ] {
            assert_eq!(wrong.parse::<NumberList>(), Err(MalformedList), "{wrong}");
        }
    }

    #[test]
    fn lists_are_compared() {
        let four = list("0-3");
        assert!(four.contains_all(&list("1,3")));
        assert!(!four.contains_all(&list("3-4")));
        assert!(four.has_any_of(&list("3-4")));
        assert!(!four.has_any_of(&list("4")));
        assert_eq!(list("2-5").without(&four), Some(list("4-5")));
        assert_eq!(list("2").without(&four), None);
    }

    #[test]
    fn mask_has_number_0_first() {
        assert_eq!(list("0").mask(), [1]);
        assert_eq!(list("0-3,8").mask(), [0b1111, 1]);
        assert_eq!(list("7,16,23").mask(), [0x80, 0, 0x81]);
    }
}
