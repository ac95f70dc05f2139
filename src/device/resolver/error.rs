//! Why names stand for nothing.

use std::fmt;

use crate::device::{
    CdiError, DirectoryError, FileError, GpuNameError, GresError, NodeError, NvidiaError,
    TopologyError,
};
use crate::plan::Invalid;

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
    Number(Invalid),
    /// No GPU has such a name.
    GpuName(GpuNameError),
    /// By the CDI specifications.
    Cdi(CdiError),
    /// NVIDIA's driver has no GPU of this UUID, and no specification tells of one either.
    UnknownGpu {
        /// Number of GPUs of which the driver does not know the UUID.
        silent: usize,
        /// By the specifications.
        error: CdiError,
    },
    /// A MIG instance by its own UUID, which specifications alone tell.
    Mig(CdiError),
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
            Self::UnknownGpu { silent: 0, error } => {
                write!(f, "NVIDIA's driver knows no such GPU, and by CDI: {error}")
            }
            Self::UnknownGpu { silent, error } => write!(
                f,
                "of {silent} of its GPUs NVIDIA's driver does not know the UUID yet \
                 (nvidia-persistenced keeps them initialised), and by CDI: {error}"
            ),
            Self::Mig(error) => {
                write!(f, "found by CDI alone (MIG-GPU-UUID/GI/CI is found without): {error}")
            }
            Self::Nvidia(error) => error.fmt(f),
            Self::Topology(error) => error.fmt(f),
            Self::Gres(error) => error.fmt(f),
            Self::Directory(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ResolveError {}
