//! MIG instances by the capability files of the driver (`kernel-open/nvidia/nv-caps.c`).
//!
//! A process uses an instance by opening the GPU's own node and the device nodes of two
//! capabilities: one of the GPU instance, one of the compute instance in it. The driver reserves a
//! fixed minor for each instance that could ever exist; a directory lists those that exist now.

use super::information::{find_by_uuid, find_value};
use super::uuid::Uuid;
use super::{
    CAPS_DRIVER, list_gpus, require_major, resolve_expected_node, resolve_gpu_node,
    resolve_shared_nodes,
};
use crate::node::tree::if_missing;
use crate::node::{DeviceError, DeviceNode, FileError, ResolvedDevices, Tree};
use protocol::{Access, DeviceType, parse_decimal};

/// Directory of the instances that exist.
const CAPABILITIES_DIR: &str = "/proc/driver/nvidia/capabilities";
/// Minors of every MIG instance that could exist, and of the devices that configure and monitor
/// them.
const MIG_MINORS: &str = "/proc/driver/nvidia-caps/mig-minors";
/// Minors of the devices that manage the links between GPUs.
const OTHER_MINOR_TABLES: [&str; 2] =
    ["/proc/driver/nvidia-caps/nvlink-minors", "/proc/driver/nvidia-caps/sys-minors"];

/// Resolves a MIG instance of a GPU: the parent's node, the devices of [`resolve_shared_nodes`], and
/// the capabilities of both instances.
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
    let parent = find_by_uuid(&gpus, gpu).map_err(DeviceError::new)?;
    let minor = parent.minor;
    let mut found = resolve_gpu_node(tree, parent)?;
    found.extend(resolve_shared_nodes(tree)?);
    for below in [format!("gi{gi}"), format!("gi{gi}/ci{ci}")] {
        found.extend(resolve_capability(tree, minor, &below)?);
    }
    Ok(found)
}

/// Resolves the device of one capability. Read access suffices: the driver checks only which device
/// a process has opened (`nv_cap_validate_and_dup_fd`), and gives the node mode 0444.
fn resolve_capability(tree: &Tree, gpu: u32, below: &str) -> Result<ResolvedDevices, DeviceError> {
    let path = format!("{CAPABILITIES_DIR}/gpu{gpu}/mig/{below}/access");
    let text = match tree.read_text(&path) {
        Err(error) if error.is_missing() => {
            let text = format!("no such MIG instance exists now ({path} is not there)");
            return Err(DeviceError::new(text));
        }
        text => text?,
    };
    let minor = parse_device_file_minor(&text)
        .ok_or_else(|| DeviceError::at(&path, "no DeviceFileMinor"))?;
    match tree.read_text(MIG_MINORS) {
        Err(error) if error.is_missing() => {}
        table => {
            let listed = find_listed_minor(&table?, &format!("gpu{gpu}/{below}/access"));
            if listed != Some(minor) {
                let listed = match listed {
                    Some(listed) => format!("mig-minors has {listed}"),
                    None => "mig-minors does not list it".to_owned(),
                };
                let text = format!("{path} has minor {minor}, but {listed}");
                return Err(DeviceError::new(text));
            }
        }
    }
    let node =
        DeviceNode { kind: DeviceType::Char, major: require_major(tree, CAPS_DRIVER)?, minor };
    resolve_expected_node(tree, &format!("/dev/nvidia-caps/nvidia-cap{minor}"), node, Access::READ)
}

/// Returns whether a minor is the capability of a MIG instance that exists now.
pub(crate) fn is_live_instance(tree: &Tree, minor: u32) -> Result<bool, FileError> {
    for gpu in list_numbered(tree, CAPABILITIES_DIR, "gpu")? {
        for gi in list_numbered(tree, &format!("{gpu}/mig"), "gi")? {
            let mut parts = list_numbered(tree, &gi, "ci")?;
            parts.push(gi);
            for part in parts {
                if read_live_minor(tree, &part)? == Some(minor) {
                    return Ok(true);
                }
            }
        }
    }
    Ok(false)
}

/// Returns whether any MIG instance exists now.
///
/// # Errors
///
/// [`FileError`] if a directory of the driver cannot be listed.
pub fn has_instances(tree: &Tree) -> Result<bool, FileError> {
    for gpu in list_numbered(tree, CAPABILITIES_DIR, "gpu")? {
        if !list_numbered(tree, &format!("{gpu}/mig"), "gi")?.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

fn read_live_minor(tree: &Tree, dir: &str) -> Result<Option<u32>, FileError> {
    let text = tree.read_text(&format!("{dir}/access")).or_else(if_missing(String::new))?;
    Ok(parse_device_file_minor(&text))
}

/// Returns the name of the capability that a minor is reserved for, such as `config` or
/// `gpu0/gi1/access`.
pub(crate) fn find_capability_name(tree: &Tree, minor: u32) -> Result<Option<String>, FileError> {
    for path in std::iter::once(MIG_MINORS).chain(OTHER_MINOR_TABLES) {
        let text = tree.read_text(path).or_else(if_missing(String::new))?;
        if let Some((name, _)) = parse_minor_table(&text).find(|(_, own_minor)| *own_minor == minor)
        {
            return Ok(Some(name.to_owned()));
        }
    }
    Ok(None)
}

/// Returns the paths of the entries of a directory that are `prefix` and a number; none if the
/// directory is missing, since instances come and go.
fn list_numbered(tree: &Tree, dir: &str, prefix: &str) -> Result<Vec<String>, FileError> {
    let names = tree.list_names(dir).or_else(if_missing(Vec::new))?;
    let fits = |name: &&String| name.strip_prefix(prefix).and_then(parse_decimal).is_some();
    Ok(names.iter().filter(fits).map(|name| format!("{dir}/{name}")).collect())
}

fn parse_device_file_minor(text: &str) -> Option<u32> {
    find_value(text, "DeviceFileMinor").and_then(parse_decimal)
}

fn find_listed_minor(text: &str, name: &str) -> Option<u32> {
    parse_minor_table(text).find(|(own_name, _)| *own_name == name).map(|(_, minor)| minor)
}

/// Parses lines of a name, a blank and a minor.
fn parse_minor_table(text: &str) -> impl Iterator<Item = (&str, u32)> {
    text.lines().filter_map(|line| {
        let (name, minor) = line.split_once(' ')?;
        parse_decimal(minor.trim_end()).map(|minor| (name, minor))
    })
}
