//! The resources of a node as its slurmd reports and counts them, in a file of our prolog.

use super::{Dialect, GresConf};
use crate::node::{DeviceError, Tree, none_if_missing};
use crate::slurm_conf::ConfLine;
use protocol::NodeName;
use std::path::Path;

/// Beginning of the path of a file with the resources of a node as its slurmd reports and counts them
/// ([`slurmd_gres_path`]). The prolog writes it in the form of `gres.conf`, after the line of [`boot_stamp`].
const SLURMD_GRES: &str = "/run/job-adopt/gres";
const SLURMD_GRES_BYTES_MAX: u64 = 1024 * 1024;
/// GPU drivers. Loading another version may change the GPUs that Slurm detects.
const GPU_DRIVERS: [&str; 4] = ["nvidia", "amdgpu", "i915", "xe"];

/// Reads the resources that the node's slurmd reported. Returns the path of the file as well: each of several slurmd on a
/// host has its own. A host may have its name in Slurm in full or up to the first dot; a configured name is exact.
///
/// # Errors
///
/// The file is missing, not trusted or malformed, or of another boot or driver; the name is none of a node in Slurm.
pub(super) fn read_slurmd_gres(
    tree: &Tree,
    configured: Option<&str>,
    node: &str,
) -> Result<(String, GresConf), DeviceError> {
    let mut path = slurmd_gres_path(node)?;
    let mut bytes = read_if_exists(tree, &path)?;
    if let (None, None, Some((short, _))) = (configured, &bytes, node.split_once('.')) {
        path = slurmd_gres_path(short)?;
        bytes = read_if_exists(tree, &path)?;
    }
    let Some(bytes) = bytes else {
        return Err(DeviceError::at(path, "it was not asked yet"));
    };
    let text = String::from_utf8_lossy(&bytes);
    if text.lines().next() != Some(&boot_stamp(tree)?) {
        return Err(DeviceError::at(path, "of another boot or driver"));
    }
    let lines = ConfLine::parse_all(&text, Path::new(&path));
    let conf = GresConf::from_lines(&lines, node, Dialect::default());
    conf.require_readable()?;
    Ok((path, conf))
}

/// Makes the path of the answer of this node's slurmd.
///
/// # Errors
///
/// The name is none of a node in Slurm, and might lead to another file.
fn slurmd_gres_path(node: &str) -> Result<String, DeviceError> {
    match node.parse::<NodeName>() {
        Ok(name) => Ok(format!("{SLURMD_GRES}-{name}.conf")),
        Err(error) => Err(DeviceError::at(format_args!("node {node:?}"), error)),
    }
}

/// Reads an answer of slurmd; `None` if there is none.
fn read_if_exists(tree: &Tree, path: &str) -> Result<Option<Vec<u8>>, DeviceError> {
    match tree.trust().read(&tree.locate(path), SLURMD_GRES_BYTES_MAX) {
        Err(error) if error.is_missing() => Ok(None),
        result => Ok(Some(result?)),
    }
}

/// Makes the first line of slurmd's answer, which the prolog writes in the same way: a comment that names this boot and
/// the versions of the GPU drivers, `-` for one that is not loaded.
fn boot_stamp(tree: &Tree) -> Result<String, DeviceError> {
    let boot_id = tree.read_boot_id()?;
    let mut stamp = format!("# {boot_id}");
    for driver in GPU_DRIVERS {
        let dir = format!("/sys/module/{driver}");
        let version = tree
            .read_text(&format!("{dir}/version"))
            // A driver of the kernel itself has no version.
            .or_else(|_| tree.read_text(&format!("{dir}/initstate")));
        let version = none_if_missing(version)?.unwrap_or_else(|| "-".to_owned());
        stamp = format!("{stamp} {}", version.trim_end());
    }
    Ok(stamp)
}
