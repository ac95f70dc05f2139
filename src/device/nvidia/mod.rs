//! NVIDIA's GPUs by the files of its driver below `/proc` and `/dev`; its libraries are not asked.
//!
//! Most majors are given out as the driver loads, and a node may be made long after that, by a tool
//! that runs at the first use: `/proc/devices` is where the numbers come from, and a node that is
//! there has to agree. Nothing says how a job uses its GPUs, so each comes with what any process
//! computing on it opens (`nvidiactl`, `nvidia-uvm`, `nvidia-uvm-tools`), not with
//! `nvidia-modeset`, which is for displays, and never with what manages the node.

mod information;
mod mig;
mod node;

use std::fmt;

use nix::errno::Errno;

use crate::device::gpu_name::{PciAddress, Uuid};
use crate::device::{FileError, Misfit, Node, NodeError};
use crate::plan::Invalid;

pub use information::{Gpu, confirm, gpus, minors, only_gpu};
pub use mig::instance;
pub(super) use mig::{capability_name, is_instance};
pub(super) use node::unborn_warning;
pub use node::{imex, node, shared, unborn_node};

/// The driver of the capabilities.
pub(super) const CAPS: &str = "nvidia-caps";

/// Why there is no such GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NvidiaError {
    /// A file of the driver cannot be read.
    File(FileError),
    /// A node is not a job's.
    Misfit(Misfit),
    /// The numbers are beyond what the kernel has.
    Number(Invalid),
    /// There is no node.
    Node {
        /// Its path.
        path: String,
        /// What is there.
        why: NodeError,
    },
    /// A node has other numbers than the driver gives it.
    Stale {
        /// Its path.
        path: String,
        /// The numbers that it has.
        there: Node,
        /// The numbers by `/proc/devices`.
        promised: Node,
    },
    /// A file of the driver says nothing sensible.
    Odd {
        /// The file.
        path: String,
        /// What is wrong.
        what: &'static str,
    },
    /// A directory of the driver has too many entries.
    Crowded {
        /// The directory.
        path: &'static str,
        /// Most entries.
        most: usize,
    },
    /// Two GPUs go by one name.
    Twins {
        /// One of them.
        first: PciAddress,
        /// The other.
        second: PciAddress,
        /// What they share.
        what: String,
    },
    /// The driver knows no GPU of this UUID.
    NoUuid {
        /// The UUID.
        uuid: Uuid,
        /// Number of GPUs of which the driver does not know the UUID.
        silent: usize,
    },
    /// A specification gives the GPU of this UUID the node of another one.
    Other {
        /// The UUID.
        uuid: Uuid,
        /// Its minor, as the driver says.
        minor: u32,
        /// The minor of the node in the specification.
        other: u32,
    },
    /// A specification gives the GPU of this UUID a node that is another one's.
    Taken {
        /// The UUID.
        uuid: Uuid,
        /// The minor of the node.
        minor: u32,
        /// The UUID of the GPU that has it.
        of: Uuid,
    },
    /// The MIG instance does not exist now.
    NoInstance {
        /// The file that it would have.
        path: String,
    },
    /// The driver's files tell two minors for one capability.
    Disagree {
        /// The file of the instance.
        path: String,
        /// The minor in it.
        minor: u32,
        /// The minor in the list of all.
        listed: Option<u32>,
    },
    /// A driver is not in `/proc/devices`.
    NotLoaded(&'static str),
    /// A driver is in `/proc/devices` with several majors.
    Majors(&'static str),
    /// There is no IMEX channel of this number.
    Channel(u32),
}

impl NvidiaError {
    fn node(path: &str, why: NodeError) -> Self {
        Self::Node { path: path.to_owned(), why }
    }
}

impl From<FileError> for NvidiaError {
    fn from(error: FileError) -> Self {
        Self::File(error)
    }
}

impl From<Misfit> for NvidiaError {
    fn from(error: Misfit) -> Self {
        Self::Misfit(error)
    }
}

impl From<Invalid> for NvidiaError {
    fn from(error: Invalid) -> Self {
        Self::Number(error)
    }
}

impl fmt::Display for NvidiaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(error) => error.fmt(f),
            Self::Misfit(error) => error.fmt(f),
            Self::Number(error) => error.fmt(f),
            Self::Node { path, why: why @ NodeError::Open(Errno::ENOENT) } => {
                write!(f, "{path}: {why}; let nvidia-modprobe make it at boot")
            }
            Self::Node { path, why } => write!(f, "{path}: {why}"),
            Self::Stale { path, there, promised } => write!(
                f,
                "{path} is {there}, but by /proc/devices it has to be {promised}: made when an \
                 older driver was loaded"
            ),
            Self::Odd { path, what } => write!(f, "{path}: {what}"),
            Self::Crowded { path, most } => write!(f, "{path}: more than {most} entries"),
            Self::Twins { first, second, what } => {
                write!(f, "GPUs {first} and {second} both have {what}")
            }
            Self::NoUuid { uuid, silent: 0 } => write!(f, "the driver has no GPU-{uuid}"),
            Self::NoUuid { uuid, silent } => write!(
                f,
                "the driver has no GPU-{uuid}; of {silent} of its GPUs it does not know the UUID \
                 yet: nvidia-persistenced keeps them initialised"
            ),
            Self::Other { uuid, minor, other } => write!(
                f,
                "the specification says /dev/nvidia{other}, but GPU-{uuid} is /dev/nvidia{minor}: \
                 generate the specification anew"
            ),
            Self::Taken { uuid, minor, of } => write!(
                f,
                "the specification says that GPU-{uuid} is /dev/nvidia{minor}, but that is \
                 GPU-{of}: generate the specification anew"
            ),
            Self::NoInstance { path } => {
                write!(f, "no such MIG instance exists now ({path} is not there)")
            }
            Self::Disagree { path, minor, listed: None } => {
                write!(f, "{path} has minor {minor}, but mig-minors does not list it")
            }
            Self::Disagree { path, minor, listed: Some(listed) } => {
                write!(f, "{path} has minor {minor}, but mig-minors has {listed}")
            }
            Self::NotLoaded(driver) => {
                write!(
                    f,
                    "no driver {driver} in /proc/devices; load it before the job is registered"
                )
            }
            Self::Majors(driver) => {
                write!(f, "driver {driver} has several majors in /proc/devices")
            }
            Self::Channel(channel) => {
                write!(f, "no IMEX channel {channel}: there is no such node, and 2047 is the last")
            }
        }
    }
}

impl std::error::Error for NvidiaError {}

#[cfg(test)]
pub(super) mod tests;
