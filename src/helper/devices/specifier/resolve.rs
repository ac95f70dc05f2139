//! From a specifier to the devices that it stands for on this node.

use std::collections::BTreeSet;

use nix::errno::Errno;

use super::path_pattern::PathPattern;
use super::{HPC, Name, Specifier};
use crate::helper::devices::gpu_count;
use crate::helper::devices::{Device, DeviceError, Found, Node, NodeError, ProcDevices, Tree};
use crate::protocol::{Access, Allowlist, DeviceRule, DeviceType};

/// Drivers of whose devices each belongs to one GPU or to a part of one: all minors of such a major
/// are the GPUs of all jobs. Of `kfd` and `nvidia-uvm` every job uses the same device.
const GPU_DRIVERS: [&str; 8] = [
    "nvidia",
    "nvidia-frontend",
    "nvidiactl",
    "nvidia-caps",
    "nvidia-caps-imex-channels",
    "drm",
    "accel",
    "habanalabs",
];

/// The devices that a specifier stands for: at least one, but for a preset, which may find none.
///
/// A plain path is resolved as stat(2) does, links included; a pattern of paths follows none. A
/// class, and a major by its number, stand for every minor of majors that have a driver now: a
/// major that is free would be the next driver's to take. Two numbers stand for their device
/// whether or not a node of it is there.
/// Fails: this node has no such device.
pub(in crate::helper::devices) fn resolve(
    tree: &Tree,
    specifier: &Specifier,
) -> Result<Found, DeviceError> {
    let mut found = by_name(tree, &specifier.name, specifier.access)?;
    found.warnings.extend(too_wide(tree, specifier, &found));
    Ok(found)
}

fn by_name(tree: &Tree, name: &Name, access: Access) -> Result<Found, DeviceError> {
    match name {
        Name::Path(path) => {
            let node = tree.node_behind_links(path).map_err(|error| match error {
                NodeError::Open(Errno::ENOENT) => DeviceError::absent(error),
                error => error.into(),
            })?;
            one(path, node, access)
        }
        Name::Paths(pattern) => paths(tree, pattern, access),
        Name::Numbers(kind, major, minor) => {
            one(&name.to_string(), Node { kind: *kind, major: *major, minor: *minor }, access)
        }
        Name::Class(kind, class) => majors(tree, name, *kind, access, |_, driver| driver == class),
        Name::Classes(kind, _, glob) => {
            majors(tree, name, *kind, access, |_, driver| glob.matches(driver))
        }
        Name::Major(kind, wanted) => majors(tree, name, *kind, access, |major, _| major == *wanted),
        Name::Hpc => Ok(hpc(tree, access)),
    }
}

fn one(path: &str, node: Node, access: Access) -> Result<Found, DeviceError> {
    Ok(vec![Device::of(path, node, access)?].into())
}

fn paths(tree: &Tree, pattern: &PathPattern, access: Access) -> Result<Found, DeviceError> {
    let matches = pattern.matches(tree)?;
    let mut found = Found::default();
    for (path, node) in matches.nodes {
        found.devices.push(Device::of(&path, node, access)?);
    }
    let unseen = matches.unseen.into_iter().map(|error| format!("{pattern}: {error}"));
    found.warnings.extend(unseen);
    match found.devices.is_empty() {
        true => Err(DeviceError::absent("no device node matches")),
        false => Ok(found),
    }
}

/// All devices of the majors that `wanted` says yes to, by number and by a name of its driver.
fn majors(
    tree: &Tree,
    name: &Name,
    kind: DeviceType,
    access: Access,
    wanted: impl Fn(u32, &str) -> bool,
) -> Result<Found, DeviceError> {
    let drivers = tree.drivers()?;
    let mut found = Found::default();
    for (major, _) in drivers.of_kind(kind).filter(|(major, driver)| wanted(*major, driver)) {
        let rule = DeviceRule::new(kind, major, None, access)?;
        let device = Device { node: name.to_string(), rule };
        // Several drivers may share one major.
        if !found.devices.contains(&device) {
            found.devices.push(device);
        }
    }
    match found.devices.is_empty() {
        true => Err(DeviceError::new("not in /proc/devices")),
        false => Ok(found),
    }
}

/// What `@hpc` finds here. A member that is not there is not missed; one that cannot be told is.
fn hpc(tree: &Tree, access: Access) -> Found {
    let mut found = Found::default();
    for member in HPC {
        let Ok(name) = Name::parse(member) else { continue };
        match by_name(tree, &name, access) {
            Ok(devices) => found.extend(devices),
            Err(error) if error.is_absent() => {}
            Err(error) => found.warnings.push(format!("{member} is left out: {error}")),
        }
    }
    found
}

/// What an administrator should know of a specifier that opens GPUs without naming one.
fn too_wide(tree: &Tree, specifier: &Specifier, found: &Found) -> Option<String> {
    if matches!(specifier.name, Name::Paths(_)) {
        let mut list = Allowlist::new();
        for device in &found.devices {
            // A pattern stands for no more devices than a list can hold.
            list.push(device.rule).ok()?;
        }
        let gpus = gpu_count(&list);
        return (gpus > 1)
            .then(|| format!("{specifier} opens {gpus} GPUs, whichever job they belong to"));
    }
    let mut whole = found.devices.iter().filter(|device| device.rule.minor().is_none()).peekable();
    let drivers = whole.peek().and_then(|_| tree.drivers().ok())?;
    let gpus: BTreeSet<_> = whole.flat_map(|device| gpu_drivers(drivers, &device.rule)).collect();
    let gpus: Vec<_> = gpus.into_iter().collect();
    (!gpus.is_empty()).then(|| {
        let gpus = gpus.join(", ");
        format!("{specifier} opens the GPUs of every job on this node: all devices of {gpus}")
    })
}

fn gpu_drivers<'a>(drivers: &'a ProcDevices, rule: &DeviceRule) -> impl Iterator<Item = &'a str> {
    let names = drivers.names(rule.kind(), rule.major());
    names.filter(|driver| GPU_DRIVERS.contains(driver))
}
