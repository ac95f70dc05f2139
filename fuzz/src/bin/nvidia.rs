//! The files of NVIDIA's driver. A line `=` ends each: two GPUs, the minors of MIG instances, and
//! the two capabilities of one instance.
//!
//! At most 1024 bytes.
#![no_main]

use helper::node::nvidia::{list_gpus, resolve_instance, resolve_shared_nodes};
use job_adopt_fuzz::Laid;
use libfuzzer_sys::fuzz_target;

const DRIVER: &str = "proc/driver/nvidia";
const NODES: [(&str, &str); 9] = [
    (
        "proc/devices",
        "Character devices:\n195 nvidia\n195 nvidiactl\n509 nvidia-caps\n510 nvidia-uvm\n",
    ),
    ("dev/nvidia0", "c 195:0"),
    ("dev/nvidia1", "c 195:1"),
    ("dev/nvidiactl", "c 195:255"),
    ("dev/nvidia-uvm", "c 510:0"),
    ("dev/nvidia-uvm-tools", "c 510:1"),
    ("dev/nvidia-caps/nvidia-cap1", "c 509:1"),
    ("dev/nvidia-caps/nvidia-cap12", "c 509:12"),
    ("dev/nvidia-caps/nvidia-cap13", "c 509:13"),
];

fuzz_target!(|text: &str| {
    let laid = Laid::kept();
    NODES.iter().for_each(|(path, text)| laid.file(path, text));
    let files = [
        format!("{DRIVER}/gpus/0000:1b:00.0/information"),
        format!("{DRIVER}/gpus/0000:65:00.0/information"),
        "proc/driver/nvidia-caps/mig-minors".to_owned(),
        format!("{DRIVER}/capabilities/gpu0/mig/gi1/access"),
        format!("{DRIVER}/capabilities/gpu0/mig/gi1/ci0/access"),
    ];
    let mut parts = text.split("=\n");
    for path in files {
        match parts.next() {
            Some(text) => laid.file(&path, text),
            None => laid.without(&path),
        }
    }
    let tree = laid.tree();
    assert!(resolve_shared_nodes(&tree).is_ok());
    let Ok(gpus) = list_gpus(&tree) else { return };
    for (at, gpu) in gpus.iter().enumerate() {
        assert!(gpu.minor <= 247);
        assert!(gpus.iter().skip(at + 1).all(|other| {
            other.minor != gpu.minor && (gpu.uuid.is_none() || other.uuid != gpu.uuid)
        }));
        let Some(Ok(found)) = gpu
            .uuid
            .as_ref()
            .map(|uuid| resolve_instance(&tree, uuid, 1, 0))
        else {
            continue;
        };
        // The GPU, the shared devices, and the two capabilities; none of them belongs to all of
        // MIG.
        assert!(
            (5..=6).contains(&found.devices.len()),
            "{:?}",
            found.devices
        );
        let own = |major, minor| {
            found
                .devices
                .iter()
                .any(|d| d.rule.major() == major && d.rule.minor() == Some(minor))
        };
        assert!(own(195, gpu.minor) && !own(195, 1 - gpu.minor));
        assert!(
            found
                .devices
                .iter()
                .all(|device| device.rule.minor().is_some())
        );
    }
});
