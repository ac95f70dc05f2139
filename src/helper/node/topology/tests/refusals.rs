use super::layout::{Layout, gpu_properties, pci};
use crate::node::topology::Numbering;

fn missing() -> String {
    nix::errno::Errno::ENOENT.desc().to_owned()
}

#[test]
fn node_without_gpus_has_no_number() {
    let layout = Layout::new();
    layout.function("0000:00:1f.0", "");
    layout.function("0000:01:00.0", "mlx5_core");
    assert_eq!(layout.index(0), Err("the node has no GPUs".to_owned()));
    std::fs::remove_dir_all(layout.scratch.path().join("sys/bus")).unwrap();
    assert_eq!(layout.index(0), Err("the node has no GPUs".to_owned()));
}

#[test]
fn function_with_the_class_of_a_gpu_and_no_driver_is_named() {
    let layout = Layout::new();
    layout.function("0000:00:1f.0", "");
    layout
        .scratch
        .file("sys/devices/pci/0000:00:1f.0/class", "0x060100\n");
    layout.function("0000:03:00.0", "ast");
    layout
        .scratch
        .file("sys/devices/pci/0000:03:00.0/class", "0x030000\n");
    assert_eq!(layout.index(0), Err("the node has no GPUs".to_owned()));
    layout.function("0000:1b:00.0", "");
    layout
        .scratch
        .file("sys/devices/pci/0000:1b:00.0/class", "0x030200\n");
    let why = "the node has no GPUs: no driver is loaded for 0000:1b:00.0";
    assert_eq!(layout.index(0), Err(why.to_owned()));
}

#[test]
fn error_of_an_address_without_a_gpu_gives_the_reason() {
    let layout = Layout::new();
    layout.function("0000:00:1f.0", "");
    layout.function("0000:01:00.0", "mlx5_core");
    layout.function("0000:02:00.0", "vfio-pci");
    layout.gpu("0000:03:00.0", "ast", &["card0"]);
    layout.function("0000:04:00.0", "nvidia");
    layout.function("0000:05:00.0", "amdgpu");
    layout.function("0000:07:00.0", "intel_vpu");
    layout
        .scratch
        .dir("sys/devices/pci/0000:07:00.0/accel/accel0");
    let no_gpu = |address, driver| {
        format!("{address} is no GPU: its driver {driver} gives it no render node")
    };
    for (address, why) in [
        (
            "0000:00:1f.0",
            "no driver is bound to 0000:00:1f.0".to_owned(),
        ),
        ("0000:01:00.0", no_gpu("0000:01:00.0", "mlx5_core")),
        (
            "0000:02:00.0",
            "0000:02:00.0 is bound to vfio-pci, for virtual machines".to_owned(),
        ),
        ("0000:03:00.0", no_gpu("0000:03:00.0", "ast")),
        (
            "0000:04:00.0",
            "NVIDIA's driver does not list 0000:04:00.0 as a GPU, or excludes it".to_owned(),
        ),
        ("0000:05:00.0", no_gpu("0000:05:00.0", "amdgpu")),
        ("0000:07:00.0", no_gpu("0000:07:00.0", "intel_vpu")),
        ("0000:06:00.0", "no PCI function at 0000:06:00.0".to_owned()),
    ] {
        assert_eq!(layout.address(address), Err(why));
    }
}

#[test]
fn amd_card_without_kfd_is_refused() {
    let layout = Layout::new();
    layout.amd("0000:c1:00.0", 128, 1);
    layout.remove("dev/kfd");
    assert_eq!(layout.index(0), Err(format!("/dev/kfd: {}", missing())));
    assert_eq!(
        layout.address("c1:00.0"),
        Err(format!("/dev/kfd: {}", missing()))
    );
    layout
        .scratch
        .file("proc/devices", "Character devices:\n226 drm\n");
    let unloaded = format!("/dev/kfd: {}; the driver kfd is not loaded", missing());
    assert_eq!(layout.index(0), Err(unloaded));
    layout.remove("sys/class/kfd/kfd/dev");
    let other_unloaded = "the KFD driver, amdgpu's for computing, is not loaded";
    assert_eq!(layout.index(0), Err(other_unloaded.to_owned()));
}

#[test]
fn gpu_without_its_compute_node_is_refused() {
    let layout = Layout::new();
    layout.amd("0000:c1:00.0", 128, 2);
    layout.gpu("0000:c2:00.0", "xe", &["card60", "renderD188"]);
    layout.remove("dev/dri/renderD129");
    let part = Err(format!("/dev/dri/renderD129: {}", missing()));
    assert_eq!(
        (layout.number(Numbering::Rocm, 1), layout.address("c1:00.0")),
        (part.clone(), part)
    );
    let missing = |address| Err(format!("{address} has no node in /dev to compute by"));
    layout.remove("dev/dri/renderD128");
    assert_eq!(layout.address("c1:00.0"), missing("0000:c1:00.0"));
    layout.remove("dev/dri/renderD188");
    assert_eq!(layout.address("c2:00.0"), missing("0000:c2:00.0"));
}

