//! What a node has to be before a job gets it under a vendor's name: of the driver that its path
//! promises, and no device by which the node itself is managed.
//!
//! The numbers of most drivers are given out as they load, so a node or a specification from
//! before may carry a number that is another driver's now. `/proc/devices` tells whose it is.
//! Devices of management are told by their numbers, whatever their path.

use super::{DeviceError, Node, NodeError, ProcDevices, Tree, found as major, nvidia};
use crate::protocol::{DeviceType, decimal};

/// Drivers of which no device is ever a job's: switches and links between GPUs, which the fabric
/// manager programs for the whole node, raw(8), which reaches any disk, the baseboard's controller,
/// and the processors' registers (msr(4)).
const MANAGEMENT: [&str; 5] = ["nvidia-nvswitch", "nvidia-nvlink", "raw", "ipmidev", "cpu/msr"];
/// Minors of `mem` that anyone may have: null, zero, full, random, urandom. The others are the
/// machine's memory, its ports and its log (`drivers/char/mem.c`).
const HARMLESS_MEM: [u32; 5] = [3, 5, 7, 8, 9];
/// Minors of NVIDIA's GPUs, its mode setting device and its control device. Those between are
/// reserved.
const NVIDIA_CONTROL: std::ops::RangeInclusive<u32> = 254..=255;

/// Checks a node that a specification or a driver's files led to.
/// Fails: a job does not get the node.
pub fn check(tree: &Tree, path: &str, node: Node) -> Result<(), DeviceError> {
    let names: Vec<&str> = tree.drivers()?.names(node.kind, node.major).collect();
    let refused = |why: String| DeviceError::new(format_args!("{path} is {node}{why}"));
    if names.is_empty() {
        let driver = promising(path).map(|driver| format!("{driver} ")).unwrap_or_default();
        return Err(refused(format!(
            ", and no driver has that major: {driver}not loaded, or loaded anew since the node was \
             made"
        )));
    }
    let managing = match management(&names, node) {
        None if names.contains(&nvidia::CAPS) && !nvidia::is_instance(tree, node.minor)? => {
            match nvidia::capability_name(tree, node.minor)? {
                // The next instance with its number may be somebody else's.
                Some(name) if name.starts_with("gpu") => {
                    let why = format!(", kept for {name}: no such MIG instance exists now");
                    return Err(refused(why));
                }
                Some(name) => Some(format!("nvidia-caps ({name})")),
                None => Some("nvidia-caps".to_owned()),
            }
        }
        managing => managing,
    };
    match managing {
        Some(of) => {
            Err(refused(format!(", a device of {of} that manages the node: never a job's")))
        }
        None => agrees(path, node, &names).map_err(refused),
    }
}

/// The newest name of the driver that a path promises.
fn promising(path: &str) -> Option<&'static str> {
    families(path).first()?.0.drivers.first().copied()
}

/// Why there is no node at a path: where it can be told, for want of a driver.
pub(super) fn absence(tree: &Tree, path: &str, why: NodeError) -> String {
    let families = families(path);
    let loaded = |drivers: &ProcDevices| {
        let mut names = families.iter().flat_map(|(family, _)| family.drivers);
        names.any(|name| drivers.majors(DeviceType::Char, name).next().is_some())
    };
    match promising(path) {
        Some(driver) if why.is_absent() && !tree.drivers().is_ok_and(loaded) => {
            format!("{why}; the driver {driver} is not loaded")
        }
        _ => why.to_string(),
    }
}

/// What a path below `/dev` promises: the driver by its newest name, and the minor where it is known.
pub(super) fn promised(below: &str) -> Option<(&'static str, Option<u32>)> {
    let (family, number) = families_at(below).next()?;
    Some((family.drivers.first()?, family.minor(number)))
}

/// The driver of a device of management, as far as its name and the minor tell.
fn management(names: &[&str], node: Node) -> Option<String> {
    let harmful = |name: &str| name == "mem" && !HARMLESS_MEM.contains(&node.minor);
    let of = names.iter().find(|name| MANAGEMENT.contains(*name) || harmful(name))?;
    Some((*of).to_owned())
}

/// Whether the numbers are those that the path promises.
fn agrees(path: &str, node: Node, names: &[&str]) -> Result<(), String> {
    let minors = [major::NVIDIA_GPUS, NVIDIA_CONTROL];
    let reserved = !minors.iter().any(|minors| minors.contains(&node.minor));
    if reserved && names.iter().any(|name| NVIDIA.contains(name)) {
        return Err(", which is neither a GPU nor NVIDIA's control device".to_owned());
    }
    let families = families(path);
    let of_driver: Vec<_> = families
        .iter()
        .filter(|(family, _)| family.drivers.iter().any(|driver| names.contains(driver)))
        .filter(|_| node.kind == DeviceType::Char)
        .map(|(family, number)| family.minor(*number))
        .collect();
    if families.is_empty() || of_driver.iter().any(|minor| minor.is_none_or(|it| it == node.minor))
    {
        return Ok(());
    }
    match of_driver.into_iter().flatten().next() {
        Some(promised) => Err(format!(", but its minor must be {promised}")),
        None => {
            let (promised, found) = (promising(path).unwrap_or_default(), names.join(", "));
            Err(format!(
                ", which is a device of {found} and not of {promised}: made when an older driver \
                 was loaded"
            ))
        }
    }
}

/// What a path promises: the driver that has its numbers, and often the minor.
#[derive(Debug)]
struct Family {
    /// Path below `/dev`; `#` stands for a decimal number.
    below: &'static str,
    /// The names that the driver has had in `/proc/devices`.
    drivers: &'static [&'static str],
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
const NVIDIA: [&str; 4] = ["nvidia", "nvidia-frontend", "nvidiactl", "nvidia-modeset"];

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
fn families(path: &str) -> Vec<(&'static Family, Option<u32>)> {
    let parts: Vec<_> = path.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    let path = format!("/{}", parts.join("/"));
    let below = path.rsplit_once("/dev/").map_or(path.as_str(), |(_, below)| below);
    families_at(below).collect()
}

/// The same of a path below `/dev` that is written in the one way.
fn families_at(below: &str) -> impl Iterator<Item = (&'static Family, Option<u32>)> {
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
    fn minor(&self, number: Option<u32>) -> Option<u32> {
        match self.minor {
            Minor::Any => None,
            Minor::Is(minor) => Some(minor),
            Minor::InPath => number,
        }
    }
}

#[cfg(test)]
mod tests;
