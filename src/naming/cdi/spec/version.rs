//! The versions of the standard.

use crate::cdi::document::quote;
use crate::cdi::error::SpecError;
use std::fmt;

/// A released version of the standard. None has a number of two digits, so that they compare as texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Version(&'static str);

const RELEASED: [&str; 8] = [
    "0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0",
];

impl Version {
    pub(super) const V0_4: Self = Self("0.4.0");
    pub(super) const V0_5: Self = Self("0.5.0");
    pub(super) const V0_6: Self = Self("0.6.0");
    pub(super) const V0_7: Self = Self("0.7.0");
    pub(super) const V1_1: Self = Self("1.1.0");

    /// Parses the value of `cdiVersion`, with or without a leading `v`.
    pub(super) fn parse(text: &str) -> Result<Self, SpecError> {
        let number = text.strip_prefix('v').unwrap_or(text);
        match RELEASED.into_iter().find(|known| *known == number) {
            Some(known) => Ok(Self(known)),
            None => Err(SpecError::rule(format_args!(
                "version {} is not known, 0.3.0 to 1.1.0 are",
                quote(text)
            ))),
        }
    }

    /// Checks that a file of this version may contain `what`, which the version `since` introduced.
    pub(super) fn require(self, since: Self, what: &str) -> Result<(), SpecError> {
        if self < since {
            return Err(SpecError::rule(format_args!(
                "{what} came with version {since}, the file says {self}"
            )));
        }
        Ok(())
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}
