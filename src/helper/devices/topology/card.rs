//! Which PCI functions are GPUs.

use super::nodes::{entries, is_accel, is_render};
use crate::helper::devices::gpu_name::PciAddress;
use crate::helper::devices::nvidia::{self, Gpu};
use crate::helper::devices::tree::missing_is;
use crate::helper::devices::{DeviceError, FileError, Tree};
use std::cell::OnceCell;

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

const NODES: &str = "/sys/class/kfd/kfd/topology/nodes";
/// Most nodes that are looked at: a processor or a partition each.
const NODES_MAX: usize = 1024;

/// The GPUs that KFD knows: the card's address and the minor of the render node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Parts(Vec<(PciAddress, u32)>);

impl Parts {
    /// None where there is no KFD. A node that the reader's own device filter hides fails with
    /// `EPERM`: without it the others would be counted wrongly.
    pub(super) fn read(tree: &Tree) -> Result<Self, DeviceError> {
        let mut parts = Vec::new();
        for node in tree.entries(NODES, NODES_MAX)? {
            let path = format!("{NODES}/{node}/properties");
            let properties = Properties { text: &tree.text(&path)?, path: &path };
            // Only processors have none.
            if properties.number("simd_count")? > 0 {
                let (address, render) =
                    (properties.address()?, properties.number("drm_render_minor")?);
                if parts.iter().any(|(_, other)| *other == render) {
                    let why = format_args!("another GPU has the render node {render} too");
                    return Err(DeviceError::at(path, why));
                }
                parts.push((address, render));
            }
        }
        parts.sort_unstable();
        Ok(Self(parts))
    }

    /// Render minors of the partitions of a card, ascending.
    pub(super) fn of(&self, address: PciAddress) -> Vec<u32> {
        self.0.iter().filter(|(card, _)| *card == address).map(|(_, render)| *render).collect()
    }
}

/// Lines of a key, a blank and a decimal number.
struct Properties<'a> {
    path: &'a str,
    text: &'a str,
}

impl Properties<'_> {
    fn number(&self, key: &'static str) -> Result<u32, DeviceError> {
        let mut lines = self.text.lines().filter_map(|line| line.split_once(' '));
        lines
            .find(|(name, _)| *name == key)
            .filter(|(_, value)| value.bytes().all(|byte| byte.is_ascii_digit()))
            .and_then(|(_, value)| value.parse().ok())
            .ok_or_else(|| self.no_number(key))
    }

    /// Bus, device and function stand in the lower 16 bits; above them is the partition's number.
    fn address(&self) -> Result<PciAddress, DeviceError> {
        let (domain, location) = (self.number("domain")?, self.number("location_id")?);
        let (bus, device, function) =
            ((location >> 8) & 0xff, (location >> 3) & 0x1f, location & 0x7);
        let address = format!("{domain:04x}:{bus:02x}:{device:02x}.{function:x}");
        address.parse().map_err(|_| self.no_number("location_id"))
    }

    fn no_number(&self, key: &str) -> DeviceError {
        DeviceError::at(self.path, format_args!("no number for {key}"))
    }
}
