//! The GPUs of a node by number and by PCI address, of any vendor.
//!
//! A GPU is a PCI function that NVIDIA's driver lists and does not exclude, that has a DRM render
//! node, or that is Habana's and has an accelerator node; or it is part of a processor, has a DRM
//! render node and no PCI address. The GPU of NVIDIA's Tegra is none of these: it is used through
//! nodes of many drivers, which only a specification lists. A server's management graphics (`ast`,
//! `mgag200`) have a card node alone, and what is bound to a `vfio` driver belongs to a virtual
//! machine: neither counts.
//!
//! Numbers count from 0 by PCI address: domain, bus, device, function. `nvidia-smi` uses this order,
//! and it does not depend on when a driver was loaded. Each compute partition of an AMD card has a
//! number, by render minor; the address stands for the whole card. If it is not certain of which card
//! a GPU of KFD is, no number is. GPUs without an address come last, by render minor.
//!
//! Flux takes its numbers from hwloc, which may count differently:
//! - hwloc counts a device as a GPU only if one of its backends (CUDA, NVML, RSMI, OpenCL) reports
//!   it. An hwloc without a vendor's backend or library skips the cards of that vendor. It never
//!   counts Habana cards, and it counts any device that OpenCL reports, even a processor.
//! - hwloc walks the host bridges in the order of the processors and memory closest to them, which
//!   may differ from the order of their addresses.
//! - hwloc hides domains above `ffff`, for instance behind some storage controllers, unless it was
//!   built for them.
//!
//! If the two differ, administrators must name a job's GPUs by address or UUID.

mod card;
mod class;
mod kfd;
mod nodes;
#[cfg(test)]
pub(crate) mod tests;

use super::pci::PciAddress;
use super::{Device, DeviceError, ResolvedDevices, Tree};
use card::{Card, Cards, Vendor};

pub use nodes::{find_companions, verify_drm_nodes};
use std::collections::BTreeSet;

/// Resolves the devices of the n-th GPU of the node: those of [`resolve_address`] or, for a card in
/// partitions, those of one partition.
///
/// # Errors
///
/// The node has fewer GPUs, or a file of the node cannot be read or contradicts another one.
pub fn resolve_index(tree: &Tree, index: u32) -> Result<ResolvedDevices, DeviceError> {
    let gpus = list_numbered_gpus(tree)?;
    let Some(gpu) = usize::try_from(index)
        .ok()
        .and_then(|index| gpus.get(index))
    else {
        return Err(match gpus.len() {
            0 => card::explain_no_gpus(tree)?,
            1 => DeviceError::new("the node has one GPU, number 0"),
            count => DeviceError::new(format_args!(
                "the node has {count} GPUs, numbers 0 to {}",
                count - 1
            )),
        });
    };
    let mut found = gpu.devices(tree)?;
    let vendors: BTreeSet<u8> = gpus.iter().map(NumberedGpu::vendor_number).collect();
    if vendors.len() > 1 {
        found.warnings.push(MIXED_VENDORS_WARNING.to_owned());
    }
    Ok(found)
}

/// Warning for nodes on which a scheduler that knows one vendor only may count differently, for
/// instance without the graphics of a processor.
const MIXED_VENDORS_WARNING: &str = "this node has GPUs of several makers, and a number counts all of them by address: where the \
     scheduler counts otherwise, name GPUs by address or UUID";

/// Resolves the devices of the GPU at a PCI address: its own nodes, and those that all GPUs of its
/// vendor share.
///
/// # Errors
///
/// The function at the address is no GPU, or a file of the node cannot be read or contradicts
/// another one.
pub fn resolve_address(tree: &Tree, address: PciAddress) -> Result<ResolvedDevices, DeviceError> {
    let cards = Cards::new(tree)?;
    match cards.find(address)? {
        Some(card) => nodes::card_devices(tree, &card),
        None => Err(card::explain_no_gpu_at(tree, address)?),
    }
}

/// A usable GPU of the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuNodes {
    /// The node that reaches this GPU and no other.
    pub own_node: Device,
    /// All devices of the GPU, and those that it shares with other GPUs of its vendor.
    pub devices: ResolvedDevices,
    /// The variable that names GPUs to programs, if the vendor has one, and the GPU's UUID in it.
    pub visible_devices: Option<(&'static str, Option<String>)>,
}

