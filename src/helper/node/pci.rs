//! PCI functions: their addresses, and what sysfs has of them (Documentation/PCI/sysfs-pci.rst).

use super::{DeviceError, FileError, Tree};
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;
use thiserror::Error;

/// Directory of the PCI functions in sysfs.
pub(super) const FUNCTIONS_DIR: &str = "/sys/bus/pci/devices";
/// Maximum PCI functions of a node.
pub(super) const FUNCTIONS_MAX: usize = 4096;
/// Maximum devices of one class on a function.
const CLASS_ENTRIES_MAX: usize = 64;

/// Address of a PCI function. Addresses are ordered by domain, bus, device and function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PciAddress {
    domain: u32,
    bus: u32,
    device: u32,
    function: u32,
}

/// The error of a text that is no address of a PCI function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("not a PCI address")]
pub struct InvalidPciAddress;

impl FromStr for PciAddress {
    type Err = InvalidPciAddress;

    /// Parses `DDDD:BB:DD.F` in hexadecimal digits. The domain has four to eight of them, or is left
    /// out if it is 0.
    fn from_str(text: &str) -> Result<Self, InvalidPciAddress> {
        Self::parse(text).ok_or(InvalidPciAddress)
    }
}

impl PciAddress {
    /// Parses an address; `None` for a text that is none, or with a device past 31 or a function past 7.
    fn parse(text: &str) -> Option<Self> {
        let (front, function) = text.split_once('.')?;
        let mut parts = front.rsplit(':');
        let device = parse_hex(parts.next()?, 2..=2)?;
        let bus = parse_hex(parts.next()?, 2..=2)?;
        let domain = match parts.next() {
            None => 0,
            Some(part) => parse_hex(part, 4..=8)?,
        };
        let function = parse_hex(function, 1..=1)?;
        let is_valid = parts.next().is_none() && device < 32 && function < 8;
        is_valid.then_some(Self {
            domain,
            bus,
            device,
            function,
        })
    }

    /// The number of the domain, which has 16 bits on most machines.
    pub fn domain(self) -> u32 {
        self.domain
    }

    /// The number of the function within its device, 0 to 7.
    pub fn function(self) -> u32 {
        self.function
    }

    /// Computes the number that the function has within its domain (`PCI_DEVID`, include/linux/pci.h).
    pub fn device_number(self) -> u32 {
        self.bus << 8 | self.device << 3 | self.function
    }

    /// Iterates over the addresses of all functions that a device can have.
    pub fn functions_of_device(self) -> impl Iterator<Item = Self> {
        (0..8).map(move |function| Self { function, ..self })
    }
}

/// Parses hexadecimal digits; `None` if their number is not in `digits` or another character is among them.
fn parse_hex(part: &str, digits: RangeInclusive<usize>) -> Option<u32> {
    if !digits.contains(&part.len()) || !part.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    u32::from_str_radix(part, 16).ok()
}

impl fmt::Display for PciAddress {
    /// Writes the name of the function's directory below `/sys/bus/pci/devices`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:04x}:{:02x}:{:02x}.{:x}",
            self.domain, self.bus, self.device, self.function
        )
    }
}

/// The directory of a function in sysfs, which may not exist.
pub(super) fn function_dir(address: PciAddress) -> String {
    format!("{FUNCTIONS_DIR}/{address}")
}

/// Reads the name of the driver that a function is bound to; `None` if it has no driver, or there is no
/// such function.
pub(super) fn read_bound_driver(
    tree: &Tree,
    address: PciAddress,
) -> Result<Option<String>, FileError> {
    let link = format!("{}/driver", function_dir(address));
    tree.read_link_name_if_exists(&link)
}

/// Lists the names of the devices of one class (`drm`, `accel`) that a function has; empty if it has none or does not
/// exist.
pub(super) fn list_class(
    tree: &Tree,
    address: PciAddress,
    class: &str,
) -> Result<Vec<String>, DeviceError> {
    tree.list_entries(
        &format!("{}/{class}", function_dir(address)),
        CLASS_ENTRIES_MAX,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pci_addresses_sort_by_domain_and_bus() {
        let address = |text: &str| text.parse::<PciAddress>().unwrap();
        assert!(address("0000:0a:00.0") < address("0000:1b:00.0"));
        assert!(address("0000:ff:00.0") < address("0001:00:00.0"));
    }
}
