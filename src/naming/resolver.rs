//! Resolves names to the numbers that they have on this node.

use crate::cdi::{self, Catalog, QualifiedName};
use crate::directory;
use crate::gpu_name::GpuName;
use crate::unresolved_name::UnresolvedName;
use helper::devices::{DeviceName, DeviceSettings, Resolver, gres};
use helper::node::PciAddress;
use helper::node::nvidia::{NvidiaGpu, Uuid};
use helper::node::topology::Numbering;
use helper::node::{Device, DeviceError, ResolvedDevices, Tree, nvidia, topology};
use std::cell::OnceCell;
use std::collections::BTreeSet;

/// Kind of NVIDIA's GPUs in the specifications of NVIDIA's own tools.
const NVIDIA_KIND: &str = "nvidia.com/gpu";

/// Resolves names on one node by its site's settings. It reads the directories of specifications once.
#[derive(Debug)]
pub struct NameResolver {
    /// What resolves specifiers, by the same files and settings.
    pub specifiers: Resolver,
    catalog: OnceCell<Result<Catalog, DeviceError>>,
}

impl NameResolver {
    /// Makes a resolver that reads the files of `tree`.
    pub fn new(tree: Tree, settings: DeviceSettings) -> Self {
        Self {
            specifiers: Resolver::new(tree, settings),
            catalog: OnceCell::new(),
        }
    }

    fn tree(&self) -> &Tree {
        &self.specifiers.tree
    }

    /// Resolves the devices of all these names together. CDI names are resolved last and in one step, so
    /// that edits of a specification for all its devices count once.
    ///
    /// # Errors
    ///
    /// The first name that does not resolve, in the order of resolution. The devices of the other names are not
    /// returned then.
    pub fn resolve_names(&self, names: &[DeviceName]) -> Result<ResolvedDevices, UnresolvedName> {
        let mut resolved = ResolvedDevices::default();
        let mut cdi_names = Vec::new();
        for name in names {
            for entry in self
                .list_entries(name)
                .map_err(|why| unresolved(name, why))?
            {
                if let DeviceName::Cdi(cdi_name) = entry {
                    cdi_names.push(cdi_name);
                    continue;
                }
                let devices = self.resolve_entry(&entry);
                resolved.extend(devices.map_err(|why| unresolved(&entry, why))?);
            }
        }
        resolved.extend(self.resolve_cdi(&cdi_names)?);
        Ok(resolved)
    }

    /// Lists the entries by which a directory names these devices (`device_dir` of a record): UUIDs of NVIDIA
    /// GPUs, MIG instances, CDI devices and IMEX channels; `void` for no device.
    ///
    /// # Errors
    ///
    /// The first name that does not resolve, or that stands for a device which a directory cannot name.
    pub fn list_directory_entries(
        &self,
        names: &[DeviceName],
    ) -> Result<BTreeSet<String>, UnresolvedName> {
        let mut entries = BTreeSet::new();
        for name in names {
            let failed = |why| unresolved(name, why);
            for entry in self.list_entries(name).map_err(failed)? {
                // Also a name that stands in the directory as it is must exist on this node.
                let resolved = self.resolve_names(std::slice::from_ref(&entry))?;
                let texts = self.directory_entries(&entry, &resolved.devices);
                entries.extend(texts.map_err(|why| unresolved(&entry, why))?);
            }
        }
        if entries.is_empty() {
            entries.insert("void".to_owned());
        }
        Ok(entries)
    }

    /// Lists the entries for a name that stands for these devices and is no directory. A directory names a GPU by its
    /// UUID alone, so that any other name of a GPU becomes the UUIDs of its devices.
    ///
    /// # Errors
    ///
    /// None of the devices is an NVIDIA GPU, or the UUID of one is unknown.
    fn directory_entries(
        &self,
        name: &DeviceName,
        devices: &[Device],
    ) -> Result<Vec<String>, DeviceError> {
        match name {
            DeviceName::Cdi(text) => {
                let qualified: QualifiedName = text.parse()?;
                Ok(vec![format!(
                    "cdi/{}/{}",
                    qualified.kind(),
                    qualified.name()
                )])
            }
            DeviceName::Imex(channel) => Ok(vec![format!("imex/{channel}")]),
            DeviceName::AllGpus => Ok(vec!["all".to_owned()]),
            DeviceName::Gpu(text) => match text.parse()? {
                gpu @ (GpuName::Uuid(_) | GpuName::Mig(_) | GpuName::Instance { .. }) => {
                    Ok(vec![gpu.to_string()])
                }
                _ => self.list_uuids(devices),
            },
            DeviceName::Gres { .. } => self.list_uuids(devices),
            DeviceName::Dir(_) => Ok(Vec::new()),
        }
    }

