//! The device nodes of NVIDIA's GPUs, and those that all processes computing on them share.

use super::capabilities::CAPS_DRIVER;
use super::information::NvidiaGpu;
use crate::node::driver;
use crate::node::{Device, DeviceError, DeviceNode, NodeError, ResolvedDevices, Tree};
use nix::errno::Errno;
use protocol::{Access, DeviceType};
use std::collections::BTreeSet;

const IMEX_DRIVER: &str = "nvidia-caps-imex-channels";
/// Largest number of an IMEX channel by default; the module parameter `NVreg_ImexChannelCount` of
/// the driver may give more.
const IMEX_CHANNEL_MAX: u32 = 2047;

/// Drivers whose nodes are made at their first use.
const LATE_NODE_DRIVERS: [&str; 4] = ["nvidia-uvm", "nvidia-modeset", CAPS_DRIVER, IMEX_DRIVER];

struct SharedDriver {
    /// The names of the driver in `/proc/devices`, newest first.
    drivers: &'static [&'static str],
    /// The commands that load it, for the message.
    command: &'static str,
    /// Paths and minors.
    nodes: &'static [(&'static str, u32)],
}

/// Drivers whose nodes every process computing on a GPU opens. `nvidia-uvm-tools` is for profilers
/// and debuggers.
const SHARED_DRIVERS: [SharedDriver; 2] = [
    SharedDriver {
        drivers: &["nvidiactl", "nvidia", "nvidia-frontend"],
        command: "nvidia-modprobe -c 0 (or modprobe nvidia)",
        nodes: &[("/dev/nvidiactl", 255)],
    },
    SharedDriver {
        drivers: &["nvidia-uvm"],
        command: "nvidia-modprobe -u -c 0 (or modprobe nvidia-uvm)",
        nodes: &[("/dev/nvidia-uvm", 0), ("/dev/nvidia-uvm-tools", 1)],
    },
];

/// Resolves the device node of one GPU.
///
/// # Errors
///
/// The node is missing, or is not the driver's device with the minor of the GPU.
pub fn resolve_gpu_node(tree: &Tree, gpu: &NvidiaGpu) -> Result<ResolvedDevices, DeviceError> {
    let path = format!("/dev/nvidia{}", gpu.minor);
    let node = tree
        .read_node(&path)
        .map_err(|why| node_error(tree, &path, why))?;
    driver::check_node(tree, &path, node)?;
    Ok(vec![Device::from_node(&path, node, Access::RW)?].into())
}

/// Resolves the devices that every process computing on a GPU needs besides the GPU. Those of a driver that is not
/// loaded have no numbers yet, and are left out ([`ResolvedDevices::late`]).
///
/// # Errors
///
/// An existing node disagrees with `/proc/devices`, or that file cannot be read.
pub fn resolve_shared_nodes(tree: &Tree) -> Result<ResolvedDevices, DeviceError> {
    let mut found = ResolvedDevices::default();
    for SharedDriver {
        drivers,
        command,
        nodes,
    } in SHARED_DRIVERS
    {
        let Some(major) = find_major(tree, drivers)? else {
            let paths: Vec<&str> = nodes.iter().map(|(path, _)| *path).collect();
            let paths = paths.join(" and ");
            found.late.push(format!(
                "{paths}: their driver is not loaded: run {command}"
            ));
            continue;
        };
        for (path, minor) in nodes {
            let node = DeviceNode {
                kind: DeviceType::Char,
                major,
                minor: *minor,
            };
            found.extend(resolve_expected_node(tree, path, node, Access::RW)?);
        }
    }
    Ok(found)
}

/// Resolves an IMEX channel. A missing node gives a warning, except for a channel above those of the driver's default.
///
/// # Errors
///
/// The driver is not loaded or has no such channel, or the node disagrees with `/proc/devices`.
pub fn resolve_imex_channel(tree: &Tree, channel: u32) -> Result<ResolvedDevices, DeviceError> {
    let path = format!("/dev/{IMEX_DRIVER}/channel{channel}");
    let is_absent = tree.read_node(&path).is_err_and(NodeError::is_absent);
    // The driver may have been given more channels than by default: a node shows that.
    if channel > IMEX_CHANNEL_MAX && is_absent {
        return Err(missing_channel_error(channel));
    }
    let major = require_major(tree, IMEX_DRIVER)?;
    resolve_expected_node(
        tree,
        &path,
        DeviceNode {
            kind: DeviceType::Char,
            major,
            minor: channel,
        },
        Access::RW,
    )
}

