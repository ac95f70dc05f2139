//! Who counts the GPUs of a node, and how.

use std::collections::BTreeSet;

use super::card::{self, Cards, Vendor};
use super::{NumberedGpu, VendorKind, hwloc, list_numbered_gpus};
use crate::node::{DeviceError, ResolvedDevices, Tree};
use protocol::string_enum;

string_enum! {
    /// Who counts the GPUs of a node, in an order of its own.
    #[derive(PartialOrd, Ord, Hash)]
    Numbering {
        /// Flux counts what hwloc lists (`rhwloc_gpu_objects` in `src/common/librlist/rhwloc.c`).
        Flux = "flux",
        /// ROCm counts AMD's GPUs by their nodes in KFD, as `ROCR_VISIBLE_DEVICES` does. `rocm-smi` sorts
        /// by PCI address in newer releases.
        Rocm = "rocm",
        /// `nvidia-smi` counts NVIDIA's GPUs by PCI address.
        Nvidia = "nvidia",
    }
}

/// Directories that only a node of a Flux system instance has.
const FLUX_DIRS: [&str; 2] = ["/etc/flux/system", "/run/flux"];

/// Resolves the devices of the n-th GPU of the node by PCI address: those of [`super::resolve_address`]
/// or, for a card in partitions, those of one partition.
///
/// # Errors
///
/// The node has fewer GPUs; it has GPUs of several vendors, or somebody who counts on it means another GPU by
/// the number; or a file of the node cannot be read or contradicts another one.
pub fn resolve_index(tree: &Tree, index: u32) -> Result<ResolvedDevices, DeviceError> {
    let cards = Cards::new(tree)?;
    let gpus = list_numbered_gpus(tree, &cards)?;
    if gpus.is_empty() {
        return Err(card::explain_no_gpus(tree)?);
    }
    let Some(gpu) = gpu_at(&gpus, index) else {
        return Err(describe_count(gpus.len(), Counter::Address));
    };
    require_one_meaning(tree, &cards, &gpus, index, gpu)?;
    gpu.devices(tree)
}

/// Resolves the devices of the GPU that has this number, from 0, for whoever counts by `numbering`.
///
/// # Errors
///
/// The node has fewer such GPUs, their order is not certain, or a file of the node cannot be read or
/// contradicts another one.
pub fn resolve_number(
    tree: &Tree,
    numbering: Numbering,
    index: u32,
) -> Result<ResolvedDevices, DeviceError> {
    let cards = Cards::new(tree)?;
    let gpus = list_numbered_gpus(tree, &cards)?;
    let counted = count_gpus(tree, &cards, &gpus, numbering)?;
    let Some(gpu) = gpu_at(&counted, index) else {
        return Err(describe_count(counted.len(), Counter::Numbering(numbering)));
    };
    gpu.devices(tree)
}

/// Returns the GPU that has this number in a list; `None` if the list is shorter.
fn gpu_at(gpus: &[NumberedGpu], index: u32) -> Option<&NumberedGpu> {
    gpus.get(usize::try_from(index).ok()?)
}

/// By what the GPUs of a list are counted.
#[derive(Clone, Copy, Debug)]
enum Counter {
    /// By PCI address: all of the node.
    Address,
    /// By somebody who counts some of them, in an order of their own.
    Numbering(Numbering),
}

/// Describes how many GPUs are counted, and their numbers, as the error of a number that none of them has.
fn describe_count(count: usize, counter: Counter) -> DeviceError {
    let whose = match counter {
        Counter::Address => String::new(),
        Counter::Numbering(numbering) => format!(" that {numbering} counts"),
    };
    match count {
        0 => DeviceError::new(format_args!("the node has no GPUs{whose}")),
        1 => DeviceError::new(format_args!("the node has one GPU{whose}, number 0")),
        _ => DeviceError::new(format_args!(
            "the node has {count} GPUs{whose}, numbers 0 to {}",
            count - 1
        )),
    }
}

/// Lists the GPUs that somebody counts, in their order; those that they do not count are left out. `gpus` are all GPUs
/// of the node, by PCI address.
///
/// # Errors
///
/// Their order is not certain, or a file of the node cannot be read.
fn count_gpus(
    tree: &Tree,
    cards: &Cards<'_>,
    gpus: &[NumberedGpu],
    numbering: Numbering,
) -> Result<Vec<NumberedGpu>, DeviceError> {
    match numbering {
        Numbering::Flux => {
            require_no_virtual_functions(tree, cards)?;
            hwloc::sort_gpus(tree, gpus)
        }
        // In the order of `gpus`.
        Numbering::Nvidia => {
            let own = gpus.iter().filter(|gpu| gpu.vendor() == VendorKind::Nvidia);
            Ok(own.cloned().collect())
        }
        Numbering::Rocm => {
            let mut numbered = Vec::new();
            for gpu in gpus {
                // KFD lists this GPU, so it has a node there, by whose number they are sorted.
                if let Some(render) = gpu.kfd_render() {
                    numbered.push((cards.kfd_node(render)?, gpu.clone()));
                }
            }
            numbered.sort_by_key(|(node, _)| *node);
            Ok(numbered.into_iter().map(|(_, gpu)| gpu).collect())
        }
    }
}