    /// Lists the UUIDs of the NVIDIA GPUs among these devices, of which there must be at least one.
    fn list_uuids(&self, devices: &[Device]) -> Result<Vec<String>, DeviceError> {
        let gpus = nvidia::list_gpus(self.tree())?;
        let mut uuids = Vec::new();
        for minor in nvidia::gpu_minors(devices) {
            let gpu = gpus.iter().find(|gpu| gpu.minor == minor);
            let Some(uuid) = gpu.and_then(|gpu| gpu.uuid.as_ref()) else {
                let why = format!("NVIDIA's driver tells no UUID of /dev/nvidia{minor}");
                return Err(DeviceError::new(why));
            };
            uuids.push(format!("GPU-{uuid}"));
        }
        if uuids.is_empty() {
            let why = "no GPU of NVIDIA: a directory names others by CDI alone";
            return Err(DeviceError::new(why));
        }
        Ok(uuids)
    }

    /// Lists the entries of a directory, none of which is a directory; any other name stands for itself.
    fn list_entries(&self, name: &DeviceName) -> Result<Vec<DeviceName>, DeviceError> {
        match name {
            DeviceName::Dir(path) => directory::read(self.tree(), path),
            other => Ok(vec![other.clone()]),
        }
    }

    /// Resolves a name that is neither a CDI name nor a directory.
    fn resolve_entry(&self, name: &DeviceName) -> Result<ResolvedDevices, DeviceError> {
        match name {
            DeviceName::Gpu(gpu) => self.resolve_gpu(&gpu.parse()?),
            DeviceName::AllGpus => self.resolve_all_gpus(),
            DeviceName::Imex(channel) => nvidia::resolve_imex_channel(self.tree(), *channel),
            DeviceName::Gres { name, index } => self.resolve_gres(name, *index),
            DeviceName::Cdi(_) | DeviceName::Dir(_) => Ok(ResolvedDevices::default()),
        }
    }

    /// Resolves a generic resource of Slurm, with the devices that the GPUs among its files need.
    fn resolve_gres(&self, name: &str, index: u32) -> Result<ResolvedDevices, DeviceError> {
        let mut resolved = gres::resolve(
            self.specifiers.slurm_conf(),
            self.specifiers.settings.node_name.as_deref(),
            name,
            index,
        )?;
        let companions = topology::find_companions(self.tree(), &resolved.devices)?;
        resolved.extend(companions);
        Ok(resolved)
    }

    /// Resolves the devices of a GPU. It resolves every name by the PCI address, if it can, so that
    /// one GPU has the same devices under all its names.
    fn resolve_gpu(&self, name: &GpuName) -> Result<ResolvedDevices, DeviceError> {
        match name {
            GpuName::Index(index) | GpuName::Numbered(Numbering::Nvidia, index)
                if nvidia::is_tegra(self.tree())? =>
            {
                let reason = "the GPU of a Tegra processor has no PCI address and is found by CDI \
                              alone";
                self.resolve_nvidia_cdi(index, Some(reason))
            }
            GpuName::Index(index) => topology::resolve_index(self.tree(), *index),
            GpuName::Numbered(numbering, index) => {
                topology::resolve_number(self.tree(), *numbering, *index)
            }
            GpuName::Accelerator(driver, index) => {
                topology::resolve_accelerator(self.tree(), *driver, *index)
            }
            GpuName::Pci(address) => topology::resolve_address(self.tree(), *address),
            GpuName::Uuid(uuid) => {
                let gpus = nvidia::list_gpus(self.tree())?;
                let not_listed = match nvidia::find_by_uuid(&gpus, uuid) {
                    Ok(gpu) => return topology::resolve_address(self.tree(), gpu.address),
                    Err(why) => why,
                };
                // The driver may not know the UUID yet. A specification then shows which GPU has it, by the node.
                let prefix = format!("{not_listed}, and by CDI");
                let resolved = self.resolve_nvidia_cdi(name, Some(&prefix))?;
                match nvidia::find_only_gpu(&gpus, &resolved.devices) {
                    Some(gpu) => topology::resolve_address(self.tree(), gpu.address),
                    // The devices are not those of one GPU that the driver lists, so that no address is known.
                    None => Ok(resolved),
                }
            }
            GpuName::Instance { gpu, gi, ci } => {
                nvidia::resolve_instance(self.tree(), gpu, *gi, *ci)
            }
            // Without the vendor's library, only a specification identifies this instance.
            GpuName::Mig(_) => {
                let reason = "found by CDI alone (MIG-GPU-UUID/GI/CI is found without)";
                self.resolve_nvidia_cdi(name, Some(reason))
            }
        }
    }

