//! The device nodes of a GPU, each checked against what the kernel says of it.

use nix::errno::Errno;

use super::card::{Card, Make, directory};
use crate::helper::devices::gpu_name::PciAddress;
use crate::helper::devices::tree::missing_is;
use crate::helper::devices::{
    Device, DeviceError, FileError, Found, NodeError, Tree, driver, found as major, nvidia,
};
use crate::protocol::{Access, DeviceType, MINOR_MAX};

/// Most devices of one class on a function.
const ENTRIES_MAX: usize = 64;

pub(super) fn whole(tree: &Tree, card: &Card) -> Result<Found, DeviceError> {
    let mut found = Found::default();
    match &card.make {
        Make::Nvidia(gpu) => {
            found.extend(nvidia::node(tree, gpu)?);
            found.extend(nvidia::shared(tree)?);
            found.extend(drm(tree, &directory(card.address))?);
        }
        Make::Amd { parts } => {
            found.extend(usable(drm(tree, &directory(card.address))?, is_render, card)?);
            for part in parts {
                found.extend(render(tree, *part)?);
            }
            found.extend(kfd(tree)?);
        }
        Make::Habana => found.extend(usable(accel(tree, card.address)?, is_accel, card)?),
        Make::Other => {
            found.extend(usable(drm(tree, &directory(card.address))?, is_render, card)?);
        }
    }
    Ok(found)
}

/// One partition of an AMD card. Not its card node: the driver holds a process to a partition by
/// the render node that it opened, and through a card node it gets at the whole card
/// (`amdgpu_xcp_open_device` in `drivers/gpu/drm/amd/amdgpu/amdgpu_xcp.c`).
pub(super) fn partition(tree: &Tree, part: u32) -> Result<Found, DeviceError> {
    let mut found = render(tree, part)?;
    found.extend(kfd(tree)?);
    Ok(found)
}

/// The node through which programs reach all of AMD's GPUs. It opens none by itself: KFD asks the
/// cgroup for the render node of each (`kfd_devcgroup_check_permission` in
/// `drivers/gpu/drm/amd/amdkfd/kfd_priv.h`).
pub(super) fn kfd(tree: &Tree) -> Result<Found, DeviceError> {
    let numbers =
        tree.text("/sys/class/kfd/kfd/dev").map_err(|error| match error.is_missing() {
            true => DeviceError::new("the KFD driver, amdgpu's for computing, is not loaded"),
            false => error.into(),
        })?;
    required(tree, "/dev/kfd", numbers.trim_end())
}

pub(super) fn entries(
    tree: &Tree,
    address: PciAddress,
    class: &str,
) -> Result<Vec<String>, DeviceError> {
    tree.entries(&format!("{}/{class}", directory(address)), ENTRIES_MAX)
}

pub(super) fn is_render(name: &str) -> bool {
    is_numbered(name, "renderD")
}

pub(super) fn is_accel(name: &str) -> bool {
    is_numbered(name, "accel")
}

pub(super) fn is_render_or_accel(name: &str) -> bool {
    is_render(name) || is_accel(name)
}

fn is_numbered(name: &str, prefix: &str) -> bool {
    let number = name.strip_prefix(prefix).unwrap_or_default();
    !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
}

/// The render nodes in sysfs of the GPUs that are part of a processor and on no PCI bus. A software
/// renderer is none.
pub(super) fn integrated(tree: &Tree) -> Result<Vec<String>, DeviceError> {
    const CLASS: &str = "/sys/class/drm";
    let link = |path: String| tree.link_name(&path).map(Some).or_else(missing_is(|| None));
    let mut found = Vec::new();
    for entry in tree.entries(CLASS, MINOR_MAX as usize)?.iter().filter(|entry| is_render(entry)) {
        let device = format!("{CLASS}/{entry}/device");
        let driver = link(format!("{device}/driver"))?;
        if link(format!("{device}/subsystem"))?.as_deref() == Some("platform")
            && driver.is_some_and(|driver| driver != "vgem")
        {
            found.push(device);
        }
    }
    Ok(found)
}

/// The card and render nodes of a device in sysfs, as far as there are any.
pub(super) fn drm(tree: &Tree, device: &str) -> Result<Found, DeviceError> {
    let mut devices = Vec::new();
    for entry in tree.entries(&format!("{device}/drm"), ENTRIES_MAX)? {
        if is_render(&entry) || is_numbered(&entry, "card") {
            let numbers = tree.text(&format!("{device}/drm/{entry}/dev"))?;
            devices.extend(optional(tree, &format!("/dev/dri/{entry}"), numbers.trim_end())?);
        }
    }
    Ok(devices.into())
}

