//! `/proc/driver/nvidia/gpus/ADDRESS/information`, as `kernel-open/nvidia/nv-procfs.c` of the
//! driver writes it: lines of a key, a colon, blanks and a value.

use crate::helper::devices::gpu_name::{PciAddress, Uuid};
use crate::helper::devices::tree::missing_is;
use crate::helper::devices::{Device, DeviceError, FileError, Tree, found as major, topology};
use crate::protocol::decimal;

const GPUS: &str = "/proc/driver/nvidia/gpus";
/// Most GPUs of a node; there are not even as many minors.
const GPUS_MAX: usize = 256;
/// How drivers tell, the older ones by the second key, that a GPU is not to be used
/// (`NVreg_ExcludedGpus`).
const EXCLUDED: [&str; 2] = ["GPU Excluded", "Blacklisted"];

/// A GPU as its driver describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// Its PCI address.
    pub address: PciAddress,
    /// Its UUID, where the driver knows it.
    pub uuid: Option<Uuid>,
    /// Minor of its device node, 0 to 247.
    pub minor: u32,
}

/// Whether the node's processor is a Tegra, as Jetson's. Its GPU is on no PCI bus, and has device
/// nodes of many drivers.
pub fn is_tegra(tree: &Tree) -> Result<bool, FileError> {
    let compatible = tree.text("/sys/firmware/devicetree/base/compatible");
    compatible.map(|names| names.contains("nvidia,tegra")).or_else(missing_is(|| false))
}

/// The GPUs that the driver has and does not exclude, by PCI address. None where there is no
/// driver. A Tegra's own display stands there too, at an address that the bus does not have.
/// Fails: files that cannot be read or that say nothing sensible, two GPUs of one UUID or minor,
/// more than 256 GPUs.
pub fn gpus(tree: &Tree) -> Result<Vec<Gpu>, DeviceError> {
    let mut gpus = Vec::new();
    for name in tree.entries(GPUS, GPUS_MAX)? {
        let path = format!("{GPUS}/{name}/information");
        let Ok(address) = name.parse() else {
            return Err(DeviceError::at(path, "not below the PCI address of a GPU"));
        };
        let on_bus = || tree.names(&topology::directory(address)).is_ok();
        if !is_tegra(tree)? || on_bus() {
            gpus.extend(parse(address, &tree.text(&path)?, &path)?);
        }
    }
    gpus.sort_unstable_by_key(|gpu| gpu.address);
    distinct(gpus)
}

/// `None` for a GPU that is excluded.
fn parse(address: PciAddress, text: &str, path: &str) -> Result<Option<Gpu>, DeviceError> {
    if EXCLUDED.iter().any(|key| value(text, key) == Some("Yes")) {
        return Ok(None);
    }
    let minor = value(text, "Device Minor").and_then(decimal);
    let Some(minor) = minor.filter(|minor| major::NVIDIA_GPUS.contains(minor)) else {
        return Err(DeviceError::at(path, "no Device Minor from 0 to 247"));
    };
    // Until something has initialised the GPU, there is no such line, or it has question marks.
    let uuid = value(text, "GPU UUID").and_then(|uuid| uuid.strip_prefix("GPU-")?.parse().ok());
    Ok(Some(Gpu { address, uuid, minor }))
}

pub(super) fn value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (of, value) = line.split_once(':')?;
        (of.trim() == key).then(|| value.trim())
    })
}

/// The GPU of a UUID, or what there is to say of a driver that knows none.
pub(in crate::helper::devices) fn by_uuid<'a>(
    gpus: &'a [Gpu],
    uuid: &Uuid,
) -> Result<&'a Gpu, String> {
    let found = gpus.iter().find(|gpu| gpu.uuid.as_ref() == Some(uuid));
    // A driver that has not initialised its GPUs does not know their UUIDs yet.
    found.ok_or_else(|| match gpus.iter().filter(|gpu| gpu.uuid.is_none()).count() {
        _ if gpus.is_empty() => "NVIDIA's driver is not loaded, or has no GPU".to_owned(),
        0 => format!("NVIDIA's driver has no GPU-{uuid}"),
        silent => format!(
            "NVIDIA's driver has no GPU-{uuid}; of {silent} of its GPUs it does not know the UUID \
             yet (nvidia-persistenced keeps them initialised)"
        ),
    })
}

/// The GPUs, if no two of them go by one name.
fn distinct(gpus: Vec<Gpu>) -> Result<Vec<Gpu>, DeviceError> {
    let mut rest = gpus.as_slice();
    while let [gpu, others @ ..] = rest {
        let shared = |other: &Gpu| match &gpu.uuid {
            _ if other.minor == gpu.minor => Some(format!("minor {}", gpu.minor)),
            Some(uuid) if other.uuid.as_ref() == Some(uuid) => Some(format!("UUID GPU-{uuid}")),
            _ => None,
        };
        if let Some((second, what)) = others.iter().find_map(|it| Some((it.address, shared(it)?))) {
            let first = gpu.address;
            let text = format_args!("GPUs {first} and {second} both have {what}");
            return Err(DeviceError::new(text));
        }
        rest = others;
    }
    Ok(gpus)
}

/// The GPU of which these devices hold the node; `None` where they hold none that the driver has,
/// or several.
pub fn only_gpu<'a>(gpus: &'a [Gpu], devices: &[Device]) -> Option<&'a Gpu> {
    match minors(devices).as_slice() {
        [minor] => gpus.iter().find(|gpu| gpu.minor == *minor),
        _ => None,
    }
}

/// Holds the devices that a specification gives the GPU of this UUID against the driver: minors are
/// given out anew at each boot, and a specification of before gives away another job's GPU.
/// Nothing can be said of GPUs of which the driver does not know the UUID yet.
/// Fails: another node than the GPU's, the node of a GPU that has another UUID, and where every GPU
/// of the driver's has another UUID.
pub fn confirm(gpus: &[Gpu], uuid: &Uuid, devices: &[Device]) -> Result<(), DeviceError> {
    let own = by_uuid(gpus, uuid);
    for other in minors(devices) {
        let of = gpus.iter().find(|gpu| gpu.minor == other).and_then(|gpu| gpu.uuid.clone());
        match (&own, of) {
            (Ok(Gpu { minor, .. }), _) if *minor != other => {
                return Err(DeviceError::new(format_args!(
                    "the specification says /dev/nvidia{other}, but GPU-{uuid} is \
                     /dev/nvidia{minor}: generate the specification anew"
                )));
            }
            (Err(_), Some(of)) => {
                return Err(DeviceError::new(format_args!(
                    "the specification says that GPU-{uuid} is /dev/nvidia{other}, but that is \
                     GPU-{of}: generate the specification anew"
                )));
            }
            _ => {}
        }
    }
    match own {
        Err(why) if !gpus.is_empty() && gpus.iter().all(|gpu| gpu.uuid.is_some()) => {
            Err(DeviceError::new(why))
        }
        _ => Ok(()),
    }
}

/// Minors of the GPUs of which these devices hold the nodes, ascending.
pub fn minors(devices: &[Device]) -> Vec<u32> {
    let rules = devices.iter().map(|device| &device.rule);
    major::minors(rules, major::NVIDIA, major::NVIDIA_GPUS).into_iter().collect()
}
