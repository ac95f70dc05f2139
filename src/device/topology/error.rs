//! Why there is no such GPU.

use std::fmt;

use crate::device::gpu_name::PciAddress;
use crate::device::{FileError, Misfit, Node, NodeError, NvidiaError};
use crate::plan::Invalid;

/// Why there is no such GPU, or why it cannot be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TopologyError {
    /// The node has fewer GPUs.
    NoIndex {
        /// How many it has.
        count: usize,
    },
    /// There is nothing at the PCI address.
    NoFunction(PciAddress),
    /// No driver is bound to the function.
    NoDriver(PciAddress),
    /// NVIDIA's driver is bound to the function, and does not list it or excludes it.
    Unlisted(PciAddress),
    /// The function is set aside for virtual machines.
    Lent {
        /// Its address.
        address: PciAddress,
        /// The `vfio` driver.
        driver: String,
    },
    /// The function is no GPU, by what its driver makes of it.
    NoGpu {
        /// Its address.
        address: PciAddress,
        /// Its driver.
        driver: String,
    },
    /// NVIDIA's driver lists a GPU that sysfs does not have as one of its own.
    Stray(PciAddress),
    /// The kernel has a GPU there, and `/dev` no node to compute by.
    NoNode(PciAddress),
    /// A node that the GPU cannot be used without is not there, or no node can be told there.
    Node {
        /// Its path.
        path: String,
        /// Why.
        why: NodeError,
    },
    /// A node has other numbers than the kernel tells of the device.
    Elsewhere {
        /// Its path.
        path: String,
        /// What the path leads to.
        node: Node,
        /// The kernel's `MAJOR:MINOR`.
        numbers: String,
    },
    /// A specification lists a DRM node with a GPU that it is none of.
    Foreign {
        /// Its path.
        path: String,
        /// The GPU, or the first of several.
        address: PciAddress,
    },
    /// A node that no job gets as a GPU.
    Misfit(Misfit),
    /// Numbers that the kernel does not have.
    Number {
        /// The node's path.
        path: String,
        /// Which.
        why: Invalid,
    },
    /// A directory of sysfs has more entries than any node.
    TooMany {
        /// The directory.
        path: String,
        /// Most entries.
        most: usize,
    },
    /// An entry of sysfs is not named by a PCI address.
    Name(String),
    /// A line of KFD's properties is missing or no number.
    Property {
        /// The file.
        path: String,
        /// Key of the line.
        key: &'static str,
    },
    /// Two GPUs of KFD have the same render node.
    Twice {
        /// The file of the second.
        path: String,
        /// Minor of the render node.
        render: u32,
    },
    /// A file cannot be read.
    File(FileError),
    /// By NVIDIA's driver.
    Nvidia(NvidiaError),
}

impl From<FileError> for TopologyError {
    fn from(error: FileError) -> Self {
        Self::File(error)
    }
}

impl From<Misfit> for TopologyError {
    fn from(error: Misfit) -> Self {
        Self::Misfit(error)
    }
}

impl From<NvidiaError> for TopologyError {
    fn from(error: NvidiaError) -> Self {
        Self::Nvidia(error)
    }
}

impl fmt::Display for TopologyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoIndex { count: 0 } => f.write_str("the node has no GPUs"),
            Self::NoIndex { count: 1 } => f.write_str("the node has one GPU, number 0"),
            Self::NoIndex { count } => {
                write!(f, "the node has {count} GPUs, numbers 0 to {}", count - 1)
            }
            Self::NoFunction(address) => write!(f, "no PCI function at {address}"),
            Self::NoDriver(address) => write!(f, "no driver is bound to {address}"),
            Self::Unlisted(address) => {
                write!(f, "NVIDIA's driver does not list {address} as a GPU, or excludes it")
            }
            Self::Lent { address, driver } => {
                write!(f, "{address} is bound to {driver}, for virtual machines")
            }
            Self::NoGpu { address, driver } => {
                write!(f, "{address} is no GPU: its driver {driver} gives it no render node")
            }
            Self::Stray(address) => {
                write!(f, "NVIDIA's driver lists {address}, which is not bound to it in sysfs")
            }
            Self::NoNode(address) => {
                write!(f, "{address} has no node in /dev to compute by")
            }
            Self::Node { path, why } => write!(f, "{path}: {why}"),
            Self::Elsewhere { path, node, numbers } => {
                write!(f, "{path} is {node}, and the kernel's device c {numbers}")
            }
            Self::Foreign { path, address } => write!(
                f,
                "the specification lists {path}, which is not of the GPU at {address}: generate \
                 the specification anew"
            ),
            Self::Misfit(error) => error.fmt(f),
            Self::Number { path, why } => write!(f, "{path}: {why}"),
            Self::TooMany { path, most } => write!(f, "{path}: more than {most} entries"),
            Self::Name(path) => write!(f, "{path}: not named by a PCI address"),
            Self::Property { path, key } => write!(f, "{path}: no number for {key}"),
            Self::Twice { path, render } => {
                write!(f, "{path}: another GPU has the render node {render} too")
            }
            Self::File(error) => error.fmt(f),
            Self::Nvidia(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for TopologyError {}
