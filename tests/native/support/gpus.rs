//! Drivers and GPUs that the machine does not have: the kernel's files about them, and stand-ins
//! for their device nodes.

use super::Node;

/// Number of instances into which a GPU can be split.
const INSTANCES_OF_GPU: u32 = 7;

/// Returns `/proc/devices` of a node with NVIDIA and AMD drivers. The major of `nvidia-uvm` is
/// dynamic.
fn proc_devices(uvm: u32) -> String {
    format!(
        "Character devices:\n  1 mem\n  5 /dev/tty\n  5 /dev/ptmx\n 10 misc\n136 pts\n\
         195 nvidia\n195 nvidiactl\n195 nvidia-modeset\n226 drm\n235 nvidia-caps\n238 kfd\n\
         {uvm} nvidia-uvm\n\nBlock devices:\n  7 loop\n"
    )
}

impl Node {
    /// Adds the NVIDIA driver with this major for `nvidia-uvm`, and its device nodes.
    pub(crate) fn add_nvidia_driver(&self, uvm: u32) {
        self.write("/run/devices", &proc_devices(uvm));
        self.sh("umount /proc/devices 2>/dev/null; mount --bind /run/devices /proc/devices")
            .ok();
        let nodes = format!(
            "rm -f /dev/nvidia-uvm /dev/nvidia-uvm-tools
             mknod -m 666 /dev/nvidia-uvm c {uvm} 0
             mknod -m 666 /dev/nvidia-uvm-tools c {uvm} 1"
        );
        self.sh(&nodes).ok();
    }

    /// Adds two AMD GPUs to the bus: `0000:03:00.0` with `renderD129`, and `0000:83:00.0` with
    /// `renderD128`.
    pub(crate) fn add_amd_gpus(&self) {
        let devices = "mknod -m 666 /dev/kfd c 238 0
                       mknod -m 666 /dev/dri/renderD129 c 226 129
                       mount -t tmpfs -o mode=0755 tmpfs /sys/bus/pci/devices
                       mount -t tmpfs -o mode=0755 tmpfs /sys/class
                       mkdir /run/amdgpu";
        self.sh(&format!("set -e; {devices}")).ok();
        self.write_root_file("/sys/class/kfd/kfd/dev", "238:0\n");
        let nodes = "/sys/class/kfd/kfd/topology/nodes";
        self.write_root_file(
            &format!("{nodes}/0/properties"),
            "cpu_cores_count 96\nsimd_count 0\n",
        );
        for (bus, minor) in [(0x03, 129), (0x83, 128)] {
            let function = format!("/sys/bus/pci/devices/0000:{bus:02x}:00.0");
            let drm = format!("{function}/drm/renderD{minor}/dev");
            self.write_root_file(&drm, &format!("226:{minor}\n"));
            self.sh(&format!("ln -s /run/amdgpu {function}/driver"))
                .ok();
        }
        self.write_kfd_nodes([(0x03, 129), (0x83, 128)]);
    }

    /// Lets KFD list AMD's GPUs in this order, by bus and render minor.
    pub(crate) fn write_kfd_nodes(&self, gpus: [(u32, u32); 2]) {
        for (node, (bus, minor)) in (1..).zip(gpus) {
            let properties = format!(
                "simd_count 304\nvendor_id 4098\nlocation_id {}\ndomain 0\ndrm_render_minor {minor}\n",
                bus << 8
            );
            let path = format!("/sys/class/kfd/kfd/topology/nodes/{node}/properties");
            self.write_root_file(&path, &properties);
        }
    }

