//! The capability files of NVIDIA's driver (`kernel-open/nvidia/nv-caps.c`).
//!
//! The driver reserves a fixed minor for each MIG instance that could ever exist, and for the devices
//! that configure and monitor them. A directory lists the instances that exist now.

use super::information::find_value;
use crate::node::tree::none_if_missing;
use crate::node::{DeviceError, FileError, Tree};
use protocol::{DeviceRule, DeviceType, parse_decimal};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

/// Name of the driver of capabilities in `/proc/devices`.
pub(in crate::node) const CAPS_DRIVER: &str = "nvidia-caps";

/// Names of the driver of GPUs in `/proc/devices`: from R550 on, and before.
pub(in crate::node) const NVIDIA_GPU_DRIVERS: [&str; 2] = ["nvidia", "nvidia-frontend"];

/// Majors that the kernel gives to drivers of character devices that ask for any (`CHRDEV_MAJOR_DYN_END` and those
/// beside it in `include/linux/fs.h`).
const DYNAMIC_MAJORS: [RangeInclusive<u32>; 2] = [234..=254, 384..=511];

/// Directory of the instances that exist.
const CAPABILITIES_DIR: &str = "/proc/driver/nvidia/capabilities";
/// Minors of every MIG instance that could exist, and of the devices that configure and monitor
/// them.
const MIG_MINORS: &str = "/proc/driver/nvidia-caps/mig-minors";
/// Minors of the devices that manage the links between GPUs.
const OTHER_MINOR_TABLES: [&str; 2] = [
    "/proc/driver/nvidia-caps/nvlink-minors",
    "/proc/driver/nvidia-caps/sys-minors",
];

/// Reads the minor of one capability, `gi1` or `gi1/ci0`, of the GPU with the minor `gpu`. It must be the one in the
/// table of reserved minors, if the driver has that table.
///
/// # Errors
///
/// The instance does not exist now, the driver's files disagree, or one cannot be read.
pub(super) fn read_capability_minor(
    tree: &Tree,
    gpu: u32,
    instance: &str,
) -> Result<u32, DeviceError> {
    let path = format!("{CAPABILITIES_DIR}/gpu{gpu}/mig/{instance}/access");
    let text = match tree.read_text(&path) {
        Err(error) if error.is_missing() => {
            let why = format!("no such MIG instance exists now ({path} is not there)");
            return Err(DeviceError::new(why));
        }
        result => result?,
    };
    let minor = parse_device_file_minor(&text)
        .ok_or_else(|| DeviceError::at(&path, "no DeviceFileMinor"))?;
    // The check of the instance's node then knows it without listing all instances ([`is_live_instance`]).
    tree.add_named_instance(minor);
    let table = match tree.read_text(MIG_MINORS) {
        Err(error) if error.is_missing() => return Ok(minor),
        result => result?,
    };
    let name = format!("gpu{gpu}/{instance}/access");
    let entry = parse_minor_table(&table).find(|(listed_name, _)| *listed_name == name);
    let difference = match entry {
        Some((_, listed)) if listed == minor => return Ok(minor),
        Some((_, listed)) => format!("mig-minors has {listed}"),
        None => "mig-minors does not list it".to_owned(),
    };
    Err(DeviceError::new(format_args!(
        "{path} has minor {minor}, but {difference}"
    )))
}

/// Tells whether a minor is the capability of a MIG instance that exists now.
///
/// # Errors
///
/// [`FileError`] if a file of the driver cannot be read.
pub(in crate::node) fn is_live_instance(tree: &Tree, minor: u32) -> Result<bool, FileError> {
    tree.has_instance(minor, || list_live_minors(tree))
}

/// Lists the minors of the GPU instances and compute instances that exist now.
///
/// # Errors
///
/// [`FileError`] if a file of the driver cannot be read.
fn list_live_minors(tree: &Tree) -> Result<BTreeSet<u32>, FileError> {
    let mut minors = BTreeSet::new();
    for gpu in list_numbered(tree, CAPABILITIES_DIR, "gpu")? {
        for gi in list_numbered(tree, &format!("{gpu}/mig"), "gi")? {
            let mut instances = list_numbered(tree, &gi, "ci")?;
            instances.push(gi);
            for instance in instances {
                minors.extend(read_live_minor(tree, &instance)?);
            }
        }
    }
    Ok(minors)
}

