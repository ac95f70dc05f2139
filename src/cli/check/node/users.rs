//! Who is exempt, and from which number on accounts are people's.

use super::Scene;
use crate::cli::slices::exempt;
use std::collections::BTreeMap;
use std::fs;

/// Where login.defs(5) says nothing.
const UID_MIN: u32 = 1000;
/// The account of nobody in particular, and the highest number that is one.
const NOBODY: [u32; 2] = [65_534, u32::MAX];

/// The accounts of a node.
pub(super) struct Users {
    first: u32,
    exempt: BTreeMap<u32, String>,
}

impl Users {
    /// What cannot be looked up makes nobody exempt.
    pub(super) fn of(scene: &Scene) -> Self {
        let defs = fs::read_to_string(scene.at("/etc/login.defs")).unwrap_or_default();
        let exempt = exempt(&scene.config).unwrap_or_default();
        Self { first: uid_min(&defs).unwrap_or(UID_MIN), exempt }
    }

    /// Whether it is a person who is not exempt.
    pub(super) fn is_bound(&self, uid: u32) -> bool {
        uid >= self.first && !NOBODY.contains(&uid) && !self.exempt.contains_key(&uid)
    }
}

/// `UID_MIN` of login.defs(5).
fn uid_min(defs: &str) -> Option<u32> {
    defs.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace();
        (words.next()? == "UID_MIN").then(|| words.next()?.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_begin_where_login_defs_says() {
        assert_eq!(uid_min("#UID_MIN 5\nUID_MAX 9\nUID_MIN\t\t 500\n"), Some(500));
        assert_eq!(uid_min("UID_MIN x\n"), None);
        assert_eq!(uid_min(""), None);
    }
}
