//! Checks of a device node before a job gets it under a vendor's name: it must belong to the driver
//! that its path promises, and must not be a device that manages the node.
//!
//! The kernel assigns the numbers of most drivers when they load. An older node or specification
//! may therefore contain a number that belongs to another driver now; `/proc/devices` shows which.
//! Management devices are recognized by their numbers, whatever their path.

use super::nvidia::capabilities::{CAPS_DRIVER, find_capability_name, is_live_instance};
use super::{DeviceError, DeviceNode, NodeError, Tree, major};
use protocol::{DeviceType, parse_decimal};

/// Drivers whose devices no job may have: switches and links between GPUs, which the fabric manager
/// programs for the whole node; raw(8), which reaches any disk; the baseboard's controller; and the
/// processors' registers (msr(4)).
const MANAGEMENT_DRIVERS: [&str; 5] = [
    "nvidia-nvswitch",
    "nvidia-nvlink",
    "raw",
    "ipmidev",
    "cpu/msr",
];
/// Minors of `mem` that every job may have: null, zero, full, random, urandom. The others are the
/// machine's memory, its ports and its log (`drivers/char/mem.c`).
const HARMLESS_MEM_MINORS: [u32; 5] = [3, 5, 7, 8, 9];
/// Minors of NVIDIA's mode-setting and control devices. Those between the GPUs and these are
/// reserved.
const NVIDIA_CONTROL_MINORS: std::ops::RangeInclusive<u32> = 254..=255;

/// Checks a node that a specification or a driver's files led to.
///
/// # Errors
///
/// A job must not have the node, or `/proc/devices` cannot be read.
pub fn check_node(tree: &Tree, path: &str, node: DeviceNode) -> Result<(), DeviceError> {
    match find_fault(tree, path, node)? {
        Some(fault) => Err(DeviceError::new(format_args!("{path} is {node}{fault}"))),
        None => Ok(()),
    }
}

/// Finds out why a job must not have a node: no driver has its major, it is a device of management, it is kept for a
/// MIG instance to come, or it is not what its path promises. `None` if the job may have it. The text continues
/// `PATH is NODE`.
fn find_fault(tree: &Tree, path: &str, node: DeviceNode) -> Result<Option<String>, DeviceError> {
    let drivers: Vec<&str> = tree
        .read_drivers()?
        .names_of(node.kind, node.major)
        .collect();
    if drivers.is_empty() {
        let driver = promised_driver(path)
            .map(|driver| format!("{driver} "))
            .unwrap_or_default();
        return Ok(Some(format!(
            ", and no driver has that major: {driver}not loaded, or loaded anew since the node was \
             made"
        )));
    }
    if let Some(driver) = find_management_driver(&drivers, node) {
        return Ok(Some(describe_management(driver)));
    }
    if drivers.contains(&CAPS_DRIVER) && !is_live_instance(tree, node.minor)? {
        return find_capability_fault(tree, node.minor).map(Some);
    }
    Ok(find_broken_promise(path, node, &drivers))
}

/// Describes the fault of a capability that belongs to no MIG instance that exists now: it is kept for an instance to
/// come, or manages the node.
fn find_capability_fault(tree: &Tree, minor: u32) -> Result<String, DeviceError> {
    Ok(match find_capability_name(tree, minor)? {
        // Names such as `gpu0/gi1/access` are those of MIG instances, and the next instance may be another user's. All
        // other names, such as `config`, are those of devices that manage the node.
        Some(name) if name.starts_with("gpu") => {
            format!(", kept for {name}: no such MIG instance exists now")
        }
        Some(name) => describe_management(&format!("{CAPS_DRIVER} ({name})")),
        None => describe_management(CAPS_DRIVER),
    })
}

/// Describes the fault of a device that manages the node, for [`find_fault`].
fn describe_management(driver: &str) -> String {
    format!(", a device of {driver} that manages the node: never a job's")
}

/// Finds the newest name of the driver that a path promises; `None` for a path that promises none.
fn promised_driver(path: &str) -> Option<&'static str> {
    find_families(path).first()?.0.drivers.first().copied()
}

/// Describes why there is no node at a path, and names the driver if it is not loaded.
pub fn explain_absence(tree: &Tree, path: &str, why: NodeError) -> String {
    match promised_driver(path) {
        Some(driver) if why.is_absent() && !has_loaded_driver(tree, path) => {
            format!("{why}; the driver {driver} is not loaded")
        }
        _ => why.to_string(),
    }
}

