//! Resolution of names by files in the form of the vendors' tools.

use super::*;
use kernel::trust::Distrust;

const DRIVERS: &str = "Character devices:\n195 nvidia\n195 nvidiactl\n195 nvidia-modeset\n226 drm\n\
                       235 nvidia-caps\n238 kfd\n510 nvidia-uvm\n\nBlock devices:\n7 loop\n";

/// A file as NVIDIA's tool wrote it up to version 1.18, with paths alone.
const OLD: &str = r#"cdiVersion: 0.5.0
containerEdits:
  deviceNodes:
  - path: /dev/nvidia-uvm
  - path: /dev/nvidiactl
  env:
  - NVIDIA_VISIBLE_DEVICES=void
devices:
- containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
  name: "0"
- containerEdits:
    deviceNodes:
    - path: /dev/nvidia1
  name: "1"
kind: nvidia.com/gpu
"#;

/// A file as the tool has written it since, with majors, and minors other than 0.
const NEW: &str = r#"cdiVersion: 0.7.0
containerEdits:
  deviceNodes:
  - major: 510
    path: /dev/nvidia-uvm
    permissions: rwm
  - major: 195
    minor: 255
    path: /dev/nvidiactl
    permissions: rwm
devices:
- containerEdits:
    deviceNodes:
    - fileMode: 438
      major: 195
      path: /dev/nvidia0
      permissions: rwm
  name: "0"
- containerEdits:
    deviceNodes:
    - fileMode: 292
      major: 235
      minor: 102
      path: /dev/nvidia-caps/nvidia-cap102
      permissions: r
    - major: 195
      minor: 1
      path: /dev/nvidia1
      permissions: rw
  name: "1:0"
kind: nvidia.com/gpu
"#;

const AMD: &str = r#"{"cdiVersion":"0.6.0","kind":"amd.com/gpu","containerEdits":{},"devices":[
  {"name":"0","containerEdits":{"deviceNodes":[
    {"path":"/dev/dri/renderD128","type":"c","major":226,"minor":128,"permissions":"rwm"},
    {"path":"/dev/kfd","type":"c","major":238,"permissions":"rwm"}]}}]}"#;

/// Lays out a node with the devices of those files.
fn machine() -> Scratch {
    let scratch = Scratch::new();
    for (name, text) in [
        ("nvidia0", "c 195:0"),
        ("nvidia1", "c 195:1"),
        ("nvidiactl", "c 195:255"),
        ("nvidia-uvm", "c 510:0"),
        ("nvidia-caps/nvidia-cap102", "c 235:102"),
        ("dri/renderD128", "c 226:128"),
        ("kfd", "c 238:0"),
    ] {
        scratch.file(&format!("dev/{name}"), text);
    }
    scratch.file("proc/devices", DRIVERS);
    scratch
}

fn found(scratch: &Scratch, texts: &[&str]) -> Result<ResolvedDevices, String> {
    let tree = Tree::with_root(scratch.path(), scratch.trust());
    let dirs = ["/etc/cdi".into(), "/run/cdi".into()];
    let catalog = Catalog::read(&tree, &dirs).map_err(|fault| fault.to_string())?;
    resolve(&tree, &catalog, &names(texts)).map_err(|error| error.why.to_string())
}

fn rules(scratch: &Scratch, texts: &[&str]) -> Result<Vec<String>, String> {
    let found = found(scratch, texts)?;
    Ok(found
        .devices
        .iter()
        .map(|device| device.rule.to_string())
        .collect())
}

#[test]
fn older_and_newer_files_of_a_vendor_resolve_to_the_same_devices() {
    let expected = ["c:510:0:rw", "c:195:255:rw", "c:195:0:rw"].map(str::to_owned);
    for text in [OLD, NEW] {
        let scratch = machine();
        scratch.file("run/cdi/nvidia.yaml", text);
        assert_eq!(
            rules(&scratch, &["nvidia.com/gpu=0"]),
            Ok(expected.to_vec())
        );
    }
}

/// The kernel makes the same node for both letters, also where the file has no numbers.
#[test]
fn unbuffered_character_device_is_a_character_device() {
    for (keys, is_found) in [
        (r#""type":"u""#, true),
        (r#""type":"u","major":238,"minor":0"#, true),
        (r#""type":"u","major":239"#, false),
        (r#""type":"b""#, false),
    ] {
        let scratch = machine();
        let text = format!(
            r#"{{"cdiVersion":"0.6.0","kind":"v.com/x","devices":[{{"name":"0","containerEdits":
            {{"deviceNodes":[{{"path":"/dev/kfd",{keys}}}]}}}}]}}"#
        );
        scratch.file("run/cdi/x.json", &text);
        assert_eq!(rules(&scratch, &["v.com/x=0"]).is_ok(), is_found, "{keys}");
    }
}

/// Definitions of devices that were not asked for give nothing.
#[test]
fn parts_for_containers_are_those_of_the_names() {
    let scratch = machine();
    let text = r#"{"cdiVersion":"0.7.0","kind":"v.com/x","containerEdits":{"additionalGids":[44]},"devices":[
        {"name":"0","containerEdits":{"additionalGids":[105],"hooks":[
            {"hookName":"createContainer","path":"/usr/bin/hook"}]}},
        {"name":"1","containerEdits":{"additionalGids":[106],"intelRdt":{}}}]}"#;
    scratch.file("run/cdi/x.json", text);
    let container = found(&scratch, &["v.com/x=0"]).unwrap().container;
    assert_eq!(container.gids, [44, 105].into());
    assert!(!container.has_intel_rdt);
    let tree = Tree::with_root(scratch.path(), scratch.trust());
    assert_eq!(container.missing_files(&tree), ["/usr/bin/hook"]);
    scratch.file("usr/bin/hook", "");
    assert_eq!(container.missing_files(&tree), [""; 0]);
}

