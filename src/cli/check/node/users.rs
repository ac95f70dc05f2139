//! Who the guard is not for, and from which number on accounts are people's.

use super::Scene;
use crate::resolve::spared;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;

/// Where login.defs(5) says nothing.
const UID_MIN: u32 = 1000;
/// The account of nobody in particular, and the highest number that is one.
const NOBODY: [u32; 2] = [65_534, u32::MAX];

/// The accounts of a node.
pub(super) struct Users<'a> {
    scene: &'a Scene,
    first: u32,
    known: RefCell<BTreeMap<u32, bool>>,
}

impl<'a> Users<'a> {
    pub(super) fn of(scene: &'a Scene) -> Self {
        let defs = fs::read_to_string(scene.at("/etc/login.defs")).unwrap_or_default();
        Self { scene, first: uid_min(&defs).unwrap_or(UID_MIN), known: RefCell::default() }
    }

    /// Whether it is a person whom the guard is for.
    pub(super) fn is_bound(&self, uid: u32) -> bool {
        if uid < self.first || NOBODY.contains(&uid) {
            return false;
        }
        *self.known.borrow_mut().entry(uid).or_insert_with(|| !self.is_exempt(uid))
    }

    /// Whether the guard is not for them. What cannot be looked up makes nobody exempt.
    pub(super) fn is_exempt(&self, uid: u32) -> bool {
        spared(uid, None, &self.scene.config, &mut Vec::new()).is_some()
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
