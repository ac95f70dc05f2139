//! From names to the numbers that they have on this node.

use std::fmt;
use std::path::Path;

use super::{
    CdiError, DirectoryError, FileError, Found, GpuName, GpuNameError, GresError, Named, NodeError,
    NvidiaError, Settings, Specifier, TopologyError, Tree, cdi, directory, gres, nvidia, specifier,
    topology,
};
use crate::plan::RuleError;

/// The kind of NVIDIA's GPUs in the specifications that its own tools write.
const NVIDIA_KIND: &str = "nvidia.com/gpu";

/// Looks names up on one node, as its site says.
#[derive(Debug)]
pub struct Resolver {
    tree: Tree,
    settings: Settings,
}

impl Resolver {
    /// A resolver over the files of `tree`.
    #[must_use]
    pub fn new(tree: Tree, settings: Settings) -> Self {
        Self { tree, settings }
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
        for name in &self.listed(names)? {
            let failed = |why| Unresolved { name: name.to_string(), why };
            match name {
                Named::Cdi(name) => cdi.push(name.clone()),
                name => found.extend(self.one(name).map_err(failed)?),
            }
        }
        if !cdi.is_empty() {
            let failed =
                |error: CdiError| Unresolved { name: error.name.clone(), why: error.into() };
            found.extend(self.cdi(&cdi).map_err(failed)?);
        }
        Ok(found)
    }

    /// The names, with what directories list in their place.
    fn listed(&self, names: &[Named]) -> Result<Vec<Named>, Unresolved> {
        let mut all = Vec::new();
        for name in names {
            match name {
                Named::Dir(path) => all.extend(self.directory(path).map_err(|why| Unresolved {
                    name: name.to_string(),
                    why: ResolveError::Directory(why),
                })?),
                other => all.push(other.clone()),
            }
        }
        Ok(all)
    }

    fn directory(&self, path: &Path) -> Result<Vec<Named>, DirectoryError> {
        directory::read(&self.tree, path)
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
            Named::Cdi(name) => Ok(self.cdi(std::slice::from_ref(name))?),
            Named::Dir(_) => Err(ResolveError::NoDriver),
        }
    }

    fn gpu(&self, name: &GpuName) -> Result<Found, ResolveError> {
        match name {
            GpuName::Index(index) => Ok(topology::by_index(&self.tree, *index)?),
            GpuName::Pci(address) => Ok(topology::by_address(&self.tree, *address)?),
            GpuName::Uuid(uuid) => {
                let gpus = nvidia::gpus(&self.tree)?;
                match gpus.iter().find(|gpu| gpu.uuid.as_ref() == Some(uuid)) {
                    Some(gpu) => Ok(topology::by_address(&self.tree, gpu.address)?),
                    // A driver that has not initialised its GPUs does not know their UUIDs yet.
                    None => Ok(self.cdi(&[format!("{NVIDIA_KIND}={name}")])?),
                }
            }
            GpuName::Instance { gpu, gi, ci } => Ok(nvidia::instance(&self.tree, gpu, *gi, *ci)?),
            // Which instance it is, only a specification tells without the vendor's library.
            GpuName::Mig(_) => Ok(self.cdi(&[format!("{NVIDIA_KIND}={name}")])?),
        }
    }

    fn all_gpus(&self) -> Result<Found, ResolveError> {
        let mut found = Found::default();
        for gpu in nvidia::gpus(&self.tree)? {
            found.extend(topology::by_address(&self.tree, gpu.address)?);
        }
        Ok(found)
    }

    /// What specifications say, and of variables and groups what the site lets through.
    fn cdi(&self, names: &[String]) -> Result<Found, CdiError> {
        let mut found = cdi::resolve(&self.tree, &self.settings.cdi_dirs, names)?;
        found.env.retain(|(name, _)| self.settings.cdi_env.contains(name));
        found.gids.retain(|gid| self.settings.cdi_gids.contains(gid));
        Ok(found)
    }
}

/// A name that had to resolve and does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unresolved {
    /// The name.
    pub name: String,
    /// Why it stands for nothing.
    pub why: ResolveError,
}

impl fmt::Display for Unresolved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.why)
    }
}

impl std::error::Error for Unresolved {}

/// Why a name stands for nothing on this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResolveError {
    /// There is no device node.
    Node(NodeError),
    /// A file of the node cannot be read.
    File(FileError),
    /// No driver has this name or this major.
    NoDriver,
    /// No device node is like this.
    NoMatch,
    /// Too many device nodes are like this.
    TooMany,
    /// The numbers are beyond what the kernel has.
    Number(RuleError),
    /// No GPU has such a name.
    GpuName(GpuNameError),
    /// By the CDI specifications.
    Cdi(CdiError),
    /// By NVIDIA's driver.
    Nvidia(NvidiaError),
    /// By the topology of the node.
    Topology(TopologyError),
    /// By Slurm's configuration.
    Gres(GresError),
    /// By the directory that lists devices.
    Directory(DirectoryError),
}

macro_rules! wrapped {
    ($($variant:ident($error:ty)),*) => {
        $(impl From<$error> for ResolveError {
            fn from(error: $error) -> Self {
                Self::$variant(error)
            }
        })*
    };
}

wrapped!(Cdi(CdiError), Nvidia(NvidiaError), Topology(TopologyError), Gres(GresError));

impl fmt::Display for ResolveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(error) => error.fmt(f),
            Self::File(error) => error.fmt(f),
            Self::NoDriver => f.write_str("not in /proc/devices"),
            Self::NoMatch => f.write_str("no device node matches"),
            Self::TooMany => f.write_str(
                "more than 1,024 device nodes match, or more than 65,536 names had to be looked at",
            ),
            Self::Number(error) => error.fmt(f),
            Self::GpuName(error) => error.fmt(f),
            Self::Cdi(error) => error.fmt(f),
            Self::Nvidia(error) => error.fmt(f),
            Self::Topology(error) => error.fmt(f),
            Self::Gres(error) => error.fmt(f),
            Self::Directory(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ResolveError {}
