//! Names of devices beside specifiers: each in a key of its own of a record, and each of them has
//! to resolve.

use std::fmt;
use std::path::PathBuf;

use super::GpuName;

/// A device or a set of devices that a job was given by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Named {
    /// A CDI device, `VENDOR/CLASS=NAME`; not looked at yet.
    Cdi(String),
    /// A GPU; not looked at yet.
    Gpu(String),
    /// All GPUs of NVIDIA's on the node.
    AllGpus,
    /// A channel between the nodes of an NVLink domain (IMEX), by its number.
    Imex(u32),
    /// A generic resource of Slurm's by the name and the index that `gres.conf` gives it.
    Gres {
        /// `NAME` or `NAME:TYPE`.
        name: String,
        /// Index among the files of that name on the node, from 0.
        index: u32,
    },
    /// What a directory lists by the names of its files.
    Dir(PathBuf),
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cdi(name) => f.write_str(name),
            Self::Gpu(name) if name.parse::<u32>().is_ok() => write!(f, "GPU {name}"),
            Self::Gpu(name) => f.write_str(name),
            Self::AllGpus => f.write_str("all GPUs"),
            Self::Imex(channel) => write!(f, "imex/{channel}"),
            Self::Gres { name, index } => write!(f, "{name}:{index}"),
            Self::Dir(path) => write!(f, "{}", path.display()),
        }
    }
}

impl Named {
    /// The GPU of this name, for a caller that has it already.
    #[must_use]
    pub fn gpu(name: &GpuName) -> Self {
        Self::Gpu(name.to_string())
    }
}
