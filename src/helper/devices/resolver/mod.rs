//! From names to the numbers that they have on this node.

mod confirm;

use std::cell::OnceCell;
use std::path::PathBuf;

use super::cdi::{self, Catalog};
use super::{
    DeviceError, Found, GpuName, Named, Specifier, Tree, Unresolved, directory, gres, nvidia,
    specifier, topology,
};

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
            confirm::confirm(&self.tree, catalog, name).map_err(failed)?;
        }
        Ok(found)
    }

    fn catalog(&self) -> Result<&Catalog, DeviceError> {
        let read = || Catalog::read(&self.tree, &self.settings.cdi_dirs);
        self.catalog.get_or_init(read).as_ref().map_err(Clone::clone)
    }
}

#[cfg(test)]
mod tests;
