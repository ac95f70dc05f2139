//! A checked specification, without the parts that are for containers only.

mod container;
mod edits;
mod fields;

use self::edits::parse_edits;
use self::fields::Fields;
use super::QualifiedName;
use super::document::{self, Format, Value};
use super::name::{check_device_name, parse_class};
use crate::devices::cdi::document::quote;
use protocol::Access;
use std::collections::BTreeSet;
use std::fmt;

/// Maximum devices of a file.
const DEVICES_MAX: usize = 4096;

/// The specification in one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Vendor and class of every device, `VENDOR/CLASS`.
    pub kind: String,
    /// Edits for all devices of the file together, which count once.
    pub edits: Edits,
    /// The devices, each name once; at least one.
    pub devices: Vec<SpecDevice>,
    /// The line where a second document begins, which is not read.
    pub second_document: Option<usize>,
}

/// A device of a specification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecDevice {
    /// The name without the kind.
    pub name: String,
    /// Edits for this device.
    pub edits: Edits,
}

/// The parts of `containerEdits` that matter on the node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edits {
    /// `deviceNodes`.
    pub nodes: Vec<NodeEdit>,
}

/// An element of `deviceNodes`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeEdit {
    /// The node's path in a container.
    pub path: String,
    /// The node's path on the host, if it differs.
    pub host_path: Option<String>,
    /// The type in the file.
    pub kind: Option<NodeKind>,
    /// The major in the file, 0 to 4095.
    pub major: Option<u32>,
    /// The minor in the file, 0 to 1048575.
    pub minor: Option<u32>,
    /// `permissions`. `None` grants all accesses, the empty set none.
    pub access: Option<Access>,
}

/// `type` of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeKind {
    /// `b`
    Block,
    /// `c` and `u`, which are the same to the kernel (mknod(1)).
    Char,
    /// `p`. A FIFO is no device.
    Fifo,
}

impl Spec {
    /// Parses a specification of a version from 0.3.0 to 1.1.0 and checks every rule of that version.
    ///
    /// Beyond the standard, paths of nodes must be absolute and without `..`, numbers must be valid
    /// for the kernel, and bytes, depth, values, devices and names are limited.
    ///
    /// # Errors
    ///
    /// [`SpecError`] with the line or the place in the document.
    pub fn parse(bytes: &[u8], format: Format) -> Result<Self, SpecError> {
        if bytes.len() > format.bytes_max() {
            let max = format.bytes_max();
            return Err(SpecError::rule(format_args!("longer than {max} bytes")));
        }
        let document = document::parse_document(bytes, format)
            .map_err(|error| SpecError { at: format!("line {}", error.line), why: error.why })?;
        let spec = Fields::parse(document.value, parse_spec)?;
        Ok(Self { second_document: document.second_document, ..spec })
    }

    /// Returns the device with a qualified name, if this file defines it.
    pub fn device(&self, name: &QualifiedName) -> Option<&SpecDevice> {
        let has_name = |device: &&SpecDevice| device.name == name.name();
        (self.kind == name.kind()).then(|| self.devices.iter().find(has_name)).flatten()
    }
}

/// Why a file is no specification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecError {
    /// The place, such as `devices[0] "all": containerEdits.env[2]`; empty for the whole document.
    at: String,
    why: String,
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.at.as_str() {
            "" => f.write_str(&self.why),
            at => write!(f, "{at}: {}", self.why),
        }
    }
}

impl std::error::Error for SpecError {}

impl SpecError {
    /// Returns the error of a broken rule. Callers add its place with [`AddPlace`].
    pub(super) fn rule(why: impl fmt::Display) -> Self {
        Self { at: String::new(), why: why.to_string() }
    }
}

/// Adds the place of an error, from the inside out.
trait AddPlace: Sized {
    /// Puts `place` before the place of the error, with `separator` between if both exist.
    fn add_place(self, place: &str, separator: &str) -> Self;

    /// Puts a key before the place of the error.
    fn add_key(self, key: &str) -> Self {
        self.add_place(key, ".")
    }
}

impl<T> AddPlace for Result<T, SpecError> {
    fn add_place(self, place: &str, separator: &str) -> Self {
        self.map_err(|SpecError { at, why }| {
            let joint = if at.is_empty() || at.starts_with(['[', ' ']) { "" } else { separator };
            SpecError { at: format!("{place}{joint}{at}"), why }
        })
    }
}

