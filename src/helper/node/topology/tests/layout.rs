//! Lays out files of `/sys`, `/proc` and `/dev` as drivers make them.

use std::os::unix::fs::symlink;

use crate::node::PciAddress;
use crate::node::topology::Numbering;
use crate::node::{DeviceError, ResolvedDevices, Tree, topology};
use crate::testing::Scratch;

const DRIVERS: &str = "Character devices:\n  1 mem\n195 nvidia\n195 nvidiactl\n226 drm\n238 kfd\n\
                       261 accel\n262 habanalabs\n510 nvidia-uvm\n\nBlock devices:\n  7 loop\n";

/// A node that is laid out piece by piece.
pub(crate) struct Layout {
    pub(crate) scratch: Scratch,
}

impl Layout {
    pub(crate) fn new() -> Self {
        let scratch = Scratch::new();
        scratch.file("proc/devices", DRIVERS);
        scratch.dir("sys/bus/pci/devices");
        Self { scratch }
    }

    pub(crate) fn tree(&self) -> Tree {
        Tree::with_root(self.scratch.path(), self.scratch.trust())
    }

    pub(crate) fn link(&self, target: &str, path: &str) {
        if let Some((dir, _)) = path.rsplit_once('/') {
            self.scratch.dir(dir);
        }
        symlink(target, self.scratch.path().join(path)).unwrap();
    }

    pub(crate) fn remove(&self, path: &str) {
        std::fs::remove_file(self.scratch.path().join(path)).unwrap();
    }

    /// Adds a function with the driver that it is bound to, if any.
    pub(crate) fn function(&self, address: &str, driver: &str) {
        self.scratch.dir(&format!("sys/devices/pci/{address}"));
        self.link(&format!("../../../devices/pci/{address}"), &pci(address));
        if !driver.is_empty() {
            let link = format!("sys/devices/pci/{address}/driver");
            self.link(&format!("../../../bus/pci/drivers/{driver}"), &link);
        }
    }

    /// Plugs a function in behind a port of a root bus, close to these processors.
    pub(crate) fn plug(&self, address: &str, port: &str, processors: &str) {
        if !self.scratch.path().join(pci(port)).exists() {
            self.function(port, "pcieport");
            let list = format!("sys/devices/pci/{port}/local_cpulist");
            self.scratch.file(&list, &format!("{processors}\n"));
        }
        self.remove(&pci(address));
        self.link(
            &format!("../../../devices/pci/{port}/../{address}"),
            &pci(address),
        );
    }

    /// Adds a package with these processors; only the files of its processor `first`.
    pub(crate) fn package(&self, first: u32, processors: &str) {
        let file = format!("sys/devices/system/cpu/cpu{first}/topology/package_cpus_list");
        self.scratch.file(&file, &format!("{processors}\n"));
    }

    /// Makes the node one of a Flux system instance.
    pub(crate) fn flux(&self) {
        self.scratch.dir("run/flux");
    }

    /// Adds DRM devices and their nodes to a device of sysfs.
    pub(crate) fn drm(&self, device: &str, names: &[&str]) {
        for name in names {
            let minor = name.trim_start_matches(|byte: char| !byte.is_ascii_digit());
            let entry = format!("sys/devices/{device}/drm/{name}");
            self.scratch
                .file(&format!("{entry}/dev"), &format!("226:{minor}\n"));
            let parent = device.rsplit('/').next().unwrap();
            self.link(&format!("../../../{parent}"), &format!("{entry}/device"));
            let class = format!("sys/dev/char/226:{minor}");
            self.link(&format!("../../devices/{device}/drm/{name}"), &class);
            self.scratch
                .file(&format!("dev/dri/{name}"), &format!("c 226:{minor}"));
        }
    }

    /// Adds a GPU that has DRM nodes and nothing else.
    pub(crate) fn gpu(&self, address: &str, driver: &str, names: &[&str]) {
        self.function(address, driver);
        self.drm(&format!("pci/{address}"), names);
    }

    pub(crate) fn nvidia(&self, address: &str, minor: u32) {
        self.function(address, "nvidia");
        let file = format!("proc/driver/nvidia/gpus/{address}/information");
        let text = format!(
            "Model: \t\t NVIDIA H100\nGPU UUID: \t GPU-00000000-0000-0000-0000-{minor:012}\n\
             Bus Location: \t {address}\nDevice Minor: \t {minor}\nGPU Excluded:\t No\n"
        );
        self.scratch.file(&file, &text);
        for (name, numbers) in [
            (format!("nvidia{minor}"), format!("195:{minor}")),
            ("nvidiactl".to_owned(), "195:255".to_owned()),
            ("nvidia-uvm".to_owned(), "510:0".to_owned()),
            ("nvidia-uvm-tools".to_owned(), "510:1".to_owned()),
        ] {
            self.scratch
                .file(&format!("dev/{name}"), &format!("c {numbers}"));
        }
    }

