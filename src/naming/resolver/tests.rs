mod gpus;
mod whole_nodes;

use std::os::unix::fs::symlink;

use super::*;
use crate::testing::Scratch;

const UUIDS: [&str; 2] = [
    "edfee158-11c1-52b8-0517-92f30e7fac88",
    "f22fb098-d1b3-3806-2655-ba25f02229c1",
];

/// Lays out a node with two NVIDIA GPUs, the first on the bus with minor 1, and their shared nodes.
fn node() -> Scratch {
    let scratch = Scratch::new();
    let drivers = "Character devices:\n195 nvidia\n195 nvidiactl\n510 nvidia-uvm\n";
    scratch.file("proc/devices", drivers);
    for (name, numbers) in [
        ("nvidia0", "195:0"),
        ("nvidia1", "195:1"),
        ("nvidiactl", "195:255"),
        ("nvidia-uvm", "510:0"),
        ("nvidia-uvm-tools", "510:1"),
    ] {
        scratch.file(&format!("dev/{name}"), &format!("c {numbers}"));
    }
    scratch
}

/// Lays out the driver's file about the GPU on this bus.
fn add_gpu(scratch: &Scratch, bus: u32, minor: u32, uuid: &str) {
    let address = format!("0000:{bus:02x}:00.0");
    let text = format!("GPU UUID: \t {uuid}\nDevice Minor: \t {minor}\n");
    scratch.file(
        &format!("proc/driver/nvidia/gpus/{address}/information"),
        &text,
    );
    let link = scratch
        .dir(&format!("sys/bus/pci/devices/{address}"))
        .join("driver");
    if !link.is_symlink() {
        symlink("../../drivers/nvidia", link).unwrap();
    }
}

/// Writes a specification in which each of these names is the GPU with that minor.
fn write_specification(scratch: &Scratch, devices: &[(&str, u32)]) {
    let device = |(name, minor): &(&str, u32)| {
        format!(
            r#"{{"name":"{name}","containerEdits":{{"deviceNodes":[{{"path":"/dev/nvidia{minor}"}}]}}}}"#
        )
    };
    let devices: Vec<_> = devices.iter().map(device).collect();
    let text = format!(
        r#"{{"cdiVersion":"0.5.0","kind":"nvidia.com/gpu","devices":[{}]}}"#,
        devices.join(",")
    );
    scratch.file("etc/cdi/nvidia.json", &text);
}

fn resolve(scratch: &Scratch, name: DeviceName) -> Result<Vec<String>, String> {
    let tree = Tree::with_root(scratch.path(), scratch.trust());
    let found = NameResolver::new(tree, DeviceSettings::default()).resolve_names(&[name]);
    let found = found.map_err(|error| error.to_string())?;
    Ok(found
        .devices
        .iter()
        .map(|device| device.rule.to_string())
        .collect())
}

fn gpu(name: impl Into<String>) -> DeviceName {
    DeviceName::Gpu(name.into())
}

fn cdi(name: &str) -> DeviceName {
    DeviceName::Cdi(format!("nvidia.com/gpu={name}"))
}

#[test]
fn every_name_of_a_gpu_resolves_to_the_same_devices() {
    let scratch = node();
    add_gpu(&scratch, 0x1b, 1, &format!("GPU-{}", UUIDS[0]));
    add_gpu(&scratch, 0x2b, 0, &format!("GPU-{}", UUIDS[1]));
    let first = resolve(&scratch, gpu("0")).unwrap();
    assert_eq!(
        first,
        ["c:195:1:rw", "c:195:255:rw", "c:510:0:rw", "c:510:1:rw"]
    );
    for name in [
        "0000:1b:00.0".to_owned(),
        format!("GPU-{}", UUIDS[0].to_uppercase()),
    ] {
        assert_eq!(resolve(&scratch, gpu(name)).as_ref(), Ok(&first));
    }
    scratch.file(&format!("run/list/GPU-{}", UUIDS[0]), "");
    assert_eq!(
        resolve(&scratch, DeviceName::Dir("/run/list".into())).as_ref(),
        Ok(&first)
    );
    let both = resolve(&scratch, DeviceName::AllGpus).unwrap();
    assert!(
        both.contains(&"c:195:0:rw".to_owned()) && first.iter().all(|rule| both.contains(rule))
    );
}

