//! Slurm's generic resources by the files that `gres.conf` gives them.

mod conf;
mod hostlist;
mod inventory;

use super::slurm::{At, Files};
use super::{Device, DeviceError, Found, Settings, Tree, driver};
use crate::protocol::Access;

pub use conf::{GresConf, Record, Resources};
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
/// Fails: there is no such resource, it has no device, or the order is not that of the lines: with
/// `AutoDetect`, and with several types.
pub fn resolve(
    tree: &Tree,
    settings: &Settings,
    name: &str,
    index: u32,
) -> Result<Found, DeviceError> {
    let files = Files::find(tree, settings)?;
    let (path, texts) = (files.path(NAME), files.lines(NAME)?);
    let path = path.display();
    let node = node_name(settings)?;
    let (name, kind) = name.split_once(':').map_or((name, None), |(name, kind)| (name, Some(kind)));
    let conf = GresConf::of(&texts, &node).map_err(line_error)?;
    let resources = conf.resources(name).map_err(line_error)?;
    if conf.auto_detect() && DETECTED.iter().any(|own| own.eq_ignore_ascii_case(name)) {
        return Err(DeviceError::at(
            path,
            "AutoDetect leaves the order of the GPUs to Slurm; name them by UUID, or set \
             AutoDetect=off and write File= lines",
        ));
    }
    if let Some(at) = resources.other_type() {
        return Err(DeviceError::at(
            at,
            "another Type= than before; which comes first is for Gres= of slurm.conf to say, so \
             name the devices by UUID, address or path",
        ));
    }
    let (record, files) =
        resources.resource(u64::from(index)).ok_or_else(|| match resources.count() {
            0 => DeviceError::at(path, format_args!("no record with Name={name} for node {node}")),
            count => {
                DeviceError::at(path, format_args!("Name={name} has {count} here, counted from 0"))
            }
        })?;
    let failed = |why: &str| Err(DeviceError::at(&record.at, why));
    if kind.is_some_and(|kind| !record.kind.eq_ignore_ascii_case(kind)) {
        return match record.kind.as_str() {
            "" => failed("the record has no Type="),
            own => failed(&format!("it is of type {own}")),
        };
    }
    if files.is_empty() {
        return failed("the record has no File=, so no device is known");
    }
    let devices = files.iter().map(|file| device(tree, file));
    Ok(devices.collect::<Result<Vec<_>, _>>()?.into())
}

fn node_name(settings: &Settings) -> Result<String, DeviceError> {
    match &settings.node_name {
        Some(node) => Ok(node.clone()),
        None => {
            let failed =
                |errno: nix::errno::Errno| DeviceError::at("get the host's name", errno.desc());
            let host = nix::unistd::gethostname().map_err(failed)?;
            Ok(host.to_string_lossy().into_owned())
        }
    }
}

fn device(tree: &Tree, file: &str) -> Result<Device, DeviceError> {
    let node = tree.node(file).map_err(|error| DeviceError::at(file, error))?;
    driver::check(tree, file, node)?;
    Device::of(file, node, Access::RW)
}

fn line_error((at, fault): (At, String)) -> DeviceError {
    DeviceError::at(at, fault)
}

#[cfg(test)]
mod tests;
