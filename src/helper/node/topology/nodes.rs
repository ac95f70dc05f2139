//! The device nodes of a GPU, each checked against the numbers that the kernel reports.

use nix::errno::Errno;

use super::card::{Card, Vendor};
use super::class::{is_accel, is_card, is_render};
use crate::node::nvidia::capabilities::NVIDIA_GPU_DRIVERS;
use crate::node::pci::{PciAddress, function_dir, list_class};
use crate::node::{
    Device, DeviceError, FileError, NodeError, ResolvedDevices, Tree, driver, major, nvidia,
};
use protocol::{Access, DeviceType, MINOR_MAX};

/// Maximum DRM devices of a device in sysfs.
const DRM_ENTRIES_MAX: usize = 64;

/// Resolves the devices of a whole card: its own nodes, and those that all cards of its vendor share. NVIDIA's own
/// node comes first.
///
/// # Errors
///
/// The card has no node to compute by, a node contradicts the kernel, or a file cannot be read.
pub(super) fn card_devices(tree: &Tree, card: &Card) -> Result<ResolvedDevices, DeviceError> {
    let dir = function_dir(card.address);
    match &card.vendor {
        Vendor::Nvidia(gpu) => {
            let mut found = nvidia::resolve_gpu_node(tree, gpu)?;
            found.extend(nvidia::resolve_shared_nodes(tree)?);
            found.extend(drm_devices(tree, &dir)?);
            Ok(found)
        }
        Vendor::Amd { parts } => {
            let mut found = drm_devices(tree, &dir)?;
            require_compute_node(&found, is_render, card)?;
            for part in parts {
                found.extend(render_device(tree, *part)?);
            }
            found.extend(kfd_device(tree)?);
            Ok(found)
        }
        Vendor::Habana => {
            let found = accel_devices(tree, card.address)?;
            require_compute_node(&found, is_accel, card)?;
            Ok(found)
        }
        Vendor::Other => {
            let found = drm_devices(tree, &dir)?;
            require_compute_node(&found, is_render, card)?;
            Ok(found)
        }
    }
}

/// Resolves the devices of one partition of an AMD card, without its card node: the driver restricts
/// a process to a partition by the render node that it opened, and gives access to the whole card
/// through a card node (`amdgpu_xcp_open_device` in `drivers/gpu/drm/amd/amdgpu/amdgpu_xcp.c`).
pub(super) fn partition_devices(tree: &Tree, part: u32) -> Result<ResolvedDevices, DeviceError> {
    let mut found = render_device(tree, part)?;
    found.extend(kfd_device(tree)?);
    Ok(found)
}

/// Resolves the node through which programs reach all AMD GPUs. It opens no GPU by itself: KFD checks
/// the cgroup for the render node of each (`kfd_devcgroup_check_permission` in
/// `drivers/gpu/drm/amd/amdkfd/kfd_priv.h`).
pub(super) fn kfd_device(tree: &Tree) -> Result<ResolvedDevices, DeviceError> {
    let numbers = match tree.read_text("/sys/class/kfd/kfd/dev") {
        Err(error) if error.is_missing() => {
            let why = "the KFD driver, amdgpu's for computing, is not loaded";
            return Err(DeviceError::new(why));
        }
        result => result?,
    };
    require_device(tree, "/dev/kfd", numbers.trim_end())
}

/// Finds the sysfs directories of the GPUs that are part of a processor and on no PCI bus. A
/// software renderer (`vgem`) does not count, nor does a device without a driver.
pub(super) fn find_integrated_gpus(tree: &Tree) -> Result<Vec<String>, DeviceError> {
    const CLASS: &str = "/sys/class/drm";
    let mut found = Vec::new();
    for entry in tree.list_entries(CLASS, MINOR_MAX as usize)? {
        if !is_render(&entry) {
            continue;
        }
        let device = format!("{CLASS}/{entry}/device");
        let driver = tree.read_link_name_if_exists(&format!("{device}/driver"))?;
        let subsystem = tree.read_link_name_if_exists(&format!("{device}/subsystem"))?;
        let is_hardware = driver.is_some_and(|driver| driver != "vgem");
        if is_hardware && subsystem.as_deref() == Some("platform") {
            found.push(device);
        }
    }
    Ok(found)
}

