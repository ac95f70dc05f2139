//! Accelerators of the kernel's class `accel`, by the name of their driver and a number.

use super::card::list_functions;
use super::class::is_accel;
use super::nodes::accel_devices;
use crate::node::pci::{PciAddress, list_class, read_bound_driver};
use crate::node::{DeviceError, ResolvedDevices, Tree};
use protocol::string_enum;

string_enum! {
    /// The drivers of accelerators on a PCI bus (`drivers/accel` of Linux), by their names in sysfs. This is the
    /// only list of them: a new one needs a row here and in job-adopt-record(5).
    #[derive(PartialOrd, Ord, Hash)]
    AccelDriver {
        /// Habana's Gaudi. Those cards have a plain number too.
        Habanalabs = "habanalabs",
        /// Qualcomm's Cloud AI.
        Qaic = "qaic",
        /// AMD's NPU.
        Amdxdna = "amdxdna",
        /// Intel's NPU.
        IntelVpu = "intel_vpu",
    }
}

/// Resolves the devices of the n-th accelerator of a driver, by PCI address.
///
/// # Errors
///
/// The driver has fewer accelerators here, this one has no node to compute by, or a file of the node cannot be read or
/// contradicts another one.
pub fn resolve_accelerator(
    tree: &Tree,
    driver: AccelDriver,
    index: u32,
) -> Result<ResolvedDevices, DeviceError> {
    let addresses = list_accelerators(tree, driver)?;
    let place = usize::try_from(index).ok();
    let Some(address) = place.and_then(|place| addresses.get(place)) else {
        let text = describe_count(driver, addresses.len());
        return Err(DeviceError::new(text));
    };
    let found = accel_devices(tree, *address)?;
    let mut names = found.devices.iter().map(|device| &device.node);
    let computes = names.any(|node| node.rsplit('/').next().is_some_and(is_accel));
    if !computes {
        let text = format!("{address} has no node in /dev to compute by");
        return Err(DeviceError::new(text));
    }
    Ok(found)
}

/// Lists the accelerators of a driver, by their PCI addresses.
fn list_accelerators(tree: &Tree, driver: AccelDriver) -> Result<Vec<PciAddress>, DeviceError> {
    let mut addresses = Vec::new();
    for address in list_functions(tree)? {
        if read_bound_driver(tree, address)?.as_deref() != Some(driver.as_str()) {
            continue;
        }
        // A driver may be bound to functions that are no accelerators.
        let names = list_class(tree, address, "accel")?;
        if names.iter().any(|name| is_accel(name)) {
            addresses.push(address);
        }
    }
    Ok(addresses)
}

/// Describes how many accelerators of a driver there are, and their numbers.
fn describe_count(driver: AccelDriver, count: usize) -> String {
    match count {
        0 => format!("the node has no accelerator of {driver}"),
        1 => format!("the node has one accelerator of {driver}, number 0"),
        _ => format!(
            "the node has {count} accelerators of {driver}, numbers 0 to {}",
            count - 1
        ),
    }
}