/// Refuses the order of hwloc on a node with a card that has virtual functions, which only some of its libraries count.
///
/// # Errors
///
/// There is such a card, or a file of the node cannot be read.
fn require_no_virtual_functions(tree: &Tree, cards: &Cards<'_>) -> Result<(), DeviceError> {
    for card in cards.list()? {
        if card.vendor == Vendor::Other && card::has_virtual_functions(tree, card.address)? {
            return Err(DeviceError::new(format_args!(
                "{} has virtual functions, and whether Flux counts it besides is not certain: name GPUs by \
                 address",
                card.address
            )));
        }
    }
    Ok(())
}

impl NumberedGpu {
    /// The render minor by which KFD knows the GPU; `None` for a GPU that KFD does not list.
    fn kfd_render(&self) -> Option<u32> {
        match self {
            Self::Part { render, .. } => Some(*render),
            Self::Card(card) => match &card.vendor {
                // The card is not divided: it is its only partition.
                Vendor::Amd { parts } => parts.first().copied(),
                _ => None,
            },
            Self::Integrated(_) => None,
        }
    }
}

/// Refuses a number by which somebody who counts on this node means another GPU than `gpu`. Where there are
/// GPUs of several vendors, nobody but the kernel counts them all, so that every number is refused.
///
/// # Errors
///
/// The number is refused, or the order of those who count is not certain.
fn require_one_meaning(
    tree: &Tree,
    cards: &Cards<'_>,
    gpus: &[NumberedGpu],
    index: u32,
    gpu: &NumberedGpu,
) -> Result<(), DeviceError> {
    let mut others = Vec::new();
    for numbering in [Numbering::Nvidia, Numbering::Rocm, Numbering::Flux] {
        if numbering == Numbering::Flux && !has_flux(tree) {
            continue;
        }
        let counted = count_gpus(tree, cards, gpus, numbering)?;
        match gpu_at(&counted, index) {
            Some(other) if other != gpu => others.push((numbering, other.clone())),
            // They mean the same GPU, or count fewer and mean none.
            _ => {}
        }
    }
    // GPUs without an address come last and move no number.
    let with_address = gpus.iter().filter(|one| one.address().is_some());
    let vendors: BTreeSet<VendorKind> = with_address.map(NumberedGpu::vendor).collect();
    let has_several_vendors = vendors.len() > 1;
    if others.is_empty() && !has_several_vendors {
        return Ok(());
    }
    let reason = if has_several_vendors {
        "among GPUs of several makers"
    } else {
        "on this node"
    };
    let parts = count_gpus(tree, cards, gpus, Numbering::Rocm)?;
    let mut meanings = format!("{} by address", describe(gpu, &parts));
    for (numbering, other) in others {
        meanings += &format!(", {} as {numbering}:{index}", describe(&other, &parts));
    }
    Err(DeviceError::new(format_args!(
        "which GPU the number means is not certain {reason}: {meanings}; write one of these"
    )))
}

/// Writes the name under which a job can be given this GPU for certain: the address of a card, or ROCm's number of a
/// partition. The GPU of a processor has no such name, and is shown by its directory in sysfs.
fn describe(gpu: &NumberedGpu, rocm_order: &[NumberedGpu]) -> String {
    match gpu {
        NumberedGpu::Card(card) => card.address.to_string(),
        NumberedGpu::Part { card, render } => {
            // ROCm counts every partition, so that this one is in its order.
            let earlier = rocm_order.iter().take_while(|other| *other != gpu);
            let number = earlier.count();
            format!("rocm:{number} (renderD{render} of {card})")
        }
        NumberedGpu::Integrated(device) => device.clone(),
    }
}

/// Tells whether the node belongs to a Flux system instance. A directory that cannot be listed is there.
fn has_flux(tree: &Tree) -> bool {
    FLUX_DIRS.iter().any(|dir| match tree.list_names(dir) {
        Ok(_) => true,
        Err(error) => !error.is_missing(),
    })
}
