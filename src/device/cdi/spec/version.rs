//! The versions of the specification, and what each of them brought.

use std::fmt;

use super::SpecError;
use crate::device::cdi::document::quoted;

/// A released version of the specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Version {
    V0_3,
    V0_4,
    V0_5,
    V0_6,
    V0_7,
    V0_8,
    V1_0,
    V1_1,
}

const RELEASED: [Version; 8] = [
    Version::V0_3,
    Version::V0_4,
    Version::V0_5,
    Version::V0_6,
    Version::V0_7,
    Version::V0_8,
    Version::V1_0,
    Version::V1_1,
];

impl Version {
    /// The version that `cdiVersion` names, with or without a leading `v`.
    pub(super) fn parse(text: &str) -> Result<Self, SpecError> {
        let number = text.strip_prefix('v').unwrap_or(text);
        let known = RELEASED.into_iter().find(|version| version.number() == number);
        known.ok_or_else(|| {
            let text = quoted(text);
            SpecError::rule(format_args!("version {text} is not known, 0.3.0 to 1.1.0 are"))
        })
    }

    fn number(self) -> &'static str {
        match self {
            Self::V0_3 => "0.3.0",
            Self::V0_4 => "0.4.0",
            Self::V0_5 => "0.5.0",
            Self::V0_6 => "0.6.0",
            Self::V0_7 => "0.7.0",
            Self::V0_8 => "0.8.0",
            Self::V1_0 => "1.0.0",
            Self::V1_1 => "1.1.0",
        }
    }

    /// A file of this version may say `what`, which came with the version `since`.
    pub(super) fn has(self, since: Self, what: &str) -> Result<(), SpecError> {
        match self >= since {
            true => Ok(()),
            false => Err(SpecError::rule(format_args!(
                "{what} came with version {since}, the file says {self}"
            ))),
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.number())
    }
}