#[test]
fn node_of_another_device_is_refused() {
    let layout = Layout::new();
    layout.gpu("0000:c2:00.0", "xe", &["card0", "renderD128"]);
    for (text, is) in [
        ("c 226:129", "c 226:129"),
        ("b 226:128", "b 226:128"),
        ("c 1:1", "c 1:1"),
    ] {
        layout.scratch.file("dev/dri/renderD128", text);
        let why = format!("/dev/dri/renderD128 is {is}, and the kernel's device c 226:128");
        assert_eq!(layout.index(0), Err(why));
    }
    layout.remove("dev/dri/renderD128");
    layout.link("card0", "dev/dri/renderD128");
    let why = "/dev/dri/renderD128: there is a symbolic link or .. in the path";
    assert_eq!(layout.index(0), Err(why.to_owned()));
    layout
        .scratch
        .file("proc/devices", "Character devices:\n226 other\n");
    let other_why = layout.index(0).unwrap_err();
    assert!(
        other_why.starts_with("/dev/dri/card0 is c 226:0") && other_why.contains("not of drm"),
        "{other_why}"
    );
}

#[test]
fn partition_with_the_node_of_another_device_is_refused() {
    let layout = Layout::new();
    layout.amd("0000:c1:00.0", 128, 2);
    layout.scratch.file("dev/dri/renderD129", "c 226:130");
    let why = "/dev/dri/renderD129 is c 226:130, and the kernel's device c 226:129";
    assert_eq!(layout.index(1), Err(why.to_owned()));
}

#[test]
fn missing_or_contradictory_kfd_properties_are_an_error() {
    let layout = Layout::new();
    layout.amd("0000:c1:00.0", 128, 2);
    let nodes = "/sys/class/kfd/kfd/topology/nodes";
    let good = gpu_properties("0000:c1:00.0", 1, 129);
    for key in ["simd_count", "location_id", "domain", "drm_render_minor"] {
        for bad in ["x", "-1", "+1", "", "4294967296"] {
            let lines = good.lines().map(|line| {
                if line.starts_with(key) {
                    format!("{key} {bad}\n")
                } else {
                    format!("{line}\n")
                }
            });
            layout.kfd_node(129, &lines.collect::<String>());
            let why = format!("{nodes}/129/properties: no number for {key}");
            assert_eq!(layout.index(0), Err(why), "{key} {bad:?}");
        }
    }
    layout.kfd_node(129, &gpu_properties("0000:c1:00.0", 1, 128));
    let why = format!("{nodes}/129/properties: another GPU has the render node 128 too");
    assert_eq!(layout.index(0), Err(why));
    layout.remove("sys/class/kfd/kfd/topology/nodes/129/properties");
    let other_why = format!("read {nodes}/129/properties: {}", missing());
    assert_eq!(layout.index(0), Err(other_why));
}

#[test]
fn nvidia_gpu_missing_in_sysfs_shifts_no_number() {
    let layout = Layout::new();
    layout.nvidia("0000:1b:00.0", 0);
    layout.nvidia("0000:2b:00.0", 1);
    layout.remove(&pci("0000:1b:00.0"));
    let why = "NVIDIA's driver lists 0000:1b:00.0, which is not bound to it in sysfs";
    assert_eq!(layout.index(0), Err(why.to_owned()));
    assert!(layout.address("2b:00.0").is_ok());
}

#[test]
fn sysfs_directories_are_bounded() {
    let layout = Layout::new();
    layout.gpu("0000:c2:00.0", "xe", &["card0", "renderD128"]);
    for number in 1..63 {
        layout
            .scratch
            .dir(&format!("sys/devices/pci/0000:c2:00.0/drm/other{number}"));
    }
    assert!(layout.index(0).is_ok());
    layout
        .scratch
        .dir("sys/devices/pci/0000:c2:00.0/drm/other63");
    let why = "/sys/bus/pci/devices/0000:c2:00.0/drm: more than 64 entries";
    assert_eq!(layout.index(0), Err(why.to_owned()));

    let other_layout = Layout::new();
    let functions = other_layout.scratch.path().join("sys/bus/pci/devices");
    for number in 0..4096 {
        std::fs::write(functions.join(format!("{number:04x}:00:00.0")), "").unwrap();
    }
    assert_eq!(
        other_layout.index(0),
        Err("the node has no GPUs".to_owned())
    );
    other_layout.scratch.dir(&pci("ffff:00:00.0"));
    assert_eq!(
        other_layout.index(0),
        Err("/sys/bus/pci/devices: more than 4096 entries".to_owned())
    );

    let kfd_layout = Layout::new();
    kfd_layout.amd("0000:c1:00.0", 128, 1);
    let nodes = kfd_layout
        .scratch
        .path()
        .join("sys/class/kfd/kfd/topology/nodes");
    for node in 1000..2022 {
        std::os::unix::fs::symlink("0", nodes.join(node.to_string())).unwrap();
    }
    assert!(kfd_layout.index(0).is_ok());
    kfd_layout.kfd_node(2022, "simd_count 0\n");
    let other_why = "/sys/class/kfd/kfd/topology/nodes: more than 1024 entries";
    assert_eq!(kfd_layout.index(0), Err(other_why.to_owned()));
}

#[test]
fn function_without_a_canonical_address_is_refused() {
    for name in ["00:00.0", "0000:C1:00.0", "slot", "00000000:c1:00.0"] {
        let layout = Layout::new();
        layout.scratch.dir(&pci(name));
        let why = format!("/sys/bus/pci/devices/{name}: not named by a PCI address");
        assert_eq!(layout.index(0), Err(why));
    }
}
