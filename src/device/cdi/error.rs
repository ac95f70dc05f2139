//! Why a qualified name stands for no device, and why a file is no specification.

use std::fmt;
use std::path::PathBuf;

use super::{BYTES_MAX, DEVICES_MAX, FILES_MAX, NameError, SpecError};
use crate::device::{Misfit, Node, NodeError, NvidiaError};
use crate::plan::Invalid;
use crate::trust::{Distrust, TrustError};

/// Most names and files that one text lists.
const SHOWN_MAX: usize = 6;

/// A name that stands for no device, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CdiError {
    /// The name, as it was given.
    pub name: String,
    /// Why it stands for nothing.
    pub fault: Box<CdiFault>,
}

/// Why a name stands for no device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CdiFault {
    /// It is no qualified name.
    Name(NameError),
    /// A directory of specifications is there, but not to be believed or not to be read. Anything
    /// may be in it, so no name stands for anything.
    Dir(TrustError),
    /// A directory holds more than [`FILES_MAX`] specifications.
    Crowded(PathBuf),
    /// No specification is of this kind.
    Kind {
        /// `VENDOR/CLASS`.
        kind: String,
        /// Where one was looked for.
        dirs: Vec<PathBuf>,
        /// Files that may have been.
        unusable: Vec<Unusable>,
    },
    /// The kind has no such device.
    Device {
        /// `VENDOR/CLASS`.
        kind: String,
        /// The devices that it has.
        known: Vec<String>,
        /// Files that may have had it.
        unusable: Vec<Unusable>,
    },
    /// Two files of one directory define it, neither of which comes first.
    Conflict([PathBuf; 2]),
    /// A file that comes before the one with its definition cannot be used, and may have been there
    /// to replace it.
    Doubtful {
        /// The file with the definition.
        file: PathBuf,
        /// The file that may have replaced it.
        unusable: Unusable,
    },
    /// The definition asks for more than 4,096 device nodes, variables or groups, alone or with the
    /// names before it.
    TooMany,
    /// A device node of the definition is not what it has to be.
    Node {
        /// The file with the definition.
        file: PathBuf,
        /// What is wrong with the node.
        why: Box<NodeFault>,
    },
}

/// A file in a directory of specifications that is not used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unusable {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub why: FileFault,
}

/// Why a file is not used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileFault {
    /// Its name is no UTF-8.
    Name,
    /// It is not believed, cannot be read, or is too large.
    Trust(Distrust),
    /// It is no specification.
    Spec(SpecError),
    /// With the files before it, it is over [`BYTES_MAX`].
    Bytes,
    /// With the files before it, it is over [`DEVICES_MAX`].
    Devices,
}

/// What is wrong with a device node that a specification asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeFault {
    /// There is none.
    Node {
        /// Its path.
        path: String,
        /// What is there.
        why: NodeError,
    },
    /// The specification says other numbers or another type than the node has.
    Stale {
        /// Its path.
        path: String,
        /// What the node is.
        is: Node,
        /// What the specification says, as far as it does.
        said: String,
    },
    /// It is not there yet, and what it will be cannot be told.
    Unborn(NvidiaError),
    /// It is not a job's to have.
    Misfit(Misfit),
    /// Its numbers are beyond what the kernel has.
    Number {
        /// Its path.
        path: String,
        /// Which of them.
        why: Invalid,
    },
}

impl CdiError {
    pub(in crate::device) fn new(name: &str, fault: CdiFault) -> Self {
        Self { name: name.to_owned(), fault: Box::new(fault) }
    }
}

impl fmt::Display for CdiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fault.fmt(f)
    }
}

impl std::error::Error for CdiError {}

impl fmt::Display for CdiFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(error) => error.fmt(f),
            Self::Dir(error) => error.fmt(f),
            Self::Crowded(dir) => {
                write!(f, "{}: holds more than {FILES_MAX} specifications", dir.display())
            }
            Self::Kind { kind, dirs, unusable } => {
                let dirs: Vec<_> = dirs.iter().map(|dir| dir.display()).collect();
                write!(f, "no specification of kind {kind} in {}", Few(&dirs))?;
                and_unusable(f, unusable)
            }
            Self::Device { kind, known, unusable } => {
                write!(f, "kind {kind} has no such device; it has {}", Few(known))?;
                and_unusable(f, unusable)
            }
            Self::Conflict([one, other]) => {
                write!(f, "defined in both {} and {}", one.display(), other.display())
            }
            Self::Doubtful { file, unusable } => write!(
                f,
                "defined in {}, but {} would come first and cannot be used: {}; repair or remove it",
                file.display(),
                unusable.path.display(),
                unusable.why,
            ),
            Self::TooMany => {
                f.write_str("asks for more than 4,096 device nodes, variables or groups")
            }
            Self::Node { file, why } => write!(f, "{}: {why}", file.display()),
        }
    }
}

fn and_unusable(f: &mut fmt::Formatter<'_>, files: &[Unusable]) -> fmt::Result {
    match files {
        [] => Ok(()),
        files => write!(f, "; cannot be used: {}", Few(files)),
    }
}

/// The first few of a list.
struct Few<'a, T>(&'a [T]);

impl<T: fmt::Display> fmt::Display for Few<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, item) in self.0.iter().take(SHOWN_MAX).enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            write!(f, "{comma}{item}")?;
        }
        match self.0.len().saturating_sub(SHOWN_MAX) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.why)
    }
}

impl fmt::Display for FileFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name => f.write_str("the name is no UTF-8"),
            Self::Trust(error) => error.fmt(f),
            Self::Spec(error) => error.fmt(f),
            Self::Bytes => {
                write!(f, "the specifications have more than {BYTES_MAX} bytes in all")
            }
            Self::Devices => {
                write!(f, "the specifications have more than {DEVICES_MAX} devices in all")
            }
        }
    }
}

impl fmt::Display for NodeFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node { path, why } => write!(f, "{path}: {why}"),
            Self::Stale { path, is, said } => write!(
                f,
                "{path} is {is} and not {said}: the specification is stale; generate it anew"
            ),
            Self::Unborn(error) => error.fmt(f),
            Self::Misfit(error) => error.fmt(f),
            Self::Number { path, why } => write!(f, "{path}: {why}"),
        }
    }
}
