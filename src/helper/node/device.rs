//! A device that a name resolves to, and why a name resolves to none.

use super::DeviceNode;
use protocol::{Access, DeviceRule};
use std::fmt;

/// A device, or all devices of a major.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Device {
    /// The path of the node, or the class if the rule covers every minor of a major.
    pub node: String,
    /// The device's numbers and the allowed accesses.
    pub rule: DeviceRule,
}

impl Device {
    /// Returns the device of a node.
    ///
    /// # Errors
    ///
    /// The kernel has no such numbers, or `access` is empty.
    pub fn from_node(path: &str, node: DeviceNode, access: Access) -> Result<Self, DeviceError> {
        let rule = DeviceRule::from_numbers(node.kind, node.major, Some(node.minor), access);
        let rule = rule.map_err(|error| DeviceError::at(path, error))?;
        Ok(Self { node: path.to_owned(), rule })
    }
}

/// All devices that one or more names resolve to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResolvedDevices {
    /// The devices in the order of the names.
    pub devices: Vec<Device>,
    /// Warnings for an administrator, for instance about a device that the job will lack.
    pub warnings: Vec<String>,
}

impl ResolvedDevices {
    /// Adds the devices and warnings of another name, each once.
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

impl From<Vec<Device>> for ResolvedDevices {
    fn from(devices: Vec<Device>) -> Self {
        Self { devices, ..Self::default() }
    }
}

/// Why a name resolves to no device. The text names the file or device at fault and the remedy, if
/// there is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceError {
    text: String,
    absent: bool,
}

impl DeviceError {
    pub(crate) fn new(text: impl fmt::Display) -> Self {
        Self { text: text.to_string(), absent: false }
    }

    /// Reports the fault of a file, a directory or a device node.
    pub(crate) fn at(object: impl fmt::Display, fault: impl fmt::Display) -> Self {
        Self::new(format_args!("{object}: {fault}"))
    }

    /// Reports that no such device node exists.
    pub(crate) fn absent(text: impl fmt::Display) -> Self {
        Self { absent: true, ..Self::new(text) }
    }

    /// Returns whether the only fault is that no such device node exists.
    pub fn is_absent(&self) -> bool {
        self.absent
    }
}

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// `DeviceError` is not an [`std::error::Error`] itself, so that this conversion can cover every
/// type that is one.
impl<E: std::error::Error> From<E> for DeviceError {
    fn from(error: E) -> Self {
        Self::new(error)
    }
}
