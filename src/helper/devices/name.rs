//! The names of devices that the keys of a record contain beside specifiers. Each of them must resolve.

use std::fmt;
use std::path::PathBuf;

/// The name of a device or of a set of devices that a job was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceName {
    /// A CDI device, `VENDOR/CLASS=NAME`, not parsed yet.
    Cdi(String),
    /// A GPU, not parsed yet.
    Gpu(String),
    /// All NVIDIA GPUs of the node.
    AllGpus,
    /// A channel between the nodes of an NVLink domain (IMEX), by its number.
    Imex(u32),
    /// A generic resource of Slurm by the name and the index that `gres.conf` gives it.
    Gres {
        /// `NAME` or `NAME:TYPE`.
        name: String,
        /// Index among the files of that name on the node, from 0.
        index: u32,
    },
    /// The devices that a directory lists by the names of its files.
    Dir(PathBuf),
}

impl fmt::Display for DeviceName {
    /// Writes the name for errors. The number of a GPU has `GPU` before it, since it would say nothing alone.
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
