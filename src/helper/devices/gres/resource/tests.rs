use std::path::PathBuf;

use nix::errno::Errno;

use super::*;
use crate::devices::DeviceSettings;
use crate::node::{NodeError, Tree};
use crate::slurm_conf::ConfError;
use crate::testing::Scratch;
use kernel::trust::Distrust;

const GPUS: &str =
    "Name=gpu Type=a100 File=/dev/nvidia[0-1]\nName=gpu Type=A100 File=/dev/nvidia2\n";

/// Lays out a node with three GPUs, and its `gres.conf` in the first directory of the search.
fn node(text: &str) -> Scratch {
    let scratch = Scratch::new();
    scratch.file("etc/slurm/slurm.conf", "");
    scratch.file("etc/slurm/gres.conf", text);
    scratch.file(
        "proc/devices",
        "Character devices:\n195 nvidia\n235 nvidia-caps\n",
    );
    for minor in 0..3 {
        scratch.file(&format!("dev/nvidia{minor}"), &format!("c 195:{minor}"));
    }
    scratch
}

fn settings(slurm_conf: Option<&str>) -> DeviceSettings {
    DeviceSettings {
        slurm_conf: slurm_conf.map(PathBuf::from),
        node_name: Some("n1".into()),
        ..DeviceSettings::default()
    }
}

fn resolve_with(
    scratch: &Scratch,
    settings: &DeviceSettings,
    name: &str,
    index: u32,
) -> Result<Vec<String>, String> {
    let tree = Tree::with_root(scratch.path(), scratch.trust());
    let slurm_conf = SlurmConfSearch::new(tree, settings.slurm_conf.clone());
    let found =
        resolve(&slurm_conf, settings.node_name.as_deref(), name, index).map_err(|error| {
            error
                .to_string()
                .replace(&format!("{}/", scratch.path().display()), "/")
        })?;
    Ok(found
        .devices
        .iter()
        .map(|device| format!("{} {}", device.node, device.rule))
        .collect())
}

fn resolve_gres(scratch: &Scratch, name: &str, index: u32) -> Result<Vec<String>, String> {
    resolve_with(scratch, &settings(None), name, index)
}

#[test]
fn index_resolves_to_the_exact_device_of_its_file() {
    let scratch = node(GPUS);
    assert_eq!(
        resolve_gres(&scratch, "gpu", 1),
        Ok(vec!["/dev/nvidia1 c:195:1:rw".into()])
    );
    assert_eq!(
        resolve_gres(&scratch, "gpu:a100", 1),
        Ok(vec!["/dev/nvidia1 c:195:1:rw".into()])
    );
    assert_eq!(
        resolve_gres(&scratch, "gpu", 2),
        Ok(vec!["/dev/nvidia2 c:195:2:rw".into()])
    );
}

/// Lays out a capability of NVIDIA's driver and its node.
fn add_capability(scratch: &Scratch, name: &str, minor: u32) {
    scratch.file(
        &format!("proc/driver/nvidia/capabilities/{name}/access"),
        &format!("DeviceFileMinor: {minor}\nDeviceFileMode: 292\nDeviceFileModify: 1\n"),
    );
    scratch.file(
        &format!("dev/nvidia-caps/nvidia-cap{minor}"),
        &format!("c 235:{minor}"),
    );
}

#[test]
fn mig_instance_has_its_gpu_and_its_capabilities() {
    let scratch = node("Name=gpu MultipleFiles=/dev/nvidia0,/dev/nvidia-caps/nvidia-cap[21-22]\n");
    add_capability(&scratch, "gpu0/mig/gi2", 21);
    add_capability(&scratch, "gpu0/mig/gi2/ci0", 22);
    scratch.file(
        "proc/driver/nvidia-caps/mig-minors",
        "config 1\nmonitor 2\ngpu0/gi2/access 21\ngpu0/gi2/ci0/access 22\n",
    );
    let all = [
        "/dev/nvidia0 c:195:0:rw",
        "/dev/nvidia-caps/nvidia-cap21 c:235:21:rw",
        "/dev/nvidia-caps/nvidia-cap22 c:235:22:rw",
    ];
    assert_eq!(
        resolve_gres(&scratch, "gpu", 0),
        Ok(all.map(String::from).to_vec())
    );
}

