//! From names to the numbers that they have on this node.

mod confirm;
mod error;

use std::cell::OnceCell;

use super::cdi::{self, Catalog};
use super::{
    CdiError, CdiFault, Found, GpuName, Named, Settings, Specifier, Tree, directory, gres, nvidia,
    specifier, topology,
};

pub use error::{ResolveError, Unresolved};

/// The kind of NVIDIA's GPUs in the specifications that its own tools write.
const NVIDIA_KIND: &str = "nvidia.com/gpu";

/// Looks names up on one node, as its site says. The directories of specifications are read once.
#[derive(Debug)]
pub struct Resolver {
    tree: Tree,
    settings: Settings,
    catalog: OnceCell<Result<Catalog, CdiFault>>,
}

impl Resolver {
    /// A resolver over the files of `tree`.
    #[must_use]
    pub fn new(tree: Tree, settings: Settings) -> Self {
        Self { tree, settings, catalog: OnceCell::new() }
    }

    /// The files that names are looked up in.
    #[must_use]
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// What the site says about where they are looked up.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The devices that a specifier stands for: at least one, but for a preset, which may find none.
    ///
    /// # Errors
    /// [`ResolveError`] where this node has no such device.
    pub fn specifier(&self, specifier: &Specifier) -> Result<Found, ResolveError> {
        specifier::resolve(&self.tree, specifier)
    }

    /// The devices that these names stand for together. CDI names are looked up in one go, so that
    /// what a specification says for all its devices counts once.
    ///
    /// # Errors
    /// [`Unresolved`]: the first name that stands for nothing. There is no list of the others then.
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
            let failed = |why: ResolveError| Unresolved { name: name.to_string(), why };
            let tree = &self.tree;
            let own = match name {
                Named::Cdi(name) => {
                    cdi.push(name.clone());
                    continue;
                }
                Named::Dir(path) => {
                    let entries = directory::read(tree, path);
                    let entries =
                        entries.map_err(|error| failed(ResolveError::Directory(error)))?;
                    // No entry of a directory is another directory.
                    self.collect(&entries, found, cdi)?;
                    continue;
                }
                Named::Gpu(gpu) => {
                    gpu.parse().map_err(ResolveError::GpuName).and_then(|gpu| self.gpu(&gpu))
                }
                Named::AllGpus => self.all_gpus(),
                Named::Imex(channel) => nvidia::imex(tree, *channel).map_err(Into::into),
                Named::Gres { name, index } => self.gres(name, *index),
            };
            found.extend(own.map_err(failed)?);
        }
        Ok(())
    }

    fn gres(&self, name: &str, index: u32) -> Result<Found, ResolveError> {
        let mut found = gres::resolve(&self.tree, &self.settings, name, index)?;
        let companions = topology::companions(&self.tree, &found.devices)?;
        found.extend(companions);
        Ok(found)
    }

    /// One GPU is the same devices whatever it is called, so that every name that can be led to an
    /// address is.
    fn gpu(&self, name: &GpuName) -> Result<Found, ResolveError> {
        match name {
            GpuName::Index(index) => Ok(topology::by_index(&self.tree, *index)?),
            GpuName::Pci(address) => Ok(topology::by_address(&self.tree, *address)?),
            GpuName::Uuid(uuid) => {
                let gpus = nvidia::gpus(&self.tree)?;
                if let Some(gpu) = gpus.iter().find(|gpu| gpu.uuid.as_ref() == Some(uuid)) {
                    return Ok(topology::by_address(&self.tree, gpu.address)?);
                }
                // A driver that has not initialised its GPUs does not know their UUIDs yet.
                let silent = gpus.iter().filter(|gpu| gpu.uuid.is_none()).count();
                let found = self.by_specification(name).map_err(|why| match why {
                    ResolveError::Cdi(error) => ResolveError::UnknownGpu { silent, error },
                    why => why,
                })?;
                match nvidia::only_gpu(&gpus, &found.devices) {
                    Some(gpu) => Ok(topology::by_address(&self.tree, gpu.address)?),
                    None => Ok(found),
                }
            }
            GpuName::Instance { gpu, gi, ci } => Ok(nvidia::instance(&self.tree, gpu, *gi, *ci)?),
            // Which instance it is, only a specification tells without the vendor's library.
            GpuName::Mig(_) => self.by_specification(name).map_err(|why| match why {
                ResolveError::Cdi(error) => ResolveError::Mig(error),
                why => why,
            }),
        }
    }

    fn by_specification(&self, name: impl std::fmt::Display) -> Result<Found, ResolveError> {
        self.cdi(&[format!("{NVIDIA_KIND}={name}")]).map_err(|error| error.why)
    }

    /// Each GPU that the node has now, by its own numbers.
    fn all_gpus(&self) -> Result<Found, ResolveError> {
        let gpus = nvidia::gpus(&self.tree)?;
        if gpus.is_empty() {
            return self.by_specification("all");
        }
        let mut found = Found::default();
        for gpu in gpus {
            found.extend(topology::by_address(&self.tree, gpu.address)?);
        }
        Ok(found)
    }

    /// What specifications say.
    fn cdi(&self, names: &[String]) -> Result<Found, Unresolved> {
        let Some(first) = names.first() else { return Ok(Found::default()) };
        let read = || Catalog::read(&self.tree, &self.settings.cdi_dirs);
        let catalog = self.catalog.get_or_init(read).as_ref();
        let catalog = catalog.map_err(|fault| CdiError::new(first, fault.clone()))?;
        let found = cdi::resolve(&self.tree, catalog, names)?;
        for name in names {
            confirm::confirm(&self.tree, catalog, name)?;
        }
        Ok(found)
    }
}

impl From<CdiError> for Unresolved {
    fn from(error: CdiError) -> Self {
        Self { name: error.name.clone(), why: error.into() }
    }
}

#[cfg(test)]
mod tests;
