//! Device specifications of the Container Device Interface, versions 0.3.0 to 1.1.0.
//!
//! `document` parses a file and `spec` checks it against the rules. The `catalog` of all directories
//! decides whose definition of a name counts. This file turns the definition into devices of the
//! node. Edits for containers only are checked and never carried out.
//!
//! Numbers in a file are not trusted: some majors change whenever a driver is loaded, and another
//! driver may have the old one by now. The node decides, and a number in the file must agree.

mod catalog;
mod document;
mod error;
mod name;
mod spec;

use crate::unresolved_name::UnresolvedName;
use helper::node::{Device, DeviceError, DeviceNode, ResolvedDevices, Tree, driver, nvidia};
use protocol::Access;
use std::path::Path;

use catalog::SpecFile;
pub use catalog::{BYTES_MAX, Catalog, FILES_MAX};
pub use document::Format;
pub use error::SpecError;
pub use name::{QualifiedName, QualifiedNameError};
pub use spec::{Edits, NodeEdit, NodeKind, Spec, SpecDevice};

/// Maximum other devices of a file that are compared with a name.
const SIBLINGS_MAX: usize = 256;

/// Resolves these qualified names together, by the specifications of `catalog`. The
/// edits of a file for all its devices count once, before those of its first device among the names;
/// those of other files of the same kind do not count. The faults of all files that were parsed so far
/// become warnings.
///
/// # Errors
///
/// The first name that does not resolve. The devices of the other names are not returned then.
pub fn resolve(
    tree: &Tree,
    catalog: &Catalog,
    names: &[String],
) -> Result<ResolvedDevices, UnresolvedName> {
    let mut resolved = ResolvedDevices::default();
    // The files whose edits for all their devices count already.
    let mut applied: Vec<&Path> = Vec::new();
    for name in names {
        let failed = |why| UnresolvedName {
            name: name.clone(),
            why,
        };
        let (file, spec, device) = find_definition(catalog, name).map_err(failed)?;
        if !applied.contains(&file.path.as_path()) {
            applied.push(&file.path);
            resolved.extend(resolve_edits(tree, &file.path, &spec.edits).map_err(failed)?);
        }
        resolved.extend(resolve_edits(tree, &file.path, &device.edits).map_err(failed)?);
        if resolved.devices.len() > NODES_MAX {
            return Err(failed(too_many()));
        }
    }
    resolved.warnings.extend(catalog.faults());
    Ok(resolved)
}

/// Lists the qualified names of other devices of the file whose definition of `name` counts: those that `is_wanted`
/// accepts and whose definitions in this file count too, among at most 256. Empty if no definition of `name` counts. By
/// them the caller checks the definition of a name that NVIDIA's driver does not know, such as an index.
pub fn list_siblings(catalog: &Catalog, name: &str, is_wanted: fn(&str) -> bool) -> Vec<String> {
    let Ok((file, spec, own_device)) = find_definition(catalog, name) else {
        return Vec::new();
    };
    let mut siblings: Vec<String> = spec
        .devices
        .iter()
        .filter(|device| device.name != own_device.name && is_wanted(&device.name))
        .take(SIBLINGS_MAX)
        .map(|device| format!("{}={}", spec.kind, device.name))
        .collect();
    siblings.retain(|sibling| {
        let definition = find_definition(catalog, sibling);
        definition.is_ok_and(|(its_file, ..)| its_file.path == file.path)
    });
    siblings
}

/// Parses a qualified name, and finds the definition that counts.
fn find_definition<'a>(
    catalog: &'a Catalog,
    name: &str,
) -> Result<(&'a SpecFile, &'a Spec, &'a SpecDevice), DeviceError> {
    catalog.find_definition(&name.parse::<QualifiedName>()?)
}

/// Maximum device nodes of one definition, and of all names together. An allowlist has room for a
/// quarter of them, and each is compared with those before it.
const NODES_MAX: usize = 4096;