/// Tells whether a driver that a path promises is loaded, under any of its names. If `/proc/devices` cannot be read,
/// none counts as loaded.
fn has_loaded_driver(tree: &Tree, path: &str) -> bool {
    let Ok(drivers) = tree.read_drivers() else {
        return false;
    };
    let families = find_families(path);
    let mut names = families.iter().flat_map(|(family, _)| family.drivers);
    names.any(|name| drivers.majors_of(DeviceType::Char, name).next().is_some())
}

/// Finds what a path below `/dev` promises: the driver by its newest name, and the minor if it is known. `None` for a
/// path that promises no driver.
pub(super) fn promised_numbers(below: &str) -> Option<(&'static str, Option<u32>)> {
    let (family, number) = families_below_dev(below).next()?;
    Some((family.drivers.first()?, family.expected_minor(number)))
}

/// Finds the driver by which a device manages the node, as far as driver name and minor show it; `None` for a device
/// that a job may have.
fn find_management_driver<'a>(drivers: &[&'a str], node: DeviceNode) -> Option<&'a str> {
    drivers.iter().copied().find(|driver| {
        let is_harmful_mem = *driver == "mem" && !HARMLESS_MEM_MINORS.contains(&node.minor);
        is_harmful_mem || MANAGEMENT_DRIVERS.contains(driver)
    })
}

/// Describes a promise of the path that the node's numbers break; `None` if they keep one, or the path makes none. A
/// minor that NVIDIA's driver gives neither a GPU nor a control device breaks the promise of any path.
fn find_broken_promise(path: &str, node: DeviceNode, drivers: &[&str]) -> Option<String> {
    let is_known_minor = major::NVIDIA_GPU_MINORS.contains(&node.minor)
        || NVIDIA_CONTROL_MINORS.contains(&node.minor);
    if !is_known_minor && drivers.iter().any(|driver| NVIDIA_DRIVERS.contains(driver)) {
        return Some(", which is neither a GPU nor NVIDIA's control device".to_owned());
    }
    let families = find_families(path);
    if families.is_empty() {
        return None;
    }
    // The node must keep the promise of one family; those of drivers that it does not belong to do not count.
    let mut expected_minor = None;
    for (family, number) in families {
        let has_driver = family.drivers.iter().any(|driver| drivers.contains(driver));
        if node.kind != DeviceType::Char || !has_driver {
            continue;
        }
        match family.expected_minor(number) {
            // The text names the first minor that was expected.
            Some(minor) if minor != node.minor => {
                expected_minor.get_or_insert(minor);
            }
            // The node keeps this promise.
            _ => return None,
        }
    }
    if let Some(minor) = expected_minor {
        return Some(format!(", but its minor must be {minor}"));
    }
    let promised = promised_driver(path).unwrap_or_default();
    let actual = drivers.join(", ");
    Some(format!(
        ", which is a device of {actual} and not of {promised}: made when an older driver was loaded"
    ))
}

/// Paths that promise a driver, and often a minor.
#[derive(Debug)]
struct PathFamily {
    /// Path below `/dev`; `#` stands for a decimal number.
    below: &'static str,
    /// The names that the driver has had in `/proc/devices`, newest first.
    drivers: &'static [&'static str],
    minor: MinorRule,
}

#[derive(Clone, Copy, Debug)]
enum MinorRule {
    /// The driver may use any minor.
    Any,
    /// The driver always uses this minor.
    Is(u32),
    /// The minor is the number in the path.
    InPath,
}

/// Names of the major that NVIDIA's GPUs and their control devices share. Older drivers use one
/// name (`nvidia-frontend`, and `nvidia` before it), newer ones several.
const NVIDIA_DRIVERS: [&str; 4] = ["nvidia", "nvidia-frontend", "nvidiactl", "nvidia-modeset"];

/// Makes a row of the table.
const fn family(
    below: &'static str,
    drivers: &'static [&'static str],
    minor: MinorRule,
) -> PathFamily {
    PathFamily {
        below,
        drivers,
        minor,
    }
}

