//! The PCI functions that are GPUs.

use super::class::{is_accel, is_render};
use super::kfd::KfdGpus;
use crate::node::nvidia::{self, NvidiaGpu};
use crate::node::pci::{
    FUNCTIONS_DIR, FUNCTIONS_MAX, PciAddress, function_dir, list_class, read_bound_driver,
};
use crate::node::tree::none_if_missing;
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
    /// Reads the list of NVIDIA's driver. KFD is read when the first AMD card is looked at, or all cards are listed.
    pub(super) fn new(tree: &'a Tree) -> Result<Self, DeviceError> {
        Ok(Self {
            tree,
            nvidia: nvidia::list_gpus(tree)?,
            kfd: OnceCell::new(),
        })
    }

    /// Lists the cards of the node, ascending by address.
    ///
    /// # Errors
    ///
    /// A GPU that KFD or NVIDIA's driver lists is none of these cards: it would shift the numbers of the GPUs after
    /// it. As [`Cards::find`].
    pub(super) fn list(&self) -> Result<Vec<Card>, DeviceError> {
        let mut cards = Vec::new();
        for address in list_functions(self.tree)? {
            cards.extend(self.find(address)?);
        }
        cards.sort_unstable_by_key(|card| card.address);
        let mut amd_renders = Vec::new();
        for card in &cards {
            if let Vendor::Amd { parts } = &card.vendor {
                amd_renders.extend_from_slice(parts);
            }
        }
        self.kfd_gpus()?.require_known(&amd_renders)?;
        for NvidiaGpu { address, .. } in &self.nvidia {
            if cards.iter().all(|card| card.address != *address) {
                return Err(DeviceError::new(format_args!(
                    "NVIDIA's driver lists {address}, which is not bound to it in sysfs"
                )));
            }
        }
        Ok(cards)
    }

    /// Finds the GPU at an address; `None` if the function there is no GPU, is excluded by NVIDIA's driver, or does
    /// not exist.
    ///
    /// # Errors
    ///
    /// A file cannot be read, or KFD and sysfs contradict each other about an AMD card.
    pub(super) fn find(&self, address: PciAddress) -> Result<Option<Card>, DeviceError> {
        let Some(driver) = read_bound_driver(self.tree, address)? else {
            return Ok(None);
        };
        let vendor = match driver.as_str() {
            "nvidia" => {
                let gpu = self.nvidia.iter().find(|gpu| gpu.address == address);
                return Ok(gpu.map(|gpu| Card {
                    address,
                    vendor: Vendor::Nvidia(gpu.clone()),
                }));
            }
            "habanalabs" if self.has_entry(address, "accel", is_accel)? => Vendor::Habana,
            "habanalabs" => return Ok(None),
            // A GPU of any other driver has a render node.
            _ if !self.has_entry(address, "drm", is_render)? => return Ok(None),
            "amdgpu" => Vendor::Amd {
                parts: self.kfd_gpus()?.render_minors(self.tree, address)?,
            },
            _ => Vendor::Other,
        };
        Ok(Some(Card { address, vendor }))
    }

    /// Tells whether a function has a device of a class whose name fits.
    fn has_entry(
        &self,
        address: PciAddress,
        class: &str,
        fits: fn(&str) -> bool,
    ) -> Result<bool, DeviceError> {
        Ok(list_class(self.tree, address, class)?
            .iter()
            .any(|entry| fits(entry)))
    }

    /// Finds the number of the KFD node with this render minor; `None` if KFD does not list it.
    pub(super) fn kfd_node(&self, render: u32) -> Result<Option<u32>, DeviceError> {
        Ok(self.kfd_gpus()?.node_number(render))
    }

    /// The GPUs that KFD lists, which are read at the first call. An error of that call is the error of each.
    fn kfd_gpus(&self) -> Result<&KfdGpus, DeviceError> {
        self.kfd
            .get_or_init(|| KfdGpus::read(self.tree))
            .as_ref()
            .map_err(Clone::clone)
    }
}

/// Lists the addresses of all PCI functions, ascending.
///
/// # Errors
///
/// The directory cannot be listed, or has a name that is no address.
pub(super) fn list_functions(tree: &Tree) -> Result<Vec<PciAddress>, DeviceError> {
    let mut addresses = Vec::new();
    for name in tree.list_entries(FUNCTIONS_DIR, FUNCTIONS_MAX)? {
        match name.parse::<PciAddress>() {
            Ok(address) if address.to_string() == name => addresses.push(address),
            _ => {
                let path = format!("{FUNCTIONS_DIR}/{name}");
                return Err(DeviceError::at(path, "not named by a PCI address"));
            }
        }
    }
    addresses.sort_unstable();
    Ok(addresses)
}

/// Tells whether a card has virtual functions now (SR-IOV). Such a card sees what they work on.
///
/// # Errors
///
/// The kernel's number of them cannot be read.
pub(super) fn has_virtual_functions(tree: &Tree, address: PciAddress) -> Result<bool, DeviceError> {
    let path = format!("{}/sriov_numvfs", function_dir(address));
    let count = tree.read_text_if_exists(&path)?;
    Ok(count.is_some_and(|count| count.trim_end() != "0"))
}

/// Returns the error for a node without GPUs. If a function has the class of a GPU and no driver, that is the reason
/// (`PCI_CLASS`, include/linux/pci_ids.h).
///
/// # Errors
///
/// The functions cannot be listed.
pub(super) fn explain_no_gpus(tree: &Tree) -> Result<DeviceError, DeviceError> {
    for name in tree.list_entries(FUNCTIONS_DIR, FUNCTIONS_MAX)? {
        let address = name.parse::<PciAddress>();
        if address.is_ok_and(|address| has_virtual_functions(tree, address) == Ok(true)) {
            let text = format!(
                "the node has no GPUs: {name} has virtual functions, and none of them a render node"
            );
            return Ok(DeviceError::new(text));
        }
        // The classes of VGA, 3D and other display controllers and of accelerators. Without its class, a function is no
        // reason.
        let class = tree
            .read_text(&format!("{FUNCTIONS_DIR}/{name}/class"))
            .unwrap_or_default();
        let is_gpu = ["0x0300", "0x0302", "0x0380", "0x1200"]
            .iter()
            .any(|prefix| class.starts_with(prefix));
        let driver = tree.read_link_name(&format!("{FUNCTIONS_DIR}/{name}/driver"));
        if is_gpu && driver.is_err_and(|error| error.is_missing()) {
            let text = format!("the node has no GPUs: no driver is loaded for {name}");
            return Ok(DeviceError::new(text));
        }
    }
    Ok(DeviceError::new("the node has no GPUs"))
}

/// Returns the error that says why the function at an address is no GPU.
///
/// # Errors
///
/// The function's directory or driver cannot be read.
pub(super) fn explain_no_gpu_at(
    tree: &Tree,
    address: PciAddress,
) -> Result<DeviceError, DeviceError> {
    let exists = none_if_missing(tree.list_names(&function_dir(address)))?.is_some();
    if !exists {
        return Ok(DeviceError::new(format_args!(
            "no PCI function at {address}"
        )));
    }
    Ok(DeviceError::new(match read_bound_driver(tree, address)? {
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
