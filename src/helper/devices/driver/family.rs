//! What a device's path promises: the driver that has its numbers, and often the minor.

use crate::protocol::decimal;

#[derive(Debug)]
pub(super) struct Family {
    /// Path below `/dev`; `#` stands for a decimal number.
    below: &'static str,
    /// The names that the driver has had in `/proc/devices`.
    pub(super) drivers: &'static [&'static str],
    minor: Minor,
}

#[derive(Clone, Copy, Debug)]
enum Minor {
    /// Whichever the driver gives.
    Any,
    /// Always this one.
    Is(u32),
    /// The number in the path.
    InPath,
}

/// NVIDIA's GPUs and their control devices share a major, which one name had in older drivers
/// (`nvidia-frontend`, and `nvidia` before it) and several have now.
pub(super) const NVIDIA: [&str; 4] = ["nvidia", "nvidia-frontend", "nvidiactl", "nvidia-modeset"];

const fn family(below: &'static str, drivers: &'static [&'static str], minor: Minor) -> Family {
    Family { below, drivers, minor }
}

/// Families by path. A path may have two rows, where different drivers number it differently.
/// The names are those which the drivers register: `drivers/gpu/drm/drm_drv.c`,
/// `drivers/accel/drm_accel.c`, `drivers/accel/habanalabs/`, `drivers/gpu/drm/amd/amdkfd/kfd_chardev.c`,
/// `drivers/infiniband/core/{uverbs_main,user_mad}.c`, `drivers/misc/mei/main.c` and
/// `drivers/char/{mem,misc}.c` of Linux; `nvidia.ko`, `nvidia-uvm.ko`, `nvidia-fs.ko`, `gdrdrv.ko`.
const FAMILIES: [Family; 28] = [
    family("nvidia#", &["nvidia", "nvidia-frontend"], Minor::InPath),
    family("nvidiactl", &["nvidiactl", "nvidia", "nvidia-frontend"], Minor::Is(255)),
    family("nvidia-modeset", &["nvidia-modeset", "nvidia", "nvidia-frontend"], Minor::Is(254)),
    family("nvidia-uvm", &["nvidia-uvm"], Minor::Is(0)),
    family("nvidia-uvm-tools", &["nvidia-uvm"], Minor::Is(1)),
    family("nvidia-caps/nvidia-cap#", &["nvidia-caps"], Minor::InPath),
    family("nvidia-caps-imex-channels/channel#", &["nvidia-caps-imex-channels"], Minor::InPath),
    family("nvidia-fs#", &["nvidia-fs"], Minor::Any),
    family("gdrdrv", &["gdrdrv"], Minor::Any),
    family("dri/card#", &["drm"], Minor::InPath),
    family("dri/renderD#", &["drm"], Minor::InPath),
    family("kfd", &["kfd"], Minor::Any),
    family("accel/accel#", &["accel"], Minor::InPath),
    family("accel/accel#", &["habanalabs"], Minor::Any),
    family("accel/accel_controlD#", &["accel", "habanalabs"], Minor::Any),
    family("infiniband/uverbs#", &["infiniband_verbs"], Minor::Any),
    family("infiniband/umad#", &["infiniband_mad"], Minor::Any),
    family("infiniband/issm#", &["infiniband_mad"], Minor::Any),
    family("infiniband/rdma_cm", &["misc"], Minor::Any),
    family("mei#", &["mei"], Minor::Any),
    family("fuse", &["misc"], Minor::Is(229)),
    family("net/tun", &["misc"], Minor::Is(200)),
    family("vfio/vfio", &["misc"], Minor::Is(196)),
    family("null", &["mem"], Minor::Is(3)),
    family("zero", &["mem"], Minor::Is(5)),
    family("full", &["mem"], Minor::Is(7)),
    family("random", &["mem"], Minor::Is(8)),
    family("urandom", &["mem"], Minor::Is(9)),
];

/// The families of a path, with the number that stands in it. What counts is the part below the
/// last `/dev/`, since a specification may name a node in a driver's own root directory.
pub(super) fn of(path: &str) -> Vec<(&'static Family, Option<u32>)> {
    let parts: Vec<_> = path.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    let path = format!("/{}", parts.join("/"));
    let below = path.rsplit_once("/dev/").map_or(path.as_str(), |(_, below)| below);
    at(below).collect()
}

/// The same of a path below `/dev` that is written in the one way.
pub(super) fn at(below: &str) -> impl Iterator<Item = (&'static Family, Option<u32>)> {
    FAMILIES.iter().filter_map(move |family| Some((family, family.number_in(below)?)))
}

impl Family {
    /// `None` where the path is of another family.
    fn number_in(&self, below: &str) -> Option<Option<u32>> {
        match self.below.strip_suffix('#') {
            Some(prefix) => below.strip_prefix(prefix).and_then(decimal).map(Some),
            None => (below == self.below).then_some(None),
        }
    }

    /// The minor that a node has to have at a path with this number.
    pub(super) fn minor(&self, number: Option<u32>) -> Option<u32> {
        match self.minor {
            Minor::Any => None,
            Minor::Is(minor) => Some(minor),
            Minor::InPath => number,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn minors(path: &str) -> Vec<Option<u32>> {
        of(path).into_iter().map(|(family, number)| family.minor(number)).collect()
    }

    #[test]
    fn a_path_tells_its_minor() {
        assert_eq!(minors("/dev/nvidia12"), [Some(12)]);
        assert_eq!(minors("/dev/nvidiactl"), [Some(255)]);
        assert_eq!(minors("/dev/nvidia-uvm-tools"), [Some(1)]);
        assert_eq!(minors("/dev/nvidia-caps/nvidia-cap102"), [Some(102)]);
        assert_eq!(minors("/dev/nvidia-caps-imex-channels/channel7"), [Some(7)]);
        assert_eq!(minors("/dev/dri/renderD128"), [Some(128)]);
        assert_eq!(minors("/dev/accel/accel0"), [Some(0), None]);
        assert_eq!(minors("/run/nvidia/driver/dev/nvidia3"), [Some(3)]);
        assert_eq!(minors("/dev//./nvidia-uvm"), [Some(0)]);
        assert_eq!(minors("/dev/shm/driver/dev/nvidia3"), [Some(3)]);
    }

    #[test]
    fn a_path_that_only_resembles_one_has_no_family() {
        for path in [
            "/dev/nvidia", "/dev/nvidia00", "/dev/nvidia-1", "/dev/nvidia4294967296",
            "/dev/nvidiactl0", "/dev/dri/card", "/dev/dri/by-path/card0", "/dev/nvidia-uvm2",
            "/dev/x/nvidia0",
        ] {
            assert!(of(path).is_empty(), "{path}");
        }
    }
}