#[test]
fn specification_resolves_a_uuid_that_the_driver_does_not_know_yet() {
    let scratch = node();
    add_gpu(
        &scratch,
        0x1b,
        1,
        "GPU-????????-????-????-????-????????????",
    );
    let name = format!("GPU-{}", UUIDS[0]);
    let error = resolve(&scratch, gpu(&name)).unwrap_err();
    assert!(
        error.contains("of 1 of its GPUs it does not know the UUID yet"),
        "{error}"
    );
    write_specification(&scratch, &[(&name, 1)]);
    let all = Ok(["c:195:1:rw", "c:195:255:rw", "c:510:0:rw", "c:510:1:rw"]
        .map(String::from)
        .into());
    assert_eq!(resolve(&scratch, gpu(&name)), all);
    // A device with several GPUs leads to no address.
    add_gpu(
        &scratch,
        0x2b,
        0,
        "GPU-????????-????-????-????-????????????",
    );
    let both = r#"{"cdiVersion":"0.5.0","kind":"nvidia.com/gpu","devices":[{"name":"NAME",
        "containerEdits":{"deviceNodes":[{"path":"/dev/nvidia0"},{"path":"/dev/nvidia1"}]}}]}"#;
    scratch.file("etc/cdi/nvidia.json", &both.replace("NAME", &name));
    assert_eq!(
        resolve(&scratch, gpu(&name)),
        Ok(vec!["c:195:0:rw".into(), "c:195:1:rw".into()])
    );
}

/// Minors change with each boot, by the order in which GPUs answer.
#[test]
fn specification_never_grants_another_gpu_under_a_uuid() {
    let scratch = node();
    let name = format!("GPU-{}", UUIDS[0]);
    add_gpu(&scratch, 0x1b, 1, &name);
    write_specification(&scratch, &[(&name, 1)]);
    assert_eq!(resolve(&scratch, cdi(&name)), Ok(vec!["c:195:1:rw".into()]));
    write_specification(&scratch, &[(&name, 0)]);
    let error = resolve(&scratch, cdi(&name)).unwrap_err();
    assert!(error.contains("says /dev/nvidia0, but GPU-"), "{error}");
    let path = scratch.path().join("etc/cdi/nvidia.json");
    let text = std::fs::read_to_string(path).unwrap();
    for (kind, is_accepted) in [("k8s.nvidia.com/gpu", false), ("my-nvidia.com/gpu", true)] {
        scratch.file("etc/cdi/other.json", &text.replace("nvidia.com/gpu", kind));
        let found = resolve(&scratch, DeviceName::Cdi(format!("{kind}={name}")));
        assert_eq!(found.is_ok(), is_accepted, "{kind}: {found:?}");
    }
    // The GPU is gone, and another one has its minor now.
    add_gpu(&scratch, 0x1b, 1, &format!("GPU-{}", UUIDS[1]));
    write_specification(&scratch, &[(&name, 1)]);
    for each_name in [cdi(&name), gpu(&name)] {
        let other_error = resolve(&scratch, each_name).unwrap_err();
        assert!(
            other_error.contains("/dev/nvidia1, but that is GPU-"),
            "{other_error}"
        );
    }
    // No GPU has the minor.
    write_specification(&scratch, &[(&name, 0)]);
    let other_error = resolve(&scratch, cdi(&name)).unwrap_err();
    assert!(other_error.contains("driver has no GPU-"), "{other_error}");
}

/// The driver knows the UUID of every GPU in use, and may not know those of others.
#[test]
fn gpu_with_a_known_uuid_is_never_granted_under_another_one() {
    let scratch = node();
    add_gpu(&scratch, 0x1b, 0, &format!("GPU-{}", UUIDS[0]));
    add_gpu(
        &scratch,
        0x2b,
        1,
        "GPU-????????-????-????-????-????????????",
    );
    let name = format!("GPU-{}", UUIDS[1]);
    write_specification(&scratch, &[(&name, 0)]);
    for each_name in [gpu(&name), cdi(&name)] {
        let error = resolve(&scratch, each_name).unwrap_err();
        assert!(
            error.contains(&format!("/dev/nvidia0, but that is GPU-{}", UUIDS[0])),
            "{error}"
        );
    }
    write_specification(&scratch, &[(&name, 1)]);
    assert_eq!(resolve(&scratch, cdi(&name)), Ok(vec!["c:195:1:rw".into()]));
}

/// The library assigns indexes. Only the UUIDs in a file show which GPU an index means.
#[test]
fn specification_never_grants_another_gpu_under_an_index() {
    let scratch = node();
    let names = UUIDS.map(|uuid| format!("GPU-{uuid}"));
    add_gpu(&scratch, 0x1b, 0, &names[0]);
    add_gpu(&scratch, 0x2b, 1, &names[1]);
    write_specification(&scratch, &[("0", 0), (&names[0], 0), ("1:0", 1)]);
    assert_eq!(resolve(&scratch, cdi("0")), Ok(vec!["c:195:0:rw".into()]));
    assert_eq!(resolve(&scratch, cdi("1:0")), Ok(vec!["c:195:1:rw".into()]));
    // The GPUs have swapped their minors.
    add_gpu(&scratch, 0x1b, 1, &names[0]);
    add_gpu(&scratch, 0x2b, 0, &names[1]);
    for name in ["0", "1:0"] {
        let error = resolve(&scratch, cdi(name)).unwrap_err();
        assert!(
            error.contains("says /dev/nvidia0, but GPU-"),
            "{name}: {error}"
        );
    }
    // The GPU is gone, and another one has its minor.
    std::fs::remove_dir_all(scratch.path().join("proc/driver/nvidia/gpus/0000:1b:00.0")).unwrap();
    let error = resolve(&scratch, cdi("0")).unwrap_err();
    assert!(
        error.contains(&format!("/dev/nvidia0, but that is {}", names[1])),
        "{error}"
    );
}

