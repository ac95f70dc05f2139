//! The numbers of a record's devices: what they depend on, and whether they still hold.

use crate::devices::Resolver;
use crate::jobs::records::{Major, NamedGpu, ResolvedList};
use crate::node::{FileError, Tree};
use protocol::Allowlist;
use std::collections::BTreeMap;

/// Notes beside the numbers that `register` found what they depend on: the boot of the node and the drivers of their
/// majors, which [`find_change`] compares.
///
/// # Errors
///
/// [`FileError`] if the node's boot or its drivers cannot be read.
pub fn note_numbers(
    rules: Allowlist,
    gpus: Vec<NamedGpu>,
    resolver: &Resolver,
) -> Result<ResolvedList, FileError> {
    Ok(ResolvedList {
        boot_id: resolver.tree.read_boot_id()?,
        node_name: resolver.settings.node_name.clone(),
        drivers: find_drivers(&rules, &resolver.tree)?,
        rules,
        gpus,
    })
}

/// Finds the drivers of the majors in a list. A major that no driver has is left out: its driver may be loaded later.
///
/// # Errors
///
/// [`FileError`] if `/proc/devices` cannot be read.
fn find_drivers(list: &Allowlist, tree: &Tree) -> Result<BTreeMap<Major, Vec<String>>, FileError> {
    let mut drivers = BTreeMap::new();
    for rule in list.rules() {
        let major = Major::of(rule);
        let names = tree.read_drivers()?.names_of(major.kind, major.number);
        let names: Vec<String> = names.map(str::to_owned).collect();
        if !names.is_empty() {
            drivers.insert(major, names);
        }
    }
    Ok(drivers)
}

/// Finds why numbers that `register` wrote may mean other devices now: another boot of the node, or a driver that has left
/// its major. `None` if they hold. A further driver on a major takes no number from those that have it already
/// (`register_chrdev_region` in `fs/char_dev.c`), and some are loaded when a user opens their device.
///
/// # Errors
///
/// [`FileError`] if the node's boot or its drivers cannot be read.
pub fn find_change(list: &ResolvedList, tree: &Tree) -> Result<Option<String>, FileError> {
    if tree.read_boot_id()? != list.boot_id {
        let change = "its devices were resolved before the node's last boot";
        return Ok(Some(change.to_owned()));
    }
    for (major, names) in &list.drivers {
        let drivers = tree.read_drivers()?;
        let now: Vec<&str> = drivers.names_of(major.kind, major.number).collect();
        let has_left = |name: &String| !now.contains(&name.as_str());
        if names.iter().any(has_left) {
            let now = if now.is_empty() {
                "no driver's".to_owned()
            } else {
                format!("that of {}", now.join(", "))
            };
            return Ok(Some(format!(
                "its device major {major} was that of {} and is {now} now",
                names.join(", ")
            )));
        }
    }
    Ok(None)
}

#[cfg(test)]
pub(super) mod tests;
