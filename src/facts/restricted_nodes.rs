//! Device nodes that a filter opens, and that their mode keeps from users all the same.

use command::accounts;
use command::error::Error;
use helper::node::{ContainerParts, Tree};
use helper::printable;
use nix::unistd::{Gid, Group, Uid, User};
use protocol::Access;
use std::collections::BTreeMap;
use std::fmt;
use std::os::unix::fs::MetadataExt;

/// Maximum nodes that a text names.
const NODES_SHOWN_MAX: usize = 4;

/// Who can open a node that not everyone can.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeMode {
    /// Permission bits.
    mode: u32,
    /// The group that can open it; `None` if only its owner can. The group of root, which no user is in, counts
    /// as none.
    group: Option<u32>,
}

impl NodeMode {
    /// Returns whether nobody but the owner of the node can open it.
    pub fn is_owners_alone(&self) -> bool {
        self.group.is_none()
    }

    /// Returns whether the group that can open the node does not have this user.
    pub fn excludes(&self, user: &NodeUser) -> bool {
        self.group.is_none_or(|gid| !user.gids.contains(&gid))
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

/// A user whose right to open nodes is judged.
#[derive(Clone, Debug)]
pub struct NodeUser {
    /// The uid.
    pub uid: u32,
    /// The name, as a terminal may show it.
    pub name: String,
    gids: Vec<u32>,
}

impl NodeUser {
    /// Looks up the account of a uid with its groups.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] if there is none, or if the name service cannot be asked.
    pub fn find(uid: u32) -> Result<Self, Error> {
        let failed = |cause: &str| Error::failed("look up user", uid, cause);
        let user = User::from_uid(Uid::from_raw(uid)).map_err(|errno| failed(errno.desc()))?;
        let user = user.ok_or_else(|| failed("no such user"))?;
        let gids = accounts::list_groups(&user)?
            .into_iter()
            .map(Gid::as_raw)
            .collect();
        Ok(Self {
            uid,
            name: printable(&user.name),
            gids,
        })
    }

    /// Returns by how many bits a mode must be shifted right so that the lowest three are those that count
    /// for this user: the owner's, the group's or those of others.
    fn mode_shift(&self, owner: u32, group: u32) -> u32 {
        if owner == self.uid {
            6
        } else if self.gids.contains(&group) {
            3
        } else {
            0
        }
    }
}

/// Describes what a specification gives to containers and this user's logins do not get. Without a user it leaves
/// out groups. `missing_files` are those of the specification that the node lacks.
pub fn container_warnings(
    container: &ContainerParts,
    user: Option<&NodeUser>,
    missing_files: &[&str],
) -> Vec<String> {
    let mut groups = Vec::new();
    for gid in &container.gids {
        if user.is_some_and(|known| !known.gids.contains(gid)) {
            groups.push(group_name(*gid));
        }
    }
    // Only warnings of groups have the name.
    let name = user.map(|known| known.name.as_str());
    container.warnings(&groups, name.unwrap_or_default(), missing_files)
}

/// Names a group with its number, as far as it is known.
fn group_name(gid: u32) -> String {
    match Group::from_gid(Gid::from_raw(gid)) {
        Ok(Some(group)) => format!("{} ({gid})", printable(&group.name)),
        _ => gid.to_string(),
    }
}

/// Nodes that not every user can open, by who can; or those that one user cannot open.
#[derive(Debug, Default)]
pub struct RestrictedNodes {
    user: Option<NodeUser>,
    nodes: BTreeMap<NodeMode, Vec<String>>,
}

impl RestrictedNodes {
    /// Makes an empty list of the nodes that this user cannot open; without a user, of those that not
    /// everyone can open.
    pub fn new(user: Option<&NodeUser>) -> Self {
        Self {
            user: user.cloned(),
            nodes: BTreeMap::new(),
        }
    }

    /// Adds a node if its mode denies this `access`; does nothing otherwise, or if there is no such node.
    pub fn add_if_restricted(&mut self, tree: &Tree, node: &str, access: Access) {
        let Some(mode) = read_mode(tree, node, access, self.user.as_ref()) else {
            return;
        };
        let nodes = self.nodes.entry(mode).or_default();
        if !nodes.iter().any(|known| known == node) {
            nodes.push(node.to_owned());
        }
    }

    /// Tells whether no node is restricted.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Returns each mode with the text of its nodes.
    pub fn iter(&self) -> impl Iterator<Item = (&NodeMode, String)> {
        self.nodes.iter().map(|(mode, nodes)| {
            let mut shown: Vec<String> = nodes
                .iter()
                .take(NODES_SHOWN_MAX)
                .map(|node| printable(node))
                .collect();
            if nodes.len() > NODES_SHOWN_MAX {
                shown.push(format!("and {} more", nodes.len() - NODES_SHOWN_MAX));
            }
            (mode, shown.join(", "))
        })
    }

    /// Returns a warning for each mode.
    pub fn warnings(&self) -> impl Iterator<Item = String> {
        let whom = match &self.user {
            Some(user) => format!(", which keeps {} out", user.name),
            None => String::new(),
        };
        self.iter().map(move |(mode, nodes)| {
            format!("{nodes}: {mode}{whom}, whatever the filter lets through (udev sets the mode)")
        })
    }
}

/// Reads the mode of a node if it keeps the user from this access; without a user, if it keeps those from it
/// who neither own the node nor are in its group. `None` for a mode that allows the access, and for a node
/// that cannot be read or has no absolute path.
fn read_mode(tree: &Tree, node: &str, access: Access, user: Option<&NodeUser>) -> Option<NodeMode> {
    if !node.starts_with('/') {
        return None;
    }
    let meta = std::fs::metadata(tree.locate(node)).ok()?;
    let mut required = 0;
    if access.contains(Access::READ) {
        required |= 0o4;
    }
    // Below `--root` a regular file may stand for a device node. It is never written.
    if access.contains(Access::WRITE) && !meta.is_file() {
        required |= 0o2;
    }
    let grants = |shift: u32| meta.mode() >> shift & required == required;
    if grants(user.map_or(0, |user| user.mode_shift(meta.uid(), meta.gid()))) {
        return None;
    }
    let group = Some(meta.gid()).filter(|gid| grants(3) && *gid != 0);
    Some(NodeMode {
        mode: meta.mode() & 0o7777,
        group,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;

    fn warnings(scratch: &Scratch, nodes: &[&str]) -> Vec<String> {
        let tree = Tree::with_root(scratch.path(), scratch.trust());
        let mut restricted = RestrictedNodes::default();
        for node in nodes {
            restricted.add_if_restricted(&tree, node, Access::RW);
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
        assert_eq!(
            warnings(&scratch, &["/dev/open", "/dev/gone", "char-pts"]),
            [""; 0]
        );
        let whatever = "whatever the filter lets through (udev sets the mode)";
        scratch.mode("dev/own", 0o600);
        let expected = format!("/dev/own: mode 0600, for its owner alone, {whatever}");
        assert_eq!(
            warnings(&scratch, &["/dev/own", "/dev/own", "/dev/open"]),
            [expected]
        );
        if !Uid::effective().is_root() {
            return crate::testing::skip("needs root");
        }
        for name in ["group", "other", "a", "b", "c"] {
            let path = scratch.path().join("dev").join(name);
            std::os::unix::fs::chown(&path, None, Some(4_000_000)).unwrap();
            scratch.mode(&format!("dev/{name}"), 0o660);
        }
        let all = ["/dev/group", "/dev/other", "/dev/a", "/dev/b", "/dev/c"];
        let own = scratch.trust().owner();
        let group = 4_000_000;
        for (uid, gids, count) in [
            (own + 1, vec![], 2),
            (own + 1, vec![group], 1),
            (own, vec![group], 0),
            (own + 1, vec![group + 1], 2),
        ] {
            let user = NodeUser {
                uid,
                name: "alice".into(),
                gids,
            };
            let mut restricted = RestrictedNodes::new(Some(&user));
            let tree = Tree::with_root(scratch.path(), scratch.trust());
            for node in ["/dev/open", "/dev/own", "/dev/group"] {
                restricted.add_if_restricted(&tree, node, Access::RW);
            }
            let found: Vec<String> = restricted.warnings().collect();
            assert_eq!(found.len(), count, "{user:?}: {found:?}");
            assert!(
                found
                    .iter()
                    .all(|text| text.contains("which keeps alice out")),
                "{found:?}"
            );
        }
        let group_warning = format!(
            "/dev/group, /dev/other, /dev/a, /dev/b, and 1 more: mode 0660, for the group 4000000 \
             alone, {whatever}"
        );
        assert_eq!(warnings(&scratch, &all), [group_warning]);
    }
}
