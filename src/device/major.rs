//! The majors that never change, of devices that are GPUs.

use std::ops::RangeInclusive;

/// NVIDIA's GPUs and their control devices (`NV_MAJOR_DEVICE_NUMBER`,
/// `kernel-open/common/inc/nv.h`).
pub(super) const NVIDIA: u32 = 195;
/// Minors of the GPUs among them; the ones above are reserved and the control devices'.
pub(super) const NVIDIA_GPUS: RangeInclusive<u32> = 0..=247;
/// DRM (`include/drm/drm_drv.h`).
pub(super) const DRM: u32 = 226;
/// Minors of its render nodes (`drivers/gpu/drm/drm_drv.c`).
pub(super) const DRM_RENDER: RangeInclusive<u32> = 128..=191;
/// Accelerators that draw nothing (`include/drm/drm_accel.h`).
pub(super) const ACCEL: u32 = 261;
