//! One generic resource of a node, by its name and index.

use super::device_file::resolve_file;
use super::slurmd_answer::read_slurmd_gres;
use super::{DETECTED_RESOURCES, Dialect, GRES_CONF, GresConf, Resources, node_or_host_name};
use crate::node::{DeviceError, ResolvedDevices};
use crate::slurm_conf::{SlurmConfSearch, read_gres_types};

/// Resolves the devices, for reading and writing, of the generic resource `name`, which is `NAME` or
/// `NAME:TYPE`, with the index `index` on this node.
///
/// The index counts across types; `TYPE` only has to agree. Slurm counts by the lines of the file, so the
/// n-th file of a name may differ from the n-th GPU of the node. Only slurmd knows the order with `AutoDetect`,
/// and with several types, which it takes in the order of `Gres=` in `slurm.conf`.
///
/// # Errors
///
/// There is no such resource, it has no device, or the order of slurmd is needed and missing.
pub fn resolve(
    slurm_conf: &SlurmConfSearch,
    node_name: Option<&str>,
    name: &str,
    index: u32,
) -> Result<ResolvedDevices, DeviceError> {
    let tree = slurm_conf.tree();
    let files = slurm_conf.files()?;
    let lines = files.read_lines(GRES_CONF)?;
    // The file that errors name.
    let mut path = files.path_of(GRES_CONF).display().to_string();
    let node = node_or_host_name(node_name)?;
    let (resource, kind) = match name.split_once(':') {
        Some((resource, kind)) => (resource, Some(kind)),
        None => (name, None),
    };
    if !read_gres_types(files)?.contains(resource) {
        return Err(DeviceError::at(
            files.path_of("slurm.conf").display(),
            format_args!("GresTypes= has no {resource}, so Slurm has no such resource"),
        ));
    }
    // Which release of slurmd reads the file is not known here.
    let conf = GresConf::from_lines(&lines, &node, Dialect::default());
    let resources = match read_resources(&conf, resource)? {
        Ordered::ByFile(resources) => resources,
        Ordered::BySlurmd(unordered) => {
            let reported = read_slurmd_gres(tree, node_name, &node);
            let (slurmd_path, slurmd_conf) = reported.map_err(|fault| match unordered {
                Unordered::ByRelease(error) => error,
                Unordered::Always(why) => {
                    let advice = "the prolog asks slurmd with DEVICES=lists";
                    let why = format!("{why} leaves the order to Slurm; {advice}: {fault}");
                    DeviceError::at(&path, why)
                }
            })?;
            path = slurmd_path;
            slurmd_conf.resources(resource)?
        }
    };
    let Some((record, device_files)) = resources.resource(u64::from(index)) else {
        let why = match resources.count() {
            0 => format!("no record with Name={resource} for node {node}"),
            count => format!("Name={resource} has {count} here, counted from 0"),
        };
        return Err(DeviceError::at(path, why));
    };
    if kind.is_some_and(|kind| !record.kind.eq_ignore_ascii_case(kind)) {
        let why = match record.kind.as_str() {
            "" => "the record has no Type=".to_owned(),
            actual => format!("it is of type {actual}"),
        };
        return Err(DeviceError::at(&record.at, why));
    }
    if device_files.is_empty() {
        let why = "the record has no File=, so no device is known";
        return Err(DeviceError::at(&record.at, why));
    }
    let mut devices = Vec::new();
    for file in device_files {
        devices.push(resolve_file(tree, file)?);
    }
    Ok(devices.into())
}

/// The resources of one name, or why only slurmd knows their order.
enum Ordered {
    /// The records give the order.
    ByFile(Resources),
    BySlurmd(Unordered),
}

/// Why the order of resources is not that of their records.
enum Unordered {
    /// By this setting every slurmd has an order of its own.
    Always(&'static str),
    /// Only some releases read the file, and which one reads it is not known.
    ByRelease(DeviceError),
}

/// Reads the resources of a name as each release of slurmd reads them.
///
/// # Errors
///
/// A record that no release takes.
fn read_resources(conf: &GresConf, resource: &str) -> Result<Ordered, DeviceError> {
    if let Some(faulty) = conf.faulty_lines().first() {
        if !faulty.fault.depends_on_release() {
            return Err(faulty.clone().into());
        }
        let error = faulty.clone().into();
        return Ok(Ordered::BySlurmd(Unordered::ByRelease(error)));
    }
    let resources = match conf.resources(resource) {
        Err(faulty) if faulty.fault.depends_on_release() => {
            return Ok(Ordered::BySlurmd(Unordered::ByRelease(faulty.into())));
        }
        resources => resources?,
    };
    resources.check_as_slurmd()?;
    let is_detected = DETECTED_RESOURCES
        .iter()
        .any(|detected| detected.eq_ignore_ascii_case(resource));
    if is_detected && conf.has_auto_detect() {
        return Ok(Ordered::BySlurmd(Unordered::Always("AutoDetect")));
    }
    if resources.has_several_types() {
        return Ok(Ordered::BySlurmd(Unordered::Always("more than one Type=")));
    }
    Ok(Ordered::ByFile(resources))
}

#[cfg(test)]
mod tests;