#[test]
fn error_of_an_unresolvable_resource_gives_the_reason() {
    let scratch = node(GPUS);
    for (name, index, error) in [
        (
            "gpu",
            3,
            "/etc/slurm/gres.conf: Name=gpu has 3 here, counted from 0",
        ),
        ("gpu:h100", 0, "/etc/slurm/gres.conf:1: it is of type a100"),
        (
            "fpga",
            0,
            "/etc/slurm/gres.conf: no record with Name=fpga for node n1",
        ),
    ] {
        assert_eq!(
            resolve_gres(&scratch, name, index),
            Err(error.into()),
            "{name} {index}"
        );
    }
    let other_scratch = node("Name=gpu Count=2\nName=nic File=/dev/gone\n");
    let counted = "/etc/slurm/gres.conf:1: the record has no File=, so no device is known";
    assert_eq!(resolve_gres(&other_scratch, "gpu", 0), Err(counted.into()));
    let missing = format!("/dev/gone: {}", NodeError::Open(Errno::ENOENT));
    assert_eq!(resolve_gres(&other_scratch, "nic", 0), Err(missing));
    let untyped_node = node("Name=gpu File=/dev/nvidia0\n");
    let untyped = "/etc/slurm/gres.conf:1: the record has no Type=";
    assert_eq!(
        resolve_gres(&untyped_node, "gpu:a100", 0),
        Err(untyped.into())
    );
    let misspelt_node = node("Name=gpu Fil=x\n");
    assert_eq!(
        resolve_gres(&misspelt_node, "gpu", 0),
        Err("/etc/slurm/gres.conf:1: unknown key Fil".into())
    );
}

#[test]
fn management_device_or_device_of_another_driver_is_no_resource() {
    let files = "/dev/mem,/dev/nvidia-caps/nvidia-cap1,/dev/nvidia7";
    let scratch = node(&format!(
        "Name=gpu File={files}\nName=gpu MultipleFiles=/dev/nvidia0,{files}\n"
    ));
    scratch.file("dev/mem", "c 1:1");
    add_capability(&scratch, "mig/config", 1);
    scratch.file("dev/nvidia7", "c 235:7");
    scratch.file(
        "proc/devices",
        "Character devices:\n1 mem\n195 nvidia\n235 nvidia-caps\n",
    );
    let tree = Tree::with_root(scratch.path(), scratch.trust());
    for index in 0..4 {
        let error = resolve(
            &SlurmConfSearch::new(tree.clone(), None),
            Some("n1"),
            "gpu",
            index,
        );
        let text = error.unwrap_err().to_string();
        let refused = text.contains("manages the node") || text.contains("and not of nvidia");
        assert!(refused, "{index}: {text}");
    }
}

/// Slurmd and its filter follow them.
#[test]
fn link_in_dev_stands_for_its_target() {
    let scratch = node("Name=gpu File=/dev/by-path/gpu1,/dev/up,/dev/loop,/dev/shm/a,/dev/out\n");
    scratch.dir("dev/by-path");
    scratch.dir("dev/shm");
    scratch.file("srv/node", "c 195:0");
    for (target, link) in [
        ("../nvidia1", "by-path/gpu1"),
        ("/dev/by-path/../by-path/gpu1", "up"),
        ("loop", "loop"),
        ("../nvidia2", "shm/a"),
        ("/srv/node", "out"),
    ] {
        std::os::unix::fs::symlink(target, scratch.path().join("dev").join(link)).unwrap();
    }
    scratch.mode("dev/shm", 0o1777);
    for index in [0, 1] {
        let second = vec!["/dev/nvidia1 c:195:1:rw".to_owned()];
        assert_eq!(resolve_gres(&scratch, "gpu", index), Ok(second), "{index}");
    }
    for (index, file, error) in [
        (2, "loop", NodeError::Open(Errno::ELOOP)),
        (3, "shm/a", NodeError::WorldWritableParent),
        (4, "out", NodeError::SymbolicLink),
    ] {
        let refused = Err(format!("/dev/{file}: {error}"));
        assert_eq!(resolve_gres(&scratch, "gpu", index), refused, "{file}");
    }
}

