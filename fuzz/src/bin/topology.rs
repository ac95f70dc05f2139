//! AMD GPUs in sysfs. A line `=` ends each file: two nodes of KFD's topology, the numbers of its
//! device, and those of the card's own render node.
//!
//! At most 512 bytes.
#![no_main]

use std::collections::BTreeSet;
use std::os::unix::fs::symlink;

use helper::node::{Device, topology};
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
const FILES: [&str; 4] = [
    "sys/class/kfd/kfd/topology/nodes/1/properties",
    "sys/class/kfd/kfd/topology/nodes/2/properties",
    "sys/class/kfd/kfd/dev",
    "sys/bus/pci/devices/0000:43:00.0/drm/renderD128/dev",
];

fuzz_target!(|text: &str| {
    let laid = Laid::kept();
    if !laid.path().join(CARD).exists() {
        NODES.iter().for_each(|(path, text)| laid.file(path, text));
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
    let mut given = BTreeSet::new();
    for index in 0..3 {
        let Ok(one) = topology::resolve_index(&tree, index) else {
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
    assert!(
        topology::resolve_index(&tree, 3).is_err(),
        "there are two nodes of GPUs"
    );
});
