//! The GPUs that NVIDIA's driver describes in `/proc/driver/nvidia/gpus/ADDRESS/information`:
//! `kernel-open/nvidia/nv-procfs.c` writes lines of a key, a colon, blanks and a value.

use super::uuid::Uuid;
use crate::node::pci::{PciAddress, function_dir};
use crate::node::{Device, DeviceError, FileError, Tree, major};
use protocol::parse_decimal;

const GPUS_DIR: &str = "/proc/driver/nvidia/gpus";
/// Maximum GPUs of a node. There are fewer minors than that.
const GPUS_MAX: usize = 256;
/// Keys that mark a GPU as excluded from use (`NVreg_ExcludedGpus`). Older drivers write the second
/// one.
const EXCLUDED_KEYS: [&str; 2] = ["GPU Excluded", "Blacklisted"];

/// A GPU as its driver describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NvidiaGpu {
    /// The PCI address.
    pub address: PciAddress,
    /// The UUID, if the driver knows it.
    pub uuid: Option<Uuid>,
    /// Minor of the device node, 0 to 247.
    pub minor: u32,
}

/// Tells whether the node's processor is a Tegra, as in a Jetson. The GPU of a Tegra is on no PCI
/// bus and has device nodes of many drivers.
///
/// # Errors
///
/// [`FileError`] if the device tree exists and cannot be read.
pub fn is_tegra(tree: &Tree) -> Result<bool, FileError> {
    let compatible = tree.read_text_if_exists("/sys/firmware/devicetree/base/compatible")?;
    Ok(compatible.is_some_and(|names| names.contains("nvidia,tegra")))
}

/// Lists the GPUs that the driver lists and does not exclude, by PCI address; none without a
/// driver. On a Tegra, it skips the display, which the driver lists at an address outside the bus.
///
/// # Errors
///
/// A file cannot be read or parsed, two GPUs share a UUID or a minor, or there are more than 256
/// GPUs.
pub fn list_gpus(tree: &Tree) -> Result<Vec<NvidiaGpu>, DeviceError> {
    let mut gpus = Vec::new();
    for name in tree.list_entries(GPUS_DIR, GPUS_MAX)? {
        let path = format!("{GPUS_DIR}/{name}/information");
        let Ok(address) = name.parse() else {
            return Err(DeviceError::at(path, "not below the PCI address of a GPU"));
        };
        if is_tegra(tree)? && tree.list_names(&function_dir(address)).is_err() {
            continue;
        }
        gpus.extend(parse_gpu(address, &tree.read_text(&path)?, &path)?);
    }
    gpus.sort_unstable_by_key(|gpu| gpu.address);
    require_distinct(&gpus)?;
    Ok(gpus)
}

/// Parses the description of a GPU; `None` if the GPU is excluded.
///
/// # Errors
///
/// The description has no minor of a GPU. A UUID that is missing is no error.
fn parse_gpu(
    address: PciAddress,
    text: &str,
    path: &str,
) -> Result<Option<NvidiaGpu>, DeviceError> {
    if EXCLUDED_KEYS
        .iter()
        .any(|key| find_value(text, key) == Some("Yes"))
    {
        return Ok(None);
    }
    let minor = find_value(text, "Device Minor").and_then(parse_decimal);
    let Some(minor) = minor.filter(|minor| major::NVIDIA_GPU_MINORS.contains(minor)) else {
        return Err(DeviceError::at(path, "no Device Minor from 0 to 247"));
    };
    // Until the GPU is initialised, this line is missing or has question marks.
    let uuid =
        find_value(text, "GPU UUID").and_then(|uuid| uuid.strip_prefix("GPU-")?.parse().ok());
    Ok(Some(NvidiaGpu {
        address,
        uuid,
        minor,
    }))
}

/// Finds the value of the first line with this key, without blanks around it; `None` without such a line.
pub(super) fn find_value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let mut pairs = text.lines().filter_map(|line| line.split_once(':'));
    let (_, value) = pairs.find(|(own_key, _)| own_key.trim() == key)?;
    Some(value.trim())
}

