//! What a name turned out to stand for.

use crate::plan::DeviceRule;

use super::Node;
use crate::plan::{Access, Invalid};

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
    ///
    /// # Errors
    /// [`Invalid`] for numbers that the kernel does not have, or no access.
    pub fn of(path: &str, node: Node, access: Access) -> Result<Self, Invalid> {
        let rule = DeviceRule::new(node.kind, node.major, Some(node.minor), access)?;
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
