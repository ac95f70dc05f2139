//! What a name turned out to stand for, or why it stands for nothing.

use super::Node;
use crate::protocol::{Access, Allowlist, DeviceRule, DeviceType, MINOR_MAX};
use std::collections::BTreeSet;
use std::fmt;
use std::ops::RangeInclusive;

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

/// NVIDIA's GPUs and their control devices (`NV_MAJOR_DEVICE_NUMBER`,
/// `kernel-open/common/inc/nv.h`).
pub(super) const NVIDIA: u32 = 195;
/// Minors of the GPUs among them; the ones above are reserved and the control devices'.
pub(super) const NVIDIA_GPUS: RangeInclusive<u32> = 0..=247;
/// DRM (`include/drm/drm_drv.h`).
pub(super) const DRM: u32 = 226;
/// Minors of its render nodes (`drivers/gpu/drm/drm_drv.c`).
pub(super) const DRM_RENDER: RangeInclusive<u32> = 128..=191;
/// Accelerators that draw nothing (`include/drm/drm_accel.h`).
pub(super) const ACCEL: u32 = 261;

/// Number of GPUs that are named one by one: NVIDIA's own nodes, else DRM render nodes, else
/// accelerators, so that a GPU with nodes of two of these counts once. Of MIG instances the parent
/// counts, of AMD's partitions each. A rule for all minors counts as none, since how many there are
/// is not known.
pub fn gpu_count(list: &Allowlist) -> u32 {
    let kinds = [(NVIDIA, NVIDIA_GPUS), (DRM, DRM_RENDER), (ACCEL, 0..=MINOR_MAX)];
    let counts = kinds.map(|(major, among)| minors(list.rules(), major, among).len());
    let count = counts.into_iter().find(|count| *count > 0).unwrap_or(0);
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// The minors in a range that rules for character devices of a major name.
pub(super) fn minors<'a>(
    rules: impl IntoIterator<Item = &'a DeviceRule>,
    major: u32,
    among: RangeInclusive<u32>,
) -> BTreeSet<u32> {
    let chars = rules.into_iter().filter(|rule| rule.kind() == DeviceType::Char);
    let minors = chars.filter(|rule| rule.major() == major).filter_map(|rule| rule.minor());
    minors.filter(|minor| among.contains(minor)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count_of(rules: &[&str]) -> u32 {
        let mut list = Allowlist::new();
        for rule in rules {
            list.push(rule.parse().unwrap()).unwrap();
        }
        gpu_count(&list)
    }

    #[test]
    fn gpus_are_counted_once_and_control_nodes_never() {
        assert_eq!(count_of(&[]), 0);
        assert_eq!(count_of(&["c:195:0:rw", "c:195:0:r", "c:195:3:rw", "c:195:255:rw"]), 2);
        assert_eq!(count_of(&["c:195:254:rw", "c:195:255:rw", "b:195:1:rw", "c:195:-1:rw"]), 0);
        assert_eq!(count_of(&["c:226:0:rw", "c:226:128:rw", "c:226:129:rw", "c:226:192:rw"]), 2);
        assert_eq!(count_of(&["c:195:0:rw", "c:226:128:rw", "c:226:129:rw"]), 1);
        assert_eq!(count_of(&["c:195:247:rw", "c:195:248:rw"]), 1);
        assert_eq!(count_of(&["c:195:3:rw", "c:235:426:r", "c:235:427:r", "c:235:435:r"]), 1);
        assert_eq!(count_of(&["c:261:0:rw", "c:261:1:rw", "c:261:-1:rw"]), 2);
        assert_eq!(count_of(&["c:226:128:rw", "c:226:129:rw", "c:261:0:rw"]), 2);
    }
}
