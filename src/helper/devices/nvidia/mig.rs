//! MIG instances by the capability files of the driver (`kernel-open/nvidia/nv-caps.c`).
//!
//! A process uses an instance by opening the device nodes of two capabilities, that of the GPU
//! instance and that of the compute instance in it, beside the GPU's own node. The driver keeps a
//! fixed minor for each instance that could ever exist; which of them exist now, a directory tells.

use super::information::{by_uuid, value};
use super::{CAPS, gpus, loaded, node, promised, shared};
use crate::helper::devices::gpu_name::Uuid;
use crate::helper::devices::tree::missing_is;
use crate::helper::devices::{DeviceError, FileError, Found, Node, Tree};
use crate::protocol::{Access, DeviceType, decimal};

/// The instances that exist.
const LIVE: &str = "/proc/driver/nvidia/capabilities";
/// The minors of every MIG instance that could exist, and of configuring and monitoring them.
const MIG_MINORS: &str = "/proc/driver/nvidia-caps/mig-minors";
/// The same for what manages the links between GPUs.
const OTHER_MINORS: [&str; 2] =
    ["/proc/driver/nvidia-caps/nvlink-minors", "/proc/driver/nvidia-caps/sys-minors"];

/// A MIG instance of a GPU: the parent's node, what [`shared`] says, and the capabilities of both
/// instances.
/// Fails: the driver knows no such GPU, the instance does not exist now, or the driver's files
/// disagree.
pub fn instance(tree: &Tree, gpu: &Uuid, gi: u32, ci: u32) -> Result<Found, DeviceError> {
    let gpus = gpus(tree)?;
    let parent = by_uuid(&gpus, gpu).map_err(DeviceError::new)?;
    let minor = parent.minor;
    let mut found = node(tree, parent)?;
    found.extend(shared(tree)?);
    for below in [format!("gi{gi}"), format!("gi{gi}/ci{ci}")] {
        found.extend(capability(tree, minor, &below)?);
    }
    Ok(found)
}

/// The device of one capability. Reading suffices: the driver looks only at which device a process
/// has opened (`nv_cap_validate_and_dup_fd`), and gives the node mode 0444.
fn capability(tree: &Tree, gpu: u32, below: &str) -> Result<Found, DeviceError> {
    let path = format!("{LIVE}/gpu{gpu}/mig/{below}/access");
    let text = match tree.text(&path) {
        Err(error) if error.is_missing() => {
            let text = format_args!("no such MIG instance exists now ({path} is not there)");
            return Err(DeviceError::new(text));
        }
        text => text?,
    };
    let odd = || DeviceError::at(&path, "no DeviceFileMinor");
    let minor = device_file_minor(&text).ok_or_else(odd)?;
    match tree.text(MIG_MINORS) {
        Err(error) if error.is_missing() => {}
        table => {
            let listed = minor_of(&table?, &format!("gpu{gpu}/{below}/access"));
            if listed != Some(minor) {
                let listed = match listed {
                    Some(listed) => format!("mig-minors has {listed}"),
                    None => "mig-minors does not list it".to_owned(),
                };
                let text = format_args!("{path} has minor {minor}, but {listed}");
                return Err(DeviceError::new(text));
            }
        }
    }
    let node = Node { kind: DeviceType::Char, major: loaded(tree, CAPS)?, minor };
    promised(tree, &format!("/dev/nvidia-caps/nvidia-cap{minor}"), node, Access::READ)
}

/// Whether a minor is the capability of a MIG instance that exists now.
pub(in crate::helper::devices) fn is_instance(tree: &Tree, minor: u32) -> Result<bool, FileError> {
    for gpu in numbered(tree, LIVE, "gpu")? {
        for gi in numbered(tree, &format!("{gpu}/mig"), "gi")? {
            let mut parts = numbered(tree, &gi, "ci")?;
            parts.push(gi);
            for part in parts {
                if live_minor(tree, &part)? == Some(minor) {
                    return Ok(true);
                }
            }
        }
    }
    Ok(false)
}

/// Whether there is any MIG instance now.
pub fn has_instances(tree: &Tree) -> Result<bool, FileError> {
    for gpu in numbered(tree, LIVE, "gpu")? {
        if !numbered(tree, &format!("{gpu}/mig"), "gi")?.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

fn live_minor(tree: &Tree, dir: &str) -> Result<Option<u32>, FileError> {
    let text = tree.text(&format!("{dir}/access")).or_else(missing_is(String::new))?;
    Ok(device_file_minor(&text))
}

/// What the driver keeps a minor of the capabilities for, as `config` or `gpu0/gi1/access`.
pub(in crate::helper::devices) fn capability_name(
    tree: &Tree,
    minor: u32,
) -> Result<Option<String>, FileError> {
    for path in std::iter::once(MIG_MINORS).chain(OTHER_MINORS) {
        let text = tree.text(path).or_else(missing_is(String::new))?;
        if let Some((name, _)) = table(&text).find(|(_, of)| *of == minor) {
            return Ok(Some(name.to_owned()));
        }
    }
    Ok(None)
}

/// The paths of the entries of a directory that are `prefix` and a number. None where there is no
/// such directory: instances come and go.
fn numbered(tree: &Tree, dir: &str, prefix: &str) -> Result<Vec<String>, FileError> {
    let names = tree.names(dir).or_else(missing_is(Vec::new))?;
    let fits = |name: &&String| name.strip_prefix(prefix).and_then(decimal).is_some();
    Ok(names.iter().filter(fits).map(|name| format!("{dir}/{name}")).collect())
}

fn device_file_minor(text: &str) -> Option<u32> {
    value(text, "DeviceFileMinor").and_then(decimal)
}

fn minor_of(text: &str, name: &str) -> Option<u32> {
    table(text).find(|(of, _)| *of == name).map(|(_, minor)| minor)
}

/// Lines of a name, a blank and a minor.
fn table(text: &str) -> impl Iterator<Item = (&str, u32)> {
    text.lines().filter_map(|line| {
        let (name, minor) = line.split_once(' ')?;
        decimal(minor.trim_end()).map(|minor| (name, minor))
    })
}
