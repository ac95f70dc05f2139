//! The device nodes of a GPU, each checked against the numbers that the kernel reports.

use nix::errno::Errno;

use super::card::{Card, Vendor};
use super::class::{is_accel, is_card, is_render};
use crate::node::pci::{PciAddress, function_dir, list_class};
use crate::node::tree::if_missing;
use crate::node::{
    Device, DeviceError, FileError, NodeError, ResolvedDevices, Tree, driver, major, nvidia,
};
use protocol::{Access, DeviceType, MINOR_MAX};

/// Maximum DRM devices of a device in sysfs.
const DRM_ENTRIES_MAX: usize = 64;

pub(super) fn card_devices(tree: &Tree, card: &Card) -> Result<ResolvedDevices, DeviceError> {
    let mut found = ResolvedDevices::default();
    match &card.vendor {
        Vendor::Nvidia(gpu) => {
            found.extend(nvidia::resolve_gpu_node(tree, gpu)?);
            found.extend(nvidia::resolve_shared_nodes(tree)?);
            found.extend(drm_devices(tree, &function_dir(card.address))?);
        }
        Vendor::Amd { parts } => {
            found.extend(require_compute_node(
                drm_devices(tree, &function_dir(card.address))?,
                is_render,
                card,
            )?);
            for part in parts {
                found.extend(render_device(tree, *part)?);
            }
            found.extend(kfd_device(tree)?);
        }
        Vendor::Habana => {
            found.extend(require_compute_node(habana_devices(tree, card.address)?, is_accel, card)?)
        }
        Vendor::Other => {
            found.extend(require_compute_node(
                drm_devices(tree, &function_dir(card.address))?,
                is_render,
                card,
            )?);
        }
    }
    Ok(found)
}

/// Returns the devices of one partition of an AMD card, without its card node: the driver restricts
/// a process to a partition by the render node that it opened, and gives access to the whole card
/// through a card node (`amdgpu_xcp_open_device` in `drivers/gpu/drm/amd/amdgpu/amdgpu_xcp.c`).
pub(super) fn partition_devices(tree: &Tree, part: u32) -> Result<ResolvedDevices, DeviceError> {
    let mut found = render_device(tree, part)?;
    found.extend(kfd_device(tree)?);
    Ok(found)
}

/// Returns the node through which programs reach all AMD GPUs. It opens no GPU by itself: KFD checks
/// the cgroup for the render node of each (`kfd_devcgroup_check_permission` in
/// `drivers/gpu/drm/amd/amdkfd/kfd_priv.h`).
pub(super) fn kfd_device(tree: &Tree) -> Result<ResolvedDevices, DeviceError> {
    let numbers =
        tree.read_text("/sys/class/kfd/kfd/dev").map_err(|error| match error.is_missing() {
            true => DeviceError::new("the KFD driver, amdgpu's for computing, is not loaded"),
            false => error.into(),
        })?;
    require_device(tree, "/dev/kfd", numbers.trim_end())
}