#[test]
fn instance_has_its_capabilities_and_no_other_gpu() {
    let scratch = machine();
    scratch.file("run/cdi/nvidia.yaml", NEW);
    let live = "proc/driver/nvidia/capabilities/gpu1/mig/gi11/access";
    scratch.file(live, "DeviceFileMinor: 102\n");
    let expected = ["c:510:0:rw", "c:195:255:rw", "c:235:102:r", "c:195:1:rw"].map(str::to_owned);
    assert_eq!(
        rules(&scratch, &["nvidia.com/gpu=1:0"]),
        Ok(expected.to_vec())
    );
    // The file outlives the instance, whose number another job's may have next.
    std::fs::remove_file(scratch.path().join(live)).unwrap();
    assert!(rules(&scratch, &["nvidia.com/gpu=1:0"]).is_err());
}

/// Container runtimes do not read it either.
#[test]
fn second_document_gives_a_warning() {
    let scratch = machine();
    scratch.file(
        "run/cdi/nvidia.yaml",
        &format!("{OLD}---\n{}", OLD.replace("nvidia0", "nvidia1")),
    );
    let found = found(&scratch, &["nvidia.com/gpu=0"]).unwrap();
    assert_eq!(paths(&found).last(), Some(&"/dev/nvidia0"));
    let expected = "/run/cdi/nvidia.yaml: line 18: a second document is not read";
    assert_eq!(found.warnings, [expected]);
}

#[test]
fn files_of_several_vendors_are_independent() {
    let scratch = machine();
    scratch.file("run/cdi/nvidia.yaml", NEW);
    scratch.file("etc/cdi/amd.json", AMD);
    let expected = ["c:226:128:rw", "c:238:0:rw"].map(str::to_owned);
    assert_eq!(rules(&scratch, &["amd.com/gpu=0"]), Ok(expected.to_vec()));
    let both = rules(&scratch, &["amd.com/gpu=0", "nvidia.com/gpu=0"]).unwrap();
    assert_eq!(both.len(), 5);
}

#[test]
fn file_of_an_older_driver_load_is_refused_with_advice() {
    let scratch = machine();
    scratch.file("run/cdi/nvidia.yaml", NEW);
    scratch.file("dev/nvidia-uvm", "c 511:0");
    scratch.file("proc/devices", &DRIVERS.replace("510", "511"));
    let expected = "/run/cdi/nvidia.yaml: /dev/nvidia-uvm is c 511:0 and not major 510: the \
                    specification is stale; generate it anew";
    assert_eq!(
        rules(&scratch, &["nvidia.com/gpu=0"]),
        Err(expected.to_owned())
    );
}

#[test]
fn broken_newer_file_revives_no_old_one_and_hides_no_other_vendor() {
    let scratch = machine();
    scratch.file("etc/cdi/nvidia.yaml", OLD);
    scratch.file("etc/cdi/amd.json", AMD);
    scratch.file("run/cdi/nvidia.yaml", &NEW.replace("0.7.0", "9.0.0"));
    let refused = rules(&scratch, &["nvidia.com/gpu=0"]).unwrap_err();
    let start = "defined in /etc/cdi/nvidia.yaml, but /run/cdi/nvidia.yaml would come first";
    assert!(refused.starts_with(start), "{refused}");
    let amd = found(&scratch, &["amd.com/gpu=0"]).unwrap();
    assert_eq!(amd.devices.len(), 2);
    let [warning] = amd.warnings.as_slice() else {
        panic!("{:?}", amd.warnings)
    };
    assert!(warning.starts_with("/run/cdi/nvidia.yaml: "), "{warning}");
}

#[test]
fn truncated_newer_file_hides_every_older_definition() {
    let scratch = machine();
    scratch.file("etc/cdi/amd.json", AMD);
    for cut in ["", "kind: nvidia.com/gpu\ndevices: [", "\u{0}"] {
        scratch.file("run/cdi/nvidia.yaml", cut);
        assert!(rules(&scratch, &["amd.com/gpu=0"]).is_err(), "{cut:?}");
    }
    scratch.file("run/cdi/nvidia.yaml", NEW);
    scratch.mode("run/cdi/nvidia.yaml", 0o666);
    let refused = rules(&scratch, &["amd.com/gpu=0"]).unwrap_err();
    assert!(
        refused.contains(&Distrust::Writable(0o666).to_string()),
        "{refused}"
    );
}

#[test]
fn edits_for_containers_are_checked_and_not_carried_out() {
    let scratch = machine();
    let others = "containerEdits:\n  hooks:\n  - hookName: prestart\n    path: /bin/false\n  \
                  mounts:\n  - containerPath: /a\n    hostPath: /b\n";
    let text = OLD.replacen("containerEdits:\n", others, 1);
    scratch.file("run/cdi/nvidia.yaml", &text);
    let expected = ["c:510:0:rw", "c:195:255:rw", "c:195:0:rw"].map(str::to_owned);
    assert_eq!(
        rules(&scratch, &["nvidia.com/gpu=0"]),
        Ok(expected.to_vec())
    );
}
