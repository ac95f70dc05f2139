//! The devices that a name means on this node.

use super::container_parts::ContainerParts;
use super::device_node::DeviceNode;
use super::error::DeviceError;
use protocol::{Access, DeviceRule};

/// A device, or all devices of a major.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Device {
    /// The path of the node, or the class if the rule covers every minor of a major.
    pub node: String,
    /// The device's numbers and the allowed accesses.
    pub rule: DeviceRule,
}

impl Device {
    /// The device of a node.
    ///
    /// # Errors
    ///
    /// The kernel has no such numbers, or `access` is empty.
    pub fn from_node(path: &str, node: DeviceNode, access: Access) -> Result<Self, DeviceError> {
        let rule = DeviceRule::from_numbers(node.kind, node.major, Some(node.minor), access);
        let rule = rule.map_err(|error| DeviceError::at(path, error))?;
        Ok(Self {
            node: path.to_owned(),
            rule,
        })
    }
}

/// All devices that one or more names resolve to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResolvedDevices {
    /// The devices in the order of the names.
    pub devices: Vec<Device>,
    /// Warnings for an administrator, for instance about a device that the job will lack.
    pub warnings: Vec<String>,
    /// Devices that all jobs with such a GPU share and that are left out, since their driver is not loaded yet; each text
    /// names the command that loads it.
    pub late: Vec<String>,
    /// What specifications among the names give to containers beside devices.
    pub container: ContainerParts,
}

impl ResolvedDevices {
    /// Adds the devices and warnings of another name, each once, and its parts for containers.
    pub fn extend(&mut self, other: Self) {
        for device in other.devices {
            if !self.devices.contains(&device) {
                self.devices.push(device);
            }
        }
        for (texts, more) in [
            (&mut self.warnings, other.warnings),
            (&mut self.late, other.late),
        ] {
            for text in more {
                if !texts.contains(&text) {
                    texts.push(text);
                }
            }
        }
        self.container.extend(other.container);
    }
}

impl From<Vec<Device>> for ResolvedDevices {
    /// The devices without warnings.
    fn from(devices: Vec<Device>) -> Self {
        Self {
            devices,
            ..Self::default()
        }
    }
}