    /// Resolves the devices that the specifications list under `nvidia.com/gpu=NAME`, and checks them against the
    /// driver. If the specifications name none, the error begins with `prefix`, if there is one; an error of the
    /// check does not.
    fn resolve_nvidia_cdi(
        &self,
        name: impl std::fmt::Display,
        prefix: Option<&str>,
    ) -> Result<ResolvedDevices, DeviceError> {
        let names = [format!("{NVIDIA_KIND}={name}")];
        let resolved = self
            .resolve_by_catalog(&names)
            .map_err(|error| match prefix {
                Some(prefix) => DeviceError::at(prefix, error.why),
                None => error.why,
            })?;
        self.verify_names(&names).map_err(|error| error.why)?;
        Ok(resolved)
    }

    /// Resolves the devices of each NVIDIA GPU that the node has now. If the driver lists none, and on a Tegra, whose
    /// own GPU it does not list, they are those of the CDI device `all`.
    fn resolve_all_gpus(&self) -> Result<ResolvedDevices, DeviceError> {
        let gpus = nvidia::list_gpus(self.tree())?;
        if gpus.is_empty() || nvidia::is_tegra(self.tree())? {
            return self.resolve_nvidia_cdi("all", None);
        }
        let mut resolved = ResolvedDevices::default();
        for gpu in gpus {
            resolved.extend(topology::resolve_address(self.tree(), gpu.address)?);
        }
        Ok(resolved)
    }

    /// Resolves the devices of CDI names, after the drivers confirmed the specifications.
    fn resolve_cdi(&self, names: &[String]) -> Result<ResolvedDevices, UnresolvedName> {
        let resolved = self.resolve_by_catalog(names)?;
        self.verify_names(names)?;
        Ok(resolved)
    }

    /// Resolves CDI names by the specifications alone. A fault of the directories counts against the first name;
    /// without names no directory is read.
    fn resolve_by_catalog(&self, names: &[String]) -> Result<ResolvedDevices, UnresolvedName> {
        let Some(first) = names.first() else {
            return Ok(ResolvedDevices::default());
        };
        let failed = |why| UnresolvedName {
            name: first.clone(),
            why,
        };
        cdi::resolve(self.tree(), self.catalog().map_err(failed)?, names)
    }

    /// Checks what the specifications list for these names against the drivers ([`verify_cdi_device`]).
    fn verify_names(&self, names: &[String]) -> Result<(), UnresolvedName> {
        for name in names {
            let failed = |why| UnresolvedName {
                name: name.clone(),
                why,
            };
            verify_cdi_device(self.tree(), self.catalog().map_err(failed)?, name)
                .map_err(failed)?;
        }
        Ok(())
    }

    /// The specifications of the site's directories, which are read at the first call. An error of that call is the
    /// error of each.
    fn catalog(&self) -> Result<&Catalog, DeviceError> {
        self.catalog
            .get_or_init(|| Catalog::read(self.tree(), &self.specifiers.settings.cdi_dirs))
            .as_ref()
            .map_err(Clone::clone)
    }
}

/// Describes a name that does not resolve.
fn unresolved(name: &DeviceName, why: DeviceError) -> UnresolvedName {
    UnresolvedName {
        name: name.to_string(),
        why,
    }
}

/// Kind of Intel's GPUs in the specifications of Intel's own tools.
const INTEL_KIND: &str = "intel.com/gpu";

