//! The PCI functions that are GPUs.

use super::class::{is_accel, is_render};
use super::kfd::KfdGpus;
use crate::node::nvidia::{self, NvidiaGpu};
use crate::node::pci::{
    FUNCTIONS_DIR, FUNCTIONS_MAX, PciAddress, function_dir, list_class, read_bound_driver,
};
use crate::node::tree::if_missing;
use crate::node::{DeviceError, Tree};
use std::cell::OnceCell;

/// A PCI function that is a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Card {
    pub(super) address: PciAddress,
    pub(super) vendor: Vendor,
}

/// The vendor of a card's driver, which determines the devices of the card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Vendor {
    Nvidia(NvidiaGpu),
    Amd {
        /// Render minors of the compute partitions, ascending; none if KFD does not know the card.
        parts: Vec<u32>,
    },
    Habana,
    /// Any other vendor. The card has DRM nodes and nothing else.
    Other,
}

/// The cards of a node, with the lists of NVIDIA's driver and of KFD.
#[derive(Debug)]
pub(super) struct Cards<'a> {
    tree: &'a Tree,
    nvidia: Vec<NvidiaGpu>,
    kfd: OnceCell<Result<KfdGpus, DeviceError>>,
}

impl<'a> Cards<'a> {
    pub(super) fn new(tree: &'a Tree) -> Result<Self, DeviceError> {
        Ok(Self { tree, nvidia: nvidia::list_gpus(tree)?, kfd: OnceCell::new() })
    }

    pub(super) fn list(&self) -> Result<Vec<Card>, DeviceError> {
        let mut cards = Vec::new();
        for address in self.list_functions()? {
            cards.extend(self.find(address)?);
        }
        cards.sort_unstable_by_key(|card| card.address);
        let amd_parts = |card: &Card| match &card.vendor {
            Vendor::Amd { parts } => parts.clone(),
            _ => Vec::new(),
        };
        let known: Vec<u32> = cards.iter().flat_map(amd_parts).collect();
        self.kfd_gpus()?.require_known(&known)?;
        // A GPU that sysfs lacks would shift the numbers of the GPUs after it.
        match self.nvidia.iter().find(|gpu| cards.iter().all(|card| card.address != gpu.address)) {
            Some(NvidiaGpu { address, .. }) => Err(DeviceError::new(format_args!(
                "NVIDIA's driver lists {address}, which is not bound to it in sysfs"
            ))),
            None => Ok(cards),
        }
    }

    /// Returns the GPU at an address; `None` if the function there is no GPU.
    pub(super) fn find(&self, address: PciAddress) -> Result<Option<Card>, DeviceError> {
        let Some(driver) = read_bound_driver(self.tree, address)? else { return Ok(None) };
        let has = |class, fits: fn(&str) -> bool| -> Result<bool, DeviceError> {
            Ok(list_class(self.tree, address, class)?.iter().any(|entry| fits(entry)))
        };
        let vendor = match driver.as_str() {
            "nvidia" => {
                self.nvidia.iter().find(|gpu| gpu.address == address).cloned().map(Vendor::Nvidia)
            }
            "habanalabs" => has("accel", is_accel)?.then_some(Vendor::Habana),
            _ if !has("drm", is_render)? => None,
            "amdgpu" => {
                let parts = self.kfd_gpus()?.render_minors(self.tree, address)?;
                Some(Vendor::Amd { parts })
            }
            _ => Some(Vendor::Other),
        };
        Ok(vendor.map(|vendor| Card { address, vendor }))
    }

    fn kfd_gpus(&self) -> Result<&KfdGpus, DeviceError> {
        self.kfd.get_or_init(|| KfdGpus::read(self.tree)).as_ref().map_err(Clone::clone)
    }

    fn list_functions(&self) -> Result<Vec<PciAddress>, DeviceError> {
        let names = self.tree.list_entries(FUNCTIONS_DIR, FUNCTIONS_MAX)?;
        let address = |name: &String| {
            let address = name.parse::<PciAddress>().ok();
            address.filter(|address| address.to_string() == *name).ok_or_else(|| {
                DeviceError::at(
                    format_args!("{FUNCTIONS_DIR}/{name}"),
                    "not named by a PCI address",
                )
            })
        };
        names.iter().map(address).collect()
    }
}

/// Returns why the node has no GPUs. If a function has the class of a GPU and no driver, that is the
/// reason (`PCI_CLASS`, include/linux/pci_ids.h).
pub(super) fn explain_no_gpus(tree: &Tree) -> Result<DeviceError, DeviceError> {
    for name in tree.list_entries(FUNCTIONS_DIR, FUNCTIONS_MAX)? {
        let class = tree.read_text(&format!("{FUNCTIONS_DIR}/{name}/class")).unwrap_or_default();
        let is_gpu =
            ["0x0300", "0x0302", "0x0380", "0x1200"].iter().any(|prefix| class.starts_with(prefix));
        let driver = tree.read_link_name(&format!("{FUNCTIONS_DIR}/{name}/driver"));
        if is_gpu && driver.is_err_and(|error| error.is_missing()) {
            let text = format!("the node has no GPUs: no driver is loaded for {name}");
            return Ok(DeviceError::new(text));
        }
    }
    Ok(DeviceError::new("the node has no GPUs"))
}

/// Returns why the function at an address is no GPU.
pub(super) fn explain_no_gpu_at(
    tree: &Tree,
    address: PciAddress,
) -> Result<DeviceError, DeviceError> {
    let names = tree.list_names(&function_dir(address));
    let exists = names.map(|_| true).or_else(if_missing(|| false))?;
    Ok(DeviceError::new(match read_bound_driver(tree, address)? {
        _ if !exists => format!("no PCI function at {address}"),
        None => format!("no driver is bound to {address}"),
        Some(driver) if driver == "nvidia" => {
            format!("NVIDIA's driver does not list {address} as a GPU, or excludes it")
        }
        Some(driver) if driver.contains("vfio") => {
            format!("{address} is bound to {driver}, for virtual machines")
        }
        Some(driver) => {
            format!("{address} is no GPU: its driver {driver} gives it no render node")
        }
    }))
}