#[test]
fn name_outside_gres_types_is_no_resource() {
    let scratch = node("Name=nic File=/dev/nvidia0\nName=gpu File=/dev/nvidia1\n");
    scratch.file("etc/slurm/slurm.conf", "GresTypes=nic\nGresTypes=GPU,mps\n");
    let missing = "/etc/slurm/slurm.conf: GresTypes= has no nic, so Slurm has no such resource";
    assert_eq!(resolve_gres(&scratch, "nic", 0), Err(missing.into()));
    assert!(resolve_gres(&scratch, "gpu", 0).is_ok());
}

/// Writes the report of slurmd, as the prolog does, with the boot and driver version in `boot`.
fn write_slurmd_report(scratch: &Scratch, boot: &str, records: &str) {
    scratch.file("proc/sys/kernel/random/boot_id", "b1\n");
    scratch.file("sys/module/nvidia/version", "550.1\n");
    scratch.file("sys/module/amdgpu/initstate", "live\n");
    scratch.file(
        "run/job-adopt/gres-n1.conf",
        &format!("# {boot} live - -\n{records}"),
    );
}

#[test]
fn detected_gpus_have_the_order_of_slurmd() {
    let text = format!(
        "AutoDetect=nvml\n{GPUS}Name=shard File=/dev/nvidia0\nName=nic File=/dev/nvidia0\n"
    );
    let scratch = node(&text);
    for name in ["gpu", "gpu:a100", "GPU", "shard", "mps"] {
        let error = resolve_gres(&scratch, name, 0).unwrap_err();
        assert!(error.contains("AutoDetect leaves the order"), "{error}");
        assert!(
            error.contains(
                "slurmd with DEVICES=lists: /run/job-adopt/gres-n1.conf: it was not asked yet"
            ),
            "{error}"
        );
    }
    let records = "NodeName=n1 Name=gpu Type=a100 MultipleFiles=/dev/nvidia2\n\
                   NodeName=n2 Name=gpu Type=a100 MultipleFiles=/dev/nvidia1\n\
                   NodeName=n1 Name=gpu Type=a100 MultipleFiles=/dev/nvidia0\n";
    for other in ["b2 550.1", "b1 550.2", "b1 -"] {
        write_slurmd_report(&scratch, other, records);
        assert!(
            resolve_gres(&scratch, "gpu", 0)
                .unwrap_err()
                .ends_with("of another boot or driver")
        );
    }
    write_slurmd_report(&scratch, "b1 550.1", records);
    assert_eq!(
        resolve_gres(&scratch, "gpu", 0),
        Ok(vec!["/dev/nvidia2 c:195:2:rw".into()])
    );
    assert_eq!(
        resolve_gres(&scratch, "gpu:a100", 1),
        Ok(vec!["/dev/nvidia0 c:195:0:rw".into()])
    );
    let shown = "/run/job-adopt/gres-n1.conf: Name=gpu has 2 here, counted from 0";
    assert_eq!(resolve_gres(&scratch, "gpu", 2), Err(shown.into()));
    let other_shown = "/run/job-adopt/gres-n1.conf:2: it is of type a100";
    assert_eq!(
        resolve_gres(&scratch, "gpu:h100", 0),
        Err(other_shown.into())
    );
    scratch.mode("run/job-adopt", 0o777);
    assert!(
        resolve_gres(&scratch, "gpu", 0)
            .unwrap_err()
            .contains("/run/job-adopt: writable by others")
    );
    assert!(resolve_gres(&scratch, "nic", 0).is_ok());
    let other_scratch = node(&format!("{text}NodeName=n1 AutoDetect=off\n"));
    assert!(resolve_gres(&other_scratch, "gpu", 0).is_ok());
}

/// Several slurmd of a host have the same boot and drivers. An earlier version kept the answer of any of them in
/// `gres.conf`.
#[test]
fn answer_of_another_nodes_slurmd_is_not_used() {
    let scratch = node("AutoDetect=nvml\n");
    let records = "Name=gpu Type=a100 MultipleFiles=/dev/nvidia2\n";
    write_slurmd_report(&scratch, "b1 550.1", records);
    scratch.file(
        "run/job-adopt/gres.conf",
        &format!("# b1 550.1 live - -\n{records}"),
    );
    assert!(resolve_gres(&scratch, "gpu", 0).is_ok());
    for (name, why) in [
        ("n2", "/run/job-adopt/gres-n2.conf: it was not asked yet"),
        ("n1.other", "gres-n1.other.conf: it was not asked yet"),
        ("../n1", "a node's name is 1 to 64 of"),
        ("x/../gres-n1", "a node's name is 1 to 64 of"),
    ] {
        let of_other = DeviceSettings {
            node_name: Some(name.to_owned()),
            ..settings(None)
        };
        let error = resolve_with(&scratch, &of_other, "gpu", 0).unwrap_err();
        assert!(error.contains(why), "{name}: {error}");
    }
}