/// Tells whether any MIG instance exists now.
///
/// # Errors
///
/// [`FileError`] if a directory of the driver cannot be listed.
pub fn has_instances(tree: &Tree) -> Result<bool, FileError> {
    for gpu in list_numbered(tree, CAPABILITIES_DIR, "gpu")? {
        if !list_numbered(tree, &format!("{gpu}/mig"), "gi")?.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Reads the minor of the instance with this directory; `None` if the instance is gone or its file names no minor.
fn read_live_minor(tree: &Tree, dir: &str) -> Result<Option<u32>, FileError> {
    let text = tree.read_text_if_exists(&format!("{dir}/access"))?;
    Ok(text.as_deref().and_then(parse_device_file_minor))
}

/// Finds the name of the capability that a minor is reserved for, such as `config` or `gpu0/gi1/access`; `None` if no
/// table of the driver has it.
///
/// # Errors
///
/// [`FileError`] if a table of the driver exists and cannot be read.
pub(in crate::node) fn find_capability_name(
    tree: &Tree,
    minor: u32,
) -> Result<Option<String>, FileError> {
    for path in [MIG_MINORS].into_iter().chain(OTHER_MINOR_TABLES) {
        let text = tree.read_text_if_exists(path)?.unwrap_or_default();
        for (name, listed) in parse_minor_table(&text) {
            if listed == minor {
                return Ok(Some(name.to_owned()));
            }
        }
    }
    Ok(None)
}

/// Describes the MIG instances of which an allowlist has only a part: programs need the capability of the GPU instance,
/// that of a compute instance in it, and the GPU's own node.
///
/// # Errors
///
/// [`FileError`] if a table of the driver exists and cannot be read.
pub fn describe_incomplete_instances(
    tree: &Tree,
    rules: &[DeviceRule],
) -> Result<Vec<String>, FileError> {
    // The kernel gave the driver one of these majors, which few lists have.
    let is_dynamic = |rule: &DeviceRule| {
        let major = rule.major();
        DYNAMIC_MAJORS.iter().any(|range| range.contains(&major))
    };
    if !rules.iter().any(is_dynamic) {
        return Ok(Vec::new());
    }
    let drivers = tree.read_drivers()?;
    let has = |driver: &str, minor: u32| {
        drivers.majors_of(DeviceType::Char, driver).any(|major| {
            rules.iter().any(|rule| {
                rule.kind() == DeviceType::Char
                    && rule.major() == major
                    && rule.minor().is_none_or(|listed| listed == minor)
            })
        })
    };
    if drivers
        .majors_of(DeviceType::Char, CAPS_DRIVER)
        .next()
        .is_none()
    {
        return Ok(Vec::new());
    }
    let table = tree.read_text_if_exists(MIG_MINORS)?.unwrap_or_default();
    let mut instances: BTreeMap<Instance<'_>, Vec<Capability>> = BTreeMap::new();
    for (name, minor) in parse_minor_table(&table) {
        if let Some((instance, capability)) = parse_capability_name(name) {
            if has(CAPS_DRIVER, minor) {
                instances.entry(instance).or_default().push(capability);
            }
        }
    }
    let mut texts = Vec::new();
    for (Instance { gpu, name }, capabilities) in instances {
        let lacks = if !capabilities.contains(&Capability::GpuInstance) {
            "that of the GPU instance"
        } else if !capabilities.contains(&Capability::ComputeInstance) {
            "that of a compute instance in it"
        } else if !NVIDIA_GPU_DRIVERS.iter().any(|driver| has(driver, gpu)) {
            "the node of the GPU"
        } else {
            continue;
        };
        texts.push(format!(
            "the list has a capability of MIG instance {name} and not {lacks}: no program can use it"
        ));
    }
    Ok(texts)
}

/// A GPU instance, by the beginning of the name of its capabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Instance<'a> {
    gpu: u32,
    /// As in `gpu0/gi1`.
    name: &'a str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Capability {
    GpuInstance,
    ComputeInstance,
}

/// Parses the name of an instance's capability, `gpu0/gi1/access` or `gpu0/gi1/ci0/access`; `None` for another one.
fn parse_capability_name(name: &str) -> Option<(Instance<'_>, Capability)> {
    let path = name.strip_suffix("/access")?;
    let mut parts = path.split('/');
    let gpu = parse_decimal(parts.next()?.strip_prefix("gpu")?)?;
    parts.next()?.strip_prefix("gi")?;
    let Some(compute) = parts.next() else {
        return Some((Instance { gpu, name: path }, Capability::GpuInstance));
    };
    compute.strip_prefix("ci")?;
    let gpu_instance = path.strip_suffix(compute)?.strip_suffix('/')?;
    let instance = Instance {
        gpu,
        name: gpu_instance,
    };
    Some((instance, Capability::ComputeInstance))
}

/// Lists the paths of the entries of a directory that are `prefix` and a number; none if the
/// directory is missing, since instances come and go.
fn list_numbered(tree: &Tree, dir: &str, prefix: &str) -> Result<Vec<String>, FileError> {
    let mut names = none_if_missing(tree.list_names(dir))?.unwrap_or_default();
    names.retain(|name| name.strip_prefix(prefix).and_then(parse_decimal).is_some());
    Ok(names.iter().map(|name| format!("{dir}/{name}")).collect())
}

/// Finds the minor in an `access` file of the driver; `None` without one.
fn parse_device_file_minor(text: &str) -> Option<u32> {
    find_value(text, "DeviceFileMinor").and_then(parse_decimal)
}

/// Parses lines of a name, a blank and a minor. A line of another form is skipped.
fn parse_minor_table(text: &str) -> impl Iterator<Item = (&str, u32)> {
    text.lines().filter_map(|line| {
        let (name, minor) = line.split_once(' ')?;
        Some((name, parse_decimal(minor.trim_end())?))
    })
}
