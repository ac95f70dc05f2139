//! What a specification says, checked, without what is of no use outside a container.

use std::fmt;

use super::QualifiedName;
use crate::plan::Access;

/// Most bytes of a specification.
pub const FILE_MAX: u64 = 4 * 1024 * 1024;

/// One file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Vendor and class of every device in it, `VENDOR/CLASS`.
    pub kind: String,
    /// What holds for each device of the file, once.
    pub edits: Edits,
    /// The devices, each name once; at least one.
    pub devices: Vec<SpecDevice>,
}

/// A device of a specification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecDevice {
    /// Its name, without the kind.
    pub name: String,
    /// What holds for it.
    pub edits: Edits,
}

/// `containerEdits`: what a device needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edits {
    /// `deviceNodes`.
    pub nodes: Vec<NodeEdit>,
    /// `env`, name and value.
    pub env: Vec<(String, String)>,
    /// `additionalGids` without 0.
    pub gids: Vec<u32>,
}

/// One of `deviceNodes`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeEdit {
    /// The node's path in a container.
    pub path: String,
    /// The node's path on the host, where it is another one.
    pub host_path: Option<String>,
    /// What it is said to be.
    pub kind: Option<NodeKind>,
    /// Its major as the file says, 0 to 4095.
    pub major: Option<u32>,
    /// Its minor as the file says, 0 to 1048575.
    pub minor: Option<u32>,
    /// `permissions`: `None` where nothing is said, which means all; the empty set is none.
    pub access: Option<Access>,
}

/// `type` of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeKind {
    /// `b`
    Block,
    /// `c` and `u`, which is the same to the kernel (mknod(1)).
    Char,
    /// `p`, which is no device.
    Fifo,
}

/// How a file is written; its name tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `.json`
    Json,
    /// `.yaml`
    Yaml,
}

impl Spec {
    /// Reads a specification of a version from 0.3.0 to 1.1.0 and holds it to every rule of it.
    ///
    /// # Errors
    /// [`SpecError`].
    pub fn parse(bytes: &[u8], format: Format) -> Result<Self, SpecError> {
        let _ = (bytes, format);
        Err(SpecError::Later)
    }

    /// Whether a qualified name is one of this file's devices.
    #[must_use]
    pub fn device(&self, name: &QualifiedName) -> Option<&SpecDevice> {
        let device = |device: &&SpecDevice| device.name == name.name();
        (self.kind == name.kind()).then(|| self.devices.iter().find(device)).flatten()
    }
}

/// Why a file is no specification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpecError {
    /// Not there yet.
    Later,
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("this version cannot read it")
    }
}

impl std::error::Error for SpecError {}
