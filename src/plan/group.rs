//! Groups that cross the boundary, by number.

use std::fmt;
use std::str::FromStr;

use super::decimal;

/// Most groups that one login is given.
pub const MAX_GROUPS: usize = 16;

/// Number of a group: never root's, and never the one that stands for "no change" (`chown(2)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GroupId(u32);

impl GroupId {
    /// The group of this number.
    ///
    /// # Errors
    /// [`GroupError`] for 0 and 4,294,967,295.
    pub fn new(number: u32) -> Result<Self, GroupError> {
        if matches!(number, 0 | u32::MAX) { Err(GroupError) } else { Ok(Self(number)) }
    }

    /// The number.
    #[must_use]
    pub fn number(self) -> u32 {
        self.0
    }
}

impl fmt::Display for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for GroupId {
    type Err = GroupError;

    /// Takes a number in its only decimal spelling.
    fn from_str(text: &str) -> Result<Self, GroupError> {
        decimal(text).ok_or(GroupError).and_then(Self::new)
    }
}

/// Not the number of a group that a login may be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupError;

impl fmt::Display for GroupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the number of a group is 1 to 4294967294")
    }
}

impl std::error::Error for GroupError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_never_roots() {
        for good in ["1", "44", "4294967294"] {
            assert_eq!(good.parse::<GroupId>().unwrap().to_string(), good);
        }
        for bad in ["0", "4294967295", "4294967296", "-1", "+1", "01", "", "video", "1 "] {
            assert_eq!(bad.parse::<GroupId>(), Err(GroupError), "{bad:?}");
        }
    }
}
