//! Slurm's generic resources by the files that `gres.conf` gives them.

mod conf;
mod error;
mod hostlist;
mod inventory;

use super::slurm::Files;
use super::{Device, Found, Settings, Tree, driver};
use crate::plan::Access;

pub use conf::{GresConf, Record, Resources};
pub use error::{GresError, GresFault};
pub use hostlist::{HostList, HostListError};
pub use inventory::Inventory;

/// The file, beside `slurm.conf`.
const NAME: &str = "gres.conf";
/// The resources of which Slurm finds the devices, and their order, itself where `AutoDetect` says
/// so: GPUs, and what shares them.
const DETECTED: [&str; 3] = ["gpu", "mps", "shard"];

/// The devices of one generic resource, for reading and writing: of `name`, which is `NAME` or
/// `NAME:TYPE`, that with the index `index` on this node. Slurm counts by the lines of the file, so
/// the n-th file of a name is not in general the n-th GPU of the node.
///
/// # Errors
/// [`GresError`] where there is no such resource, where it has no device, and where the order is not
/// that of the lines: with `AutoDetect`, and with several types.
pub fn resolve(
    tree: &Tree,
    settings: &Settings,
    name: &str,
    index: u32,
) -> Result<Found, GresError> {
    let files = Files::find(tree, settings)?;
    let (path, texts) = (files.path(NAME), files.lines(NAME)?);
    let node = node_name(settings)?;
    let (name, kind) = name.split_once(':').map_or((name, None), |(name, kind)| (name, Some(kind)));
    let conf = GresConf::of(&texts, &node).map_err(GresError::line)?;
    let resources = conf.resources(name).map_err(GresError::line)?;
    if conf.auto_detect() && DETECTED.iter().any(|own| own.eq_ignore_ascii_case(name)) {
        return Err(GresError::AutoDetect(path));
    }
    if let Some(at) = resources.other_type() {
        return Err(GresError::Types { path: at.file.to_path_buf(), line: at.line });
    }
    let (record, files) =
        resources.resource(u64::from(index)).ok_or_else(|| match resources.count() {
            0 => GresError::NoRecord { path: path.clone(), name: name.to_owned(), node },
            count => GresError::Index { path: path.clone(), name: name.to_owned(), count },
        })?;
    let (path, line) = (record.at.file.to_path_buf(), record.at.line);
    if kind.is_some_and(|kind| !record.kind.eq_ignore_ascii_case(kind)) {
        let kind = record.kind.clone();
        return Err(GresError::Type { path, line, kind });
    }
    if files.is_empty() {
        return Err(GresError::NoFile { path, line });
    }
    let devices = files.iter().map(|file| device(tree, file));
    Ok(devices.collect::<Result<Vec<_>, _>>()?.into())
}

/// The node's name in the file.
fn node_name(settings: &Settings) -> Result<String, GresError> {
    match &settings.node_name {
        Some(node) => Ok(node.clone()),
        None => {
            let host = nix::unistd::gethostname().map_err(GresError::HostName)?;
            Ok(host.to_string_lossy().into_owned())
        }
    }
}

fn device(tree: &Tree, file: &str) -> Result<Device, GresError> {
    let node = tree.node(file).map_err(|error| GresError::Node(file.to_owned(), error))?;
    driver::check(tree, file, node).map_err(GresError::Misfit)?;
    Device::of(file, node, Access::RW).map_err(|error| GresError::Number(file.to_owned(), error))
}

#[cfg(test)]
mod tests;
