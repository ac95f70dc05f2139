//! Why a generic resource stands for no device.

use std::fmt;
use std::path::PathBuf;

use nix::errno::Errno;

use super::HostListError;
use crate::device::slurm::{At, ConfError, LineFault};
use crate::device::{Misfit, NodeError, TopologyError};
use crate::plan::Invalid;

/// Why there is no such resource, or why its devices are not given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GresError {
    /// Slurm's configuration is not there, or cannot be read.
    Conf(ConfError),
    /// This line of the file is at fault.
    Line(PathBuf, usize, GresFault),
    /// The host's name cannot be asked for.
    HostName(Errno),
    /// Slurm finds the GPUs of this node itself, by this file.
    AutoDetect(PathBuf),
    /// The node has several types of it, of which Slurm takes the order from `slurm.conf`.
    Types {
        /// The file.
        path: PathBuf,
        /// Line of a record of another type than the one before it.
        line: usize,
    },
    /// The file gives this node nothing of this name.
    NoRecord {
        /// The file.
        path: PathBuf,
        /// Name of the resource.
        name: String,
        /// Name of the node.
        node: String,
    },
    /// The file gives this node fewer.
    Index {
        /// The file.
        path: PathBuf,
        /// Name of the resource.
        name: String,
        /// How many there are.
        count: u64,
    },
    /// The resource is of another type.
    Type {
        /// The file.
        path: PathBuf,
        /// Line of the record.
        line: usize,
        /// The type that it gives; empty without one.
        kind: String,
    },
    /// The resource is only counted.
    NoFile {
        /// The file.
        path: PathBuf,
        /// Line of the record.
        line: usize,
    },
    /// A file that a record names is no device node.
    Node(String, NodeError),
    /// A device node that no job gets.
    Misfit(Misfit),
    /// A device node whose numbers are beyond what the kernel has.
    Number(String, Invalid),
    /// The GPUs of the node cannot be told.
    Topology(TopologyError),
}

impl GresError {
    pub(super) fn line((at, fault): (At, GresFault)) -> Self {
        Self::Line(at.file.to_path_buf(), at.line, fault)
    }
}

impl From<ConfError> for GresError {
    fn from(error: ConfError) -> Self {
        Self::Conf(error)
    }
}

impl From<TopologyError> for GresError {
    fn from(error: TopologyError) -> Self {
        Self::Topology(error)
    }
}

impl fmt::Display for GresError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Conf(error) => error.fmt(f),
            Self::Line(path, line, fault) => write!(f, "{}:{line}: {fault}", path.display()),
            Self::HostName(errno) => write!(f, "get the host's name: {}", errno.desc()),
            Self::AutoDetect(path) => write!(
                f,
                "{}: AutoDetect leaves the order of the GPUs to Slurm; name them by UUID, or set \
                 AutoDetect=off and write File= lines",
                path.display()
            ),
            Self::Types { path, line } => write!(
                f,
                "{}:{line}: another Type= than before; which comes first is for Gres= of slurm.conf \
                 to say, so name the devices by UUID, address or path",
                path.display()
            ),
            Self::NoRecord { path, name, node } => {
                write!(f, "{}: no record with Name={name} for node {node}", path.display())
            }
            Self::Index { path, name, count } => {
                write!(f, "{}: Name={name} has {count} here, counted from 0", path.display())
            }
            Self::Type { path, line, kind } if kind.is_empty() => {
                write!(f, "{}:{line}: the record has no Type=", path.display())
            }
            Self::Type { path, line, kind } => {
                write!(f, "{}:{line}: it is of type {kind}", path.display())
            }
            Self::NoFile { path, line } => write!(
                f,
                "{}:{line}: the record has no File=, so no device is known",
                path.display()
            ),
            Self::Node(device, error) => write!(f, "{device}: {error}"),
            Self::Misfit(error) => error.fmt(f),
            Self::Number(device, error) => write!(f, "{device}: {error}"),
            Self::Topology(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for GresError {}

/// What is wrong with a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GresFault {
    /// It is no line of Slurm's.
    Line(LineFault),
    /// There is no such key.
    Unknown(String),
    /// It names no resource.
    NoName,
    /// `NodeName=` stands behind another key.
    NodeName,
    /// The value of this key is no list of names.
    List(&'static str, HostListError),
    /// The value of `Count=` is no number.
    Count,
    /// `File`, `Files` and `MultipleFiles` exclude each other.
    Both,
    /// A file that is not below `/dev`.
    Outside(String),
    /// A file that another index has already.
    Again(String),
}

impl fmt::Display for GresFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(fault) => fault.fmt(f),
            Self::Unknown(key) => write!(f, "unknown key {key}"),
            Self::NoName => f.write_str("neither Name= nor AutoDetect="),
            Self::NodeName => f.write_str(
                "NodeName= must be the first key, or Slurm takes the record for every node",
            ),
            Self::List(key, error) => write!(f, "{key}=: {error}"),
            Self::Count => f.write_str("Count= is not a number"),
            Self::Both => f.write_str("File=, Files= and MultipleFiles= exclude each other"),
            Self::Outside(file) => write!(f, "{file} is not below /dev"),
            Self::Again(file) => write!(f, "{file} stands in two records"),
        }
    }
}

impl std::error::Error for GresFault {}
