//! Which GPU of NVIDIA's a list of devices is about, against what the driver says.

use super::{Gpu, MINOR_MAX, NvidiaError};
use crate::device::Device;
use crate::device::gpu_name::Uuid;
use crate::plan::DeviceType;

/// Major of the nodes of GPUs (`NV_MAJOR_DEVICE_NUMBER`, `kernel-open/common/inc/nv.h`).
const MAJOR: u32 = 195;

/// The GPU of which these devices hold the node; `None` where they hold none that the driver has,
/// or several.
#[must_use]
pub fn only_gpu<'a>(gpus: &'a [Gpu], devices: &[Device]) -> Option<&'a Gpu> {
    match minors(devices).as_slice() {
        [minor] => gpus.iter().find(|gpu| gpu.minor == *minor),
        _ => None,
    }
}

/// Holds the devices that a specification gives the GPU of this UUID against the driver: minors are
/// given out anew at each boot, and a specification of before gives away another job's GPU.
/// Nothing can be said where the driver does not know the UUIDs of its GPUs yet.
///
/// # Errors
/// [`NvidiaError::Other`] for another GPU's node, [`NvidiaError::NoUuid`] where every GPU of the
/// driver's has another UUID.
pub fn confirm(gpus: &[Gpu], uuid: &Uuid, devices: &[Device]) -> Result<(), NvidiaError> {
    match gpus.iter().find(|gpu| gpu.uuid.as_ref() == Some(uuid)) {
        Some(gpu) => match minors(devices).into_iter().find(|minor| *minor != gpu.minor) {
            None => Ok(()),
            Some(other) => Err(NvidiaError::Other { uuid: uuid.clone(), minor: gpu.minor, other }),
        },
        None if gpus.is_empty() || gpus.iter().any(|gpu| gpu.uuid.is_none()) => Ok(()),
        None => Err(NvidiaError::NoUuid { uuid: uuid.clone(), silent: 0 }),
    }
}

fn minors(devices: &[Device]) -> Vec<u32> {
    let mut minors: Vec<u32> = devices
        .iter()
        .map(|device| device.rule)
        .filter(|rule| rule.kind() == DeviceType::Char && rule.major() == MAJOR)
        .filter_map(|rule| rule.minor().filter(|minor| *minor <= MINOR_MAX))
        .collect();
    minors.sort_unstable();
    minors.dedup();
    minors
}
