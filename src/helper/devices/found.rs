//! What a name turned out to stand for, or why it stands for nothing.

use std::fmt;

use super::Node;
use crate::protocol::{Access, DeviceRule};

/// A device, or all devices of a major.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Device {
    /// The path of the node, or the class where every minor of a major is meant.
    pub node: String,
    /// Its numbers, and what may be done with it.
    pub rule: DeviceRule,
}

impl Device {
    /// The device of a node.
    /// Fails: numbers that the kernel does not have, or no access.
    pub fn of(path: &str, node: Node, access: Access) -> Result<Self, DeviceError> {
        let rule = DeviceRule::new(node.kind, node.major, Some(node.minor), access);
        let rule = rule.map_err(|error| DeviceError::at(path, error))?;
        Ok(Self { node: path.to_owned(), rule })
    }
}

/// Everything that names stand for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The devices, in the order of the names.
    pub devices: Vec<Device>,
    /// What an administrator should know, as of a device that will be missed.
    pub warnings: Vec<String>,
}

impl Found {
    /// Adds what another name stands for.
    pub fn extend(&mut self, other: Self) {
        for device in other.devices {
            if !self.devices.contains(&device) {
                self.devices.push(device);
            }
        }
        for warning in other.warnings {
            if !self.warnings.contains(&warning) {
                self.warnings.push(warning);
            }
        }
    }
}

impl From<Vec<Device>> for Found {
    fn from(devices: Vec<Device>) -> Self {
        Self { devices, ..Self::default() }
    }
}

/// Why a name stands for no device: a text that names the file or device at fault and, where
/// somebody can do something about it, says what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceError {
    text: String,
    absent: bool,
}

impl DeviceError {
    pub(super) fn new(text: impl fmt::Display) -> Self {
        Self { text: text.to_string(), absent: false }
    }

    /// The fault of a file, a directory or a device node.
    pub(super) fn at(object: impl fmt::Display, fault: impl fmt::Display) -> Self {
        Self::new(format_args!("{object}: {fault}"))
    }

    /// There is simply no such device node.
    pub(super) fn absent(text: impl fmt::Display) -> Self {
        Self { absent: true, ..Self::new(text) }
    }

    /// Whether there is simply no such device node.
    pub fn is_absent(&self) -> bool {
        self.absent
    }
}

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Not an [`std::error::Error`] itself, so that any that is can become one.
impl<E: std::error::Error> From<E> for DeviceError {
    fn from(error: E) -> Self {
        Self::new(error)
    }
}

/// A name that had to resolve and does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unresolved {
    /// The name.
    pub name: String,
    /// Why it stands for nothing.
    pub why: DeviceError,
}

impl fmt::Display for Unresolved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.why)
    }
}
