//! Which PCI functions are GPUs.

use std::cell::OnceCell;

use super::nodes::{entries, is_accel, is_render};
use super::parts::Parts;
use crate::helper::devices::gpu_name::PciAddress;
use crate::helper::devices::nvidia::{self, Gpu};
use crate::helper::devices::tree::missing_is;
use crate::helper::devices::{DeviceError, FileError, Tree};

/// Where sysfs has the PCI functions (Documentation/PCI/sysfs-pci.rst).
const FUNCTIONS: &str = "/sys/bus/pci/devices";
/// Most of them that are looked at.
const FUNCTIONS_MAX: usize = 4096;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Card {
    pub(super) address: PciAddress,
    pub(super) make: Make,
}

/// Whose driver it has, which says what belongs to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Make {
    Nvidia(Gpu),
    /// With the render minors of its compute partitions, ascending; none where KFD does not know
    /// the card.
    Amd {
        parts: Vec<u32>,
    },
    Habana,
    /// Any other, which has DRM nodes and nothing else.
    Other,
}

/// The PCI functions of a node, and what drivers tell about them elsewhere.
#[derive(Debug)]
pub(super) struct Cards<'a> {
    tree: &'a Tree,
    nvidia: Vec<Gpu>,
    parts: OnceCell<Result<Parts, DeviceError>>,
}

impl<'a> Cards<'a> {
    pub(super) fn new(tree: &'a Tree) -> Result<Self, DeviceError> {
        Ok(Self { tree, nvidia: nvidia::gpus(tree)?, parts: OnceCell::new() })
    }

    pub(super) fn all(&self) -> Result<Vec<Card>, DeviceError> {
        let mut cards = Vec::new();
        for address in self.functions()? {
            cards.extend(self.at(address)?);
        }
        cards.sort_unstable_by_key(|card| card.address);
        // One that sysfs does not have would shift the numbers of those behind it.
        match self.nvidia.iter().find(|gpu| cards.iter().all(|card| card.address != gpu.address)) {
            Some(Gpu { address, .. }) => Err(DeviceError::new(format_args!(
                "NVIDIA's driver lists {address}, which is not bound to it in sysfs"
            ))),
            None => Ok(cards),
        }
    }

    /// The GPU at an address; none where the function there is something else.
    pub(super) fn at(&self, address: PciAddress) -> Result<Option<Card>, DeviceError> {
        let Some(driver) = driver(self.tree, address)? else { return Ok(None) };
        let has = |class, is: fn(&str) -> bool| -> Result<bool, DeviceError> {
            Ok(entries(self.tree, address, class)?.iter().any(|entry| is(entry)))
        };
        let make = match driver.as_str() {
            "nvidia" => {
                self.nvidia.iter().find(|gpu| gpu.address == address).cloned().map(Make::Nvidia)
            }
            "habanalabs" => has("accel", is_accel)?.then_some(Make::Habana),
            _ if !has("drm", is_render)? => None,
            "amdgpu" => Some(Make::Amd { parts: self.parts()?.of(address) }),
            _ => Some(Make::Other),
        };
        Ok(make.map(|make| Card { address, make }))
    }

    fn parts(&self) -> Result<&Parts, DeviceError> {
        self.parts.get_or_init(|| Parts::read(self.tree)).as_ref().map_err(Clone::clone)
    }

    fn functions(&self) -> Result<Vec<PciAddress>, DeviceError> {
        let names = self.tree.entries(FUNCTIONS, FUNCTIONS_MAX)?;
        let address = |name: &String| {
            let address = name.parse::<PciAddress>().ok();
            address.filter(|address| address.to_string() == *name).ok_or_else(|| {
                DeviceError::at(format_args!("{FUNCTIONS}/{name}"), "not named by a PCI address")
            })
        };
        names.iter().map(address).collect()
    }
}

/// Why there is no GPU at all: for want of a driver, where a function looks like one (`PCI_CLASS`,
/// include/linux/pci_ids.h).
pub(super) fn no_gpus(tree: &Tree) -> Result<DeviceError, DeviceError> {
    for name in tree.entries(FUNCTIONS, FUNCTIONS_MAX)? {
        let class = tree.text(&format!("{FUNCTIONS}/{name}/class")).unwrap_or_default();
        let is_gpu =
            ["0x0300", "0x0302", "0x0380", "0x1200"].iter().any(|of| class.starts_with(of));
        let bound = tree.link_name(&format!("{FUNCTIONS}/{name}/driver"));
        if is_gpu && bound.is_err_and(|error| error.is_missing()) {
            let text = format_args!("the node has no GPUs: no driver is loaded for {name}");
            return Ok(DeviceError::new(text));
        }
    }
    Ok(DeviceError::new("the node has no GPUs"))
}

/// Why the function at an address is no GPU.
pub(super) fn why_none(tree: &Tree, address: PciAddress) -> Result<DeviceError, DeviceError> {
    let there = tree.names(&directory(address)).map(|_| true).or_else(missing_is(|| false))?;
    Ok(DeviceError::new(match driver(tree, address)? {
        _ if !there => format!("no PCI function at {address}"),
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

pub(in crate::helper::devices) fn directory(address: PciAddress) -> String {
    format!("{FUNCTIONS}/{address}")
}

fn driver(tree: &Tree, address: PciAddress) -> Result<Option<String>, FileError> {
    let link = format!("{}/driver", directory(address));
    tree.link_name(&link).map(Some).or_else(missing_is(|| None))
}
