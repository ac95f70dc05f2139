//! The device files that records name.

use crate::node::{Device, DeviceError, NodeError, Tree, driver};
use protocol::Access;

/// Resolves a device file of a record, for reading and writing.
///
/// # Errors
///
/// The file is missing, no device, outside of `/dev` behind its links, or must not be a job's.
pub(super) fn resolve_file(tree: &Tree, file: &str) -> Result<Device, DeviceError> {
    let failed = |error| DeviceError::at(file, error);
    let path = real_path(tree, file).map_err(failed)?;
    let node = tree.read_node(&path).map_err(failed)?;
    driver::check_node(tree, &path, node)?;
    Device::from_node(&path, node, Access::RW)
}

/// Finds the path of a file behind symbolic links, which slurmd follows as well.
///
/// # Errors
///
/// The links cannot be followed, or lead outside of `/dev`.
fn real_path(tree: &Tree, file: &str) -> Result<String, NodeError> {
    let path = tree.follow_links(file)?;
    if path.starts_with("/dev/") {
        Ok(path)
    } else {
        Err(NodeError::SymbolicLink)
    }
}

/// Finds the device of a file, whatever its driver; `None` if there is none.
pub(super) fn find_device(tree: &Tree, file: &str) -> Option<Device> {
    let path = real_path(tree, file).ok()?;
    let node = tree.read_node(&path).ok()?;
    Device::from_node(&path, node, Access::RW).ok()
}
