//! Slurm's generic resources by the files that `gres.conf` gives them.

mod conf;
mod hostlist;
mod inventory;

use super::slurm::{At, Files, Text, joined};
use super::tree::missing_is;
use super::{Device, DeviceError, Found, Settings, Tree, driver};
use crate::protocol::Access;
use std::path::Path;

pub use conf::{GresConf, Record, Resources};
pub use hostlist::{HostList, HostListError};
pub use inventory::Inventory;

/// The file, beside `slurm.conf`.
const NAME: &str = "gres.conf";
/// The resources of which Slurm finds the devices, and their order, itself where `AutoDetect` says
/// so: GPUs, and what shares them.
const DETECTED: [&str; 3] = ["gpu", "mps", "shard"];

/// What slurmd says that the node has, in the order that it counts by: the prolog writes it in the form
/// of `gres.conf`, with [`stamp`] before it.
const TOLD: &str = "/run/job-adopt/gres.conf";
const TOLD_MAX: u64 = 1024 * 1024;
/// Drivers by which the GPUs that Slurm finds may come to be others.
const GPU_DRIVERS: [&str; 4] = ["nvidia", "amdgpu", "i915", "xe"];

/// The devices of one generic resource, for reading and writing: of `name`, which is `NAME` or
/// `NAME:TYPE`, that with the index `index` on this node. Slurm counts by the lines of the file, so
/// the n-th file of a name is not in general the n-th GPU of the node. With `AutoDetect`, and with
/// several types, which it takes in the order of `Gres=` in `slurm.conf`, only slurmd tells.
/// Fails: there is no such resource, it has no device, or slurmd was not asked.
pub fn resolve(
    tree: &Tree,
    settings: &Settings,
    name: &str,
    index: u32,
) -> Result<Found, DeviceError> {
    let files = Files::find(tree, settings)?;
    let (path, texts) = (files.path(NAME), files.lines(NAME)?);
    let mut path = path.display().to_string();
    let node = node_name(settings)?;
    let (name, kind) = name.split_once(':').map_or((name, None), |(name, kind)| (name, Some(kind)));
    let conf = GresConf::of(&texts, &node).map_err(line_error)?;
    let mut resources = conf.resources(name).map_err(line_error)?;
    let finds = conf.auto_detect() && DETECTED.iter().any(|own| own.eq_ignore_ascii_case(name));
    if finds || resources.several_types() {
        let why = if finds { "AutoDetect" } else { "more than one Type=" };
        let conf = told(tree, &node).map_err(|fault| {
            let advice = "the prolog asks slurmd with DEVICES=lists";
            DeviceError::at(
                &path,
                format_args!("{why} leaves the order to Slurm; {advice}: {fault}"),
            )
        })?;
        resources = conf.resources(name).map_err(line_error)?;
        path = TOLD.to_owned();
    }
    let (record, files) =
        resources.resource(u64::from(index)).ok_or_else(|| match resources.count() {
            0 => DeviceError::at(&path, format_args!("no record with Name={name} for node {node}")),
            count => {
                DeviceError::at(&path, format_args!("Name={name} has {count} here, counted from 0"))
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

/// What slurmd has told of the node, if that is so still.
fn told(tree: &Tree, node: &str) -> Result<GresConf, DeviceError> {
    let bytes =
        tree.trust().read(&tree.at(TOLD), TOLD_MAX).map_err(|error| match error.is_missing() {
            true => DeviceError::at(TOLD, "it was not asked yet"),
            false => error.into(),
        })?;
    let text = String::from_utf8_lossy(&bytes);
    if text.lines().next() != Some(&stamp(tree)?) {
        return Err(DeviceError::at(TOLD, "of another boot or driver"));
    }
    let at = |line| At { file: Path::new(TOLD).into(), line };
    let texts = joined(&text).into_iter().map(|(line, text)| Text { at: at(line), text });
    GresConf::of(&texts.collect::<Vec<_>>(), node).map_err(line_error)
}

/// A comment that names this boot and the versions of the drivers of GPUs.
fn stamp(tree: &Tree) -> Result<String, DeviceError> {
    let mut stamp = format!("# {}", tree.text("/proc/sys/kernel/random/boot_id")?.trim_end());
    for driver in GPU_DRIVERS {
        let text = |name| tree.text(&format!("/sys/module/{driver}/{name}"));
        // One of the kernel's own has no version.
        let version = text("version").or_else(|_| text("initstate"));
        stamp = format!("{stamp} {}", version.or_else(missing_is(|| "-".into()))?.trim_end());
    }
    Ok(stamp)
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