/// With `Gres=gpu:a:2,gpu:b:1` in `slurm.conf`, Slurm's index 1 is the last of these files.
#[test]
fn several_types_have_the_order_of_slurmd() {
    let text = "Name=gpu Type=a File=/dev/nvidia0\nName=gpu Type=b File=/dev/nvidia1\n\
                Name=gpu Type=a File=/dev/nvidia2\nName=nic Type=c File=/dev/nvidia0\n";
    let scratch = node(text);
    for (name, index) in [("gpu", 0), ("gpu", 1), ("gpu:a", 2), ("gpu", 3)] {
        let error = resolve_gres(&scratch, name, index).unwrap_err();
        assert!(
            error.contains("more than one Type= leaves the order to Slurm"),
            "{error}"
        );
    }
    let records = [
        "a MultipleFiles=/dev/nvidia0",
        "a File=/dev/nvidia2",
        "b File=/dev/nvidia1",
    ];
    let records = records.map(|record| format!("NodeName=n1 Name=gpu Type={record}\n"));
    write_slurmd_report(&scratch, "b1 550.1", &records.concat());
    assert_eq!(
        resolve_gres(&scratch, "gpu", 1),
        Ok(vec!["/dev/nvidia2 c:195:2:rw".into()])
    );
    assert_eq!(
        resolve_gres(&scratch, "gpu:b", 2),
        Ok(vec!["/dev/nvidia1 c:195:1:rw".into()])
    );
    assert!(resolve_gres(&scratch, "nic", 0).is_ok());
    let other_scratch = node("Name=gpu File=/dev/nvidia0\nName=gpu Type=b File=/dev/nvidia1\n");
    assert!(
        resolve_gres(&other_scratch, "gpu", 0)
            .unwrap_err()
            .contains("more than one Type=")
    );
}

#[test]
fn gres_conf_is_read_beside_the_slurm_conf_of_slurm() {
    let scratch = Scratch::new();
    scratch.file("dev/x", "c 10:1");
    scratch.file("proc/devices", "Character devices:\n10 misc\n");
    let record = "Name=gpu File=/dev/x\n";
    assert!(
        resolve_gres(&scratch, "gpu", 0)
            .unwrap_err()
            .contains("slurm.conf is not found")
    );

    scratch.file("etc/slurm/gres.conf", "Name=gpu File=/dev/none\n");
    scratch.file("spool/conf-cache/slurm.conf", "");
    scratch.file("spool/conf-cache/gres.conf", record);
    scratch.dir("run/slurm");
    std::os::unix::fs::symlink("/spool/conf-cache", scratch.path().join("run/slurm/conf")).unwrap();
    assert!(
        resolve_gres(&scratch, "gpu", 0).is_ok(),
        "the configuration from the controller"
    );

    scratch.file("usr/local/etc/slurm.conf", "");
    let missing = resolve_gres(&scratch, "gpu", 0).unwrap_err();
    assert!(
        missing.starts_with("/usr/local/etc/gres.conf: cannot open"),
        "{missing}"
    );

    let given = settings(Some("/spool/conf-cache/slurm.conf"));
    assert!(resolve_with(&scratch, &given, "gpu", 0).is_ok());
}

#[test]
fn included_records_count_in_the_place_of_their_line() {
    let scratch = node("Name=gpu File=/dev/nvidia2\nInclude more.conf\nName=gpu File=/dev/gone\n");
    scratch.file("etc/slurm/more.conf", "\nName=gpu File=/dev/nvidia0\n");
    assert_eq!(
        resolve_gres(&scratch, "gpu", 1),
        Ok(vec!["/dev/nvidia0 c:195:0:rw".into()])
    );
    scratch.file("etc/slurm/more.conf", "\nName=gpu Fil=x\n");
    let named = "/etc/slurm/more.conf:2: unknown key Fil";
    assert_eq!(resolve_gres(&scratch, "gpu", 0), Err(named.into()));
}

