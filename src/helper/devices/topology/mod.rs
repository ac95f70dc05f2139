//! The GPUs of a node by number and by PCI address, of whatever vendor.
//!
//! A GPU is a PCI function that NVIDIA's driver lists and does not exclude, that has a DRM render
//! node, or that is Habana's and has an accelerator node; or it is part of a processor, has a DRM
//! render node and no PCI address. The GPU of NVIDIA's Tegra is none of these: it is used through
//! nodes of many drivers, which only a specification lists. A server's management graphics (`ast`,
//! `mgag200`) have a card node alone, and what is bound to a `vfio` driver belongs to a virtual
//! machine: neither is one.
//!
//! Numbers count from 0 by PCI address: domain, bus, device, function. That is the order of
//! `nvidia-smi`, and it does not depend on when a driver came up. Of an AMD card in several compute
//! partitions each has a number, by render minor; the address stands for the whole card. GPUs
//! without an address come last, by render minor.
//!
//! Flux takes its numbers from hwloc, which may count otherwise:
//! - Only what one of its backends (CUDA, NVML, RSMI, OpenCL) reports is a GPU there. An hwloc that
//!   is built without a vendor's backend, or runs without its library, skips that vendor's cards;
//!   Habana's are never counted, and a device that OpenCL alone reports is, even a processor.
//! - hwloc walks its tree: the host bridges in the order of the processors and memory that they are
//!   closest to, which need not be that of their addresses.
//! - Domains above `ffff`, as behind some storage controllers, are hidden unless it was built for
//!   them.
//!
//! Where the two differ, a job's GPUs are to be named by address or UUID.

mod card;
mod nodes;
#[cfg(test)]
pub(in crate::helper) mod tests;

use super::gpu_name::PciAddress;
use super::{Device, DeviceError, Found, Tree};
use card::{Card, Cards, Make};

pub(super) use card::directory;
pub use nodes::{companions, confirm_drm};

/// The n-th GPU of the node: the devices that [`by_address`] gives, or, of a card in partitions,
/// those of one partition.
/// Fails: among others, there are not as many GPUs.
pub fn by_index(tree: &Tree, index: u32) -> Result<Found, DeviceError> {
    let units = units(tree)?;
    let unit = usize::try_from(index).ok().and_then(|index| units.get(index));
    let mut found = match unit {
        Some(unit) => unit.devices(tree)?,
        None => {
            return Err(match units.len() {
                0 => card::no_gpus(tree)?,
                1 => DeviceError::new("the node has one GPU, number 0"),
                count => DeviceError::new(format_args!(
                    "the node has {count} GPUs, numbers 0 to {}",
                    count - 1
                )),
            });
        }
    };
    if units.iter().any(|unit| units.first().is_some_and(|first| first.make() != unit.make())) {
        found.warnings.push(MIXED.to_owned());
    }
    Ok(found)
}

/// A scheduler that knows the GPUs of one maker only counts without the graphics of a processor.
const MIXED: &str = "this node has GPUs of several makers, and a number counts all of them by \
                     address: where the scheduler counts otherwise, name GPUs by address or UUID";

/// The GPU at a PCI address: its own nodes and, once each, those that all GPUs of its vendor share.
/// Fails: among others, the function there is no GPU.
pub fn by_address(tree: &Tree, address: PciAddress) -> Result<Found, DeviceError> {
    let cards = Cards::new(tree)?;
    match cards.at(address)? {
        Some(card) => nodes::whole(tree, &card),
        None => Err(card::why_none(tree, address)?),
    }
}

/// A GPU that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuNodes {
    /// The node by which it alone is reached.
    pub own: Device,
    /// Everything of it, and what it shares with the others of its vendor.
    pub devices: Found,
    /// The variable by which programs are told their GPUs, where there is one, and its UUID in that.
    pub name: Option<(&'static str, Option<String>)>,
}

/// All GPUs of the node, of an AMD card in partitions each of these, that can be used.
/// Fails: it cannot be told which there are.
pub fn gpus(tree: &Tree) -> Result<Vec<GpuNodes>, DeviceError> {
    let mut gpus = Vec::new();
    for unit in units(tree)? {
        // One without its nodes cannot be given to anybody.
        let Ok(devices) = unit.devices(tree) else { continue };
        let is_own = |device: &&Device| match &unit {
            Unit::Card(Card { make: Make::Nvidia(_), .. }) => true,
            _ => device.node.rsplit('/').next().is_some_and(nodes::is_render_or_accel),
        };
        if let Some(own) = devices.devices.iter().find(is_own).cloned() {
            gpus.push(GpuNodes { own, devices, name: unit.name(tree) });
        }
    }
    Ok(gpus)
}

/// What has a number of its own.
enum Unit {
    Card(Card),
    /// A partition of an AMD card, by render minor.
    Part(u32),
    /// The GPU of a processor, by its directory in sysfs.
    Integrated(String),
}

fn units(tree: &Tree) -> Result<Vec<Unit>, DeviceError> {
    let mut units = Vec::new();
    for card in Cards::new(tree)?.all()? {
        match &card.make {
            Make::Amd { parts } if parts.len() > 1 => {
                units.extend(parts.iter().copied().map(Unit::Part));
            }
            _ => units.push(Unit::Card(card)),
        }
    }
    units.extend(nodes::integrated(tree)?.into_iter().map(Unit::Integrated));
    Ok(units)
}

impl Unit {
    fn devices(&self, tree: &Tree) -> Result<Found, DeviceError> {
        match self {
            Self::Card(card) => nodes::whole(tree, card),
            Self::Part(render) => nodes::partition(tree, *render),
            Self::Integrated(device) => nodes::drm(tree, device),
        }
    }

    /// AMD's and Intel's libraries number what they see. A number of Intel's may be that of a tile,
    /// so that a card of several has none.
    fn name(&self, tree: &Tree) -> Option<(&'static str, Option<String>)> {
        let card = match self {
            Self::Part(_) => return Some(("ROCR_VISIBLE_DEVICES", None)),
            Self::Integrated(_) => return None,
            Self::Card(card) => card,
        };
        match &card.make {
            Make::Nvidia(gpu) => {
                let uuid = gpu.uuid.as_ref().map(|uuid| format!("GPU-{uuid}"));
                Some(("CUDA_VISIBLE_DEVICES", uuid))
            }
            Make::Amd { .. } => Some(("ROCR_VISIBLE_DEVICES", None)),
            Make::Other if nodes::is_intel_of_one_tile(tree, card) => {
                Some(("ZE_AFFINITY_MASK", None))
            }
            Make::Habana | Make::Other => None,
        }
    }

    /// A number for each maker.
    fn make(&self) -> u8 {
        match self {
            Self::Card(Card { make: Make::Nvidia(_), .. }) => 0,
            Self::Card(Card { make: Make::Amd { .. }, .. }) | Self::Part(_) => 1,
            Self::Card(Card { make: Make::Habana, .. }) => 2,
            Self::Card(_) | Self::Integrated(_) => 3,
        }
    }
}
