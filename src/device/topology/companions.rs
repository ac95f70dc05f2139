//! What GPUs that were named by their own nodes cannot be used without.

use super::card::missing_is;
use super::{TopologyError, nodes};
use crate::device::{Device, FileError, Found, Tree, major, nvidia};
use crate::plan::DeviceType;

/// Names of the driver of NVIDIA's GPUs in `/proc/devices`, from R550 on and before.
const NVIDIA: [&str; 2] = ["nvidia", "nvidia-frontend"];

/// What the GPUs among these devices cannot be used without: the devices that all GPUs of a vendor
/// share. `gres.conf` names the GPUs' own nodes, since Slurm leaves the others open to everyone.
///
/// # Errors
/// [`TopologyError`].
pub fn companions(tree: &Tree, devices: &[Device]) -> Result<Found, TopologyError> {
    let mut found = Found::default();
    let of = |major: u32| {
        let chars = devices.iter().map(|device| device.rule);
        chars
            .filter(move |rule| rule.kind() == DeviceType::Char && rule.major() == major)
            .filter_map(|rule| rule.minor())
    };
    if !devices.is_empty() {
        let drivers = tree.drivers()?;
        let mut majors = NVIDIA.iter().flat_map(|name| drivers.majors(DeviceType::Char, name));
        if majors.any(|major| of(major).any(|minor| major::NVIDIA_GPUS.contains(&minor))) {
            found.extend(nvidia::shared(tree)?);
        }
    }
    for minor in of(major::DRM) {
        if is_amd(tree, minor)? {
            found.extend(nodes::kfd(tree)?);
            break;
        }
    }
    Ok(found)
}

/// Whether a DRM device is an AMD card or a partition of one. Partitions are platform devices
/// without a driver (`drivers/gpu/drm/amd/amdxcp/amdgpu_xcp_drv.c`).
fn is_amd(tree: &Tree, minor: u32) -> Result<bool, FileError> {
    let device = format!("/sys/dev/char/{}:{minor}/device", major::DRM);
    if tree.link_name(&device)?.starts_with("amdgpu_xcp") {
        return Ok(true);
    }
    let driver = tree.link_name(&format!("{device}/driver"));
    driver.map(|driver| driver == "amdgpu").or_else(missing_is(|| false))
}