    /// Adds an AMD card with eight DRM devices, of which KFD uses `parts`, as Linux numbers them.
    /// `first` is the render minor of the card itself; the minor of each card node is 128 lower.
    pub(crate) fn amd(&self, address: &str, first: u32, parts: u32) {
        self.amd_with_shift(address, first, parts, 0);
    }

    /// Adds an AMD card whose partitions have their number at bit `shift` of `location_id`.
    pub(crate) fn amd_with_shift(&self, address: &str, first: u32, parts: u32, shift: u32) {
        self.kfd();
        for part in 0..8 {
            let render = first + part;
            let names = [format!("card{}", render - 128), format!("renderD{render}")];
            let names = names.each_ref().map(String::as_str);
            match part {
                0 => self.gpu(address, "amdgpu", &names),
                _ => self.drm(&format!("platform/amdgpu_xcp_{render}"), &names),
            }
            if part < parts {
                self.kfd_node(render, &gpu_properties(address, part << shift, render));
            }
        }
    }

    pub(crate) fn kfd(&self) {
        self.scratch.file("sys/class/kfd/kfd/dev", "238:0\n");
        self.scratch.file("dev/kfd", "c 238:0");
        self.kfd_node(0, "cpu_cores_count 96\nsimd_count 0\n");
    }

    pub(crate) fn kfd_node(&self, node: u32, properties: &str) {
        let path = format!("sys/class/kfd/kfd/topology/nodes/{node}/properties");
        self.scratch.file(&path, properties);
    }

    /// Adds an accelerator that has one node and no control device.
    pub(crate) fn accelerator(&self, address: &str, driver: &str, number: u32) {
        self.function(address, driver);
        self.scratch
            .dir(&format!("sys/devices/pci/{address}/accel/accel{number}"));
        let class = format!("sys/class/accel/accel{number}/dev");
        self.scratch.file(&class, &format!("261:{number}\n"));
        let node = format!("dev/accel/accel{number}");
        self.scratch.file(&node, &format!("c 261:{number}"));
    }

    pub(crate) fn habana(&self, address: &str, number: u32) {
        self.function(address, "habanalabs");
        self.scratch
            .dir(&format!("sys/devices/pci/{address}/accel/accel{number}"));
        for (name, major) in [("accel", 261), ("accel_controlD", 262)] {
            let class = format!("sys/class/accel/{name}{number}/dev");
            self.scratch.file(&class, &format!("{major}:{number}\n"));
            let node = format!("dev/accel/{name}{number}");
            self.scratch.file(&node, &format!("c {major}:{number}"));
        }
    }

    pub(crate) fn index(&self, index: u32) -> Result<Vec<String>, String> {
        display_result(topology::resolve_index(&self.tree(), index))
    }

    /// The devices of the GPU that somebody gives this number.
    pub(crate) fn number(&self, numbering: Numbering, index: u32) -> Result<Vec<String>, String> {
        display_result(topology::resolve_number(&self.tree(), numbering, index))
    }

    pub(crate) fn address(&self, address: &str) -> Result<Vec<String>, String> {
        display_result(topology::resolve_address(
            &self.tree(),
            address.parse().unwrap(),
        ))
    }
}

pub(crate) fn pci(address: &str) -> String {
    format!("sys/bus/pci/devices/{address}")
}

/// The properties of a partition in KFD's form. `bits` are ORed into its location. The id of
/// the card follows from its address.
pub(crate) fn gpu_properties(address: &str, bits: u32, render: u32) -> String {
    let address: PciAddress = address.parse().unwrap();
    let domain = address.domain();
    let number = address.device_number();
    format!(
        "cpu_cores_count 0\nsimd_count 304\nlocation_id {}\ndomain {domain}\n\
         unique_id {}\ndrm_render_minor {render}\n",
        number | bits,
        u64::MAX - u64::from(domain << 16 | number),
    )
}

/// Returns path and rule of each device.
pub(crate) fn display_devices(found: &ResolvedDevices) -> Vec<String> {
    found
        .devices
        .iter()
        .map(|device| format!("{} {}", device.node, device.rule))
        .collect()
}

/// Returns path and rule of each device, or the text of the error.
pub(crate) fn display_result(
    found: Result<ResolvedDevices, DeviceError>,
) -> Result<Vec<String>, String> {
    found
        .map(|found| display_devices(&found))
        .map_err(|error| error.to_string())
}

/// The paths of the devices.
pub(crate) fn paths(devices: Result<Vec<String>, String>) -> Vec<String> {
    let path = |device: &String| device.split(' ').next().unwrap().to_owned();
    devices.unwrap().iter().map(path).collect()
}