/// Finds the GPU with a UUID.
///
/// # Errors
///
/// The driver lists no such GPU, or does not know its UUID yet.
pub fn find_by_uuid<'a>(gpus: &'a [NvidiaGpu], uuid: &Uuid) -> Result<&'a NvidiaGpu, DeviceError> {
    if let Some(gpu) = gpus.iter().find(|gpu| gpu.uuid.as_ref() == Some(uuid)) {
        return Ok(gpu);
    }
    if gpus.is_empty() {
        return Err(DeviceError::new(
            "NVIDIA's driver is not loaded, or has no GPU: nvidia-modprobe -u -c 0 loads it",
        ));
    }
    // A driver that has not initialised its GPUs does not know their UUIDs yet.
    let unknown = gpus.iter().filter(|gpu| gpu.uuid.is_none()).count();
    if unknown == 0 {
        return Err(DeviceError::new(format_args!(
            "NVIDIA's driver has no GPU-{uuid}"
        )));
    }
    Err(DeviceError::new(format_args!(
        "NVIDIA's driver has no GPU-{uuid}; of {unknown} of its GPUs it does not know the UUID \
         yet (nvidia-persistenced keeps them initialised)"
    )))
}

/// Requires that no two GPUs share a minor or a UUID.
fn require_distinct(gpus: &[NvidiaGpu]) -> Result<(), DeviceError> {
    for (index, gpu) in gpus.iter().enumerate() {
        for other in gpus.iter().skip(index + 1) {
            let uuid_of_both = gpu
                .uuid
                .as_ref()
                .filter(|uuid| other.uuid.as_ref() == Some(*uuid));
            let shared = if other.minor == gpu.minor {
                format!("minor {}", gpu.minor)
            } else if let Some(uuid) = uuid_of_both {
                format!("UUID GPU-{uuid}")
            } else {
                continue;
            };
            let first = gpu.address;
            let second = other.address;
            let why = format!("GPUs {first} and {second} both have {shared}");
            return Err(DeviceError::new(why));
        }
    }
    Ok(())
}

/// Finds the GPU whose node is among these devices; `None` if there is none that the driver lists, or
/// several.
pub fn find_only_gpu<'a>(gpus: &'a [NvidiaGpu], devices: &[Device]) -> Option<&'a NvidiaGpu> {
    match gpu_minors(devices).as_slice() {
        [minor] => gpus.iter().find(|gpu| gpu.minor == *minor),
        _ => None,
    }
}

/// Checks the devices that a specification lists for the GPU with this UUID against the driver.
/// Minors change with each boot, and an older specification would grant another job's GPU. Without a
/// driver, and for GPUs whose UUID it does not know yet, nothing can be checked, and the devices pass.
///
/// # Errors
///
/// A node belongs to another minor than the GPU's or to a GPU with another UUID, or every GPU of the
/// driver has another UUID.
pub fn verify_uuid(gpus: &[NvidiaGpu], uuid: &Uuid, devices: &[Device]) -> Result<(), DeviceError> {
    let listed_minors = gpu_minors(devices);
    let no_such_gpu = match find_by_uuid(gpus, uuid) {
        Ok(gpu) => return verify_minors(gpu, uuid, &listed_minors),
        Err(why) => why,
    };
    for listed in listed_minors {
        let gpu = gpus.iter().find(|gpu| gpu.minor == listed);
        if let Some(other) = gpu.and_then(|gpu| gpu.uuid.as_ref()) {
            return Err(DeviceError::new(format_args!(
                "the specification says that GPU-{uuid} is /dev/nvidia{listed}, but that is \
                 GPU-{other}: generate the specification anew"
            )));
        }
    }
    // Without a driver the specification cannot be checked; a GPU whose UUID is unknown may be the one.
    if gpus.is_empty() || gpus.iter().any(|gpu| gpu.uuid.is_none()) {
        return Ok(());
    }
    Err(no_such_gpu)
}

/// Requires that all these minors are the one of `gpu`.
fn verify_minors(gpu: &NvidiaGpu, uuid: &Uuid, listed_minors: &[u32]) -> Result<(), DeviceError> {
    let Some(listed) = listed_minors.iter().find(|listed| **listed != gpu.minor) else {
        return Ok(());
    };
    let minor = gpu.minor;
    Err(DeviceError::new(format_args!(
        "the specification says /dev/nvidia{listed}, but GPU-{uuid} is /dev/nvidia{minor}: generate \
         the specification anew"
    )))
}

/// Lists the minors of the GPUs whose nodes are among these devices, ascending.
pub fn gpu_minors(devices: &[Device]) -> Vec<u32> {
    let rules = devices.iter().map(|device| &device.rule);
    major::minors_in(rules, major::NVIDIA, major::NVIDIA_GPU_MINORS)
        .into_iter()
        .collect()
}
