//! AMD GPUs in sysfs. A line `=` ends each file: two nodes of KFD's topology, the numbers of its
//! device, those of the card's own render node, and the processors close to the card.
//!
//! At most 512 bytes.
#![no_main]

use std::collections::BTreeSet;
use std::os::unix::fs::symlink;

use helper::node::topology::{self, Numbering};
use helper::node::{Device, DeviceError, ResolvedDevices};
use job_adopt_fuzz::Laid;
use libfuzzer_sys::fuzz_target;
use protocol::Access;

const CARD: &str = "sys/bus/pci/devices/0000:43:00.0";
const ADDRESS: &str = "0000:43:00.0";
const NODES: [(&str, &str); 6] = [
    ("proc/devices", "Character devices:\n226 drm\n238 kfd\n"),
    ("dev/kfd", "c 238:0"),
    ("dev/dri/card1", "c 226:1"),
    ("dev/dri/renderD128", "c 226:128"),
    ("dev/dri/renderD129", "c 226:129"),
    (
        "sys/class/kfd/kfd/topology/nodes/0/properties",
        "cpu_cores_count 96\nsimd_count 0\n",
    ),
];
const FILES: [&str; 5] = [
    "sys/class/kfd/kfd/topology/nodes/1/properties",
    "sys/class/kfd/kfd/topology/nodes/2/properties",
    "sys/class/kfd/kfd/dev",
    "sys/bus/pci/devices/0000:43:00.0/drm/renderD128/dev",
    "sys/bus/pci/devices/0000:43:00.0/local_cpulist",
];
/// Where the card is plugged in.
const BUS: &str = "sys/devices/pci0000:40/0000:43:00.0";

fuzz_target!(|text: &str| {
    let laid = Laid::kept();
    if !laid.path().join(CARD).exists() {
        NODES.iter().for_each(|(path, text)| laid.file(path, text));
        laid.file(&format!("{BUS}/class"), "0x038000\n");
        std::fs::create_dir_all(laid.path().join("sys/bus/pci/devices")).expect("a directory");
        symlink(format!("../../../../{BUS}"), laid.path().join(CARD)).expect("a link");
        laid.file(&format!("{CARD}/drm/card1/dev"), "226:1\n");
        symlink(
            "../../drivers/amdgpu",
            laid.path().join(CARD).join("driver"),
        )
        .expect("a link");
    }
    let mut parts = text.split("=\n");
    for path in FILES {
        match parts.next() {
            Some(text) => laid.file(path, text),
            // KFD's nodes and DRM's devices are directories, which are removed with their files.
            None => laid.without(
                path.trim_end_matches("/properties")
                    .trim_end_matches("/dev"),
            ),
        }
    }
    let tree = laid.tree();
    let address = ADDRESS.parse().expect("an address");
    let own = |devices: &[Device]| -> BTreeSet<Device> {
        for device in devices {
            let node = device.rule.major() == 226 || (device.node == "/dev/kfd");
            assert!(node && device.rule.minor().is_some(), "{device:?}");
            assert_eq!(device.rule.access(), Access::RW);
        }
        devices
            .iter()
            .filter(|device| device.rule.major() == 226)
            .cloned()
            .collect()
    };
    let whole = topology::resolve_address(&tree, address);
    let check = |resolve: &dyn Fn(u32) -> Result<ResolvedDevices, DeviceError>| {
        let mut given = BTreeSet::new();
        for index in 0..3 {
            let Ok(one) = resolve(index) else {
                continue;
            };
            let one = own(&one.devices);
            assert!(
                !one.is_empty() && given.is_disjoint(&one),
                "{one:?} has two numbers"
            );
            if let Ok(whole) = &whole {
                assert!(
                    one.is_subset(&own(&whole.devices)),
                    "{one:?} is no part of the card"
                );
            }
            given.extend(one);
        }
    };
    check(&|index| topology::resolve_index(&tree, index));
    for numbering in Numbering::ALL {
        check(&|index| topology::resolve_number(&tree, numbering, index));
    }
    assert!(
        topology::resolve_index(&tree, 3).is_err(),
        "there are two nodes of GPUs"
    );
});