    /// Adds the NVIDIA stand-ins to the bus, and the UUIDs of [`Node::uuid`] to their driver.
    pub(crate) fn add_nvidia_gpus(&self) {
        let devices = "mount -t tmpfs -o mode=0755 tmpfs /proc/driver
                       mountpoint -q /sys/bus/pci/devices ||
                           mount -t tmpfs -o mode=0755 tmpfs /sys/bus/pci/devices
                       mkdir /run/nvidia";
        self.sh(&format!("set -e; {devices}")).ok();
        for minor in 0..4 {
            let address = format!("0000:{:02x}:00.0", 0x10 + minor);
            let function = format!("/sys/bus/pci/devices/{address}");
            self.create_dir(&function, 0o755);
            self.sh(&format!("ln -s /run/nvidia {function}/driver"))
                .ok();
            let text = format!(
                "GPU UUID: \t {}\nDevice Minor: \t {minor}\n",
                Self::uuid(minor)
            );
            self.write_root_file(
                &format!("/proc/driver/nvidia/gpus/{address}/information"),
                &text,
            );
        }
    }

    /// Adds as many NVIDIA GPUs as stand-ins, each split into seven MIG instances, and the files of their driver.
    pub(crate) fn add_mig_gpus(&self, gpus: u32) {
        self.add_nvidia_driver(510);
        let script = format!(
            "set -e
             mount -t tmpfs -o mode=0755 tmpfs /proc/driver
             mount -t tmpfs -o mode=0755 tmpfs /sys/bus/pci/devices
             mkdir -p /run/nvidia /dev/nvidia-caps
             for gpu in $(seq 0 {}); do
                 [ -e /dev/nvidia$gpu ] || mknod -m 666 /dev/nvidia$gpu c 195 $gpu
                 function=/sys/bus/pci/devices/0000:$(printf %02x $((gpu + 16))):00.0
                 mkdir -p $function
                 ln -s /run/nvidia $function/driver
             done
             for minor in $(seq 1 {}); do
                 mknod -m 444 /dev/nvidia-caps/nvidia-cap$minor c 235 $minor
             done",
            gpus - 1,
            gpus * INSTANCES_OF_GPU * 2
        );
        self.sh(&script).ok();
        let mut minors = 1..;
        for gpu in 0..gpus {
            let information = format!(
                "/proc/driver/nvidia/gpus/0000:{:02x}:00.0/information",
                gpu + 16
            );
            let uuid = Self::mig_parent(gpu);
            let text = format!("GPU UUID: \t {uuid}\nDevice Minor: \t {gpu}\n");
            self.write_root_file(&information, &text);
            for gi in 1..=INSTANCES_OF_GPU {
                let folder = format!("/proc/driver/nvidia/capabilities/gpu{gpu}/mig/gi{gi}");
                for (dir, minor) in [folder.clone(), format!("{folder}/ci0")]
                    .iter()
                    .zip(&mut minors)
                {
                    let access = format!("DeviceFileMinor: {minor}\nDeviceFileMode: 292\n");
                    self.write_root_file(&format!("{dir}/access"), &access);
                }
            }
        }
    }

    /// Returns the UUID of a GPU of [`Node::add_mig_gpus`].
    pub(crate) fn mig_parent(gpu: u32) -> String {
        format!("GPU-edfee158-11c1-52b8-0517-92f30e7fac{gpu:02x}")
    }

    /// Returns the names of all instances of [`Node::add_mig_gpus`].
    pub(crate) fn mig_instances(&self, gpus: u32) -> Vec<String> {
        let mut names = Vec::new();
        for gpu in 0..gpus {
            let parent = Self::mig_parent(gpu);
            names.extend((1..=INSTANCES_OF_GPU).map(|gi| format!("MIG-{parent}/{gi}/0")));
        }
        names
    }

    /// Returns the UUID of the GPU with this minor.
    pub(crate) fn uuid(minor: u32) -> String {
        format!("GPU-edfee158-11c1-52b8-0517-92f30e7fac8{minor}")
    }

    /// Writes a file of root, and creates its folder.
    pub(crate) fn write_root_file(&self, path: &str, text: &str) {
        if let Some((folder, _)) = path.rsplit_once('/') {
            self.create_dir(folder, 0o755);
        }
        self.write(path, text);
        self.set_mode(path, 0o644);
    }
}
