//! The GPUs of a node by number and by PCI address, of whatever vendor.
//!
//! A GPU is a PCI function that NVIDIA's driver lists and does not exclude, that has a DRM render
//! node, or that is Habana's and has an accelerator node. A server's management graphics (`ast`,
//! `mgag200`) have a card node alone, and what is bound to a `vfio` driver belongs to a virtual
//! machine: neither is one.
//!
//! Numbers count from 0 by PCI address: domain, bus, device, function. That is the order of
//! `nvidia-smi`, and it does not depend on when a driver came up. Of an AMD card in several compute
//! partitions each has a number, by render minor; the address stands for the whole card.
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
mod parts;
#[cfg(test)]
pub(super) mod tests;

use super::gpu_name::PciAddress;
use super::{Device, DeviceError, Found, Tree};
use card::{Card, Cards, Make};

pub use nodes::{companions, confirm_drm};

/// The n-th GPU of the node: the devices that [`by_address`] gives, or, of a card in partitions,
/// those of one partition.
/// Fails: among others, there are not as many GPUs.
pub fn by_index(tree: &Tree, index: u32) -> Result<Found, DeviceError> {
    let cards = Cards::new(tree)?.all()?;
    let units: Vec<(&Card, Option<u32>)> = cards.iter().flat_map(units).collect();
    let unit = usize::try_from(index).ok().and_then(|index| units.get(index));
    let mut found = match unit {
        Some((card, None)) => nodes::whole(tree, card)?,
        Some((_, Some(render))) => nodes::partition(tree, *render)?,
        None => {
            return Err(match units.len() {
                0 => DeviceError::new("the node has no GPUs"),
                1 => DeviceError::new("the node has one GPU, number 0"),
                count => DeviceError::new(format_args!(
                    "the node has {count} GPUs, numbers 0 to {}",
                    count - 1
                )),
            });
        }
    };
    if are_mixed(&cards) {
        found.warnings.push(MIXED.to_owned());
    }
    Ok(found)
}

/// A scheduler that knows the GPUs of one maker only counts without the graphics of a processor.
const MIXED: &str = "this node has GPUs of several makers, and a number counts all of them by \
                     address: where the scheduler counts otherwise, name GPUs by address or UUID";

fn are_mixed(cards: &[Card]) -> bool {
    let makes = |card: &Card| std::mem::discriminant(&card.make);
    cards.windows(2).any(|pair| matches!(pair, [one, next] if makes(one) != makes(next)))
}

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
}

/// All GPUs of the node, of an AMD card in partitions each of these, that can be used.
/// Fails: it cannot be told which there are.
pub fn gpus(tree: &Tree) -> Result<Vec<GpuNodes>, DeviceError> {
    let cards = Cards::new(tree)?.all()?;
    let mut gpus = Vec::new();
    for (card, part) in cards.iter().flat_map(units) {
        let devices = match part {
            None => nodes::whole(tree, card),
            Some(render) => nodes::partition(tree, render),
        };
        // One without its nodes cannot be given to anybody.
        let Ok(devices) = devices else { continue };
        let is_own = |device: &&Device| match card.make {
            Make::Nvidia(_) => true,
            _ => device.node.rsplit('/').next().is_some_and(nodes::is_render_or_accel),
        };
        if let Some(own) = devices.devices.iter().find(is_own).cloned() {
            gpus.push(GpuNodes { own, devices });
        }
    }
    Ok(gpus)
}

/// What has a number of its own: the card, or each of its partitions by render minor.
fn units(card: &Card) -> Vec<(&Card, Option<u32>)> {
    match &card.make {
        Make::Amd { parts } if parts.len() > 1 => {
            parts.iter().map(|render| (card, Some(*render))).collect()
        }
        _ => vec![(card, None)],
    }
}
