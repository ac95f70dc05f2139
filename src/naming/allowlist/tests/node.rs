//! A node with devices of every kind, and each GPU under all its names.

use std::collections::BTreeSet;

use crate::layout::Layout;
use crate::resolver::NameResolver;
use helper::devices::DeviceSettings;
use helper::node::{DeviceNode, Tree};
use protocol::DeviceType;

const DRIVERS: &str = "\
Character devices:
  1 mem
  5 /dev/tty
  5 ptmx
 10 misc
136 pts
195 nvidia
195 nvidiactl
226 drm
235 nvidia-caps
236 nvidia-caps-imex-channels
238 kfd
261 accel
262 habanalabs
510 nvidia-uvm

Block devices:
  7 loop
  8 sd
";

/// Numbers that names of this file resolve to although no node of `/dev` has them yet: the driver
/// makes the node at its first use.
const FUTURE_NUMBERS: [(u32, u32); 3] = [(236, 3), (235, 31), (510, 1)];

/// NVIDIA's GPUs: PCI address, minor, UUID. The first one on the bus has minor 1.
pub(super) const NVIDIA: [(&str, u32, &str); 2] = [
    ("0000:1b:00.0", 1, "edfee158-11c1-52b8-0517-92f30e7fac88"),
    ("0000:2b:00.0", 0, "f22fb098-d1b3-3806-2655-ba25f02229c1"),
];

/// AMD's GPUs: PCI address, first render minor, partitions.
pub(super) const AMD: [(&str, u32, u32); 2] = [("0000:43:00.0", 136, 4), ("0000:44:00.0", 144, 1)];

/// UUID of the MIG instance 1/0 of the second NVIDIA GPU.
pub(super) const MIG: &str = "5a6b7c8d-1111-2222-3333-444455556666";

pub(super) struct WholeNode(pub(super) Layout);

impl WholeNode {
    pub(super) fn new() -> Self {
        let layout = Layout::new();
        layout.nvidia(NVIDIA[0].0, NVIDIA[0].1);
        layout.nvidia(NVIDIA[1].0, NVIDIA[1].1);
        layout.drm(&format!("pci/{}", NVIDIA[0].0), &["card1", "renderD129"]);
        layout.drm(&format!("pci/{}", NVIDIA[1].0), &["card0", "renderD128"]);
        for (address, first, parts) in AMD {
            layout.amd(address, first, parts);
        }
        layout.habana("0000:63:00.0", 0);
        layout.gpu("0000:73:00.0", "xe", &["card32", "renderD160"]);
        layout.gpu("0000:74:00.0", "ast", &["card33"]);
        let node = Self(layout);
        node.nvidia();
        node.files();
        node.specifications();
        node.lists();
        node
    }

    fn file(&self, path: &str, text: &str) {
        self.0.scratch.file(path, text);
    }

    /// Lays out the files of NVIDIA's driver, with one MIG instance. One of its capabilities,
    /// `nvidia-uvm-tools` and the IMEX channels have no nodes yet.
    fn nvidia(&self) {
        self.file("proc/devices", DRIVERS);
        for (address, minor, uuid) in NVIDIA {
            let text = format!("GPU UUID: \t GPU-{uuid}\nDevice Minor: \t {minor}\n");
            self.file(
                &format!("proc/driver/nvidia/gpus/{address}/information"),
                &text,
            );
        }
        let minors = "config 1\nmonitor 2\ngpu0/gi1/access 30\ngpu0/gi1/ci0/access 31\n";
        self.file("proc/driver/nvidia-caps/mig-minors", minors);
        let instance = "proc/driver/nvidia/capabilities/gpu0/mig/gi1";
        self.file(&format!("{instance}/access"), "DeviceFileMinor: 30\n");
        self.file(&format!("{instance}/ci0/access"), "DeviceFileMinor: 31\n");
        self.file("dev/nvidia-caps/nvidia-cap1", "c 235:1");
        self.file("dev/nvidia-caps/nvidia-cap30", "c 235:30");
        self.0.remove("dev/nvidia-uvm-tools");
    }

    fn files(&self) {
        for (name, numbers) in [
            ("null", "c 1:3"),
            ("zero", "c 1:5"),
            ("full", "c 1:7"),
            ("random", "c 1:8"),
            ("urandom", "c 1:9"),
            ("tty", "c 5:0"),
            ("ptmx", "c 5:2"),
            ("fuse", "c 10:229"),
            ("sda", "b 8:0"),
            ("sda1", "b 8:1"),
            ("loop0", "b 7:0"),
        ] {
            self.file(&format!("dev/{name}"), numbers);
        }
    }

