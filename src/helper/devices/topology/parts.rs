//! The compute partitions of AMD's cards, by what KFD tells of them.
//!
//! A card in the mode DPX, QPX or CPX is several GPUs to a program, each a node of KFD's topology
//! with a render node of its own. The DRM devices of a card's partitions exist in any mode, so
//! that only KFD tells which of them are in use (`drivers/gpu/drm/amd/amdkfd/kfd_topology.c`).

use crate::helper::devices::gpu_name::PciAddress;
use crate::helper::devices::{DeviceError, Tree};

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
