//! Holds what a specification says of NVIDIA's and Intel's GPUs against their drivers. Of AMD's it
//! says nothing that could be held against anything.
//!
//! Minors are given out anew at each boot, and those of DRM at each load of a driver. The node
//! that a file of before names is there then, and of the right driver, but another GPU's.

use super::NVIDIA_KIND;
use crate::helper::devices::cdi::{self, Catalog};
use crate::helper::devices::gpu_name::{PciAddress, Uuid};
use crate::helper::devices::nvidia::{self, Gpu};
use crate::helper::devices::{DeviceError, Found, GpuName, Tree, topology};

/// The kind of Intel's GPUs in the specifications that its own tools write.
const INTEL_KIND: &str = "intel.com/gpu";

/// Holds the device of this name against the driver. Where it is one GPU or a part of one under a
/// name that the driver does not know, as an index, what its file says of that GPU's UUID has to be
/// so. A GPU of Intel's has its address in its name.
/// Fails: the specification and a driver disagree.
pub(super) fn confirm(tree: &Tree, catalog: &Catalog, name: &String) -> Result<(), DeviceError> {
    let resolved = || {
        let names = std::slice::from_ref(name);
        cdi::resolve(tree, catalog, names).map_err(|error| error.why)
    };
    if let Some(address) = intel(name) {
        let own = resolved()?;
        return topology::confirm_drm(tree, &[address], &own.devices);
    }
    let Some(device) = device(name) else { return Ok(()) };
    let own = resolved()?;
    if uuid(device).is_none() && nvidia::minors(&own.devices).is_empty() {
        return Ok(());
    }
    let gpus = nvidia::gpus(tree)?;
    if let Some(uuid) = uuid(device) {
        nvidia::confirm(&gpus, &uuid, &own.devices)?;
    } else if let [minor] = nvidia::minors(&own.devices).as_slice() {
        for (uuid, said) in known(tree, catalog, name) {
            let is = |gpu: &Gpu| gpu.minor == *minor && gpu.uuid.as_ref() == Some(&uuid);
            if nvidia::minors(&said.devices).contains(minor) || gpus.iter().any(is) {
                nvidia::confirm(&gpus, &uuid, &said.devices)?;
            }
        }
    }
    drm(tree, &gpus, &own)
}

/// The GPUs that the file of `name` names by their UUIDs, with what it says of them.
fn known(tree: &Tree, catalog: &Catalog, name: &str) -> Vec<(Uuid, Found)> {
    let gpu = |name: String| {
        let uuid = device(&name).and_then(uuid)?;
        let found = cdi::resolve(tree, catalog, &[name]).ok()?;
        Some((uuid, found))
    };
    let gpus = |device: &str| uuid(device).is_some();
    cdi::siblings(catalog, name, gpus).into_iter().filter_map(gpu).collect()
}

/// DRM nodes that come with the nodes of GPUs have to be of the same GPUs.
fn drm(tree: &Tree, gpus: &[Gpu], own: &Found) -> Result<(), DeviceError> {
    let minors = nvidia::minors(&own.devices);
    let mine = gpus.iter().filter(|gpu| minors.contains(&gpu.minor)).map(|gpu| gpu.address);
    let addresses: Vec<_> = mine.collect();
    match addresses.is_empty() {
        true => Ok(()),
        false => topology::confirm_drm(tree, &addresses, &own.devices),
    }
}

/// The name without the kind, if that is one that NVIDIA's own tools give the GPUs: that of the
/// toolkit, or one of its sub-domains, as of the device plugin.
fn device(name: &str) -> Option<&str> {
    let (kind, device) = name.split_once('=')?;
    let before = kind.strip_suffix(NVIDIA_KIND)?;
    (before.is_empty() || before.ends_with('.')).then_some(device)
}

/// The address in the name that Intel's own tools give a GPU, as `0000-00-02-0-0x56c0`.
fn intel(name: &str) -> Option<PciAddress> {
    let mut parts = name.strip_prefix(INTEL_KIND)?.strip_prefix('=')?.splitn(5, '-');
    let mut part = || parts.next();
    let (domain, bus, device, function) = (part()?, part()?, part()?, part()?);
    format!("{domain}:{bus}:{device}.{function}").parse().ok()
}

fn uuid(device: &str) -> Option<Uuid> {
    match device.parse() {
        Ok(GpuName::Uuid(uuid)) => Some(uuid),
        _ => None,
    }
}
