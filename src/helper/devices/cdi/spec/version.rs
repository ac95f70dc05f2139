//! The versions of the specification, and what each of them brought.

use std::fmt;

use super::SpecError;
use crate::helper::devices::cdi::document::quoted;

/// A released version of the specification. None has a number of two digits, so that they are
/// ordered as texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Version(&'static str);

const RELEASED: [&str; 8] =
    ["0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0"];

impl Version {
    pub(super) const V0_4: Self = Self("0.4.0");
    pub(super) const V0_5: Self = Self("0.5.0");
    pub(super) const V0_6: Self = Self("0.6.0");
    pub(super) const V0_7: Self = Self("0.7.0");
    pub(super) const V1_1: Self = Self("1.1.0");

    /// The version that `cdiVersion` names, with or without a leading `v`.
    pub(super) fn parse(text: &str) -> Result<Self, SpecError> {
        let number = text.strip_prefix('v').unwrap_or(text);
        let known = RELEASED.into_iter().find(|known| *known == number);
        known.map(Self).ok_or_else(|| {
            let text = quoted(text);
            SpecError::rule(format_args!("version {text} is not known, 0.3.0 to 1.1.0 are"))
        })
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
        f.write_str(self.0)
    }
}
