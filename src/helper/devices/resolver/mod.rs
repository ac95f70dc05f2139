//! From names to the numbers that they have on this node.

use super::cdi::{self, Catalog};
use super::nvidia::Gpu;
use super::{
    DeviceError, Found, GpuName, Named, Specifier, Tree, Unresolved, directory, gres, nvidia,
    specifier, topology,
};
use crate::helper::devices::gpu_name::{PciAddress, Uuid};
use std::cell::OnceCell;
use std::path::PathBuf;

/// The kind of NVIDIA's GPUs in the specifications that its own tools write.
const NVIDIA_KIND: &str = "nvidia.com/gpu";

/// Where names are looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Directories of CDI specifications, the last one first in precedence.
    pub cdi_dirs: Vec<PathBuf>,
    /// Slurm's configuration, beside which `gres.conf` lies; where Slurm looks for it unless given.
    pub slurm_conf: Option<PathBuf>,
    /// The node's name in `gres.conf`; the host's name, in full or up to its
    /// first dot, unless given.
    pub node_name: Option<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            cdi_dirs: vec![PathBuf::from("/etc/cdi"), PathBuf::from("/run/cdi")],
            slurm_conf: None,
            node_name: None,
        }
    }
}

/// Looks names up on one node, as its site says. The directories of specifications are read once.
#[derive(Debug)]
pub struct Resolver {
    /// The files that names are looked up in.
    pub tree: Tree,
    /// What the site says about where they are looked up.
    pub settings: Settings,
    catalog: OnceCell<Result<Catalog, DeviceError>>,
}

impl Resolver {
    /// A resolver over the files of `tree`.
    pub fn new(tree: Tree, settings: Settings) -> Self {
        Self { tree, settings, catalog: OnceCell::new() }
    }

    /// The devices that a specifier stands for: at least one, but for a preset, which may find none.
    /// Fails: this node has no such device.
    pub fn specifier(&self, specifier: &Specifier) -> Result<Found, DeviceError> {
        specifier::resolve(&self.tree, specifier)
    }

    /// The devices that these names stand for together. CDI names are looked up in one go, so that
    /// what a specification says for all its devices counts once.
    /// Fails: [`Unresolved`]: the first name that stands for nothing. There is no list of the
    /// others then.
    pub fn named(&self, names: &[Named]) -> Result<Found, Unresolved> {
        let (mut found, mut cdi) = (Found::default(), Vec::new());
        self.collect(names, &mut found, &mut cdi)?;
        found.extend(self.cdi(&cdi)?);
        Ok(found)
    }

    /// Adds what names stand for, but for CDI names, which are put aside.
    fn collect(
        &self,
        names: &[Named],
        found: &mut Found,
        cdi: &mut Vec<String>,
    ) -> Result<(), Unresolved> {
        for name in names {
            let failed = |why| Unresolved { name: name.to_string(), why };
            let tree = &self.tree;
            let own = match name {
                Named::Cdi(name) => {
                    cdi.push(name.clone());
                    continue;
                }
                Named::Dir(path) => {
                    let entries = directory::read(tree, path).map_err(failed)?;
                    // No entry of a directory is another directory.
                    self.collect(&entries, found, cdi)?;
                    continue;
                }
                Named::Gpu(gpu) => {
                    gpu.parse().map_err(DeviceError::from).and_then(|gpu| self.gpu(&gpu))
                }
                Named::AllGpus => self.all_gpus(),
                Named::Imex(channel) => nvidia::imex(tree, *channel),
                Named::Gres { name, index } => self.gres(name, *index),
            };
            found.extend(own.map_err(failed)?);
        }
        Ok(())
    }

    fn gres(&self, name: &str, index: u32) -> Result<Found, DeviceError> {
        let mut found = gres::resolve(&self.tree, &self.settings, name, index)?;
        let companions = topology::companions(&self.tree, &found.devices)?;
        found.extend(companions);
        Ok(found)
    }

    /// One GPU is the same devices whatever it is called, so that every name that can be led to an
    /// address is.
    fn gpu(&self, name: &GpuName) -> Result<Found, DeviceError> {
        match name {
            GpuName::Index(_) if nvidia::is_tegra(&self.tree)? => {
                let alone = "the GPU of a Tegra processor has no PCI address and is found by CDI \
                             alone";
                self.by_specification(name, Some(alone))
            }
            GpuName::Index(index) => topology::by_index(&self.tree, *index),
            GpuName::Pci(address) => topology::by_address(&self.tree, *address),
            GpuName::Uuid(uuid) => {
                let gpus = nvidia::gpus(&self.tree)?;
                let why = match nvidia::by_uuid(&gpus, uuid) {
                    Ok(gpu) => return topology::by_address(&self.tree, gpu.address),
                    Err(why) => format!("{why}, and by CDI"),
                };
                let found = self.by_specification(name, Some(&why))?;
                match nvidia::only_gpu(&gpus, &found.devices) {
                    Some(gpu) => topology::by_address(&self.tree, gpu.address),
                    None => Ok(found),
                }
            }
            GpuName::Instance { gpu, gi, ci } => nvidia::instance(&self.tree, gpu, *gi, *ci),
            // Which instance it is, only a specification tells without the vendor's library.
            GpuName::Mig(_) => {
                let alone = "found by CDI alone (MIG-GPU-UUID/GI/CI is found without)";
                self.by_specification(name, Some(alone))
            }
        }
    }