#[test]
fn file_that_others_can_change_is_not_trusted() {
    let scratch = node(GPUS);
    scratch.mode("etc/slurm", 0o775);
    let tree = Tree::with_root(scratch.path(), scratch.trust());
    let error = resolve(&SlurmConfSearch::new(tree, None), Some("n1"), "gpu", 0).unwrap_err();
    assert!(
        error
            .to_string()
            .contains(&Distrust::Writable(0o775).to_string()),
        "{error}"
    );
    assert!(
        error
            .to_string()
            .ends_with("slurm's, and writable by nobody else"),
        "{error}"
    );

    scratch.mode("etc/slurm", 0o755);
    scratch.dir("run/slurm");
    std::fs::rename(
        scratch.path().join("etc/slurm"),
        scratch.path().join("other"),
    )
    .unwrap();
    std::os::unix::fs::symlink("../../other", scratch.path().join("run/slurm/conf")).unwrap();
    let other_tree = Tree::with_root(scratch.path(), scratch.trust());
    assert_eq!(
        resolve(
            &SlurmConfSearch::new(other_tree, None),
            Some("n1"),
            "gpu",
            0
        ),
        Err(ConfError::MissingSlurmConf.into())
    );
    std::fs::remove_file(scratch.path().join("run/slurm/conf")).unwrap();
    std::os::unix::fs::symlink("/other", scratch.path().join("run/slurm/conf")).unwrap();
    scratch.mode("run/slurm", 0o777);
    assert!(
        resolve_gres(&scratch, "gpu", 0)
            .unwrap_err()
            .contains("mode 0777")
    );
    scratch.mode("run/slurm", 0o755);
    assert!(resolve_gres(&scratch, "gpu", 0).is_ok());
}

#[test]
fn file_of_more_than_four_mebibytes_is_refused() {
    let scratch = node(&format!("{}{GPUS}", "#".repeat(4 * 1024 * 1024)));
    assert!(
        resolve_gres(&scratch, "gpu", 0)
            .unwrap_err()
            .contains("larger than 4194304 bytes")
    );
}

#[test]
fn node_name_defaults_to_the_host_name() {
    let host = nix::unistd::gethostname().unwrap().into_string().unwrap();
    let scratch = node(&format!("NodeName={host} Name=gpu File=/dev/nvidia1\n"));
    let found = resolve_with(&scratch, &DeviceSettings::default(), "gpu", 0);
    assert_eq!(found, Ok(vec!["/dev/nvidia1 c:195:1:rw".into()]));
    assert!(resolve_gres(&scratch, "gpu", 0).is_err());
}

/// Slurm before 23.11 drops a line with such a list, so that its gpu:0 is another device than that of later releases.
#[test]
fn list_that_releases_read_differently_is_left_to_slurmd() {
    for text in [
        "NodeName=n[0-2]-x,n1 Name=gpu File=/dev/nvidia1",
        "NodeName=n[0-2]-x,n1 Name=nic Name=gpu File=/dev/nvidia1",
        "NodeName=n[7,n1 Name=gpu File=/dev/nvidia1",
    ] {
        let scratch = node(&format!("{text}\nNodeName=n1 Name=gpu File=/dev/nvidia0\n"));
        let error = resolve_gres(&scratch, "gpu", 0).unwrap_err();
        assert!(
            error.contains("gres.conf:1: NodeName=: releases of Slurm read this list differently"),
            "{error}"
        );
        write_slurmd_report(
            &scratch,
            "b1 550.1",
            "NodeName=n1 Name=gpu File=/dev/nvidia0\n",
        );
        assert_eq!(
            resolve_gres(&scratch, "gpu", 0),
            Ok(vec!["/dev/nvidia0 c:195:0:rw".into()]),
            "{text}"
        );
    }
    // No release finds the node in these lists.
    for list in ["n[0-99999]", "n[0-2]-x", "n[1", "n[1]n[0-65536]", "n[]"] {
        let scratch = node(&format!(
            "NodeName={list} Name=gpu File=/dev/nvidia1\nNodeName=n1 Name=gpu File=/dev/nvidia0\n"
        ));
        assert_eq!(
            resolve_gres(&scratch, "gpu", 0),
            Ok(vec!["/dev/nvidia0 c:195:0:rw".into()]),
            "{list}"
        );
    }
}
