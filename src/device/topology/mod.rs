//! The GPUs of a node by number and by PCI address, of whatever vendor.

use std::fmt;

use super::gpu_name::PciAddress;
use super::{Device, Found, Tree};

/// The n-th GPU of the node.
///
/// # Errors
/// [`TopologyError`].
pub fn by_index(tree: &Tree, index: u32) -> Result<Found, TopologyError> {
    let _ = (tree, index);
    Err(TopologyError::Later)
}

/// The GPU at a PCI address.
///
/// # Errors
/// [`TopologyError`].
pub fn by_address(tree: &Tree, address: PciAddress) -> Result<Found, TopologyError> {
    let _ = (tree, address);
    Err(TopologyError::Later)
}

/// What the GPUs among these devices cannot be used without: the devices that all GPUs of a vendor
/// share.
///
/// # Errors
/// [`TopologyError`].
pub fn companions(tree: &Tree, devices: &[Device]) -> Result<Found, TopologyError> {
    let _ = (tree, devices);
    Err(TopologyError::Later)
}

/// Why there is no such GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TopologyError {
    /// Not there yet.
    Later,
}

impl fmt::Display for TopologyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("this version cannot resolve it")
    }
}

impl std::error::Error for TopologyError {}
