//! The GPUs that KFD, amdgpu's driver for computing, lists: whole cards, and the compute partitions
//! of cards that are divided (`CPX`, `DPX` and others).
//!
//! Of a divided card only the first partition has its render node at the card's PCI function. Those
//! of the others belong to platform devices, and nothing in sysfs links these to the card
//! (`drivers/gpu/drm/amd/amdxcp/amdgpu_xcp_drv.c`). Their card follows from `location_id`, the number
//! of the card's function (bus in bits 15 to 8, device in 7 to 3, function in 2 to 0) combined with
//! the number of the partition. Drivers do that in two ways
//! (`kfd_topology_add_device` in `drivers/gpu/drm/amd/amdkfd/kfd_topology.c`):
//! - The partition is ORed into bits 2 to 0: Linux from 6.5 on.
//! - It is in bits 31 to 28: some releases of AMD's own driver, and the libraries that read KFD.
//!
//! A partition belongs to a card if exactly one function fits in one of these ways and has the
//! domain and, where the driver gives it, the `unique_id` of the partition. All partitions of a card
//! share that id. Several cards may share one too, so it never joins what the locations separate.

use super::class::render_minor;
use crate::node::pci::{PciAddress, function_dir, list_class, read_bound_driver};
use crate::node::{DeviceError, Tree, major};
use protocol::parse_decimal;

const KFD_NODES_DIR: &str = "/sys/class/kfd/kfd/topology/nodes";
/// Maximum KFD nodes. Each is a processor or a GPU.
const KFD_NODES_MAX: usize = 1024;
/// Maximum partitions of a card whose number is in the function's bits of `location_id`.
const LOW_PARTITIONS_MAX: u32 = 8;
/// First bit of the partition's number above the number of the function.
const HIGH_PARTITION_SHIFT: u32 = 28;

/// A card, or a partition of one.
#[derive(Clone, Debug, PartialEq, Eq)]
struct KfdGpu {
    /// File that describes it.
    path: String,
    /// Its number among the KFD nodes.
    node: u32,
    /// Old drivers, which know no partitions, give no domain.
    domain: Option<u32>,
    location: u32,
    /// Never 0, which drivers give for a card without an id.
    unique_id: Option<u64>,
    /// Minor of its render node.
    render: u32,
}

/// A PCI function bound to amdgpu.
#[derive(Debug)]
struct AmdFunction {
    address: PciAddress,
    /// Minors of its own render nodes.
    renders: Vec<u32>,
    /// Whether KFD lists a GPU with one of these render nodes, as it does of every divided card.
    is_listed: bool,
    /// The `unique_id` of that GPU.
    unique_id: Option<u64>,
}

/// The GPUs that KFD lists, ascending by render minor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KfdGpus(Vec<KfdGpu>);

impl KfdGpus {
    /// Reads the GPUs; none if there is no KFD.
    ///
    /// # Errors
    ///
    /// A file cannot be read or parsed, or two GPUs share a render node. A KFD node that the
    /// reader's own device filter hides fails with `EPERM`: without it, the numbers of the others
    /// would be wrong.
    pub(super) fn read(tree: &Tree) -> Result<Self, DeviceError> {
        let mut gpus: Vec<KfdGpu> = Vec::new();
        for node in tree.list_entries(KFD_NODES_DIR, KFD_NODES_MAX)? {
            let path = format!("{KFD_NODES_DIR}/{node}/properties");
            let properties = Properties {
                text: &tree.read_text(&path)?,
                path: &path,
            };
            // A processor has no SIMD units.
            if properties.require::<u32>("simd_count")? == 0 {
                continue;
            }
            let gpu = KfdGpu {
                node: parse_decimal(&node).ok_or_else(|| DeviceError::at(&path, "no KFD node"))?,
                domain: properties.get("domain")?,
                location: properties.require("location_id")?,
                unique_id: properties.get("unique_id")?.filter(|id| *id != 0),
                render: properties.require("drm_render_minor")?,
                path,
            };
            if gpus.iter().any(|other| other.render == gpu.render) {
                let why = format!("another GPU has the render node {} too", gpu.render);
                return Err(DeviceError::at(gpu.path, why));
            }
            gpus.push(gpu);
        }
        gpus.sort_unstable_by_key(|gpu| gpu.render);
        Ok(Self(gpus))
    }

