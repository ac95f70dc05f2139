//! NVIDIA's GPUs by the files of its driver below `/proc` and `/dev`; its libraries are not asked.
//!
//! Most majors are given out as the driver loads, and a node may be made long after that, by a tool
//! that runs at the first use: `/proc/devices` is where the numbers come from, and a node that is
//! there has to agree. Nothing says how a job uses its GPUs, so each comes with what any process
//! computing on it opens (`nvidiactl`, `nvidia-uvm`, `nvidia-uvm-tools`), not with
//! `nvidia-modeset`, which is for displays, and never with what manages the node.

mod information;
mod mig;

use crate::helper::devices::{Device, DeviceError, Found, Node, NodeError, Tree, driver};
use crate::protocol::{Access, DeviceType};
use nix::errno::Errno;
use std::collections::BTreeSet;

pub(super) use information::by_uuid;
pub use information::{Gpu, confirm, gpus, is_tegra, minors, only_gpu};
pub(super) use mig::{capability_name, is_instance};
pub use mig::{has_instances, instance};

pub(super) const CAPS: &str = "nvidia-caps";

const CHANNELS: &str = "nvidia-caps-imex-channels";
/// Largest number of an IMEX channel by default; the module parameter `NVreg_ImexChannelCount` of
/// the driver may give more.
const CHANNEL_MAX: u32 = 2047;

/// Drivers of which nodes are made at their first use.
const LATE: [&str; 4] = ["nvidia-uvm", "nvidia-modeset", CAPS, CHANNELS];

struct Shared {
    /// The names of the driver in `/proc/devices`, newest first.
    drivers: &'static [&'static str],
    module: &'static str,
    nodes: &'static [(&'static str, u32)],
}

/// What every process computing on a GPU opens. `nvidia-uvm-tools` is for profilers and debuggers.
const SHARED: [Shared; 2] = [
    Shared {
        drivers: &["nvidiactl", "nvidia", "nvidia-frontend"],
        module: "nvidia",
        nodes: &[("/dev/nvidiactl", 255)],
    },
    Shared {
        drivers: &["nvidia-uvm"],
        module: "nvidia-uvm",
        nodes: &[("/dev/nvidia-uvm", 0), ("/dev/nvidia-uvm-tools", 1)],
    },
];

/// The device node of one GPU.
/// Fails: it is not there, or is no device of the driver's with the GPU's minor.
pub fn node(tree: &Tree, gpu: &Gpu) -> Result<Found, DeviceError> {
    let path = format!("/dev/nvidia{}", gpu.minor);
    let node = tree.node(&path).map_err(|why| no_node(tree, &path, why))?;
    driver::check(tree, &path, node)?;
    Ok(vec![Device::of(&path, node, Access::RW)?].into())
}

/// The devices that every process computing on a GPU needs besides it. Those of a driver that is
/// not loaded are left out, with a warning.
/// Fails: a node is there and disagrees with `/proc/devices`.
pub fn shared(tree: &Tree) -> Result<Found, DeviceError> {
    let mut found = Found::default();
    for Shared { drivers, module, nodes } in SHARED {
        let Some(major) = major(tree, drivers)? else {
            let paths: Vec<&str> = nodes.iter().map(|(path, _)| *path).collect();
            found.warnings.push(format!(
                "{} left out, since their driver is not in /proc/devices: load {module} before \
                 the job is registered",
                paths.join(" and ")
            ));
            continue;
        };
        for (path, minor) in nodes {
            let node = Node { kind: DeviceType::Char, major, minor: *minor };
            found.extend(promised(tree, path, node, Access::RW)?);
        }
    }
    Ok(found)
}

