//! The GPUs of a node by number and by PCI address, of any vendor.
//!
//! A GPU is a PCI function that NVIDIA's driver lists and does not exclude, that has a DRM render
//! node, or that is Habana's and has an accelerator node; or it is part of a processor, has a DRM
//! render node and no PCI address. The GPU of NVIDIA's Tegra is none of these: it is used through
//! nodes of many drivers, which only a specification lists. A server's management graphics (`ast`,
//! `mgag200`) have a card node alone, and what is bound to a `vfio` driver belongs to a virtual
//! machine: neither counts.
//!
//! A number has an owner ([`Numbering`]), since those who count do so in different orders. A plain number
//! counts by PCI address: domain, bus, device, function. That does not depend on when a driver was loaded.
//! It is refused if somebody who counts on this node means another GPU by it. Each compute partition of an
//! AMD card has a number, by render minor; the address stands for the whole card. If it is not certain of
//! which card a GPU of KFD is, no number is. GPUs without an address come last, by render minor. Of a card with
//! virtual functions (SR-IOV) each of these has a number, and the card none: it sees them all.

mod accelerator;
mod card;
mod class;
mod hwloc;
mod kfd;
mod nodes;
mod numbering;
#[cfg(test)]
pub(crate) mod tests;

use super::pci::PciAddress;
use super::{Device, DeviceError, ResolvedDevices, Tree};
use card::{Card, Cards, Vendor};

pub use accelerator::{AccelDriver, resolve_accelerator};
pub use nodes::{find_companions, verify_drm_nodes};
pub use numbering::{Numbering, resolve_index, resolve_number};

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
    /// The variable that names GPUs to programs, or `None` if no variable names this GPU; and the GPU's UUID in it, or
    /// `None` if the variable counts GPUs or the driver does not know the UUID yet.
    pub visible_devices: Option<(&'static str, Option<String>)>,
}

/// Lists the usable GPUs of the node, by PCI address, those of processors last. Each partition of an AMD card is one.
/// A GPU is left out if its nodes are missing, contradict the kernel or cannot be read: it cannot be given to a job.
///
/// # Errors
///
/// The GPUs have no certain numbers: a list of the kernel or of a driver cannot be read, or two contradict each
/// other.
pub fn list_gpus(tree: &Tree) -> Result<Vec<GpuNodes>, DeviceError> {
    let gpus = list_numbered_gpus(tree, &Cards::new(tree)?)?;
    Ok(gpus.iter().filter_map(|gpu| gpu.nodes(tree)).collect())
}

/// Lists the own nodes of all GPUs that Slurm may detect and give out: cards with virtual functions (SR-IOV), which the
/// libraries of a vendor list as any other card, and then the GPUs of [`list_gpus`].
///
/// # Errors
///
/// As [`list_gpus`].
pub fn list_detectable_nodes(tree: &Tree) -> Result<Vec<Device>, DeviceError> {
    let cards = Cards::new(tree)?;
    let mut gpus = Vec::new();
    for card in cards.list()? {
        if is_without_number(tree, &card)? {
            gpus.push(NumberedGpu::Card(card));
        }
    }
    gpus.extend(list_numbered_gpus(tree, &cards)?);
    let nodes = gpus.iter().filter_map(|gpu| gpu.nodes(tree));
    Ok(nodes.map(|gpu| gpu.own_node).collect())
}

/// Tells whether a card has no number since its virtual functions have them (`IsSriovPFwithVFs` of Intel's device plugin
/// for Kubernetes).
///
/// # Errors
///
/// The kernel's number of virtual functions cannot be read.
fn is_without_number(tree: &Tree, card: &Card) -> Result<bool, DeviceError> {
    Ok(card.vendor == Vendor::Other && card::has_virtual_functions(tree, card.address)?)
}

/// A GPU or a part of one that can have a number.
#[derive(Clone, Debug, PartialEq, Eq)]
enum NumberedGpu {
    Card(Card),
    /// A partition of an AMD card.
    Part {
        card: PciAddress,
        /// Minor of its render node.
        render: u32,
    },
    /// The GPU of a processor, by its directory in sysfs.
    Integrated(String),
}