    /// What specifications say of one of NVIDIA's GPUs. Where they have none, the error begins with
    /// `unknown`.
    fn by_specification(
        &self,
        name: impl std::fmt::Display,
        unknown: Option<&str>,
    ) -> Result<Found, DeviceError> {
        let names = [format!("{NVIDIA_KIND}={name}")];
        let found = self.specified(&names).map_err(|error| match unknown {
            Some(unknown) => DeviceError::at(unknown, error.why),
            None => error.why,
        })?;
        self.confirmed(found, &names).map_err(|error| error.why)
    }

    /// Each GPU that the node has now, by its own numbers.
    fn all_gpus(&self) -> Result<Found, DeviceError> {
        let gpus = nvidia::gpus(&self.tree)?;
        if gpus.is_empty() || nvidia::is_tegra(&self.tree)? {
            return self.by_specification("all", None);
        }
        let mut found = Found::default();
        for gpu in gpus {
            found.extend(topology::by_address(&self.tree, gpu.address)?);
        }
        Ok(found)
    }

    /// What specifications say, where that is so.
    fn cdi(&self, names: &[String]) -> Result<Found, Unresolved> {
        self.confirmed(self.specified(names)?, names)
    }

    fn specified(&self, names: &[String]) -> Result<Found, Unresolved> {
        let Some(first) = names.first() else { return Ok(Found::default()) };
        let failed = |why| Unresolved { name: first.clone(), why };
        cdi::resolve(&self.tree, self.catalog().map_err(failed)?, names)
    }

    /// What was found, after its names were held against the drivers.
    fn confirmed(&self, found: Found, names: &[String]) -> Result<Found, Unresolved> {
        for name in names {
            let failed = |why| Unresolved { name: name.clone(), why };
            let catalog = self.catalog().map_err(failed)?;
            confirm(&self.tree, catalog, name).map_err(failed)?;
        }
        Ok(found)
    }

    fn catalog(&self) -> Result<&Catalog, DeviceError> {
        let read = || Catalog::read(&self.tree, &self.settings.cdi_dirs);
        self.catalog.get_or_init(read).as_ref().map_err(Clone::clone)
    }
}

/// The kind of Intel's GPUs in the specifications that its own tools write.
const INTEL_KIND: &str = "intel.com/gpu";

/// Holds the device of this name against the driver. Where it is one GPU or a part of one under a
/// name that the driver does not know, as an index, what its file says of that GPU's UUID has to be
/// so. A GPU of Intel's has its address in its name.
/// Fails: the specification and a driver disagree.
pub(super) fn confirm(tree: &Tree, catalog: &Catalog, name: &String) -> Result<(), DeviceError> {
    let resolved = || {
        let names = std::slice::from_ref(name);
        cdi::resolve(tree, catalog, names).map_err(|error| error.why)
    };
    if let Some(address) = intel(name) {
        let own = resolved()?;
        return topology::confirm_drm(tree, &[address], &own.devices);
    }
    let Some(device) = device(name) else { return Ok(()) };
    let own = resolved()?;
    if uuid(device).is_none() && nvidia::minors(&own.devices).is_empty() {
        return Ok(());
    }
    let gpus = nvidia::gpus(tree)?;
    if let Some(uuid) = uuid(device) {
        nvidia::confirm(&gpus, &uuid, &own.devices)?;
    } else if let [minor] = nvidia::minors(&own.devices).as_slice() {
        for (uuid, said) in known(tree, catalog, name) {
            let is = |gpu: &Gpu| gpu.minor == *minor && gpu.uuid.as_ref() == Some(&uuid);
            if nvidia::minors(&said.devices).contains(minor) || gpus.iter().any(is) {
                nvidia::confirm(&gpus, &uuid, &said.devices)?;
            }
        }
    }
    drm(tree, &gpus, &own)
}

/// The GPUs that the file of `name` names by their UUIDs, with what it says of them.
fn known(tree: &Tree, catalog: &Catalog, name: &str) -> Vec<(Uuid, Found)> {
    let gpu = |name: String| {
        let uuid = device(&name).and_then(uuid)?;
        let found = cdi::resolve(tree, catalog, &[name]).ok()?;
        Some((uuid, found))
    };
    let gpus = |device: &str| uuid(device).is_some();
    cdi::siblings(catalog, name, gpus).into_iter().filter_map(gpu).collect()
}

/// DRM nodes that come with the nodes of GPUs have to be of the same GPUs.
fn drm(tree: &Tree, gpus: &[Gpu], own: &Found) -> Result<(), DeviceError> {
    let minors = nvidia::minors(&own.devices);
    let mine = gpus.iter().filter(|gpu| minors.contains(&gpu.minor)).map(|gpu| gpu.address);
    let addresses: Vec<_> = mine.collect();
    match addresses.is_empty() {
        true => Ok(()),
        false => topology::confirm_drm(tree, &addresses, &own.devices),
    }
}

/// The name without the kind, if that is one that NVIDIA's own tools give the GPUs: that of the
/// toolkit, or one of its sub-domains, as of the device plugin.
fn device(name: &str) -> Option<&str> {
    let (kind, device) = name.split_once('=')?;
    let before = kind.strip_suffix(NVIDIA_KIND)?;
    (before.is_empty() || before.ends_with('.')).then_some(device)
}

/// The address in the name that Intel's own tools give a GPU, as `0000-00-02-0-0x56c0`.
fn intel(name: &str) -> Option<PciAddress> {
    let mut parts = name.strip_prefix(INTEL_KIND)?.strip_prefix('=')?.splitn(5, '-');
    let mut part = || parts.next();
    let (domain, bus, device, function) = (part()?, part()?, part()?, part()?);
    format!("{domain}:{bus}:{device}.{function}").parse().ok()
}

fn uuid(device: &str) -> Option<Uuid> {
    match device.parse() {
        Ok(GpuName::Uuid(uuid)) => Some(uuid),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
