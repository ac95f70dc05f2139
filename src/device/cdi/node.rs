//! From the device nodes that a specification asks for to the devices that they are here.
//!
//! Numbers in a file are never believed: some majors change whenever a driver is loaded, and the
//! old one may be another driver's by now. The node has the word, and where the file says a number
//! as well, the two have to agree.

use std::path::Path;

use nix::errno::Errno;

use super::{CdiFault, Edits, NodeEdit, NodeFault, NodeKind};
use crate::device::{Device, Found, Node, NodeError, Tree, driver, nvidia};
use crate::plan::Access;

/// Most device nodes that edits are taken with, and names together. A list holds a quarter as many,
/// and each is compared with those before it.
pub(super) const EDITS_MAX: usize = 4096;

/// What the edits of the specification `file` stand for on this node.
///
/// # Errors
/// [`CdiFault::Node`] for the first node that is not what it has to be, [`CdiFault::TooMany`].
pub(super) fn wanted(tree: &Tree, file: &Path, edits: &Edits) -> Result<Found, CdiFault> {
    if edits.nodes.len() > EDITS_MAX {
        return Err(CdiFault::TooMany);
    }
    let mut found = Found::default();
    for edit in &edits.nodes {
        let failed = |why| CdiFault::Node { file: file.to_owned(), why: Box::new(why) };
        found.extend(device(tree, edit).map_err(failed)?);
    }
    Ok(found)
}

/// One device, or none where nothing is to be allowed.
fn device(tree: &Tree, edit: &NodeEdit) -> Result<Found, NodeFault> {
    let mut found = Found::default();
    let access = access_of(edit);
    if access == Access::NONE || edit.kind == Some(NodeKind::Fifo) {
        return Ok(found);
    }
    let path = edit.host_path.as_ref().unwrap_or(&edit.path);
    let failed = |why| NodeFault::Node { path: path.clone(), why };
    let node = match tree.node(path) {
        Err(absent @ NodeError::Open(Errno::ENOENT)) => {
            let node = nvidia::unborn_node(tree, path).map_err(NodeFault::Unborn)?;
            found.warnings.push(nvidia::unborn_warning(path));
            node.ok_or(absent).map_err(failed)?
        }
        node => node.map_err(failed)?,
    };
    agree(path, edit, node)?;
    driver::check(tree, path, node).map_err(NodeFault::Misfit)?;
    let number = |why| NodeFault::Number { path: path.clone(), why };
    found.devices.push(Device::of(path, node, access).map_err(number)?);
    Ok(found)
}

/// What the specification grants, without making nodes: nothing in a job has to.
fn access_of(edit: &NodeEdit) -> Access {
    let granted = edit.access.unwrap_or(Access::ALL);
    [Access::READ, Access::WRITE]
        .into_iter()
        .filter(|access| granted.contains(*access))
        .fold(Access::NONE, Access::union)
}

/// Whether the node is what the specification says, as far as it does.
fn agree(path: &str, edit: &NodeEdit, node: Node) -> Result<(), NodeFault> {
    let kind = edit.kind.map(letter);
    let same = kind.is_none_or(|kind| kind == node.kind.letter())
        && edit.major.is_none_or(|major| major == node.major)
        && edit.minor.is_none_or(|minor| minor == node.minor);
    match same {
        true => Ok(()),
        false => Err(NodeFault::Stale { path: path.to_owned(), is: node, said: said(edit) }),
    }
}

/// As mknod(1) has it.
fn letter(kind: NodeKind) -> char {
    match kind {
        NodeKind::Block => 'b',
        NodeKind::Char => 'c',
        NodeKind::Fifo => 'p',
    }
}

fn said(edit: &NodeEdit) -> String {
    let kind = edit.kind.map(|kind| format!("type {}", letter(kind)));
    let major = edit.major.map(|major| format!("major {major}"));
    let minor = edit.minor.map(|minor| format!("minor {minor}"));
    let parts: Vec<String> = [kind, major, minor].into_iter().flatten().collect();
    parts.join(", ")
}

#[cfg(test)]
mod tests;