/// Resolves the card and render nodes of a device in sysfs. A node that `/dev` lacks is left out, so that none may be
/// left.
///
/// # Errors
///
/// A node contradicts the kernel, or a file cannot be read.
pub(super) fn drm_devices(tree: &Tree, device: &str) -> Result<ResolvedDevices, DeviceError> {
    let mut devices = Vec::new();
    for entry in tree.list_entries(&format!("{device}/drm"), DRM_ENTRIES_MAX)? {
        if is_render(&entry) || is_card(&entry) {
            let numbers = tree.read_text(&format!("{device}/drm/{entry}/dev"))?;
            devices.extend(find_device(
                tree,
                &format!("/dev/dri/{entry}"),
                numbers.trim_end(),
            )?);
        }
    }
    Ok(devices.into())
}

/// Checks against the kernel that each DRM node among `devices` belongs to a function at one of
/// `addresses`. Without addresses nothing is checked.
///
/// # Errors
///
/// A node belongs to another function, a rule is for all DRM nodes, or a file cannot be read.
pub fn verify_drm_nodes(
    tree: &Tree,
    addresses: &[PciAddress],
    devices: &[Device],
) -> Result<(), DeviceError> {
    let Some(first) = addresses.first() else {
        return Ok(());
    };
    // `MAJOR:MINOR` of each DRM device of these functions.
    let mut numbers = Vec::new();
    for address in addresses {
        for entry in list_class(tree, *address, "drm")? {
            let path = format!("{}/drm/{entry}/dev", function_dir(*address));
            if let Some(text) = tree.read_text_if_exists(&path)? {
                numbers.push(text.trim_end().to_owned());
            }
        }
    }
    for Device { node, rule } in devices {
        if rule.kind() != DeviceType::Char || rule.major() != major::DRM {
            continue;
        }
        let is_of_addresses = rule
            .minor()
            .is_some_and(|minor| numbers.contains(&format!("{}:{minor}", rule.major())));
        if !is_of_addresses {
            return Err(DeviceError::new(format_args!(
                "the specification lists {node}, which is not of the GPU at {first}: generate the \
                 specification anew"
            )));
        }
    }
    Ok(())
}

/// Tells whether a card is an Intel card of one tile, which its library counts as one device
/// (`drivers/gpu/drm/xe/xe_tile_sysfs.c`, `drivers/gpu/drm/i915/gt/intel_gt_sysfs.c`). A card whose vendor cannot be
/// read is none; a directory that cannot be listed counts as missing.
pub(super) fn is_intel_of_one_tile(tree: &Tree, card: &Card) -> bool {
    let dir = function_dir(card.address);
    let vendor_id = tree.read_text(&format!("{dir}/vendor"));
    if !vendor_id.is_ok_and(|id| id.trim_end() == "0x8086") {
        return false;
    }
    let mut second_parts = vec![format!("{dir}/tile1")];
    for entry in list_class(tree, card.address, "drm").unwrap_or_default() {
        second_parts.push(format!("{dir}/drm/{entry}/gt/gt1"));
    }
    second_parts
        .iter()
        .all(|path| tree.list_names(path).is_err())
}

/// Resolves the nodes of a function in the class `accel`, and the control nodes that Habana's driver has
/// besides. A control device has the number of the accelerator and no parent in sysfs
/// (`drivers/accel/habanalabs/common/device.c`), so it is looked up by its class. A device that sysfs
/// or `/dev` lacks is left out.
///
/// # Errors
///
/// A node in `/dev` contradicts the kernel's number, or a file cannot be read.
pub(super) fn accel_devices(
    tree: &Tree,
    address: PciAddress,
) -> Result<ResolvedDevices, DeviceError> {
    let mut devices = Vec::new();
    for entry in list_class(tree, address, "accel")?
        .iter()
        .filter(|entry| is_accel(entry))
    {
        let control = entry.replace("accel", "accel_controlD");
        for name in [entry, &control] {
            let path = format!("/sys/class/accel/{name}/dev");
            let Some(numbers) = tree.read_text_if_exists(&path)? else {
                continue;
            };
            devices.extend(find_device(
                tree,
                &format!("/dev/accel/{name}"),
                numbers.trim_end(),
            )?);
        }
    }
    Ok(devices.into())
}

/// Resolves the render node with this minor, which must exist.
fn render_device(tree: &Tree, minor: u32) -> Result<ResolvedDevices, DeviceError> {
    require_device(
        tree,
        &format!("/dev/dri/renderD{minor}"),
        &format!("{}:{minor}", major::DRM),
    )
}