/// Resolves the devices on this node that edits of the specification `file` grant.
///
/// # Errors
///
/// A node is missing or contradicts the specification, or there are too many nodes.
fn resolve_edits(tree: &Tree, file: &Path, edits: &Edits) -> Result<ResolvedDevices, DeviceError> {
    if edits.nodes.len() > NODES_MAX {
        return Err(too_many());
    }
    let mut found = ResolvedDevices {
        container: edits.container.clone(),
        ..ResolvedDevices::default()
    };
    for edit in &edits.nodes {
        found.extend(
            resolve_node_edit(tree, edit).map_err(|why| DeviceError::at(file.display(), why))?,
        );
    }
    Ok(found)
}

/// The error of a definition with too many nodes, alone or with the names before it.
fn too_many() -> DeviceError {
    DeviceError::new("asks for more than 4,096 device nodes")
}

/// Resolves the device of one edit; none if the edit grants neither reading nor writing, or is for a FIFO. Permissions
/// that are `m` alone give a warning, since they open nothing. NVIDIA's driver makes some nodes at their first use: such
/// a missing node gives one, too.
///
/// # Errors
///
/// The node is missing, cannot be opened, differs from the specification, or must not be a job's.
fn resolve_node_edit(tree: &Tree, edit: &NodeEdit) -> Result<ResolvedDevices, DeviceError> {
    let mut found = ResolvedDevices::default();
    let access = granted_access(edit);
    let path = edit.host_path.as_ref().unwrap_or(&edit.path);
    if edit.kind == Some(NodeKind::Fifo) {
        return Ok(found);
    }
    if access == Access::NONE {
        if edit.access == Some(Access::MKNOD) {
            let text =
                format!("{path} left out: the specification grants m alone, which opens nothing");
            found.warnings.push(text);
        }
        return Ok(found);
    }
    let node = match tree.read_node(path) {
        Ok(node) => node,
        Err(absent) if absent.is_absent() => {
            let Some(node) = nvidia::future_node(tree, path)? else {
                let why = driver::explain_absence(tree, path, absent);
                return Err(DeviceError::at(path, why));
            };
            found.warnings.push(nvidia::future_node_warning(path));
            node
        }
        Err(why) => return Err(DeviceError::at(path, why)),
    };
    check_agreement(path, edit, node)?;
    driver::check_node(tree, path, node)?;
    found.devices.push(Device::from_node(path, node, access)?);
    Ok(found)
}

/// The access that the specification grants, without `mknod`, which no job needs.
fn granted_access(edit: &NodeEdit) -> Access {
    let granted = edit.access.unwrap_or(Access::ALL);
    let without_mknod = granted.bits() & Access::RW.bits();
    Access::from_bits(without_mknod).unwrap_or(Access::NONE)
}

/// Checks that the node has the type and numbers that the specification gives. What it leaves out is not checked.
fn check_agreement(path: &str, edit: &NodeEdit, node: DeviceNode) -> Result<(), DeviceError> {
    let kind = edit.kind.map(type_letter);
    let agrees = kind.is_none_or(|kind| kind == node.kind.letter())
        && edit.major.is_none_or(|major| major == node.major)
        && edit.minor.is_none_or(|minor| minor == node.minor);
    if !agrees {
        return Err(DeviceError::new(format_args!(
            "{path} is {node} and not {}: the specification is stale; generate it anew",
            describe(edit)
        )));
    }
    Ok(())
}

/// The letter of mknod(1).
fn type_letter(kind: NodeKind) -> char {
    match kind {
        NodeKind::Block => 'b',
        NodeKind::Char => 'c',
        NodeKind::Fifo => 'p',
    }
}

/// Describes the type and numbers that the specification gives, as an error shows them.
fn describe(edit: &NodeEdit) -> String {
    let kind = edit.kind.map(|kind| format!("type {}", type_letter(kind)));
    let major = edit.major.map(|major| format!("major {major}"));
    let minor = edit.minor.map(|minor| format!("minor {minor}"));
    let parts: Vec<String> = [kind, major, minor].into_iter().flatten().collect();
    parts.join(", ")
}

#[cfg(test)]
mod tests;
