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
        let mut found = Found::default();
        let mut cdi = Vec::new();
        for name in self.listed(names)? {
            match name {
                Named::Cdi(name) => cdi.push(name),
                name => found.extend(
                    self.one(&name).map_err(|why| Unresolved { name: name.to_string(), why })?,
                ),
            }
        }
        found.extend(self.cdi(&cdi)?);
        Ok(found)
    }

    /// The names, with what directories list in their place.
    fn listed(&self, names: &[Named]) -> Result<Vec<Named>, Unresolved> {
        let mut all = Vec::new();
        for name in names {
            let Named::Dir(path) = name else {
                all.push(name.clone());
                continue;
            };
            let entries = directory::read(&self.tree, path);
            all.extend(entries.map_err(|error| Unresolved {
                name: name.to_string(),
                why: ResolveError::Directory(error),
            })?);
        }
        Ok(all)
    }

    fn one(&self, name: &Named) -> Result<Found, ResolveError> {
        match name {
            Named::Gpu(name) => self.gpu(&name.parse().map_err(ResolveError::GpuName)?),
            Named::AllGpus => self.all_gpus(),
            Named::Imex(channel) => Ok(nvidia::imex(&self.tree, *channel)?),
            Named::Gres { name, index } => {
                let mut found = gres::resolve(&self.tree, &self.settings, name, *index)?;
                let companions = topology::companions(&self.tree, &found.devices)?;
                found.extend(companions);
                Ok(found)
            }
            Named::Cdi(name) => self.cdi(std::slice::from_ref(name)).map_err(|error| error.why),
            Named::Dir(_) => self.named(std::slice::from_ref(name)).map_err(|error| error.why),
        }
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
                let found = self.by_specification(name).map_err(|why| match why {
                    ResolveError::Cdi(error) => ResolveError::UnknownGpu(error),
                    why => why,
                })?;
                match nvidia::only_gpu(&gpus, &found.devices) {
                    Some(gpu) => Ok(topology::by_address(&self.tree, gpu.address)?),
                    None => Ok(found),
                }
            }
            GpuName::Instance { gpu, gi, ci } => Ok(nvidia::instance(&self.tree, gpu, *gi, *ci)?),
            // Which instance it is, only a specification tells without the vendor's library.
            GpuName::Mig(_) => self.by_specification(name),
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

    /// What specifications say, and of variables and groups what the site lets through.
    fn cdi(&self, names: &[String]) -> Result<Found, Unresolved> {
        let Some(first) = names.first() else { return Ok(Found::default()) };
        let read = || Catalog::read(&self.tree, &self.settings.cdi_dirs);
        let catalog = self.catalog.get_or_init(read).as_ref();
        let catalog = catalog.map_err(|fault| CdiError::new(first, fault.clone()))?;
        let mut found = cdi::resolve(&self.tree, catalog, names)?;
        for name in names {
            confirm::confirm(&self.tree, catalog, name)?;
        }
        found.env.retain(|(name, _)| self.settings.cdi_env.contains(name));
        found.gids.retain(|gid| self.settings.cdi_gids.contains(gid));
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