/// Lists all usable GPUs of the node. Each partition of an AMD card is one.
///
/// # Errors
///
/// The files of the node cannot be read or contradict each other.
pub fn list_gpus(tree: &Tree) -> Result<Vec<GpuNodes>, DeviceError> {
    let mut gpus = Vec::new();
    for gpu in list_numbered_gpus(tree)? {
        // A GPU without its nodes cannot be given to a job.
        let Ok(devices) = gpu.devices(tree) else {
            continue;
        };
        if let Some(own_node) = devices
            .devices
            .iter()
            .find(|device| gpu.owns(device))
            .cloned()
        {
            gpus.push(GpuNodes {
                own_node,
                devices,
                visible_devices: gpu.visible_devices(tree),
            });
        }
    }
    Ok(gpus)
}

/// A GPU or a part of one that has a number.
enum NumberedGpu {
    Card(Card),
    /// A partition of an AMD card, by render minor.
    Part(u32),
    /// The GPU of a processor, by its directory in sysfs.
    Integrated(String),
}

fn list_numbered_gpus(tree: &Tree) -> Result<Vec<NumberedGpu>, DeviceError> {
    let mut gpus = Vec::new();
    for card in Cards::new(tree)?.list()? {
        match &card.vendor {
            Vendor::Amd { parts } if is_divided(tree, card.address, parts.len())? => {
                gpus.extend(parts.iter().copied().map(NumberedGpu::Part));
            }
            _ => gpus.push(NumberedGpu::Card(card)),
        }
    }
    let integrated = nodes::find_integrated_gpus(tree)?;
    gpus.extend(integrated.into_iter().map(NumberedGpu::Integrated));
    Ok(gpus)
}

/// Tells whether an AMD card is divided into partitions. One may be left of several: KFD lists no
/// partition for which the kernel has no render node left.
///
/// # Errors
///
/// The card's mode cannot be read, or contradicts the number of partitions that KFD lists.
fn is_divided(tree: &Tree, address: PciAddress, parts: usize) -> Result<bool, DeviceError> {
    let Some(mode) = kfd::read_partition_mode(tree, address)? else {
        return Ok(parts > 1);
    };
    match (mode.as_str(), parts) {
        ("SPX", 0 | 1) => Ok(false),
        ("DPX" | "TPX" | "QPX" | "CPX", 1..) => Ok(true),
        _ => Err(DeviceError::new(format_args!(
            "{address} is in the partition mode {mode}, and KFD lists {parts} GPUs of it: no GPU of \
             this node has a number"
        ))),
    }
}

impl NumberedGpu {
    fn devices(&self, tree: &Tree) -> Result<ResolvedDevices, DeviceError> {
        match self {
            Self::Card(card) => nodes::card_devices(tree, card),
            Self::Part(render) => nodes::partition_devices(tree, *render),
            Self::Integrated(device) => nodes::drm_devices(tree, device),
        }
    }

    /// Tells whether one of the GPU's devices reaches this GPU and no other: NVIDIA's own node comes
    /// first.
    fn owns(&self, device: &Device) -> bool {
        match self {
            Self::Card(Card {
                vendor: Vendor::Nvidia(_),
                ..
            }) => true,
            _ => device
                .node
                .rsplit('/')
                .next()
                .is_some_and(class::is_render_or_accel),
        }
    }

    /// Finds the variable that names this GPU to programs, and its UUID in it. AMD's and Intel's
    /// libraries number the devices that they see. Intel's may number tiles, so a card of several
    /// tiles has no variable.
    fn visible_devices(&self, tree: &Tree) -> Option<(&'static str, Option<String>)> {
        let card = match self {
            Self::Part(_) => return Some(("ROCR_VISIBLE_DEVICES", None)),
            Self::Integrated(_) => return None,
            Self::Card(card) => card,
        };
        match &card.vendor {
            Vendor::Nvidia(gpu) => {
                let uuid = gpu.uuid.as_ref().map(|uuid| format!("GPU-{uuid}"));
                Some(("CUDA_VISIBLE_DEVICES", uuid))
            }
            Vendor::Amd { .. } => Some(("ROCR_VISIBLE_DEVICES", None)),
            Vendor::Other if nodes::is_intel_of_one_tile(tree, card) => {
                Some(("ZE_AFFINITY_MASK", None))
            }
            Vendor::Habana | Vendor::Other => None,
        }
    }

    /// A number that is different for each vendor.
    fn vendor_number(&self) -> u8 {
        match self {
            Self::Card(Card {
                vendor: Vendor::Nvidia(_),
                ..
            }) => 0,
            Self::Card(Card {
                vendor: Vendor::Amd { .. },
                ..
            })
            | Self::Part(_) => 1,
            Self::Card(Card {
                vendor: Vendor::Habana,
                ..
            }) => 2,
            Self::Card(_) | Self::Integrated(_) => 3,
        }
    }
}