/// Lists all GPUs that can have a number: by PCI address, an AMD card in partitions as these, and last the GPUs of
/// processors.
///
/// # Errors
///
/// A list of the kernel or of a driver cannot be read, or contradicts another one.
fn list_numbered_gpus(tree: &Tree, cards: &Cards<'_>) -> Result<Vec<NumberedGpu>, DeviceError> {
    let mut gpus = Vec::new();
    for card in cards.list()? {
        match &card.vendor {
            Vendor::Amd { parts } if is_divided(tree, card.address, parts.len())? => {
                for render in parts {
                    gpus.push(NumberedGpu::Part {
                        card: card.address,
                        render: *render,
                    });
                }
            }
            _ if is_without_number(tree, &card)? => {}
            _ => gpus.push(NumberedGpu::Card(card)),
        }
    }
    let integrated = nodes::find_integrated_gpus(tree)?;
    gpus.extend(integrated.into_iter().map(NumberedGpu::Integrated));
    Ok(gpus)
}

/// Tells whether an AMD card is divided into partitions, of which KFD lists `parts`: by its mode, or by that
/// number if its driver gives no mode. Of a divided card one partition may be left: KFD lists none for which the
/// kernel has no render node left.
///
/// # Errors
///
/// The card's mode cannot be read, or contradicts the number of partitions that KFD lists.
fn is_divided(tree: &Tree, address: PciAddress, parts: usize) -> Result<bool, DeviceError> {
    let Some(mode) = kfd::read_partition_mode(tree, address)? else {
        return Ok(parts > 1);
    };
    match (mode.as_str(), parts) {
        // One partition, which is the whole card; KFD may not know the card.
        ("SPX", 0 | 1) => Ok(false),
        ("DPX" | "TPX" | "QPX" | "CPX", 1..) => Ok(true),
        _ => Err(DeviceError::new(format_args!(
            "{address} is in the partition mode {mode}, and KFD lists {parts} GPUs of it: no GPU of \
             this node has a number"
        ))),
    }
}

impl NumberedGpu {
    /// Finds the GPU's nodes; `None` if they are missing, contradict the kernel or cannot be read.
    fn nodes(&self, tree: &Tree) -> Option<GpuNodes> {
        let devices = self.devices(tree).ok()?;
        let own_node = self.own_node(&devices.devices)?.clone();
        Some(GpuNodes {
            own_node,
            devices,
            visible_devices: self.visible_devices(tree),
        })
    }

    /// Resolves the GPU's devices, and those that it shares with other GPUs of its vendor.
    fn devices(&self, tree: &Tree) -> Result<ResolvedDevices, DeviceError> {
        match self {
            Self::Card(card) => nodes::card_devices(tree, card),
            Self::Part { render, .. } => nodes::partition_devices(tree, *render),
            Self::Integrated(device) => nodes::drm_devices(tree, device),
        }
    }

    /// Finds the first of the GPU's devices that reaches this GPU and no other: the own node of an NVIDIA GPU, which
    /// comes first in [`nodes::card_devices`], else the first render or accelerator node. `None` without such a node.
    fn own_node<'a>(&self, devices: &'a [Device]) -> Option<&'a Device> {
        if let Self::Card(Card {
            vendor: Vendor::Nvidia(_),
            ..
        }) = self
        {
            return devices.first();
        }
        devices.iter().find(|device| {
            let name = device.node.rsplit('/').next();
            name.is_some_and(class::is_render_or_accel)
        })
    }

    /// Finds the variable that names this GPU to programs, and its UUID in it; `None` if no variable does. AMD's and
    /// Intel's libraries number the devices that they see, without a UUID. Intel's may number tiles, so a card of
    /// several tiles has no variable.
    fn visible_devices(&self, tree: &Tree) -> Option<(&'static str, Option<String>)> {
        let card = match self {
            Self::Part { .. } => return Some(("ROCR_VISIBLE_DEVICES", None)),
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

    /// The PCI address of the card; `None` for the GPU of a processor.
    fn address(&self) -> Option<PciAddress> {
        match self {
            Self::Card(card) => Some(card.address),
            Self::Part { card, .. } => Some(*card),
            Self::Integrated(_) => None,
        }
    }

    /// The vendor by which the GPU is counted. The GPU of a processor counts as one of another vendor.
    fn vendor(&self) -> VendorKind {
        match self {
            Self::Card(card) => match card.vendor {
                Vendor::Nvidia(_) => VendorKind::Nvidia,
                Vendor::Amd { .. } => VendorKind::Amd,
                Vendor::Habana => VendorKind::Habana,
                Vendor::Other => VendorKind::Other,
            },
            Self::Part { .. } => VendorKind::Amd,
            Self::Integrated(_) => VendorKind::Other,
        }
    }
}

/// The vendors whose GPUs are counted apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum VendorKind {
    Nvidia,
    Amd,
    Habana,
    Other,
}
