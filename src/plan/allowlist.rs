//! What a job may open, resolved: numbers only.

use super::{DeviceRule, RuleError};

/// Most entries that an allowlist may hold.
pub const MAX_ENTRIES: usize = 1024;

/// What a job may open. An empty list allows nothing.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Allowlist(Vec<DeviceRule>);

impl Allowlist {
    /// A list that allows nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an entry; an entry that stands already is not added twice.
    ///
    /// # Errors
    /// [`RuleError::Full`] past [`MAX_ENTRIES`].
    pub fn push(&mut self, rule: DeviceRule) -> Result<(), RuleError> {
        if self.0.contains(&rule) {
            return Ok(());
        }
        if self.0.len() >= MAX_ENTRIES {
            return Err(RuleError::Full);
        }
        self.0.push(rule);
        Ok(())
    }

    /// The entries in the order in which they were added.
    #[must_use]
    pub fn rules(&self) -> &[DeviceRule] {
        &self.0
    }

    /// Number of entries, 0 to [`MAX_ENTRIES`].
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the list allows nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Access, DeviceType};

    #[test]
    fn list_is_bounded_and_without_doubles() {
        let mut list = Allowlist::new();
        for minor in 0..MAX_ENTRIES as u32 {
            let rule = DeviceRule::new(DeviceType::Char, 1, Some(minor), Access::RW).unwrap();
            list.push(rule).unwrap();
            list.push(rule).unwrap();
        }
        assert_eq!(list.len(), MAX_ENTRIES);
        let rule = DeviceRule::new(DeviceType::Block, 1, None, Access::RW).unwrap();
        assert_eq!(list.push(rule), Err(RuleError::Full));
    }
}