/// Returns the sysfs directories of the GPUs that are part of a processor and on no PCI bus. A
/// software renderer does not count.
pub(super) fn find_integrated_gpus(tree: &Tree) -> Result<Vec<String>, DeviceError> {
    const CLASS: &str = "/sys/class/drm";
    let link = |path: String| tree.read_link_name(&path).map(Some).or_else(if_missing(|| None));
    let mut found = Vec::new();
    for entry in
        tree.list_entries(CLASS, MINOR_MAX as usize)?.iter().filter(|entry| is_render(entry))
    {
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

/// Returns the existing card and render nodes of a device in sysfs.
pub(super) fn drm_devices(tree: &Tree, device: &str) -> Result<ResolvedDevices, DeviceError> {
    let mut devices = Vec::new();
    for entry in tree.list_entries(&format!("{device}/drm"), DRM_ENTRIES_MAX)? {
        if is_render(&entry) || is_card(&entry) {
            let numbers = tree.read_text(&format!("{device}/drm/{entry}/dev"))?;
            devices.extend(find_device(tree, &format!("/dev/dri/{entry}"), numbers.trim_end())?);
        }
    }
    Ok(devices.into())
}

/// Checks against the kernel that each DRM node among `devices` belongs to a function at one of
/// `addresses`.
///
/// # Errors
///
/// A node belongs to another function, or a file cannot be read.
pub fn verify_drm_nodes(
    tree: &Tree,
    addresses: &[PciAddress],
    devices: &[Device],
) -> Result<(), DeviceError> {
    let mut numbers = Vec::new();
    for address in addresses {
        for entry in list_class(tree, *address, "drm")? {
            let dev = tree.read_text(&format!("{}/drm/{entry}/dev", function_dir(*address)));
            numbers.extend(dev.map(Some).or_else(if_missing(|| None))?);
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

/// Returns whether a card is an Intel card of one tile, which its library counts as one device
/// (`drivers/gpu/drm/xe/xe_tile_sysfs.c`, `drivers/gpu/drm/i915/gt/intel_gt_sysfs.c`).
pub(super) fn is_intel_of_one_tile(tree: &Tree, card: &Card) -> bool {
    let dir = function_dir(card.address);
    let vendor_id = tree.read_text(&format!("{dir}/vendor"));
    let is_intel = vendor_id.is_ok_and(|id| id.trim_end() == "0x8086");
    let has_dir = |path: String| tree.list_names(&path).is_ok();
    let cards = list_class(tree, card.address, "drm").unwrap_or_default();
    let has_second_gt = cards.iter().any(|card| has_dir(format!("{dir}/drm/{card}/gt/gt1")));
    is_intel && !has_second_gt && !has_dir(format!("{dir}/tile1"))
}

/// Returns the accelerator and control nodes of a Habana card. The control device has the number of
/// the accelerator and no parent in sysfs (`drivers/accel/habanalabs/common/device.c`), so it is
/// looked up by its class. A device that sysfs lacks is left out.
///
/// It fails if a node in `/dev` contradicts the kernel's number.
fn habana_devices(tree: &Tree, address: PciAddress) -> Result<ResolvedDevices, DeviceError> {
    let mut devices = Vec::new();
    for entry in list_class(tree, address, "accel")?.iter().filter(|entry| is_accel(entry)) {
        let control = entry.replace("accel", "accel_controlD");
        for name in [entry, &control] {
            let numbers = tree.read_text(&format!("/sys/class/accel/{name}/dev"));
            let Some(numbers) = numbers.map(Some).or_else(if_missing(|| None))? else { continue };
            devices.extend(find_device(tree, &format!("/dev/accel/{name}"), numbers.trim_end())?);
        }
    }
    Ok(devices.into())
}

fn render_device(tree: &Tree, minor: u32) -> Result<ResolvedDevices, DeviceError> {
    require_device(tree, &format!("/dev/dri/renderD{minor}"), &format!("{}:{minor}", major::DRM))
}

/// Returns `found` if it contains a node that programs compute through.
fn require_compute_node(
    found: ResolvedDevices,
    is_compute_node: fn(&str) -> bool,
    card: &Card,
) -> Result<ResolvedDevices, DeviceError> {
    let fits = |device: &Device| device.node.rsplit('/').next().is_some_and(is_compute_node);
    match found.devices.iter().any(fits) {
        true => Ok(found),
        false => {
            let address = card.address;
            Err(DeviceError::new(format_args!("{address} has no node in /dev to compute by")))
        }
    }
}

fn require_device(tree: &Tree, path: &str, numbers: &str) -> Result<ResolvedDevices, DeviceError> {
    let absent = || driver::explain_absence(tree, path, NodeError::Open(Errno::ENOENT));
    let device = find_device(tree, path, numbers)?;
    Ok(vec![device.ok_or_else(|| DeviceError::at(path, absent()))?].into())
}

/// Returns the device at a path, which must have the `numbers` that the kernel reports; `None` if
/// `/dev` lacks it.
fn find_device(tree: &Tree, path: &str, numbers: &str) -> Result<Option<Device>, DeviceError> {
    let node = match tree.read_node(path) {
        Err(NodeError::Open(Errno::ENOENT)) => return Ok(None),
        node => node.map_err(|why| DeviceError::at(path, why))?,
    };
    if node.kind != DeviceType::Char || format!("{}:{}", node.major, node.minor) != numbers {
        let text = format!("{path} is {node}, and the kernel's device c {numbers}");
        return Err(DeviceError::new(text));
    }
    driver::check_node(tree, path, node)?;
    Device::from_node(path, node, Access::RW).map(Some)
}

/// Names of the driver of NVIDIA's GPUs in `/proc/devices`: from R550 on, and before.
const NVIDIA_GPU_DRIVERS: [&str; 2] = ["nvidia", "nvidia-frontend"];

/// Returns the devices that all GPUs of a vendor share and that the GPUs among `devices` need.
/// `gres.conf` names only the GPUs' own nodes, since Slurm leaves the others open to everyone.
///
/// # Errors
///
/// A file cannot be read, or a node contradicts the kernel.
pub fn find_companions(tree: &Tree, devices: &[Device]) -> Result<ResolvedDevices, DeviceError> {
    let mut found = ResolvedDevices::default();
    let minors_of =
        |major, range| major::minors_in(devices.iter().map(|device| &device.rule), major, range);
    if !devices.is_empty() {
        let drivers = tree.read_drivers()?;
        let majors = |name: &&str| drivers.majors_of(DeviceType::Char, name).collect::<Vec<_>>();
        let mut majors = NVIDIA_GPU_DRIVERS.iter().flat_map(majors);
        if majors.any(|major| !minors_of(major, major::NVIDIA_GPU_MINORS).is_empty()) {
            found.extend(nvidia::resolve_shared_nodes(tree)?);
        }
    }
    let mut needs_kfd = false;
    for minor in minors_of(major::DRM, 0..=MINOR_MAX) {
        if is_amd(tree, minor)? {
            found.extend(render_nodes_of_card(tree, minor)?);
            needs_kfd = true;
        }
    }
    if needs_kfd {
        found.extend(kfd_device(tree)?);
    }
    Ok(found)
}

/// Returns the render nodes of the function whose card node has this minor; none for a render node.
/// Programs compute through a render node alone, and the card node opens all that it does.
fn render_nodes_of_card(tree: &Tree, minor: u32) -> Result<ResolvedDevices, DeviceError> {
    let device = format!("/sys/dev/char/{}:{minor}", major::DRM);
    if !is_card(&tree.read_link_name(&device)?) {
        return Ok(ResolvedDevices::default());
    }
    let mut found = drm_devices(tree, &format!("{device}/device"))?;
    found.devices.retain(|device| device.node.rsplit('/').next().is_some_and(is_render));
    Ok(found)
}

/// Returns whether a DRM device is an AMD card or a partition of one. Partitions are platform
/// devices without a driver (`drivers/gpu/drm/amd/amdxcp/amdgpu_xcp_drv.c`).
fn is_amd(tree: &Tree, minor: u32) -> Result<bool, FileError> {
    let device = format!("/sys/dev/char/{}:{minor}/device", major::DRM);
    if tree.read_link_name(&device)?.starts_with("amdgpu_xcp") {
        return Ok(true);
    }
    let driver = tree.read_link_name(&format!("{device}/driver"));
    driver.map(|driver| driver == "amdgpu").or_else(if_missing(|| false))
}