/// Holds the DRM nodes among these devices against the kernel: each has to be one of a function at
/// these addresses.
/// Fails: a node of another function, or a file that cannot be read.
pub fn confirm_drm(
    tree: &Tree,
    addresses: &[PciAddress],
    devices: &[Device],
) -> Result<(), DeviceError> {
    let mut numbers = Vec::new();
    for address in addresses {
        for entry in entries(tree, *address, "drm")? {
            let dev = tree.text(&format!("{}/drm/{entry}/dev", directory(*address)));
            numbers.extend(dev.map(Some).or_else(missing_is(|| None))?);
        }
    }
    let foreign = devices.iter().find(|Device { rule, .. }| {
        let number = rule.minor().map(|minor| format!("{}:{minor}", rule.major()));
        let known = numbers.iter().any(|known| Some(known.trim_end()) == number.as_deref());
        rule.kind() == DeviceType::Char && rule.major() == major::DRM && !known
    });
    match (foreign, addresses) {
        (Some(device), [first, ..]) => {
            let path = &device.node;
            Err(DeviceError::new(format_args!(
                "the specification lists {path}, which is not of the GPU at {first}: generate the \
                 specification anew"
            )))
        }
        _ => Ok(()),
    }
}

/// Whether a card is Intel's and one device to its library (`drivers/gpu/drm/xe/xe_tile_sysfs.c`,
/// `drivers/gpu/drm/i915/gt/intel_gt_sysfs.c`).
pub(super) fn is_intel_of_one_tile(tree: &Tree, card: &Card) -> bool {
    let dir = directory(card.address);
    let intel = tree.text(&format!("{dir}/vendor")).is_ok_and(|id| id.trim_end() == "0x8086");
    let has = |path: String| tree.names(&path).is_ok();
    let cards = entries(tree, card.address, "drm").unwrap_or_default();
    let several = cards.iter().any(|card| has(format!("{dir}/drm/{card}/gt/gt1")));
    intel && !several && !has(format!("{dir}/tile1"))
}

/// The accelerator and control nodes of a Habana card. The control device has the number of the
/// other and no parent in sysfs (`drivers/accel/habanalabs/common/device.c`), hence by its class.
fn accel(tree: &Tree, address: PciAddress) -> Result<Found, DeviceError> {
    let mut devices = Vec::new();
    for entry in entries(tree, address, "accel")?.iter().filter(|entry| is_accel(entry)) {
        let control = entry.replace("accel", "accel_controlD");
        for name in [entry, &control] {
            let numbers = tree.text(&format!("/sys/class/accel/{name}/dev"));
            let Some(numbers) = numbers.map(Some).or_else(missing_is(|| None))? else { continue };
            devices.extend(optional(tree, &format!("/dev/accel/{name}"), numbers.trim_end())?);
        }
    }
    Ok(devices.into())
}

fn render(tree: &Tree, minor: u32) -> Result<Found, DeviceError> {
    required(tree, &format!("/dev/dri/renderD{minor}"), &format!("{}:{minor}", major::DRM))
}

/// What was found, if there is a node in it without which the card is of no use.
fn usable(found: Found, needed: fn(&str) -> bool, card: &Card) -> Result<Found, DeviceError> {
    let name = |device: &Device| device.node.rsplit('/').next().is_some_and(needed);
    match found.devices.iter().any(name) {
        true => Ok(found),
        false => {
            let address = card.address;
            Err(DeviceError::new(format_args!("{address} has no node in /dev to compute by")))
        }
    }
}

fn required(tree: &Tree, path: &str, numbers: &str) -> Result<Found, DeviceError> {
    let absent = || driver::absence(tree, path, NodeError::Open(Errno::ENOENT));
    let device = optional(tree, path, numbers)?;
    Ok(vec![device.ok_or_else(|| DeviceError::at(path, absent()))?].into())
}

/// The device at a path, which has to have the `numbers` that the kernel tells; none where `/dev`
/// lacks it.
fn optional(tree: &Tree, path: &str, numbers: &str) -> Result<Option<Device>, DeviceError> {
    let node = match tree.node(path) {
        Err(NodeError::Open(Errno::ENOENT)) => return Ok(None),
        node => node.map_err(|why| DeviceError::at(path, why))?,
    };
    if node.kind != DeviceType::Char || format!("{}:{}", node.major, node.minor) != numbers {
        let text = format_args!("{path} is {node}, and the kernel's device c {numbers}");
        return Err(DeviceError::new(text));
    }
    driver::check(tree, path, node)?;
    Device::of(path, node, Access::RW).map(Some)
}

/// Names of the driver of NVIDIA's GPUs in `/proc/devices`, from R550 on and before.
const NVIDIA: [&str; 2] = ["nvidia", "nvidia-frontend"];

/// What the GPUs among these devices cannot be used without: the devices that all GPUs of a vendor
/// share. `gres.conf` names the GPUs' own nodes, since Slurm leaves the others open to everyone.
/// Fails: a file cannot be read, or a node is not what it must be.
pub fn companions(tree: &Tree, devices: &[Device]) -> Result<Found, DeviceError> {
    let mut found = Found::default();
    let of = |major, among| major::minors(devices.iter().map(|device| &device.rule), major, among);
    if !devices.is_empty() {
        let drivers = tree.drivers()?;
        let mut majors = NVIDIA.iter().flat_map(|name| drivers.majors(DeviceType::Char, name));
        if majors.any(|major| !of(major, major::NVIDIA_GPUS).is_empty()) {
            found.extend(nvidia::shared(tree)?);
        }
    }
    for minor in of(major::DRM, 0..=MINOR_MAX) {
        if is_amd(tree, minor)? {
            found.extend(kfd(tree)?);
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