/// Parses the whole file. The version comes first, since other versions may have other keys.
fn parse_spec(fields: &mut Fields) -> Result<Spec, SpecError> {
    let version = fields.required("cdiVersion", |value| Version::parse(&value.into_text()?))?;
    let kind = fields.required("kind", |value| parse_kind(value, version))?;
    container::check_annotations(fields, version)?;
    let edits = fields.value("containerEdits", |value| parse_edits(value, version))?;
    let devices =
        fields.value("devices", |value| parse_devices(value, version))?.unwrap_or_default();
    match devices.is_empty() {
        true => Err(SpecError::rule("no devices")),
        false => Ok(Spec {
            kind,
            edits: edits.flatten().unwrap_or_default(),
            devices,
            second_document: None,
        }),
    }
}

fn parse_kind(value: Value, version: Version) -> Result<String, SpecError> {
    let kind = value.into_text()?;
    if !kind.contains('/') {
        return Err(SpecError::rule("not VENDOR/CLASS"));
    }
    let class = parse_class(&kind).map_err(SpecError::rule)?;
    if class.contains('.') {
        version.require(Version::V0_6, "a dot in the class")?;
    }
    Ok(kind)
}

fn parse_devices(value: Value, version: Version) -> Result<Vec<SpecDevice>, SpecError> {
    let values = value.into_list()?;
    if values.len() > DEVICES_MAX {
        return Err(SpecError::rule(format_args!("more than {DEVICES_MAX}")));
    }
    let mut names = BTreeSet::new();
    let device = |(at, value)| {
        let device = parse_device(value, version).add_place(&format!("[{at}]"), ".")?;
        match names.insert(device.name.clone()) {
            true => Ok(device),
            false => Err(SpecError::rule(format_args!("{:?} stands twice", device.name))),
        }
    };
    values.into_iter().enumerate().map(device).collect()
}

fn parse_device(value: Value, version: Version) -> Result<SpecDevice, SpecError> {
    Fields::parse(value, |fields| {
        let name = fields.required("name", |value| parse_device_name(value, version))?;
        let mut rest = || {
            container::check_annotations(fields, version)?;
            fields.required("containerEdits", |value| {
                parse_edits(value, version)?.ok_or_else(|| SpecError::rule("empty"))
            })
        };
        let edits = rest().add_place(&format!(" {name:?}"), ": ")?;
        Ok(SpecDevice { name, edits })
    })
}

fn parse_device_name(value: Value, version: Version) -> Result<String, SpecError> {
    let name = value.into_text()?;
    check_device_name(&name).map_err(SpecError::rule)?;
    if name.starts_with(|first: char| first.is_ascii_digit()) {
        version.require(Version::V0_5, "a digit at the beginning")?;
    }
    Ok(name)
}

/// A released version of the standard. None has a number of two digits, so that they compare as texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Version(&'static str);

const RELEASED: [&str; 8] =
    ["0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0"];

impl Version {
    pub(super) const V0_4: Self = Self("0.4.0");
    pub(super) const V0_5: Self = Self("0.5.0");
    pub(super) const V0_6: Self = Self("0.6.0");
    pub(super) const V0_7: Self = Self("0.7.0");
    pub(super) const V1_1: Self = Self("1.1.0");

    /// Parses the value of `cdiVersion`, with or without a leading `v`.
    pub(super) fn parse(text: &str) -> Result<Self, SpecError> {
        let number = text.strip_prefix('v').unwrap_or(text);
        let known = RELEASED.into_iter().find(|known| *known == number);
        known.map(Self).ok_or_else(|| {
            let text = quote(text);
            SpecError::rule(format_args!("version {text} is not known, 0.3.0 to 1.1.0 are"))
        })
    }

    /// Checks that a file of this version may contain `what`, which the version `since` introduced.
    pub(super) fn require(self, since: Self, what: &str) -> Result<(), SpecError> {
        match self >= since {
            true => Ok(()),
            false => Err(SpecError::rule(format_args!(
                "{what} came with version {since}, the file says {self}"
            ))),
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

#[cfg(test)]
mod tests;
