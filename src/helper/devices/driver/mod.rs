//! What a node has to be before a job gets it under a vendor's name: of the driver that its path
//! promises, and no device by which the node itself is managed.
//!
//! The numbers of most drivers are given out as they load, so a node or a specification from
//! before may carry a number that is another driver's now. `/proc/devices` tells whose it is.
//! Devices of management are told by their numbers, whatever their path.

mod family;

use super::{DeviceError, Node, NodeError, ProcDevices, Tree, found as major, nvidia};
use crate::protocol::DeviceType;

/// Drivers of which no device is ever a job's: switches and links between GPUs, which the fabric
/// manager programs for the whole node, raw(8), which reaches any disk, the baseboard's controller,
/// and the processors' registers (msr(4)).
const MANAGEMENT: [&str; 5] = ["nvidia-nvswitch", "nvidia-nvlink", "raw", "ipmidev", "cpu/msr"];
/// Minors of `mem` that anyone may have: null, zero, full, random, urandom. The others are the
/// machine's memory, its ports and its log (`drivers/char/mem.c`).
const HARMLESS_MEM: [u32; 5] = [3, 5, 7, 8, 9];
/// Minors of NVIDIA's GPUs, its mode setting device and its control device. Those between are
/// reserved.
const NVIDIA_CONTROL: std::ops::RangeInclusive<u32> = 254..=255;

/// Checks a node that a specification or a driver's files led to.
/// Fails: a job does not get the node.
pub fn check(tree: &Tree, path: &str, node: Node) -> Result<(), DeviceError> {
    let names: Vec<&str> = tree.drivers()?.names(node.kind, node.major).collect();
    let refused = |why: String| DeviceError::new(format_args!("{path} is {node}{why}"));
    if names.is_empty() {
        let driver = promising(path).map(|driver| format!("{driver} ")).unwrap_or_default();
        return Err(refused(format!(
            ", and no driver has that major: {driver}not loaded, or loaded anew since the node was \
             made"
        )));
    }
    let managing = match management(&names, node) {
        None if names.contains(&nvidia::CAPS) && !nvidia::is_instance(tree, node.minor)? => {
            match nvidia::capability_name(tree, node.minor)? {
                // The next instance with its number may be somebody else's.
                Some(name) if name.starts_with("gpu") => {
                    let why = format!(", kept for {name}: no such MIG instance exists now");
                    return Err(refused(why));
                }
                Some(name) => Some(format!("nvidia-caps ({name})")),
                None => Some("nvidia-caps".to_owned()),
            }
        }
        managing => managing,
    };
    match managing {
        Some(of) => {
            Err(refused(format!(", a device of {of} that manages the node: never a job's")))
        }
        None => family(path, node, &names).map_err(refused),
    }
}

/// The newest name of the driver that a path promises.
fn promising(path: &str) -> Option<&'static str> {
    family::of(path).first()?.0.drivers.first().copied()
}

/// Why there is no node at a path: where it can be told, for want of a driver.
pub(super) fn absence(tree: &Tree, path: &str, why: NodeError) -> String {
    let families = family::of(path);
    let loaded = |drivers: &ProcDevices| {
        let mut names = families.iter().flat_map(|(family, _)| family.drivers);
        names.any(|name| drivers.majors(DeviceType::Char, name).next().is_some())
    };
    match promising(path) {
        Some(driver) if why.is_absent() && !tree.drivers().is_ok_and(loaded) => {
            format!("{why}; the driver {driver} is not loaded")
        }
        _ => why.to_string(),
    }
}

/// What a path below `/dev` promises: the driver by its newest name, and the minor where it is known.
pub(super) fn promised(below: &str) -> Option<(&'static str, Option<u32>)> {
    let (family, number) = family::at(below).next()?;
    Some((family.drivers.first()?, family.minor(number)))
}

/// The driver of a device of management, as far as its name and the minor tell.
fn management(names: &[&str], node: Node) -> Option<String> {
    let harmful = |name: &str| name == "mem" && !HARMLESS_MEM.contains(&node.minor);
    let of = names.iter().find(|name| MANAGEMENT.contains(*name) || harmful(name))?;
    Some((*of).to_owned())
}

/// Whether the numbers are those that the path promises.
fn family(path: &str, node: Node, names: &[&str]) -> Result<(), String> {
    let minors = [major::NVIDIA_GPUS, NVIDIA_CONTROL];
    let reserved = !minors.iter().any(|minors| minors.contains(&node.minor));
    if reserved && names.iter().any(|name| family::NVIDIA.contains(name)) {
        return Err(", which is neither a GPU nor NVIDIA's control device".to_owned());
    }
    let families = family::of(path);
    let of_driver: Vec<_> = families
        .iter()
        .filter(|(family, _)| family.drivers.iter().any(|driver| names.contains(driver)))
        .filter(|_| node.kind == DeviceType::Char)
        .map(|(family, number)| family.minor(*number))
        .collect();
    if families.is_empty() || of_driver.iter().any(|minor| minor.is_none_or(|it| it == node.minor))
    {
        return Ok(());
    }
    match of_driver.into_iter().flatten().next() {
        Some(promised) => Err(format!(", but its minor must be {promised}")),
        None => {
            let (promised, found) = (promising(path).unwrap_or_default(), names.join(", "));
            Err(format!(
                ", which is a device of {found} and not of {promised}: made when an older driver \
                 was loaded"
            ))
        }
    }
}

#[cfg(test)]
mod tests;
