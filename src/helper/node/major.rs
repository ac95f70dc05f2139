//! The fixed majors of GPUs, and how many GPUs a list of rules names.

use protocol::{Allowlist, DeviceRule, DeviceType, MINOR_MAX};
use std::collections::BTreeSet;
use std::ops::RangeInclusive;

/// NVIDIA's GPUs and their control devices (`NV_MAJOR_DEVICE_NUMBER`,
/// `kernel-open/common/inc/nv.h`).
pub(super) const NVIDIA: u32 = 195;
/// Minors of NVIDIA's GPUs. Higher ones are reserved or belong to control devices.
pub(super) const NVIDIA_GPU_MINORS: RangeInclusive<u32> = 0..=247;
/// DRM (`include/drm/drm_drv.h`).
pub(super) const DRM: u32 = 226;
/// Minors of DRM render nodes (`drivers/gpu/drm/drm_drv.c`).
pub(super) const DRM_RENDER_MINORS: RangeInclusive<u32> = 128..=191;
/// Accelerators without graphics (`include/drm/drm_accel.h`).
pub(super) const ACCEL: u32 = 261;

/// Counts the GPUs that a list names one by one.
///
/// It counts NVIDIA's own nodes, else DRM render nodes, else accelerators, so that a GPU with nodes
/// of two of these counts once. MIG instances count as their parent, AMD's partitions one by one. A
/// rule for all minors counts as none, since it does not tell how many GPUs there are.
pub fn gpu_count(list: &Allowlist) -> u32 {
    let kinds = [
        (NVIDIA, NVIDIA_GPU_MINORS),
        (DRM, DRM_RENDER_MINORS),
        (ACCEL, 0..=MINOR_MAX),
    ];
    let counts = kinds.map(|(major, range)| minors_in(list.rules(), major, range).len());
    let count = counts.into_iter().find(|count| *count > 0).unwrap_or(0);
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// The minors in `range` that rules for character devices of `major` name. A rule for all minors names none.
pub(super) fn minors_in<'a>(
    rules: impl IntoIterator<Item = &'a DeviceRule>,
    major: u32,
    range: RangeInclusive<u32>,
) -> BTreeSet<u32> {
    let chars = rules
        .into_iter()
        .filter(|rule| rule.kind() == DeviceType::Char);
    let minors = chars
        .filter(|rule| rule.major() == major)
        .filter_map(|rule| rule.minor());
    minors.filter(|minor| range.contains(minor)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu_count_of(rules: &[&str]) -> u32 {
        let mut list = Allowlist::new();
        for rule in rules {
            list.push(rule.parse().unwrap()).unwrap();
        }
        gpu_count(&list)
    }

    #[test]
    fn gpus_count_once_and_control_nodes_never() {
        assert_eq!(gpu_count_of(&[]), 0);
        assert_eq!(
            gpu_count_of(&["c:195:0:rw", "c:195:0:r", "c:195:3:rw", "c:195:255:rw"]),
            2
        );
        assert_eq!(
            gpu_count_of(&["c:195:254:rw", "c:195:255:rw", "b:195:1:rw", "c:195:-1:rw"]),
            0
        );
        assert_eq!(
            gpu_count_of(&["c:226:0:rw", "c:226:128:rw", "c:226:129:rw", "c:226:192:rw"]),
            2
        );
        assert_eq!(
            gpu_count_of(&["c:195:0:rw", "c:226:128:rw", "c:226:129:rw"]),
            1
        );
        assert_eq!(gpu_count_of(&["c:195:247:rw", "c:195:248:rw"]), 1);
        assert_eq!(
            gpu_count_of(&["c:195:3:rw", "c:235:426:r", "c:235:427:r", "c:235:435:r"]),
            1
        );
        assert_eq!(
            gpu_count_of(&["c:261:0:rw", "c:261:1:rw", "c:261:-1:rw"]),
            2
        );
        assert_eq!(
            gpu_count_of(&["c:226:128:rw", "c:226:129:rw", "c:261:0:rw"]),
            2
        );
    }
}
