//! Device specifications of the Container Device Interface, versions 0.3.0 to 1.1.0.

mod document;
mod name;
mod spec;

use std::fmt;
use std::path::PathBuf;

use super::{Found, Tree};

pub use document::Format;
pub use name::{NameError, PartFault, QualifiedName};
pub use spec::{Edits, NodeEdit, NodeKind, Spec, SpecDevice, SpecError};

/// What these qualified names stand for, by the specifications in `dirs`.
///
/// # Errors
/// [`CdiError`].
pub fn resolve(tree: &Tree, dirs: &[PathBuf], names: &[String]) -> Result<Found, CdiError> {
    let _ = (tree, dirs);
    Err(CdiError { name: names.first().cloned().unwrap_or_default(), fault: CdiFault::Later })
}

/// A name that stands for no device, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CdiError {
    /// The name, as it was given.
    pub name: String,
    /// Why it stands for nothing.
    pub fault: CdiFault,
}

/// Why a name stands for no device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CdiFault {
    /// Not there yet.
    Later,
}

impl fmt::Display for CdiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("this version cannot resolve it")
    }
}

impl std::error::Error for CdiError {}