/// Families by path. A path has two rows if different drivers number it differently.
/// The names are those which the drivers register: `drivers/gpu/drm/drm_drv.c`,
/// `drivers/accel/drm_accel.c`, `drivers/accel/habanalabs/`, `drivers/gpu/drm/amd/amdkfd/kfd_chardev.c`,
/// `drivers/infiniband/core/{uverbs_main,user_mad}.c`, `drivers/misc/mei/main.c` and
/// `drivers/char/{mem,misc}.c` of Linux; `nvidia.ko`, `nvidia-uvm.ko`, `nvidia-fs.ko`, `gdrdrv.ko`.
const FAMILIES: [PathFamily; 28] = [
    family("nvidia#", &["nvidia", "nvidia-frontend"], MinorRule::InPath),
    family(
        "nvidiactl",
        &["nvidiactl", "nvidia", "nvidia-frontend"],
        MinorRule::Is(255),
    ),
    family(
        "nvidia-modeset",
        &["nvidia-modeset", "nvidia", "nvidia-frontend"],
        MinorRule::Is(254),
    ),
    family("nvidia-uvm", &["nvidia-uvm"], MinorRule::Is(0)),
    family("nvidia-uvm-tools", &["nvidia-uvm"], MinorRule::Is(1)),
    family(
        "nvidia-caps/nvidia-cap#",
        &["nvidia-caps"],
        MinorRule::InPath,
    ),
    family(
        "nvidia-caps-imex-channels/channel#",
        &["nvidia-caps-imex-channels"],
        MinorRule::InPath,
    ),
    family("nvidia-fs#", &["nvidia-fs"], MinorRule::Any),
    family("gdrdrv", &["gdrdrv"], MinorRule::Any),
    family("dri/card#", &["drm"], MinorRule::InPath),
    family("dri/renderD#", &["drm"], MinorRule::InPath),
    family("kfd", &["kfd"], MinorRule::Any),
    family("accel/accel#", &["accel"], MinorRule::InPath),
    family("accel/accel#", &["habanalabs"], MinorRule::Any),
    family(
        "accel/accel_controlD#",
        &["accel", "habanalabs"],
        MinorRule::Any,
    ),
    family("infiniband/uverbs#", &["infiniband_verbs"], MinorRule::Any),
    family("infiniband/umad#", &["infiniband_mad"], MinorRule::Any),
    family("infiniband/issm#", &["infiniband_mad"], MinorRule::Any),
    family("infiniband/rdma_cm", &["misc"], MinorRule::Any),
    family("mei#", &["mei"], MinorRule::Any),
    family("fuse", &["misc"], MinorRule::Is(229)),
    family("net/tun", &["misc"], MinorRule::Is(200)),
    family("vfio/vfio", &["misc"], MinorRule::Is(196)),
    family("null", &["mem"], MinorRule::Is(3)),
    family("zero", &["mem"], MinorRule::Is(5)),
    family("full", &["mem"], MinorRule::Is(7)),
    family("random", &["mem"], MinorRule::Is(8)),
    family("urandom", &["mem"], MinorRule::Is(9)),
];

/// Finds the families of a path, each with the number in the path; empty if the path promises no driver. Only the
/// part below the last `/dev/` counts, since a specification may name a node in a driver's own root directory.
fn find_families(path: &str) -> Vec<(&'static PathFamily, Option<u32>)> {
    let parts: Vec<_> = path
        .split('/')
        .filter(|part| !matches!(*part, "" | "."))
        .collect();
    let plain_path = format!("/{}", parts.join("/"));
    let below = plain_path
        .rsplit_once("/dev/")
        .map_or(plain_path.as_str(), |(_, below)| below);
    families_below_dev(below).collect()
}

/// Finds the families of a path below `/dev` that has no empty components and no `.`.
fn families_below_dev(below: &str) -> impl Iterator<Item = (&'static PathFamily, Option<u32>)> {
    FAMILIES
        .iter()
        .filter_map(move |family| Some((family, family.number_in(below)?)))
}

impl PathFamily {
    /// Parses the number in the path, if the family has one; the outer `None` if the path belongs
    /// to another family.
    fn number_in(&self, below: &str) -> Option<Option<u32>> {
        match self.below.strip_suffix('#') {
            Some(prefix) => below.strip_prefix(prefix).and_then(parse_decimal).map(Some),
            None => (below == self.below).then_some(None),
        }
    }

    /// The minor that a node must have at a path with this number; `None` if the path promises none.
    fn expected_minor(&self, number: Option<u32>) -> Option<u32> {
        match self.minor {
            MinorRule::Any => None,
            MinorRule::Is(minor) => Some(minor),
            MinorRule::InPath => number,
        }
    }
}

#[cfg(test)]
mod tests;
