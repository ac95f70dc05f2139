//! What a specification says, checked, without what is of no use outside a container.

mod container;
mod edits;
mod error;
mod fields;
mod version;

use std::collections::BTreeSet;

use self::edits::edits;
use self::error::Within;
use self::fields::{Fields, text};
use self::version::Version;
use super::QualifiedName;
use super::document::{self, Format, Value};
use super::name::{NameError, check_device, check_kind};
use crate::plan::Access;

pub use self::error::SpecError;

/// Devices in a file.
const DEVICES_MAX: usize = 4096;

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

impl Spec {
    /// Reads a specification of a version from 0.3.0 to 1.1.0 and holds it to every rule of it.
    ///
    /// Beyond the specification, the paths of nodes are absolute and without `..`, numbers are such
    /// as the kernel has, and there are limits: on bytes, depth, values, devices and names.
    ///
    /// # Errors
    /// [`SpecError`], with the line or the place in the document.
    pub fn parse(bytes: &[u8], format: Format) -> Result<Self, SpecError> {
        if bytes.len() > format.max_bytes() {
            return Err(SpecError::Long(format.max_bytes()));
        }
        Fields::read(document::read(bytes, format)?, spec)
    }

    /// Whether a qualified name is one of this file's devices.
    #[must_use]
    pub fn device(&self, name: &QualifiedName) -> Option<&SpecDevice> {
        let device = |device: &&SpecDevice| device.name == name.name();
        (self.kind == name.kind()).then(|| self.devices.iter().find(device)).flatten()
    }
}

/// Everything in the file. The version comes first: another one may have other keys.
fn spec(fields: &mut Fields) -> Result<Spec, SpecError> {
    let version = fields.required("cdiVersion", |value| Version::parse(&text(value)?))?;
    let kind = fields.required("kind", |value| kind(value, version))?;
    container::annotations(fields, version)?;
    let edits = fields.value("containerEdits", |value| edits(value, version))?;
    let devices = fields.value("devices", |value| devices(value, version))?.unwrap_or_default();
    match devices.is_empty() {
        true => Err(SpecError::rule("no devices")),
        false => Ok(Spec { kind, edits: edits.flatten().unwrap_or_default(), devices }),
    }
}

fn kind(value: Value, version: Version) -> Result<String, SpecError> {
    let kind = text(value)?;
    let class = check_kind(&kind).map_err(|error| match error {
        NameError::Form => SpecError::rule("not VENDOR/CLASS"),
        error => SpecError::rule(error),
    })?;
    if class.contains('.') {
        version.has(Version::V0_6, "a dot in the class")?;
    }
    Ok(kind)
}

fn devices(value: Value, version: Version) -> Result<Vec<SpecDevice>, SpecError> {
    let values = value.into_list().map_err(SpecError::rule)?;
    if values.len() > DEVICES_MAX {
        return Err(SpecError::rule(format_args!("more than {DEVICES_MAX}")));
    }
    let mut names = BTreeSet::new();
    let device = |(at, value)| {
        let device = device(value, version).within(&format!("[{at}]"), ".")?;
        match names.insert(device.name.clone()) {
            true => Ok(device),
            false => Err(SpecError::rule(format_args!("{:?} stands twice", device.name))),
        }
    };
    values.into_iter().enumerate().map(device).collect()
}

fn device(value: Value, version: Version) -> Result<SpecDevice, SpecError> {
    Fields::read(value, |fields| {
        let name = fields.required("name", |value| device_name(value, version))?;
        let mut rest = || {
            container::annotations(fields, version)?;
            fields.required("containerEdits", |value| {
                edits(value, version)?.ok_or_else(|| SpecError::rule("empty"))
            })
        };
        let edits = rest().within(&format!(" {name:?}"), ": ")?;
        Ok(SpecDevice { name, edits })
    })
}

fn device_name(value: Value, version: Version) -> Result<String, SpecError> {
    let name = text(value)?;
    check_device(&name).map_err(SpecError::rule)?;
    if name.starts_with(|first: char| first.is_ascii_digit()) {
        version.has(Version::V0_5, "a digit at the beginning")?;
    }
    Ok(name)
}

#[cfg(test)]
mod tests;
