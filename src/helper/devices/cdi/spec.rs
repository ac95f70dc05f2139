//! What a specification says, checked, without what is of no use outside a container.

mod container;
mod edits;
mod fields;

use self::edits::edits;
use self::fields::Fields;
use super::QualifiedName;
use super::document::{self, Format, Value};
use super::name::{check_device, check_kind};
use crate::devices::cdi::document::quoted;
use protocol::Access;
use std::collections::BTreeSet;
use std::fmt;

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
    /// The line from which on the file is not read, since another document begins there.
    pub second: Option<usize>,
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
    /// Fails: [`SpecError`], with the line or the place in the document.
    pub fn parse(bytes: &[u8], format: Format) -> Result<Self, SpecError> {
        if bytes.len() > format.max_bytes() {
            let most = format.max_bytes();
            return Err(SpecError::rule(format_args!("longer than {most} bytes")));
        }
        let document = document::read(bytes, format)
            .map_err(|error| SpecError { at: format!("line {}", error.line), why: error.why })?;
        let spec = Fields::read(document.value, spec)?;
        Ok(Self { second: document.second, ..spec })
    }

    /// Whether a qualified name is one of this file's devices.
    pub fn device(&self, name: &QualifiedName) -> Option<&SpecDevice> {
        let device = |device: &&SpecDevice| device.name == name.name();
        (self.kind == name.kind()).then(|| self.devices.iter().find(device)).flatten()
    }
}

/// Why a file is no specification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecError {
    /// Where, as `devices[0] "all": containerEdits.env[2]`; empty for the whole document.
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
    /// A broken rule; where is told by who knows, with [`Within`].
    pub(super) fn rule(why: impl fmt::Display) -> Self {
        Self { at: String::new(), why: why.to_string() }
    }
}

/// Tells an error where it happened, from the inside out.
trait Within: Sized {
    /// What went wrong, went wrong in what `place` names, which ends in `separator` where more
    /// follows.
    fn within(self, place: &str, separator: &str) -> Self;

    /// It went wrong in the value of this key.
    fn in_key(self, key: &str) -> Self {
        self.within(key, ".")
    }
}

impl<T> Within for Result<T, SpecError> {
    fn within(self, place: &str, separator: &str) -> Self {
        self.map_err(|SpecError { at, why }| {
            let joint = if at.is_empty() || at.starts_with(['[', ' ']) { "" } else { separator };
            SpecError { at: format!("{place}{joint}{at}"), why }
        })
    }
}

/// Everything in the file. The version comes first: another one may have other keys.
fn spec(fields: &mut Fields) -> Result<Spec, SpecError> {
    let version = fields.required("cdiVersion", |value| Version::parse(&value.into_text()?))?;
    let kind = fields.required("kind", |value| kind(value, version))?;
    container::annotations(fields, version)?;
    let edits = fields.value("containerEdits", |value| edits(value, version))?;
    let devices = fields.value("devices", |value| devices(value, version))?.unwrap_or_default();
    match devices.is_empty() {
        true => Err(SpecError::rule("no devices")),
        false => {
            Ok(Spec { kind, edits: edits.flatten().unwrap_or_default(), devices, second: None })
        }
    }
}

fn kind(value: Value, version: Version) -> Result<String, SpecError> {
    let kind = value.into_text()?;
    if !kind.contains('/') {
        return Err(SpecError::rule("not VENDOR/CLASS"));
    }
    let class = check_kind(&kind).map_err(SpecError::rule)?;
    if class.contains('.') {
        version.has(Version::V0_6, "a dot in the class")?;
    }
    Ok(kind)
}

fn devices(value: Value, version: Version) -> Result<Vec<SpecDevice>, SpecError> {
    let values = value.into_list()?;
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
    let name = value.into_text()?;
    check_device(&name).map_err(SpecError::rule)?;
    if name.starts_with(|first: char| first.is_ascii_digit()) {
        version.has(Version::V0_5, "a digit at the beginning")?;
    }
    Ok(name)
}

/// A released version of the specification. None has a number of two digits, so that they are
/// ordered as texts.
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

    /// The version that `cdiVersion` names, with or without a leading `v`.
    pub(super) fn parse(text: &str) -> Result<Self, SpecError> {
        let number = text.strip_prefix('v').unwrap_or(text);
        let known = RELEASED.into_iter().find(|known| *known == number);
        known.map(Self).ok_or_else(|| {
            let text = quoted(text);
            SpecError::rule(format_args!("version {text} is not known, 0.3.0 to 1.1.0 are"))
        })
    }

    /// A file of this version may say `what`, which came with the version `since`.
    pub(super) fn has(self, since: Self, what: &str) -> Result<(), SpecError> {
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