    fn specifications(&self) {
        let gpu = |(name, nodes): (&str, &[&str])| {
            let nodes: Vec<_> = nodes
                .iter()
                .map(|path| format!(r#"{{"path":"/dev/{path}"}}"#))
                .collect();
            format!(
                r#"{{"name":"{name}","containerEdits":{{"deviceNodes":[{}]}}}}"#,
                nodes.join(",")
            )
        };
        let spec = |kind: &str, shared: &[&str], devices: &[(&str, &[&str])]| {
            let shared: Vec<_> = shared
                .iter()
                .map(|path| format!(r#"{{"path":"/dev/{path}"}}"#))
                .collect();
            let devices: Vec<_> = devices.iter().copied().map(gpu).collect();
            let edits = if shared.is_empty() {
                String::new()
            } else {
                format!(
                    r#""containerEdits":{{"deviceNodes":[{}]}},"#,
                    shared.join(",")
                )
            };
            format!(
                r#"{{"cdiVersion":"0.5.0","kind":"{kind}",{edits}"devices":[{}]}}"#,
                devices.join(",")
            )
        };
        let first: &[&str] = &["nvidia1", "dri/card1", "dri/renderD129"];
        let uuid = format!("GPU-{}", NVIDIA[0].2);
        let mig = format!("MIG-{MIG}");
        let instance: &[&str] = &[
            "nvidia0",
            "nvidia-caps/nvidia-cap30",
            "nvidia-caps/nvidia-cap31",
        ];
        self.file(
            "etc/cdi/nvidia.json",
            &spec(
                "nvidia.com/gpu",
                &["nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"],
                &[
                    ("0", first),
                    (&uuid, first),
                    ("1:0", instance),
                    (&mig, instance),
                    ("old", &["nvidia7"]),
                    ("twice", &["nvidia0"]),
                ],
            ),
        );
        self.file(
            "etc/cdi/more.json",
            &spec("nvidia.com/gpu", &[], &[("twice", &["nvidia1"])]),
        );
        let card: &[&str] = &["dri/card16", "dri/renderD144", "kfd"];
        let part: &[&str] = &["dri/renderD138", "kfd"];
        let amd = spec("amd.com/gpu", &[], &[("4", card), ("2", part)]);
        self.file("run/cdi/amd.json", &amd);
        self.file(
            "run/cdi/broken.json",
            r#"{"cdiVersion":"0.5.0","kind":"site.org/fpga"}"#,
        );
    }

    fn lists(&self) {
        self.file("etc/slurm/slurm.conf", "ClusterName=site\n");
        let gres = "NodeName=other Name=gpu File=/dev/nvidia9\n\
                    Name=gpu File=/dev/nvidia[0-1]\n\
                    Name=gpu MultipleFiles=/dev/dri/card16,/dev/dri/renderD144\n\
                    Name=gpu File=/dev/dri/renderD138\n\
                    Name=card Type=h100 File=/dev/nvidia[0-1]\n\
                    Name=disk File=/dev/sda\nName=licence Count=4\n";
        self.file("etc/slurm/gres.conf", gres);
        for path in [
            &format!("one/GPU-{}", NVIDIA[0].2),
            "all/all",
            "none/none",
            &format!("mixed/MIG-GPU-{}/1/0", NVIDIA[1].2),
            "mixed/imex/3",
            "mixed/cdi/amd.com/gpu/2",
            "bad/nvidia0",
        ] {
            self.file(&format!("run/list/{path}"), "");
        }
        self.0.scratch.dir("run/list/empty");
    }

    pub(super) fn resolver(&self) -> NameResolver {
        let settings = DeviceSettings {
            node_name: Some("node1".into()),
            ..DeviceSettings::default()
        };
        NameResolver::new(self.0.tree(), settings)
    }

    /// The numbers of all nodes of `/dev`, including future ones.
    pub(super) fn numbers(&self) -> BTreeSet<(DeviceType, u32, u32)> {
        fn add_below(tree: &Tree, dir: &str, numbers: &mut BTreeSet<(DeviceType, u32, u32)>) {
            for name in tree.list_names(dir).unwrap() {
                let path = format!("{dir}/{name}");
                match tree.read_node(&path) {
                    Ok(DeviceNode { kind, major, minor }) => {
                        _ = numbers.insert((kind, major, minor))
                    }
                    Err(_) => add_below(tree, &path, numbers),
                }
            }
        }
        let mut numbers = BTreeSet::new();
        add_below(&self.0.tree(), "/dev", &mut numbers);
        numbers.extend(FUTURE_NUMBERS.map(|(major, minor)| (DeviceType::Char, major, minor)));
        numbers
    }
}
