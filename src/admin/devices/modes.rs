//! Device nodes that a filter opens, and that their mode keeps from users all the same.

use helper::devices::Tree;
use helper::printable;
use nix::unistd::{Gid, Group};
use protocol::Access;
use std::collections::BTreeMap;
use std::fmt;
use std::os::unix::fs::MetadataExt;

/// Maximum nodes that a text names.
const NODES_SHOWN_MAX: usize = 4;

/// Who can open a node that not everyone can.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NodeMode {
    /// Permission bits.
    mode: u32,
    /// The group that can open it, unless only its owner can.
    group: Option<u32>,
}

impl NodeMode {
    /// Returns whether nobody but the owner of the node can open it.
    pub(crate) fn is_owners_alone(&self) -> bool {
        self.group.is_none()
    }
}

impl fmt::Display for NodeMode {
    /// Writes the mode and who can open the node: `mode 0660, for the group render alone`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "mode {:04o}, for ", self.mode)?;
        match self.group {
            None => f.write_str("its owner alone"),
            Some(gid) => match Group::from_gid(Gid::from_raw(gid)) {
                Ok(Some(group)) => write!(f, "the group {} alone", printable(&group.name)),
                _ => write!(f, "the group {gid} alone"),
            },
        }
    }
}

/// Nodes that not every user can open, by who can.
#[derive(Debug, Default)]
pub(crate) struct RestrictedNodes(BTreeMap<NodeMode, Vec<String>>);

impl RestrictedNodes {
    /// Adds a node if not everyone has `access` to it. A path of no node adds nothing.
    pub(crate) fn add(&mut self, tree: &Tree, node: &str, access: Access) {
        let Some(mode) = read_mode(tree, node, access) else { return };
        let nodes = self.0.entry(mode).or_default();
        if !nodes.iter().any(|known| known == node) {
            nodes.push(node.to_owned());
        }
    }

    /// Returns each mode with the text of its nodes.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&NodeMode, String)> {
        self.0.iter().map(|(mode, nodes)| {
            let mut shown: Vec<String> =
                nodes.iter().take(NODES_SHOWN_MAX).map(|node| printable(node)).collect();
            if nodes.len() > NODES_SHOWN_MAX {
                shown.push(format!("and {} more", nodes.len() - NODES_SHOWN_MAX));
            }
            (mode, shown.join(", "))
        })
    }

    /// Returns a warning for each mode.
    pub(crate) fn warnings(&self) -> impl Iterator<Item = String> {
        self.iter().map(|(mode, nodes)| {
            format!("{nodes}: {mode}, whatever the filter lets through (udev sets the mode)")
        })
    }
}

fn read_mode(tree: &Tree, node: &str, access: Access) -> Option<NodeMode> {
    let meta = node.starts_with('/').then(|| std::fs::metadata(tree.locate(node)).ok())??;
    // A file that stands for a device node is never written.
    let can_write = access.contains(Access::WRITE) && !meta.is_file();
    let required = if access.contains(Access::READ) { 0o4 } else { 0 } | u32::from(can_write) << 1;
    let grants = |shift: u32| meta.mode() >> shift & required == required;
    if grants(0) {
        return None;
    }
    let group = Some(meta.gid()).filter(|gid| grants(3) && *gid != 0);
    Some(NodeMode { mode: meta.mode() & 0o7777, group })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;

    fn warnings(scratch: &Scratch, nodes: &[&str]) -> Vec<String> {
        let tree = Tree::with_root(scratch.path(), scratch.trust());
        let mut restricted = RestrictedNodes::default();
        for node in nodes {
            restricted.add(&tree, node, Access::RW);
        }
        restricted.warnings().collect()
    }

    #[test]
    fn node_that_not_everyone_can_open_is_named_with_its_group() {
        let scratch = Scratch::new();
        for name in ["open", "group", "other", "own", "a", "b", "c"] {
            scratch.file(&format!("dev/{name}"), "c 226:128");
        }
        scratch.mode("dev/open", 0o666);
        assert_eq!(warnings(&scratch, &["/dev/open", "/dev/gone", "char-pts"]), [""; 0]);
        let whatever = "whatever the filter lets through (udev sets the mode)";
        scratch.mode("dev/own", 0o600);
        let expected = format!("/dev/own: mode 0600, for its owner alone, {whatever}");
        assert_eq!(warnings(&scratch, &["/dev/own", "/dev/own", "/dev/open"]), [expected]);
        for name in ["group", "other", "a", "b", "c"] {
            let path = scratch.path().join("dev").join(name);
            std::os::unix::fs::chown(&path, None, Some(4_000_000)).unwrap();
            scratch.mode(&format!("dev/{name}"), 0o660);
        }
        let all = ["/dev/group", "/dev/other", "/dev/a", "/dev/b", "/dev/c"];
        let expected = format!(
            "/dev/group, /dev/other, /dev/a, /dev/b, and 1 more: mode 0660, for the group 4000000 \
             alone, {whatever}"
        );
        assert_eq!(warnings(&scratch, &all), [expected]);
    }
}
