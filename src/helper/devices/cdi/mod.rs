//! Device specifications of the Container Device Interface, versions 0.3.0 to 1.1.0.
//!
//! `document` reads a file, `spec` holds it to the rules, and a `catalog` of what the directories hold
//! tells whose definition of a name counts; what that asks for is made devices of
//! this node here. What is meant for containers only is not carried out.
//!
//! Numbers in a file are never believed: some majors change whenever a driver is loaded, and the old
//! one may be another driver's by now. The node has the word, and where the file says a number as
//! well, the two have to agree.

mod catalog;
mod document;
mod name;
mod spec;

use super::{
    Device, DeviceError, DeviceNode, ResolvedDevices, Tree, UnresolvedName, driver, nvidia,
};
use protocol::Access;
use std::path::Path;

pub use catalog::{BYTES_MAX, Catalog, FILES_MAX};
pub use document::Format;
pub use name::{Invalid, QualifiedName};
pub use spec::{Edits, NodeEdit, NodeKind, Spec, SpecDevice, SpecError};

/// Most other devices of a file that a name is compared with.
const SIBLINGS_MAX: usize = 256;

/// What these qualified names stand for together, by the specifications of `catalog`. What a file
/// says for all its devices counts once, before what it says for the first one of them that is asked
/// for; files of one kind are not merged.
/// Fails: [`UnresolvedName`]: the first name that stands for nothing. There is no list of the others
/// then.
pub fn resolve(
    tree: &Tree,
    catalog: &Catalog,
    names: &[String],
) -> Result<ResolvedDevices, UnresolvedName> {
    let mut found = ResolvedDevices::default();
    let mut applied: Vec<&Path> = Vec::new();
    for name in names {
        let failed = |why| UnresolvedName { name: name.clone(), why };
        let parsed = name.parse::<QualifiedName>().map_err(DeviceError::from);
        let (file, spec, device) =
            parsed.and_then(|name| catalog.definition(&name)).map_err(failed)?;
        if !applied.contains(&file.path.as_path()) {
            applied.push(&file.path);
            found.extend(wanted(tree, &file.path, &spec.edits).map_err(failed)?);
        }
        found.extend(wanted(tree, &file.path, &device.edits).map_err(failed)?);
        if found.devices.len() > EDITS_MAX {
            return Err(failed(too_many()));
        }
    }
    found.warnings.extend(catalog.faults());
    Ok(found)
}

/// The qualified names of the other devices of the file whose definition of `name` counts, as far as
/// they are `wanted` and the file's definitions of them count too; at most 256 are looked at.
pub fn siblings(catalog: &Catalog, name: &str, wanted: fn(&str) -> bool) -> Vec<String> {
    let definition = |name: &str| {
        let name: QualifiedName = name.parse().ok()?;
        catalog.definition(&name).ok()
    };
    let Some((file, spec, own)) = definition(name) else { return Vec::new() };
    let others = spec.devices.iter().filter(|device| device.name != own.name);
    let names = others.filter(|device| wanted(&device.name)).take(SIBLINGS_MAX);
    let names = names.map(|device| format!("{}={}", spec.kind, device.name));
    names.filter(|name| definition(name).is_some_and(|(of, ..)| of.path == file.path)).collect()
}

/// Most device nodes that edits are taken with, and names together. A list holds a quarter as many,
/// and each is compared with those before it.
const EDITS_MAX: usize = 4096;

/// What the edits of the specification `file` stand for on this node.
/// Fails: the first node that is not what it must be, or too many nodes.
fn wanted(tree: &Tree, file: &Path, edits: &Edits) -> Result<ResolvedDevices, DeviceError> {
    if edits.nodes.len() > EDITS_MAX {
        return Err(too_many());
    }
    let mut found = ResolvedDevices::default();
    for edit in &edits.nodes {
        found.extend(device(tree, edit).map_err(|why| DeviceError::at(file.display(), why))?);
    }
    Ok(found)
}

/// A definition asks for too much, alone or with the names before it.
fn too_many() -> DeviceError {
    DeviceError::new("asks for more than 4,096 device nodes")
}

/// One device, or none where nothing is to be allowed.
fn device(tree: &Tree, edit: &NodeEdit) -> Result<ResolvedDevices, DeviceError> {
    let mut found = ResolvedDevices::default();
    let access = access_of(edit);
    if access == Access::NONE || edit.kind == Some(NodeKind::Fifo) {
        return Ok(found);
    }
    let path = edit.host_path.as_ref().unwrap_or(&edit.path);
    let failed = |why: String| DeviceError::at(path, why);
    let node = match tree.read_node(path) {
        Err(absent) if absent.is_absent() => {
            let node = nvidia::future_node(tree, path)?;
            found.warnings.push(nvidia::future_node_warning(path));
            node.ok_or_else(|| driver::explain_absence(tree, path, absent)).map_err(failed)?
        }
        node => node.map_err(|why| failed(why.to_string()))?,
    };
    agree(path, edit, node)?;
    driver::check_node(tree, path, node)?;
    found.devices.push(Device::from_node(path, node, access)?);
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
fn agree(path: &str, edit: &NodeEdit, node: DeviceNode) -> Result<(), DeviceError> {
    let kind = edit.kind.map(letter);
    let same = kind.is_none_or(|kind| kind == node.kind.letter())
        && edit.major.is_none_or(|major| major == node.major)
        && edit.minor.is_none_or(|minor| minor == node.minor);
    match same {
        true => Ok(()),
        false => Err(DeviceError::new(format_args!(
            "{path} is {node} and not {}: the specification is stale; generate it anew",
            said(edit)
        ))),
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