/// Finds the numbers that the node at `path` will have, for callers that found none there, if
/// NVIDIA's driver makes it at its first use: `nvidia-uvm`, `nvidia-modeset`, capabilities, and IMEX
/// channels. `None` for any other path.
///
/// # Errors
///
/// The driver is not loaded, or a job must not have the device.
pub fn future_node(tree: &Tree, path: &str) -> Result<Option<DeviceNode>, DeviceError> {
    let Some((driver, minor)) = parse_late_path(path) else {
        return Ok(None);
    };
    if driver == IMEX_DRIVER && minor > IMEX_CHANNEL_MAX {
        return Err(missing_channel_error(minor));
    }
    let node = DeviceNode {
        kind: DeviceType::Char,
        major: require_major(tree, driver)?,
        minor,
    };
    driver::check_node(tree, path, node)?;
    Ok(Some(node))
}

/// The warning for an administrator about a node that does not exist yet. The tool that
/// makes it would run in the job, and no job may make nodes.
pub fn future_node_warning(path: &str) -> String {
    format!(
        "{path} is not there yet, and cannot be made from within the job: let nvidia-modprobe make \
         it at boot"
    )
}

/// Parses driver and minor of a node that may be made at its first use; `None` for any other path.
fn parse_late_path(path: &str) -> Option<(&'static str, u32)> {
    let (driver, minor) = driver::promised_numbers(path.strip_prefix("/dev/")?)?;
    LATE_NODE_DRIVERS
        .contains(&driver)
        .then_some((driver, minor?))
}

/// Resolves a device whose numbers are known, with or without a node. A missing node gives a warning.
///
/// # Errors
///
/// The existing node has other numbers, a job must not have the device, or the node cannot be opened.
pub(super) fn resolve_expected_node(
    tree: &Tree,
    path: &str,
    node: DeviceNode,
    access: Access,
) -> Result<ResolvedDevices, DeviceError> {
    let mut found = ResolvedDevices::default();
    match tree.read_node(path) {
        Ok(existing) if existing == node => {}
        Ok(existing) => {
            return Err(DeviceError::new(format_args!(
                "{path} is {existing}, but by /proc/devices it must be {node}: made when an older \
                 driver was loaded"
            )));
        }
        Err(NodeError::Open(Errno::ENOENT)) => found.warnings.push(future_node_warning(path)),
        Err(why) => return Err(node_error(tree, path, why)),
    }
    driver::check_node(tree, path, node)?;
    found.devices.push(Device::from_node(path, node, access)?);
    Ok(found)
}

/// Finds the one major of a driver that must be loaded.
///
/// # Errors
///
/// The driver is not loaded or has several majors, or `/proc/devices` cannot be read.
pub(super) fn require_major(tree: &Tree, driver: &'static str) -> Result<u32, DeviceError> {
    find_major(tree, &[driver])?.ok_or_else(|| {
        DeviceError::new(format_args!(
            "no driver {driver} in /proc/devices; load it before the job is registered{}",
            load_advice(driver)
        ))
    })
}

/// The advice by which command a driver is loaded, if there is one besides that of NVIDIA's main driver.
fn load_advice(driver: &str) -> String {
    let shared = SHARED_DRIVERS.iter();
    shared
        .filter(|shared| shared.drivers.contains(&driver))
        .map(|shared| format!(": run {}", shared.command))
        .collect()
}

/// Finds the one major that the driver has under any of its names; `None` if it is not loaded.
///
/// # Errors
///
/// The driver has several majors, or `/proc/devices` cannot be read.
fn find_major(tree: &Tree, names: &[&'static str]) -> Result<Option<u32>, DeviceError> {
    let drivers = tree.read_drivers()?;
    let mut majors = BTreeSet::new();
    for name in names {
        majors.extend(drivers.majors_of(DeviceType::Char, name));
    }
    if majors.len() > 1 {
        let driver = names.first().copied().unwrap_or_default();
        let why = format!("driver {driver} has several majors in /proc/devices");
        return Err(DeviceError::new(why));
    }
    Ok(majors.pop_first())
}

/// The error for a node of NVIDIA's driver that is missing or cannot be used. For a missing one it names the remedy.
fn node_error(tree: &Tree, path: &str, why: NodeError) -> DeviceError {
    let advice = if why.is_absent() {
        "; let nvidia-modprobe make it at boot"
    } else {
        ""
    };
    DeviceError::at(path, driver::explain_absence(tree, path, why) + advice)
}

/// The error for an IMEX channel past the last one.
fn missing_channel_error(channel: u32) -> DeviceError {
    DeviceError::new(format_args!(
        "no IMEX channel {channel}: there is no such node, and {IMEX_CHANNEL_MAX} is the last"
    ))
}