/// Checks the specification of a device against the drivers.
///
/// NVIDIA's driver must confirm a name that contains a UUID. It does not know other names, such as
/// indexes: if such a name is one GPU or a part of one, it must confirm what the same file lists for
/// the UUID of that GPU. The name of an Intel GPU contains its address, to which the DRM nodes must
/// belong. Devices of any other kind are not checked here.
///
/// # Errors
///
/// The specification and a driver disagree.
fn verify_cdi_device(tree: &Tree, catalog: &Catalog, name: &str) -> Result<(), DeviceError> {
    if let Some(address) = parse_intel_address(name) {
        let devices = resolve_alone(tree, catalog, name)?;
        return topology::verify_drm_nodes(tree, &[address], &devices);
    }
    let Some(nvidia_name) = nvidia_device_name(name) else {
        return Ok(());
    };
    let devices = resolve_alone(tree, catalog, name)?;
    let minors = nvidia::gpu_minors(&devices);
    let uuid = parse_uuid(nvidia_name);
    // Neither a UUID nor the node of a GPU: there is nothing that the driver could confirm.
    if uuid.is_none() && minors.is_empty() {
        return Ok(());
    }
    let gpus = nvidia::list_gpus(tree)?;
    if let Some(uuid) = uuid {
        nvidia::verify_uuid(&gpus, &uuid, &devices)?;
    } else if let [minor] = minors.as_slice() {
        verify_siblings(tree, catalog, name, *minor, &gpus)?;
    }
    // DRM nodes beside the nodes of GPUs must belong to the same GPUs, if the driver lists any of these.
    let own_gpus = gpus.iter().filter(|gpu| minors.contains(&gpu.minor));
    let addresses: Vec<_> = own_gpus.map(|gpu| gpu.address).collect();
    if addresses.is_empty() {
        return Ok(());
    }
    topology::verify_drm_nodes(tree, &addresses, &devices)
}

/// Verifies a name without a UUID, such as an index, which the driver does not know. Generators list the same GPU under
/// its UUID in the same file, so those entries are verified in its place: each that has the node with this minor, and
/// the one with the UUID that the driver gives the GPU of this minor. If the file is older than the present minors, one
/// of them contradicts the driver. Without such an entry the name passes.
fn verify_siblings(
    tree: &Tree,
    catalog: &Catalog,
    name: &str,
    minor: u32,
    gpus: &[NvidiaGpu],
) -> Result<(), DeviceError> {
    let gpu = gpus.iter().find(|gpu| gpu.minor == minor);
    let driver_uuid = gpu.and_then(|gpu| gpu.uuid.as_ref());
    for (uuid, devices) in list_gpus_with_uuid(tree, catalog, name) {
        if nvidia::gpu_minors(&devices).contains(&minor) || driver_uuid == Some(&uuid) {
            nvidia::verify_uuid(gpus, &uuid, &devices)?;
        }
    }
    Ok(())
}

/// Resolves one CDI name by itself.
fn resolve_alone(tree: &Tree, catalog: &Catalog, name: &str) -> Result<Vec<Device>, DeviceError> {
    let resolved = cdi::resolve(tree, catalog, &[name.to_owned()]);
    Ok(resolved.map_err(|error| error.why)?.devices)
}

/// Lists the GPUs that the file of `name` lists by UUID, with their devices. Those that do not resolve are left out.
fn list_gpus_with_uuid(tree: &Tree, catalog: &Catalog, name: &str) -> Vec<(Uuid, Vec<Device>)> {
    let mut gpus = Vec::new();
    for sibling in cdi::list_siblings(catalog, name, |device| parse_uuid(device).is_some()) {
        let uuid = nvidia_device_name(&sibling).and_then(parse_uuid);
        let devices = resolve_alone(tree, catalog, &sibling);
        gpus.extend(uuid.zip(devices.ok()));
    }
    gpus
}

/// The name without the kind, if NVIDIA's own tools use this kind for GPUs: the toolkit's kind, or one of a
/// subdomain, such as the device plugin's. `None` for any other kind.
fn nvidia_device_name(name: &str) -> Option<&str> {
    let (kind, device) = name.split_once('=')?;
    let subdomain = kind.strip_suffix(NVIDIA_KIND)?;
    (subdomain.is_empty() || subdomain.ends_with('.')).then_some(device)
}

/// Parses the address in the name that Intel's own tools give a GPU, such as `0000-00-02-0-0x56c0`; `None` for any
/// other name.
fn parse_intel_address(name: &str) -> Option<PciAddress> {
    let parts: Vec<&str> = name
        .strip_prefix(INTEL_KIND)?
        .strip_prefix('=')?
        .split('-')
        .collect();
    let [domain, bus, device, function, ..] = *parts.as_slice() else {
        return None;
    };
    format!("{domain}:{bus}:{device}.{function}").parse().ok()
}

/// Parses the UUID of a GPU; `None` for any other name.
fn parse_uuid(device: &str) -> Option<Uuid> {
    match device.parse() {
        Ok(GpuName::Uuid(uuid)) => Some(uuid),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
