//! From the device nodes that a specification asks for to the devices that they are here.
//!
//! Numbers in a file are never believed: some majors change whenever a driver is loaded, and the
//! old one may be another driver's by now. The node has the word, and where the file says a number
//! as well, the two have to agree.

use std::path::Path;

use nix::errno::Errno;

use super::{CdiFault, Edits, NodeEdit, NodeFault, NodeKind};
use crate::device::{Device, Found, Node, NodeError, Tree, guard, nvidia};
use crate::plan::{Access, DeviceType};

/// What the edits of the specification `file` stand for on this node.
///
/// # Errors
/// [`CdiFault::Node`] for the first node that is not what it has to be.
pub(super) fn wanted(tree: &Tree, file: &Path, edits: &Edits) -> Result<Found, CdiFault> {
    let mut devices = Vec::new();
    for edit in &edits.nodes {
        let failed =
            |why| CdiFault::Node { file: file.to_owned(), path: host_path(edit).to_owned(), why };
        devices.extend(device(tree, edit).map_err(failed)?);
    }
    Ok(Found { devices, warnings: Vec::new(), env: edits.env.clone(), gids: edits.gids.clone() })
}

fn host_path(edit: &NodeEdit) -> &str {
    edit.host_path.as_ref().unwrap_or(&edit.path)
}

/// `None` where nothing is to be allowed.
fn device(tree: &Tree, edit: &NodeEdit) -> Result<Option<Device>, NodeFault> {
    let access = access_of(edit);
    if access == Access::NONE || edit.kind == Some(NodeKind::Fifo) {
        return Ok(None);
    }
    let path = host_path(edit);
    let node = match tree.node(path) {
        Err(NodeError::Open(Errno::ENOENT)) => unborn(tree, path)?,
        node => node.map_err(NodeFault::Node)?,
    };
    agree(edit, node)?;
    guard::check(tree, path, node).map_err(NodeFault::Misfit)?;
    Device::of(path, node, access).map(Some).map_err(NodeFault::Number)
}

/// What the specification grants, without making nodes: nothing in a job has to.
fn access_of(edit: &NodeEdit) -> Access {
    let granted = edit.access.unwrap_or(Access::ALL);
    [Access::READ, Access::WRITE]
        .into_iter()
        .filter(|access| granted.contains(*access))
        .fold(Access::NONE, Access::union)
}

/// What a node will be that is made when it is first used, which the login may be to do.
fn unborn(tree: &Tree, path: &str) -> Result<Node, NodeFault> {
    let node = nvidia::unborn_node(tree, path).map_err(NodeFault::Unborn)?;
    node.ok_or(NodeFault::Node(NodeError::Open(Errno::ENOENT)))
}

fn agree(edit: &NodeEdit, node: Node) -> Result<(), NodeFault> {
    let kind = match edit.kind {
        None => Some(node.kind),
        Some(NodeKind::Char) => Some(DeviceType::Char),
        Some(NodeKind::Block) => Some(DeviceType::Block),
        Some(NodeKind::Fifo) => None,
    };
    let major = edit.major.unwrap_or(node.major);
    let minor = edit.minor.unwrap_or(node.minor);
    match (kind, major, minor) == (Some(node.kind), node.major, node.minor) {
        true => Ok(()),
        false => Err(NodeFault::Stale { said: said(edit), is: node }),
    }
}

/// What the specification says of a node, as far as it does.
fn said(edit: &NodeEdit) -> String {
    let kind = edit.kind.map(|kind| match kind {
        NodeKind::Block => "block".to_owned(),
        NodeKind::Char => "character".to_owned(),
        NodeKind::Fifo => "FIFO".to_owned(),
    });
    let major = edit.major.map(|major| format!("major {major}"));
    let minor = edit.minor.map(|minor| format!("minor {minor}"));
    let parts: Vec<String> = [kind, major, minor].into_iter().flatten().collect();
    parts.join(", ")
}

#[cfg(test)]
mod tests;