/// An IMEX channel.
/// Fails: the driver has no channels or not as many, or the node disagrees with `/proc/devices`.
pub fn imex(tree: &Tree, channel: u32) -> Result<Found, DeviceError> {
    let path = format!("/dev/{CHANNELS}/channel{channel}");
    let there = !matches!(tree.node(&path), Err(NodeError::Open(Errno::ENOENT)));
    if channel > CHANNEL_MAX && !there {
        return Err(no_channel(channel));
    }
    let major = loaded(tree, CHANNELS)?;
    promised(tree, &path, Node { kind: DeviceType::Char, major, minor: channel }, Access::RW)
}

/// The numbers that the driver will give the node at `path` when it is made, for the nodes of
/// NVIDIA's that are made at their first use: those of `nvidia-uvm` and `nvidia-modeset`,
/// capabilities, and IMEX channels. `None` for any other path.
/// Fails: the driver is not loaded, or the device is not one that a job may have.
pub fn unborn_node(tree: &Tree, path: &str) -> Result<Option<Node>, DeviceError> {
    let Some((driver, minor)) = late(path) else {
        return Ok(None);
    };
    if driver == CHANNELS && minor > CHANNEL_MAX {
        return Err(no_channel(minor));
    }
    let node = Node { kind: DeviceType::Char, major: loaded(tree, driver)?, minor };
    driver::check(tree, path, node)?;
    Ok(Some(node))
}

/// What an administrator should know of a node that is not there yet. What makes it runs in the job
/// as well, and no job may make nodes.
pub(super) fn unborn_warning(path: &str) -> String {
    format!(
        "{path} is not there yet, and cannot be made from within the job: let nvidia-modprobe make \
         it at boot"
    )
}

/// The driver and the minor of a node that may be made late.
fn late(path: &str) -> Option<(&'static str, u32)> {
    let (driver, minor) = driver::promised(path.strip_prefix("/dev/")?)?;
    LATE.contains(&driver).then_some((driver, minor?))
}

/// A device of which the numbers are known, whether its node is there yet or not.
fn promised(tree: &Tree, path: &str, node: Node, access: Access) -> Result<Found, DeviceError> {
    let mut found = Found::default();
    match tree.node(path) {
        Ok(there) if there == node => {}
        Ok(there) => {
            return Err(DeviceError::new(format_args!(
                "{path} is {there}, but by /proc/devices it must be {node}: made when an older \
                 driver was loaded"
            )));
        }
        Err(NodeError::Open(Errno::ENOENT)) => found.warnings.push(unborn_warning(path)),
        Err(why) => return Err(no_node(tree, path, why)),
    }
    driver::check(tree, path, node)?;
    found.devices.push(Device::of(path, node, access)?);
    Ok(found)
}

fn loaded(tree: &Tree, driver: &'static str) -> Result<u32, DeviceError> {
    major(tree, &[driver])?.ok_or_else(|| {
        DeviceError::new(format_args!(
            "no driver {driver} in /proc/devices; load it before the job is registered"
        ))
    })
}

/// The one major that the driver has under any of its names.
fn major(tree: &Tree, names: &[&'static str]) -> Result<Option<u32>, DeviceError> {
    let drivers = tree.drivers()?;
    let majors = |name: &&'static str| drivers.majors(DeviceType::Char, name).collect::<Vec<_>>();
    let majors: BTreeSet<u32> = names.iter().flat_map(majors).collect();
    if majors.len() > 1 {
        let driver = names.first().copied().unwrap_or_default();
        let text = format_args!("driver {driver} has several majors in /proc/devices");
        return Err(DeviceError::new(text));
    }
    Ok(majors.into_iter().next())
}

fn no_node(tree: &Tree, path: &str, why: NodeError) -> DeviceError {
    let advice = if why.is_absent() { "; let nvidia-modprobe make it at boot" } else { "" };
    DeviceError::at(path, driver::absence(tree, path, why) + advice)
}

fn no_channel(channel: u32) -> DeviceError {
    DeviceError::new(format_args!(
        "no IMEX channel {channel}: there is no such node, and {CHANNEL_MAX} is the last"
    ))
}

#[cfg(test)]
pub(super) mod tests;
