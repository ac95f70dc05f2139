//! The devices of a MIG instance.
//!
//! A process uses an instance by opening the GPU's own node and the device nodes of two
//! capabilities: one of the GPU instance, one of the compute instance in it.

use super::capabilities::{CAPS_DRIVER, read_capability_minor};
use super::information::{find_by_uuid, list_gpus};
use super::shared::{require_major, resolve_expected_node, resolve_gpu_node, resolve_shared_nodes};
use super::uuid::Uuid;
use crate::node::{DeviceError, DeviceNode, ResolvedDevices, Tree};
use protocol::{Access, DeviceType};

/// Resolves the MIG instance of a GPU with these numbers, `gi` of the GPU instance and `ci` of the
/// compute instance in it: the GPU's node, the devices of [`resolve_shared_nodes`], and the
/// capabilities of both instances.
///
/// # Errors
///
/// The driver knows no such GPU, the instance does not exist now, or the driver's files disagree.
pub fn resolve_instance(
    tree: &Tree,
    gpu: &Uuid,
    gi: u32,
    ci: u32,
) -> Result<ResolvedDevices, DeviceError> {
    let gpus = list_gpus(tree)?;
    let parent = find_by_uuid(&gpus, gpu)?;
    let mut found = resolve_gpu_node(tree, parent)?;
    found.extend(resolve_shared_nodes(tree)?);
    for instance in [format!("gi{gi}"), format!("gi{gi}/ci{ci}")] {
        found.extend(resolve_capability(tree, parent.minor, &instance)?);
    }
    Ok(found)
}

/// Resolves the device of one capability of the GPU with the minor `gpu`. Read access suffices: the
/// driver checks only which device a process has opened (`nv_cap_validate_and_dup_fd`), and gives the
/// node mode 0444.
fn resolve_capability(
    tree: &Tree,
    gpu: u32,
    instance: &str,
) -> Result<ResolvedDevices, DeviceError> {
    let minor = read_capability_minor(tree, gpu, instance)?;
    let major = require_major(tree, CAPS_DRIVER)?;
    let node = DeviceNode {
        kind: DeviceType::Char,
        major,
        minor,
    };
    let path = format!("/dev/nvidia-caps/nvidia-cap{minor}");
    resolve_expected_node(tree, &path, node, Access::READ)
}