#[test]
fn specification_never_grants_drm_nodes_of_another_gpu() {
    let scratch = node();
    let name = format!("GPU-{}", UUIDS[0]);
    add_gpu(&scratch, 0x1b, 0, &name);
    add_gpu(&scratch, 0x2b, 1, &format!("GPU-{}", UUIDS[1]));
    scratch.file("proc/devices", "Character devices:\n195 nvidia\n226 drm\n");
    for (bus, minor) in [("1b", 128), ("2b", 129)] {
        let dir = format!("sys/bus/pci/devices/0000:{bus}:00.0/drm/renderD{minor}");
        scratch.file(&format!("{dir}/dev"), &format!("226:{minor}\n"));
        scratch.file(
            &format!("dev/dri/renderD{minor}"),
            &format!("c 226:{minor}"),
        );
    }
    for (minor, is_accepted) in [(128, true), (129, false)] {
        for each_name in [&name, "0"] {
            let nodes =
                format!(r#"{{"path":"/dev/nvidia0"}},{{"path":"/dev/dri/renderD{minor}"}}"#);
            let text = format!(
                r#"{{"cdiVersion":"0.5.0","kind":"nvidia.com/gpu","devices":[
                   {{"name":"{each_name}","containerEdits":{{"deviceNodes":[{nodes}]}}}}]}}"#
            );
            scratch.file("etc/cdi/nvidia.json", &text);
            let found = resolve(&scratch, cdi(each_name));
            assert_eq!(found.is_ok(), is_accepted, "{found:?}");
            let why = "lists /dev/dri/renderD129, which is not of the GPU at 0000:1b:00.0";
            assert!(found.err().is_none_or(|error| error.contains(why)));
        }
    }
}

#[test]
fn intel_gpu_is_the_one_at_the_address_in_its_name() {
    let scratch = node();
    scratch.file("proc/devices", "Character devices:\n226 drm\n");
    let device = |bus: &str, minor: u32| {
        let dir = format!("sys/bus/pci/devices/0000:{bus}:00.0/drm/renderD{minor}");
        scratch.file(&format!("{dir}/dev"), &format!("226:{minor}\n"));
        scratch.file(
            &format!("dev/dri/renderD{minor}"),
            &format!("c 226:{minor}"),
        );
    };
    device("03", 128);
    device("04", 129);
    let specification = |minor: u32| {
        let text = format!(
            r#"{{"cdiVersion":"0.5.0","kind":"intel.com/gpu","devices":[
               {{"name":"0000-03-00-0-0x56c0","containerEdits":{{"deviceNodes":[
               {{"path":"/dev/dri/renderD{minor}","type":"c"}}]}}}}]}}"#
        );
        scratch.file("etc/cdi/intel.json", &text);
        resolve(
            &scratch,
            DeviceName::Cdi("intel.com/gpu=0000-03-00-0-0x56c0".into()),
        )
    };
    assert_eq!(specification(128), Ok(vec!["c:226:128:rw".into()]));
    let error = specification(129).unwrap_err();
    assert!(
        error.contains("is not of the GPU at 0000:03:00.0"),
        "{error}"
    );
}

#[test]
fn all_gpus_without_the_driver_are_those_of_the_specification() {
    let scratch = node();
    let error = resolve(&scratch, DeviceName::AllGpus).unwrap_err();
    assert!(error.starts_with("all GPUs: "), "{error}");
    write_specification(&scratch, &[("all", 1)]);
    assert_eq!(
        resolve(&scratch, DeviceName::AllGpus),
        Ok(vec!["c:195:1:rw".into()])
    );
}

#[test]
fn error_names_the_first_name_that_does_not_resolve() {
    let scratch = node();
    write_specification(&scratch, &[("0", 0)]);
    let tree = Tree::with_root(scratch.path(), scratch.trust());
    let resolver = NameResolver::new(tree, DeviceSettings::default());
    let error = resolver
        .resolve_names(&[cdi("0"), cdi("7"), cdi("8")])
        .unwrap_err();
    assert_eq!(error.name, "nvidia.com/gpu=7");
    let other_error = resolver.resolve_names(&[cdi("0"), gpu("9")]).unwrap_err();
    assert_eq!(other_error.name, "GPU 9");
}
