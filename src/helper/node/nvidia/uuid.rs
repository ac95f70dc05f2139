//! The UUIDs that NVIDIA's driver gives GPUs and MIG instances.

use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// A UUID without a prefix. It is kept in lower case, since drivers differ in the case.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid(String);

/// Lengths of the groups of a UUID (RFC 9562, section 4).
const GROUP_LENGTHS: [usize; 5] = [8, 4, 4, 4, 12];

impl FromStr for Uuid {
    type Err = InvalidUuid;

    /// Parses five groups of hexadecimal digits in any case, with hyphens between.
    fn from_str(text: &str) -> Result<Self, InvalidUuid> {
        let groups: Vec<&str> = text.split('-').collect();
        let has_lengths = groups.iter().map(|group| group.len()).eq(GROUP_LENGTHS);
        let is_hex = groups.concat().bytes().all(|byte| byte.is_ascii_hexdigit());
        if has_lengths && is_hex {
            Ok(Self(text.to_ascii_lowercase()))
        } else {
            Err(InvalidUuid)
        }
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The error of a text that is no UUID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("not a UUID")]
pub struct InvalidUuid;
