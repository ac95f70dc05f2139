//! What a node has to be before a job gets it under a vendor's name: of the driver that its path
//! promises, and no device by which the node itself is managed.
//!
//! The numbers of most drivers are given out as they load, so a node or a specification from
//! before may carry a number that is another driver's now. `/proc/devices` tells whose it is.
//! Devices of management are told by their numbers, whatever their path.

mod family;

use std::fmt;

use super::{FileError, Node, Tree, major, nvidia};
use crate::plan::DeviceType;

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
///
/// # Errors
/// [`Misfit`].
pub fn check(tree: &Tree, path: &str, node: Node) -> Result<(), Misfit> {
    let drivers = tree.drivers().map_err(Misfit::File)?;
    let names: Vec<&str> = drivers.names(node.kind, node.major).collect();
    let path = path.to_owned();
    if names.is_empty() {
        return Err(Misfit::NoDriver { path, node });
    }
    if let Some(of) = management(&names, node) {
        return Err(Misfit::Management { path, node, of });
    }
    if names.contains(&nvidia::CAPS) {
        capability(tree, &path, node)?;
    }
    family(path, node, &names)
}

/// The driver of a device of management, as far as its name and the minor tell.
fn management(names: &[&str], node: Node) -> Option<String> {
    let harmful = |name: &str| name == "mem" && !HARMLESS_MEM.contains(&node.minor);
    let of = names.iter().find(|name| MANAGEMENT.contains(*name) || harmful(name))?;
    Some((*of).to_owned())
}

/// Of capabilities only those of MIG instances are a job's, and only while the instance exists:
/// the next one with its number may be somebody else's.
fn capability(tree: &Tree, path: &str, node: Node) -> Result<(), Misfit> {
    if nvidia::is_instance(tree, node.minor).map_err(Misfit::File)? {
        return Ok(());
    }
    let path = path.to_owned();
    match nvidia::capability_name(tree, node.minor).map_err(Misfit::File)? {
        Some(name) if name.starts_with("gpu") => Err(Misfit::NoInstance { path, node, name }),
        Some(name) => Err(Misfit::Management { path, node, of: format!("nvidia-caps ({name})") }),
        None => Err(Misfit::Management { path, node, of: "nvidia-caps".to_owned() }),
    }
}

/// Whether the numbers are those that the path promises.
fn family(path: String, node: Node, names: &[&str]) -> Result<(), Misfit> {
    let minors = [major::NVIDIA_GPUS, NVIDIA_CONTROL];
    let reserved = !minors.iter().any(|minors| minors.contains(&node.minor));
    if reserved && names.iter().any(|name| family::NVIDIA.contains(name)) {
        return Err(Misfit::Reserved { path, node });
    }
    let families = family::of(&path);
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
        Some(promised) => Err(Misfit::Minor { path, node, promised }),
        None => {
            let promised = families.first().and_then(|(family, _)| family.drivers.first());
            let promised = promised.copied().unwrap_or_default();
            Err(Misfit::Driver { path, node, found: names.join(", "), promised })
        }
    }
}

/// Why a job does not get a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Misfit {
    /// A file that tells the drivers or their capabilities cannot be read.
    File(FileError),
    /// No driver has its major.
    NoDriver {
        /// Its path.
        path: String,
        /// Its numbers.
        node: Node,
    },
    /// Its major is another driver's.
    Driver {
        /// Its path.
        path: String,
        /// Its numbers.
        node: Node,
        /// The drivers that have its major.
        found: String,
        /// The driver that its path promises.
        promised: &'static str,
    },
    /// Its minor is another device's.
    Minor {
        /// Its path.
        path: String,
        /// Its numbers.
        node: Node,
        /// The minor that its path promises.
        promised: u32,
    },
    /// It has a minor that NVIDIA's driver gives to no GPU.
    Reserved {
        /// Its path.
        path: String,
        /// Its numbers.
        node: Node,
    },
    /// It manages the node.
    Management {
        /// Its path.
        path: String,
        /// Its numbers.
        node: Node,
        /// The driver, and what of it.
        of: String,
    },
    /// It is the capability of a MIG instance that does not exist now.
    NoInstance {
        /// Its path.
        path: String,
        /// Its numbers.
        node: Node,
        /// What the driver keeps the number for.
        name: String,
    },
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(error) => error.fmt(f),
            Self::NoDriver { path, node } => write!(
                f,
                "{path} is {node}, and no driver has that major: not loaded, or loaded anew since \
                 the node was made"
            ),
            Self::Driver { path, node, found, promised } => write!(
                f,
                "{path} is {node}, which is a device of {found} and not of {promised}: made when an \
                 older driver was loaded"
            ),
            Self::Minor { path, node, promised } => {
                write!(f, "{path} is {node}, but its minor has to be {promised}")
            }
            Self::Reserved { path, node } => {
                write!(f, "{path} is {node}, which is neither a GPU nor NVIDIA's control device")
            }
            Self::Management { path, node, of } => {
                write!(f, "{path} is {node}, a device of {of} that manages the node: never a job's")
            }
            Self::NoInstance { path, node, name } => {
                write!(f, "{path} is {node}, kept for {name}: no such MIG instance exists now")
            }
        }
    }
}

impl std::error::Error for Misfit {}

#[cfg(test)]
mod tests;
