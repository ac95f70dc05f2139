//! A checked specification, without the parts that are for containers only.

mod container;
mod edits;
mod fields;
mod version;

use self::edits::parse_edits;
pub use self::edits::{Edits, NodeEdit, NodeKind};
use self::fields::Fields;
use self::version::Version;
use super::document::{self, Format, Value};
use super::error::{AddPlace, SpecError};
use super::name::{QualifiedName, check_device_name, parse_class};
use std::collections::BTreeSet;

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
            .map_err(|error| SpecError::at_line(error.line, error.why))?;
        let spec = Fields::parse(document.value, parse_spec)?;
        Ok(Self {
            second_document: document.second_document,
            ..spec
        })
    }

    /// Finds the device with a qualified name; `None` if this file does not define it.
    pub fn device(&self, name: &QualifiedName) -> Option<&SpecDevice> {
        if self.kind != name.kind() {
            return None;
        }
        self.devices
            .iter()
            .find(|device| device.name == name.name())
    }
}

/// Parses the whole file. The version comes first, since other versions may have other keys.
fn parse_spec(fields: &mut Fields) -> Result<Spec, SpecError> {
    let version = fields.required("cdiVersion", |value| Version::parse(&value.into_text()?))?;
    let kind = fields.required("kind", |value| parse_kind(value, version))?;
    container::check_annotations(fields, version)?;
    let edits = fields.value("containerEdits", |value| parse_edits(value, version))?;
    let devices = fields
        .value("devices", |value| parse_devices(value, version))?
        .unwrap_or_default();
    if devices.is_empty() {
        return Err(SpecError::rule("no devices"));
    }
    Ok(Spec {
        kind,
        // Missing edits and empty ones are alike for a file, but not for a device.
        edits: edits.flatten().unwrap_or_default(),
        devices,
        second_document: None,
    })
}

/// Parses vendor and class of the file's devices, and returns both together. A dot in the class came with version 0.6.0.
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

/// Parses the devices of the file, each name once.
fn parse_devices(value: Value, version: Version) -> Result<Vec<SpecDevice>, SpecError> {
    let values = value.into_list()?;
    if values.len() > DEVICES_MAX {
        return Err(SpecError::rule(format_args!("more than {DEVICES_MAX}")));
    }
    let mut names = BTreeSet::new();
    let mut devices = Vec::new();
    for (index, item) in values.into_iter().enumerate() {
        let device = parse_device(item, version).in_item(index)?;
        if !names.insert(device.name.clone()) {
            return Err(SpecError::rule(format_args!(
                "{:?} stands twice",
                device.name
            )));
        }
        devices.push(device);
    }
    Ok(devices)
}

/// Parses a device: its name, its edits and its annotations.
fn parse_device(device: Value, version: Version) -> Result<SpecDevice, SpecError> {
    Fields::parse(device, |fields| {
        let name = fields.required("name", |value| parse_device_name(value, version))?;
        let edits = parse_device_edits(fields, version).in_named(&name)?;
        Ok(SpecDevice { name, edits })
    })
}

/// Parses the edits of a device, which must not be empty, and checks its annotations.
fn parse_device_edits(fields: &mut Fields, version: Version) -> Result<Edits, SpecError> {
    container::check_annotations(fields, version)?;
    fields.required("containerEdits", |value| {
        parse_edits(value, version)?.ok_or_else(|| SpecError::rule("empty"))
    })
}

/// Parses the name of a device. Names that begin with a digit came with version 0.5.0.
fn parse_device_name(value: Value, version: Version) -> Result<String, SpecError> {
    let name = value.into_text()?;
    check_device_name(&name).map_err(SpecError::rule)?;
    if name.starts_with(|first: char| first.is_ascii_digit()) {
        version.require(Version::V0_5, "a digit at the beginning")?;
    }
    Ok(name)
}

#[cfg(test)]
mod tests;