    /// Lists the render minors of a card's partitions, ascending: one if the card is not divided,
    /// none if KFD does not know it.
    ///
    /// # Errors
    ///
    /// KFD and sysfs contradict each other about the card, or a GPU that may be a partition of it
    /// may also belong to another card. What concerns other cards is no error.
    pub(super) fn render_minors(
        &self,
        tree: &Tree,
        address: PciAddress,
    ) -> Result<Vec<u32>, DeviceError> {
        let functions = self.list_functions_of_device(tree, address)?;
        let mut partitions: Vec<&KfdGpu> = Vec::new();
        for gpu in &self.0 {
            match gpu.find_card(&functions) {
                Some(card) if card.address == address => partitions.push(gpu),
                None if gpu.may_belong_to(&functions, address) => return Err(gpu.no_card()),
                // It belongs to another card, certain or not.
                _ => {}
            }
        }
        self.check_partitions(tree, address, &functions, &partitions)?;
        Ok(partitions.iter().map(|gpu| gpu.render).collect())
    }

    /// Finds the number of the KFD node with this render minor. Programs see the GPUs in the order of
    /// these numbers.
    pub(super) fn node_number(&self, render: u32) -> Option<u32> {
        let gpu = self.0.iter().find(|gpu| gpu.render == render)?;
        Some(gpu.node)
    }

    /// Checks that every GPU is one of `known`, the render minors of all cards of the node.
    ///
    /// # Errors
    ///
    /// A GPU belongs to no card. It would shift the numbers of the GPUs after it.
    pub(super) fn require_known(&self, known: &[u32]) -> Result<(), DeviceError> {
        for gpu in &self.0 {
            if !known.contains(&gpu.render) {
                return Err(gpu.no_card());
            }
        }
        Ok(())
    }

    /// Checks the partitions that were found for the card at `address` against each other and against sysfs.
    /// `functions` are amdgpu's functions of its device.
    ///
    /// # Errors
    ///
    /// KFD numbers the partitions of this node in two ways; two partitions of function 0 have one location; or the
    /// render node of a partition belongs to another device.
    fn check_partitions(
        &self,
        tree: &Tree,
        address: PciAddress,
        functions: &[AmdFunction],
        partitions: &[&KfdGpu],
    ) -> Result<(), DeviceError> {
        // A driver writes the numbers of all partitions into the high bits of their locations, or of all into the low
        // ones, which may also be those of a function. So if any GPU has high bits, a further partition needs them.
        let has_high = self.0.iter().any(KfdGpu::is_high);
        for (at, gpu) in partitions.iter().enumerate() {
            let is_of_function = functions
                .iter()
                .any(|function| function.renders.contains(&gpu.render));
            if !is_of_function && !gpu.is_high() && has_high {
                let why = "KFD numbers the partitions of this node in two ways";
                return Err(DeviceError::at(&gpu.path, why));
            }
            // ORed with a function other than 0, two numbers of partitions may give one location: that is no fault.
            let mut earlier = partitions.iter().take(at);
            if address.function() == 0 && earlier.any(|other| other.location == gpu.location) {
                let why = format!("another GPU has the location_id {} too", gpu.location);
                return Err(DeviceError::at(&gpu.path, why));
            }
            if !is_of_function {
                gpu.verify_platform_device(tree)?;
            }
        }
        Ok(())
    }

    /// Lists amdgpu's functions of the PCI device that `address` belongs to. Only they can be the card of its
    /// partitions, whose `location_id` has the same bus and device.
    fn list_functions_of_device(
        &self,
        tree: &Tree,
        address: PciAddress,
    ) -> Result<Vec<AmdFunction>, DeviceError> {
        let mut functions = Vec::new();
        for function in address.functions_of_device() {
            if read_bound_driver(tree, function)?.as_deref() != Some("amdgpu") {
                continue;
            }
            let entries = list_class(tree, function, "drm")?;
            let renders: Vec<u32> = entries
                .iter()
                .filter_map(|entry| render_minor(entry))
                .collect();
            let listed = self.0.iter().find(|gpu| renders.contains(&gpu.render));
            let unique_id = listed.and_then(|gpu| gpu.unique_id);
            functions.push(AmdFunction {
                address: function,
                is_listed: listed.is_some(),
                renders,
                unique_id,
            });
        }
        Ok(functions)
    }
}