/// Requires that one of the card's devices is a node that programs compute through: its name passes
/// `is_compute_node`.
fn require_compute_node(
    found: &ResolvedDevices,
    is_compute_node: fn(&str) -> bool,
    card: &Card,
) -> Result<(), DeviceError> {
    for device in &found.devices {
        if device.node.rsplit('/').next().is_some_and(is_compute_node) {
            return Ok(());
        }
    }
    let address = card.address;
    Err(DeviceError::new(format_args!(
        "{address} has no node in /dev to compute by"
    )))
}

/// Resolves the device at a path, which must exist and have the `numbers` that the kernel reports.
///
/// # Errors
///
/// No node is there, with the driver as the reason if it is not loaded; else as [`find_device`].
fn require_device(tree: &Tree, path: &str, numbers: &str) -> Result<ResolvedDevices, DeviceError> {
    let Some(device) = find_device(tree, path, numbers)? else {
        let why = driver::explain_absence(tree, path, NodeError::Open(Errno::ENOENT));
        return Err(DeviceError::at(path, why));
    };
    Ok(vec![device].into())
}

/// Finds the device at a path, which must have the `numbers` that the kernel reports; `None` if `/dev` lacks it.
///
/// # Errors
///
/// The node has other numbers, a job must not have it ([`driver::check_node`]), or it cannot be opened.
fn find_device(tree: &Tree, path: &str, numbers: &str) -> Result<Option<Device>, DeviceError> {
    let node = match tree.read_node(path) {
        Err(NodeError::Open(Errno::ENOENT)) => return Ok(None),
        result => result.map_err(|why| DeviceError::at(path, why))?,
    };
    if node.kind != DeviceType::Char || format!("{}:{}", node.major, node.minor) != numbers {
        let text = format!("{path} is {node}, and the kernel's device c {numbers}");
        return Err(DeviceError::new(text));
    }
    driver::check_node(tree, path, node)?;
    Device::from_node(path, node, Access::RW).map(Some)
}

/// Resolves what the GPUs among `devices` need besides: the devices that all GPUs of their vendor
/// share, and the render nodes of an AMD card that is named by its card node. `gres.conf` names only
/// the GPUs' own nodes, since Slurm leaves the others open to everyone.
///
/// # Errors
///
/// A file cannot be read, or a node contradicts the kernel.
pub fn find_companions(tree: &Tree, devices: &[Device]) -> Result<ResolvedDevices, DeviceError> {
    let mut found = ResolvedDevices::default();
    if has_nvidia_gpu(tree, devices)? {
        found.extend(nvidia::resolve_shared_nodes(tree)?);
    }
    let mut needs_kfd = false;
    let rules = devices.iter().map(|device| &device.rule);
    for minor in major::minors_in(rules, major::DRM, 0..=MINOR_MAX) {
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

/// Tells whether an NVIDIA GPU is among these devices, under any major that its driver has now.
fn has_nvidia_gpu(tree: &Tree, devices: &[Device]) -> Result<bool, FileError> {
    if devices.is_empty() {
        return Ok(false);
    }
    let drivers = tree.read_drivers()?;
    for name in NVIDIA_GPU_DRIVERS {
        for major in drivers.majors_of(DeviceType::Char, name) {
            let rules = devices.iter().map(|device| &device.rule);
            if !major::minors_in(rules, major, major::NVIDIA_GPU_MINORS).is_empty() {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Lists the render nodes of the function whose card node has this minor; empty for the minor of a render node.
/// Programs compute through the render node alone, and who may open the card node may do all that it allows.
fn render_nodes_of_card(tree: &Tree, minor: u32) -> Result<ResolvedDevices, DeviceError> {
    let link = format!("/sys/dev/char/{}:{minor}", major::DRM);
    if !is_card(&tree.read_link_name(&link)?) {
        return Ok(ResolvedDevices::default());
    }
    let mut found = drm_devices(tree, &format!("{link}/device"))?;
    found
        .devices
        .retain(|device| device.node.rsplit('/').next().is_some_and(is_render));
    Ok(found)
}

/// Tells whether a DRM device is an AMD card or a partition of one. Partitions are platform
/// devices without a driver (`drivers/gpu/drm/amd/amdxcp/amdgpu_xcp_drv.c`).
fn is_amd(tree: &Tree, minor: u32) -> Result<bool, FileError> {
    let device = format!("/sys/dev/char/{}:{minor}/device", major::DRM);
    if tree.read_link_name(&device)?.starts_with("amdgpu_xcp") {
        return Ok(true);
    }
    let driver = tree.read_link_name_if_exists(&format!("{device}/driver"))?;
    Ok(driver.as_deref() == Some("amdgpu"))
}
