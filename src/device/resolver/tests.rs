use std::os::unix::fs::symlink;

use super::*;
use crate::trust::tests::Scratch;

const UUIDS: [&str; 2] =
    ["edfee158-11c1-52b8-0517-92f30e7fac88", "f22fb098-d1b3-3806-2655-ba25f02229c1"];

/// Two GPUs of NVIDIA's, the first on the bus with the minor 1, and what any use of them takes.
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

/// The driver tells of the GPU at this place of the bus.
fn driver(scratch: &Scratch, bus: u32, minor: u32, uuid: &str) {
    let address = format!("0000:{bus:02x}:00.0");
    let text = format!("GPU UUID: \t {uuid}\nDevice Minor: \t {minor}\n");
    scratch.file(&format!("proc/driver/nvidia/gpus/{address}/information"), &text);
    let link = scratch.dir(&format!("sys/bus/pci/devices/{address}")).join("driver");
    if !link.is_symlink() {
        symlink("../../drivers/nvidia", link).unwrap();
    }
}

/// A specification in which each of these names is the GPU with that minor.
fn specification(scratch: &Scratch, devices: &[(&str, u32)]) {
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

fn resolve(scratch: &Scratch, name: Named) -> Result<Vec<String>, String> {
    let tree = Tree::laid_out(scratch.path(), scratch.trust());
    let found = Resolver::new(tree, Settings::default()).named(&[name]);
    let found = found.map_err(|error| error.to_string())?;
    Ok(found.devices.iter().map(|device| device.rule.to_string()).collect())
}

fn gpu(name: impl Into<String>) -> Named {
    Named::Gpu(name.into())
}

fn cdi(name: &str) -> Named {
    Named::Cdi(format!("nvidia.com/gpu={name}"))
}

#[test]
fn one_gpu_is_the_same_devices_whatever_it_is_called() {
    let scratch = node();
    driver(&scratch, 0x1b, 1, &format!("GPU-{}", UUIDS[0]));
    driver(&scratch, 0x2b, 0, &format!("GPU-{}", UUIDS[1]));
    let first = resolve(&scratch, gpu("0")).unwrap();
    assert_eq!(first, ["c:195:1:rw", "c:195:255:rw", "c:510:0:rw", "c:510:1:rw"]);
    for name in ["0000:1b:00.0".to_owned(), format!("GPU-{}", UUIDS[0].to_uppercase())] {
        assert_eq!(resolve(&scratch, gpu(name)).as_ref(), Ok(&first));
    }
    scratch.file(&format!("run/list/GPU-{}", UUIDS[0]), "");
    assert_eq!(resolve(&scratch, Named::Dir("/run/list".into())).as_ref(), Ok(&first));
    let both = resolve(&scratch, Named::AllGpus).unwrap();
    assert!(
        both.contains(&"c:195:0:rw".to_owned()) && first.iter().all(|rule| both.contains(rule))
    );
}

#[test]
fn a_driver_that_does_not_know_its_uuids_is_helped_by_a_specification() {
    let scratch = node();
    driver(&scratch, 0x1b, 1, "GPU-????????-????-????-????-????????????");
    let name = format!("GPU-{}", UUIDS[0]);
    let error = resolve(&scratch, gpu(&name)).unwrap_err();
    assert!(error.contains("NVIDIA's driver knows no such GPU, and by CDI: "), "{error}");
    specification(&scratch, &[(&name, 1)]);
    let all =
        Ok(["c:195:1:rw", "c:195:255:rw", "c:510:0:rw", "c:510:1:rw"].map(String::from).into());
    assert_eq!(resolve(&scratch, gpu(&name)), all);
    // What holds several GPUs leads to the address of none.
    driver(&scratch, 0x2b, 0, "GPU-????????-????-????-????-????????????");
    let both = r#"{"cdiVersion":"0.5.0","kind":"nvidia.com/gpu","devices":[{"name":"NAME",
        "containerEdits":{"deviceNodes":[{"path":"/dev/nvidia0"},{"path":"/dev/nvidia1"}]}}]}"#;
    scratch.file("etc/cdi/nvidia.json", &both.replace("NAME", &name));
    assert_eq!(resolve(&scratch, gpu(&name)), Ok(vec!["c:195:0:rw".into(), "c:195:1:rw".into()]));
}

/// Minors are given out anew at each boot, by the order in which GPUs answer.
#[test]
fn a_specification_never_gives_away_another_gpu_under_a_uuid() {
    let scratch = node();
    let name = format!("GPU-{}", UUIDS[0]);
    driver(&scratch, 0x1b, 1, &name);
    specification(&scratch, &[(&name, 1)]);
    assert_eq!(resolve(&scratch, cdi(&name)), Ok(vec!["c:195:1:rw".into()]));
    specification(&scratch, &[(&name, 0)]);
    let error = resolve(&scratch, cdi(&name)).unwrap_err();
    assert!(error.contains("says /dev/nvidia0, but GPU-"), "{error}");
    // The GPU is gone, and its number is another one's now.
    driver(&scratch, 0x1b, 1, &format!("GPU-{}", UUIDS[1]));
    specification(&scratch, &[(&name, 1)]);
    let error = resolve(&scratch, cdi(&name)).unwrap_err();
    assert!(error.contains("the driver has no GPU-"), "{error}");
    let error = resolve(&scratch, gpu(&name)).unwrap_err();
    assert!(error.contains("the driver has no GPU-"), "{error}");
}

#[test]
fn all_gpus_of_a_node_without_the_driver_are_those_of_the_specification_or_none() {
    let scratch = node();
    let error = resolve(&scratch, Named::AllGpus).unwrap_err();
    assert!(error.starts_with("all GPUs: "), "{error}");
    specification(&scratch, &[("all", 1)]);
    assert_eq!(resolve(&scratch, Named::AllGpus), Ok(vec!["c:195:1:rw".into()]));
}

#[test]
fn the_name_that_fails_is_the_one_that_is_told() {
    let scratch = node();
    specification(&scratch, &[("0", 0)]);
    let tree = Tree::laid_out(scratch.path(), scratch.trust());
    let resolver = Resolver::new(tree, Settings::default());
    let error = resolver.named(&[cdi("0"), cdi("7"), cdi("8")]).unwrap_err();
    assert_eq!(error.name, "nvidia.com/gpu=7");
    let error = resolver.named(&[cdi("0"), gpu("9")]).unwrap_err();
    assert_eq!(error.name, "GPU 9");
}

/// Whether names stand in one key of a record or in several: otherwise the file would take back
/// from a device what that says of a variable.
#[test]
fn what_a_specification_says_for_all_its_devices_counts_once_over_all_names() {
    let scratch = node();
    let text = r#"{"cdiVersion":"0.5.0","kind":"nvidia.com/gpu","containerEdits":{"env":["A=all"]},
        "devices":[{"name":"0","containerEdits":{"env":["A=own"]}},
        {"name":"1","containerEdits":{"deviceNodes":[{"path":"/dev/nvidia1"}]}}]}"#;
    scratch.file("etc/cdi/nvidia.json", text);
    scratch.file("run/list/cdi/nvidia.com/gpu/1", "");
    let settings = Settings { cdi_env: vec!["A".into()], ..Settings::default() };
    let tree = Tree::laid_out(scratch.path(), scratch.trust());
    let resolver = Resolver::new(tree, settings);
    for other in [cdi("1"), Named::Dir("/run/list".into())] {
        let found = resolver.named(&[cdi("0"), other]).unwrap();
        assert_eq!(found.env, [("A".to_owned(), "own".to_owned())]);
        assert_eq!(found.devices.len(), 1);
    }
}
