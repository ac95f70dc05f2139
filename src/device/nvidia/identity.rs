//! Which GPU of NVIDIA's a list of devices is about, against what the driver says.

use super::{Gpu, NvidiaError};
use crate::device::gpu_name::Uuid;
use crate::device::{Device, major};
use crate::plan::DeviceType;

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
/// Nothing can be said of GPUs of which the driver does not know the UUID yet.
///
/// # Errors
/// [`NvidiaError::Other`] for another node than the GPU's, [`NvidiaError::Taken`] for the node of a
/// GPU that has another UUID, [`NvidiaError::NoUuid`] where every GPU of the driver's has another.
pub fn confirm(gpus: &[Gpu], uuid: &Uuid, devices: &[Device]) -> Result<(), NvidiaError> {
    let own = gpus.iter().find(|gpu| gpu.uuid.as_ref() == Some(uuid));
    for other in minors(devices) {
        let of = gpus.iter().find(|gpu| gpu.minor == other).and_then(|gpu| gpu.uuid.clone());
        match (own, of) {
            (Some(gpu), _) if gpu.minor != other => {
                let minor = gpu.minor;
                return Err(NvidiaError::Other { uuid: uuid.clone(), minor, other });
            }
            (None, Some(of)) => {
                return Err(NvidiaError::Taken { uuid: uuid.clone(), minor: other, of });
            }
            _ => {}
        }
    }
    if own.is_none() && !gpus.is_empty() && gpus.iter().all(|gpu| gpu.uuid.is_some()) {
        return Err(NvidiaError::NoUuid { uuid: uuid.clone(), silent: 0 });
    }
    Ok(())
}

/// Minors of the GPUs of which these devices hold the nodes, ascending.
#[must_use]
pub fn minors(devices: &[Device]) -> Vec<u32> {
    let mut minors: Vec<u32> = devices
        .iter()
        .map(|device| device.rule)
        .filter(|rule| rule.kind() == DeviceType::Char && rule.major() == major::NVIDIA)
        .filter_map(|rule| rule.minor().filter(|minor| major::NVIDIA_GPUS.contains(minor)))
        .collect();
    minors.sort_unstable();
    minors.dedup();
    minors
}
