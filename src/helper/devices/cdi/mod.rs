//! Device specifications of the Container Device Interface, versions 0.3.0 to 1.1.0.
//!
//! `document` reads a file, `spec` holds it to the rules, `scan` puts what the directories hold into
//! a `catalog`, which tells whose definition of a name counts, and `node` makes devices of this node
//! of what that definition asks for. What is meant for containers only is not carried out.

mod catalog;
mod document;
mod name;
mod node;
mod scan;
mod spec;

use std::path::Path;

use super::{DeviceError, Found, Tree, Unresolved};

pub use catalog::Catalog;
pub use document::Format;
pub use name::{Invalid, QualifiedName};
pub use scan::{BYTES_MAX, FILES_MAX};
pub use spec::{Edits, NodeEdit, NodeKind, Spec, SpecDevice, SpecError};

/// Most other devices of a file that a name is compared with.
const SIBLINGS_MAX: usize = 256;

/// What these qualified names stand for together, by the specifications of `catalog`. What a file
/// says for all its devices counts once, before what it says for the first one of them that is asked
/// for; files of one kind are not merged.
/// Fails: [`Unresolved`]: the first name that stands for nothing. There is no list of the others
/// then.
pub fn resolve(tree: &Tree, catalog: &Catalog, names: &[String]) -> Result<Found, Unresolved> {
    let mut found = Found::default();
    let mut applied: Vec<&Path> = Vec::new();
    for name in names {
        let failed = |why| Unresolved { name: name.clone(), why };
        let parsed = name.parse::<QualifiedName>().map_err(DeviceError::from);
        let (file, spec, device) =
            parsed.and_then(|name| catalog.definition(&name)).map_err(failed)?;
        if !applied.contains(&file.path.as_path()) {
            applied.push(&file.path);
            found.extend(node::wanted(tree, &file.path, &spec.edits).map_err(failed)?);
        }
        found.extend(node::wanted(tree, &file.path, &device.edits).map_err(failed)?);
        if found.devices.len() > node::EDITS_MAX {
            return Err(failed(node::too_many()));
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

#[cfg(test)]
mod tests;
