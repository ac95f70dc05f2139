mod gpus;
mod nodes;

use super::*;
use crate::node::nvidia::Uuid;
use crate::node::{DeviceError, ResolvedDevices, Tree};
use crate::testing::Random;
use crate::testing::Scratch;

/// A node with eight GPUs whose minors differ from the order of the bus. The second and the third
/// GPU have MIG instances.
pub(crate) struct Fixture(pub(crate) Scratch);

/// `/proc/devices` with a recent driver.
pub(crate) const DEVICES: &str = "Character devices:\n  1 mem\n 10 misc\n195 nvidia\n\
    195 nvidiactl\n195 nvidia-modeset\n226 drm\n234 nvidia-nvlink\n235 nvidia-caps\n\
    237 nvidia-caps-imex-channels\n510 nvidia-uvm\n511 nvidia-nvswitch\n\nBlock devices:\n  7 loop\n";

const BUSES: [&str; 8] = ["0a", "1b", "43", "52", "9d", "c3", "d1", "df"];
const MINORS: [u32; 8] = [2, 3, 0, 1, 6, 7, 4, 5];
/// Distances of the minors of capabilities, as the driver counts them.
const GI: u32 = 9;
const GPU: u32 = 135;

fn gi_minor(gpu: u32, gi: u32) -> u32 {
    3 + gpu * GPU + gi * GI
}

pub(crate) fn uuid(gpu: usize) -> Uuid {
    format!("edfee158-11c1-52b8-0517-92f30e7fac8{gpu}")
        .parse()
        .unwrap()
}

fn information(minor: &str, uuid: &str, excluded: &str) -> String {
    format!(
        "Model: \t\t NVIDIA H200\nIRQ:   \t\t 345\n{uuid}Video BIOS: \t 96.00.cf.00.01\n\
         Bus Type: \t PCIe\nDMA Mask: \t 0xfffffffffffff\nDevice Minor: \t {minor}\n{excluded}"
    )
}

impl Fixture {
    pub(crate) fn new() -> Self {
        let this = Self(Scratch::new());
        this.file("proc/devices", DEVICES);
        for (index, (bus, minor)) in BUSES.iter().zip(MINORS).enumerate() {
            let line = format!("GPU UUID: \t GPU-{}\n", uuid(index));
            this.gpu(
                bus,
                &information(&minor.to_string(), &line, "GPU Excluded:\t No\n"),
            );
            this.file(&format!("dev/nvidia{minor}"), &format!("c 195:{minor}"));
        }
        this.file("dev/nvidiactl", "c 195:255");
        this.file("dev/nvidia-modeset", "c 195:254");
        this.file("dev/nvidia-uvm", "c 510:0");
        this.file("dev/nvidia-uvm-tools", "c 510:1");
        this.caps();
        this
    }

    fn caps(&self) {
        let mut table = "config 1\nmonitor 2\n".to_owned();
        for (gpu, gi) in (0..8).flat_map(|gpu| (0..15).map(move |gi| (gpu, gi))) {
            let minor = gi_minor(gpu, gi);
            table.push_str(&format!("gpu{gpu}/gi{gi}/access {minor}\n"));
            for ci in 0..8 {
                table.push_str(&format!(
                    "gpu{gpu}/gi{gi}/ci{ci}/access {}\n",
                    minor + 1 + ci
                ));
            }
        }
        self.file("proc/driver/nvidia-caps/mig-minors", &table);
        self.file("proc/driver/nvidia-caps/nvlink-minors", "fabric-mgmt 0\n");
        self.file(
            "proc/driver/nvidia-caps/sys-minors",
            "fabric-imex-mgmt 4323\n",
        );
        self.cap("mig/config", 1);
        self.cap("mig/monitor", 2);
        self.cap("fabric-imex-mgmt", 4323);
        for (gpu, gi) in [(3, 1), (3, 2), (0, 9)] {
            let minor = gi_minor(gpu, gi);
            self.cap(&format!("gpu{gpu}/mig/gi{gi}/access"), minor);
            self.cap(&format!("gpu{gpu}/mig/gi{gi}/ci0/access"), minor + 1);
        }
    }

    fn cap(&self, path: &str, minor: u32) {
        let text = format!("DeviceFileMinor: {minor}\nDeviceFileMode: 292\nDeviceFileModify: 1\n");
        self.file(&format!("proc/driver/nvidia/capabilities/{path}"), &text);
        self.file(
            &format!("dev/nvidia-caps/nvidia-cap{minor}"),
            &format!("c 235:{minor}"),
        );
    }

    fn gpu(&self, bus: &str, text: &str) {
        self.file(
            &format!("proc/driver/nvidia/gpus/0000:{bus}:00.0/information"),
            text,
        );
    }

    pub(crate) fn file(&self, path: &str, text: &str) {
        self.0.file(path, text);
    }

    pub(crate) fn remove(&self, path: &str) {
        let located = self.0.path().join(path);
        if located.is_dir() {
            std::fs::remove_dir_all(located).unwrap();
        } else {
            std::fs::remove_file(located).unwrap();
        }
    }

    pub(crate) fn tree(&self) -> Tree {
        Tree::with_root(self.0.path(), self.0.trust())
    }

    fn gpus(&self) -> Result<Vec<NvidiaGpu>, DeviceError> {
        list_gpus(&self.tree())
    }

    fn instance(&self, gpu: usize, gi: u32, ci: u32) -> Result<ResolvedDevices, DeviceError> {
        resolve_instance(&self.tree(), &uuid(gpu), gi, ci)
    }
}

fn assert_refused<T: std::fmt::Debug>(result: Result<T, DeviceError>, why: &str) {
    let error = result.unwrap_err().to_string();
    assert!(error.contains(why), "{error}");
}

fn rules(found: &ResolvedDevices) -> Vec<String> {
    assert!(
        found
            .devices
            .iter()
            .all(|device| device.rule.minor().is_some())
    );
    found
        .devices
        .iter()
        .map(|device| format!("{} {}", device.node, device.rule))
        .collect()
}

const SHARED: [&str; 3] = [
    "/dev/nvidiactl c:195:255:rw",
    "/dev/nvidia-uvm c:510:0:rw",
    "/dev/nvidia-uvm-tools c:510:1:rw",
];