impl KfdGpu {
    /// Finds the card of this GPU among amdgpu's functions: the one with its render node, if domain and location
    /// agree, else the only one whose domain, id and location fit a further partition. `None` if no function fits or
    /// several do.
    fn find_card<'a>(&self, functions: &'a [AmdFunction]) -> Option<&'a AmdFunction> {
        if let Some(function) = functions
            .iter()
            .find(|function| function.renders.contains(&self.render))
        {
            let address = function.address;
            let has_domain = self.domain.is_none_or(|domain| domain == address.domain());
            let has_location =
                self.location == address.device_number() || self.is_partition_at(address);
            return (has_domain && has_location).then_some(function);
        }
        let fitting: Vec<_> = functions
            .iter()
            .filter(|function| {
                function.is_listed
                    && self.domain == Some(function.address.domain())
                    && self.unique_id == function.unique_id
                    && self.is_partition_at(function.address)
            })
            .collect();
        match fitting.as_slice() {
            [only] => Some(only),
            _ => None,
        }
    }

    /// Tells whether the location combines the number of the function at `address` with the number of a partition,
    /// but the first one's, which is 0.
    fn is_partition_at(&self, address: PciAddress) -> bool {
        let function = address.device_number();
        let without_high = self.location & !(u32::MAX << HIGH_PARTITION_SHIFT);
        if self.is_high() && without_high == function {
            return true;
        }
        (1..LOW_PARTITIONS_MAX).any(|part| function | part == self.location)
    }

    /// Tells whether the location has the number of a partition above the number of the function.
    fn is_high(&self) -> bool {
        self.location >> HIGH_PARTITION_SHIFT > 0
    }

    /// Tells whether this GPU, for which no card was found, may be a partition of the card at `address`: the card has
    /// the GPU's render node, or the domain, bus and device of the GPU's location.
    fn may_belong_to(&self, functions: &[AmdFunction], address: PciAddress) -> bool {
        let has_render_node = functions
            .iter()
            .any(|card| card.address == address && card.renders.contains(&self.render));
        // Bits 15 to 3 of a location are bus and device.
        let differing_bits = (self.location ^ address.device_number()) & 0xfff8;
        let has_domain = self.domain.is_none_or(|domain| domain == address.domain());
        has_render_node || (has_domain && differing_bits == 0)
    }

    /// Checks that the render node belongs to a platform device of a partition. A render node that sysfs lacks passes.
    fn verify_platform_device(&self, tree: &Tree) -> Result<(), DeviceError> {
        let link = format!("/sys/dev/char/{}:{}/device", major::DRM, self.render);
        match tree.read_link_name_if_exists(&link)? {
            Some(device) if !device.starts_with("amdgpu_xcp") => {
                let why = format!("renderD{} is of {device} and of no partition", self.render);
                Err(DeviceError::at(&self.path, why))
            }
            _ => Ok(()),
        }
    }

    /// The error for a GPU of KFD whose card is not certain.
    fn no_card(&self) -> DeviceError {
        let render = self.render;
        let location = self.location;
        let why = format!(
            "location_id {location} with renderD{render} fits no AMD card in sysfs, or several: \
             name the GPUs of the job by their render nodes"
        );
        DeviceError::at(&self.path, why)
    }
}

/// Reads the mode in which a card is divided (`SPX` for not at all); `None` if the driver or the
/// card knows no modes.
pub(super) fn read_partition_mode(
    tree: &Tree,
    address: PciAddress,
) -> Result<Option<String>, DeviceError> {
    let path = format!("{}/current_compute_partition", function_dir(address));
    let text = tree.read_text_if_exists(&path)?;
    Ok(text.map(|text| text.trim_end().to_owned()))
}

/// The text of a `properties` file: lines of a key, a blank and a decimal number.
struct Properties<'a> {
    path: &'a str,
    text: &'a str,
}

impl Properties<'_> {
    /// Parses the number of a key, which must be there.
    fn require<T: std::str::FromStr>(&self, key: &str) -> Result<T, DeviceError> {
        self.get(key)?.ok_or_else(|| self.no_number(key))
    }

    /// Parses the number of a key; `None` if the key is missing.
    ///
    /// # Errors
    ///
    /// The value is no decimal number, or too large for the type.
    fn get<T: std::str::FromStr>(&self, key: &str) -> Result<Option<T>, DeviceError> {
        let mut lines = self.text.lines().filter_map(|line| line.split_once(' '));
        let Some((_, value)) = lines.find(|(name, _)| *name == key) else {
            return Ok(None);
        };
        if !value.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(self.no_number(key));
        }
        match value.parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => Err(self.no_number(key)),
        }
    }

    /// The error for a key without a number.
    fn no_number(&self, key: &str) -> DeviceError {
        DeviceError::at(self.path, format_args!("no number for {key}"))
    }
}
