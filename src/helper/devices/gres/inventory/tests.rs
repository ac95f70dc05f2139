use super::*;
use crate::node::topology::tests::layout::Layout;
use crate::testing::Scratch;
use schedulers::stepd::Release;

fn node(text: &str) -> Scratch {
    let scratch = Scratch::new();
    scratch.file("etc/slurm/slurm.conf", "");
    scratch.file("etc/slurm/gres.conf", text);
    scratch.file("proc/devices", "Character devices:\n10 misc\n195 nvidia\n");
    for minor in 0..4 {
        scratch.file(&format!("dev/nvidia{minor}"), &format!("c 195:{minor}"));
    }
    scratch.file("dev/nvidiactl", "c 195:255");
    scratch.file("dev/nic0", "c 10:7");
    scratch
}

fn read(scratch: &Scratch) -> (Tree, Result<Inventory, DeviceError>) {
    read_as(scratch, None)
}

fn read_as(scratch: &Scratch, release: Option<Release>) -> (Tree, Result<Inventory, DeviceError>) {
    let dialect = Dialect(release);
    let tree = Tree::with_root(scratch.path(), scratch.trust());
    let files = SlurmConfFiles::find(&tree, None).unwrap();
    (tree, Inventory::read(&files, Some("n1"), dialect))
}

/// Tells whether the inventory has devices, the paths of these, and those of its probes.
fn summarize(text: &str) -> (bool, Vec<String>, Vec<String>) {
    let scratch = node(text);
    let (tree, inventory) = read(&scratch);
    let inventory = inventory.unwrap();
    let devices = inventory.devices(&tree).unwrap().devices;
    let devices = devices.iter().map(|device| device.node.clone()).collect();
    let probes = inventory.list_probes(&tree).unwrap();
    let probes = probes.iter().map(|probe| probe.path.to_string()).collect();
    (inventory.has_devices(&tree).unwrap(), devices, probes)
}

#[test]
fn inventory_has_all_files_of_the_node_and_probes_its_gpus() {
    let (has_devices, devices, probes) = summarize(
        "NodeName=n[1-2] Name=gpu Type=b File=/dev/nvidia[2,0]\nName=shard Count=8 \
         File=/dev/nvidia0\nName=nic File=/dev/nic0\nNodeName=n3 Name=gpu File=/dev/nvidia3\n\
         Name=gpu Type=a MultipleFiles=/dev/nvidia1,/dev/nvidia3\nName=bw Count=4G\n",
    );
    assert!(has_devices);
    let own = [
        "/dev/nvidia0",
        "/dev/nic0",
        "/dev/nvidia1",
        "/dev/nvidia3",
        "/dev/nvidia2",
    ];
    assert_eq!(devices[..5], own);
    assert!(
        devices.contains(&"/dev/nvidiactl".to_owned()),
        "{devices:?}"
    );
    assert_eq!(probes, ["/dev/nvidia1", "/dev/nvidia2", "/dev/nvidia0"]);
}

#[test]
fn gpu_without_a_known_driver_is_probed() {
    let scratch = node("Name=gpu File=/dev/nvidia[0-1],/dev/gone\n");
    scratch.file("proc/devices", "Character devices:\n10 misc\n");
    let (tree, inventory) = read(&scratch);
    let inventory = inventory.unwrap();
    assert_eq!(inventory.list_probes(&tree).unwrap().len(), 2);
    assert_eq!(inventory.devices(&tree).unwrap().warnings.len(), 3);
}

#[test]
fn detected_gpus_are_in_the_inventory_and_are_probed() {
    let layout = Layout::new();
    layout.scratch.file("etc/slurm/slurm.conf", "");
    layout
        .scratch
        .file("etc/slurm/gres.conf", "AutoDetect=nvml\n");
    layout.nvidia("0000:01:00.0", 1);
    layout.nvidia("0000:02:00.0", 0);
    let (tree, inventory) = read(&layout.scratch);
    let inventory = inventory.unwrap();
    assert_eq!(
        (inventory.has_devices(&tree), inventory.files.len()),
        (Ok(true), 0)
    );
    let probes = inventory.list_probes(&tree).unwrap();
    let probes: Vec<_> = probes.iter().map(|probe| probe.path.as_str()).collect();
    assert_eq!(probes, ["/dev/nvidia1", "/dev/nvidia0"]);
    let found = inventory.devices(&tree).unwrap();
    assert!(
        found
            .devices
            .iter()
            .any(|device| device.node == "/dev/nvidiactl"),
        "{found:?}"
    );
    layout.scratch.file(
        "etc/slurm/gres.conf",
        "AutoDetect=nvml\nNodeName=n1 AutoDetect=off\n",
    );
    let (other_tree, other_inventory) = read(&layout.scratch);
    assert_eq!(other_inventory.unwrap().has_devices(&other_tree), Ok(false));
}

/// Slurm's detection lists the card as any other (`AutoDetect=oneapi`), also if all its virtual functions are given to
/// virtual machines and have no node.
#[test]
fn card_with_virtual_functions_requires_the_filter_and_is_probed() {
    let layout = Layout::new();
    layout.scratch.file("etc/slurm/slurm.conf", "");
    let gres = "AutoDetect=oneapi\n";
    layout.scratch.file("etc/slurm/gres.conf", gres);
    layout.gpu("0000:03:00.0", "xe", &["card0", "renderD128"]);
    let count = "sys/devices/pci/0000:03:00.0/sriov_numvfs";
    layout.scratch.file(count, "2\n");
    layout.function("0000:03:00.1", "vfio-pci");
    let probe = || {
        let (tree, inventory) = read(&layout.scratch);
        let inventory = inventory.unwrap();
        assert_eq!(inventory.has_devices(&tree), Ok(true));
        let probes = inventory.list_probes(&tree).unwrap();
        probes
            .iter()
            .map(|probe| probe.path.to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(probe(), ["/dev/dri/renderD128"]);
    layout.gpu("0000:03:00.2", "xe", &["card1", "renderD129"]);
    assert_eq!(probe(), ["/dev/dri/renderD128", "/dev/dri/renderD129"]);
    let (tree, inventory) = read(&layout.scratch);
    let devices = inventory.unwrap().devices(&tree).unwrap().devices;
    assert!(
        devices
            .iter()
            .all(|device| device.node != "/dev/dri/renderD128"),
        "the card sees what its functions work on: {devices:?}"
    );
}

/// A word of a later release, or a line that cannot be read, may turn detection on.
#[test]
fn gpus_that_may_be_detected_are_probed_and_not_listed() {
    let layout = Layout::new();
    layout.scratch.file("etc/slurm/slurm.conf", "");
    layout.nvidia("0000:01:00.0", 0);
    for (text, release) in [
        ("AutoDetect=later\n", Some(Release::V26_11.next())),
        ("x\n", None),
    ] {
        layout.scratch.file("etc/slurm/gres.conf", text);
        let (tree, inventory) = read_as(&layout.scratch, release);
        let inventory = inventory.unwrap();
        assert_eq!(inventory.has_devices(&tree), Ok(true), "{text}");
        assert_eq!(inventory.list_probes(&tree).unwrap().len(), 1, "{text}");
        assert_eq!(inventory.devices(&tree).unwrap().devices, [], "{text}");
    }
}

#[test]
fn counted_resources_and_undetected_gpus_are_no_devices() {
    for text in [
        "",
        "Name=gpu Count=4\n",
        "AutoDetect=nvml\n",
        "NodeName=n9 File=/dev/nic0",
    ] {
        assert_eq!(summarize(text), (false, vec![], vec![]), "{text}");
    }
    let scratch = node("");
    std::fs::remove_file(scratch.path().join("etc/slurm/gres.conf")).unwrap();
    let (tree, inventory) = read(&scratch);
    assert_eq!(inventory.unwrap().has_devices(&tree), Ok(false));
}

/// A record of another name than the one asked for may have faults: logins open no device of it, and they still
/// wait for Slurm's filter.
#[test]
fn faulty_record_of_another_name_is_a_warning() {
    for fault in [
        "Fil=/dev/nic0",
        "File=/etc/x",
        "File=/dev/a[",
        "File=/dev/n[0-1024]",
    ] {
        let scratch = node(&format!(
            "Name=gpu File=/dev/nvidia0\nName=nic Count=1 {fault}\n"
        ));
        let (tree, inventory) = read(&scratch);
        let inventory = inventory.unwrap();
        assert_eq!(inventory.files, ["/dev/nvidia0"], "{fault}");
        let [warning] = inventory.warnings.as_slice() else {
            panic!("{fault}")
        };
        assert!(
            warning.contains("gres.conf:2: ") && warning.contains("Name=nic"),
            "{warning}"
        );
        assert_eq!(inventory.list_probes(&tree).unwrap().len(), 1);
    }
    let scratch = node("Name=nic Fil=/dev/nic0\n");
    let (tree, inventory) = read(&scratch);
    assert_eq!(inventory.unwrap().has_devices(&tree), Ok(true));
    for text in [
        "NodeName=n9 Name=gpu Fil=x\n",
        "Name=gpu Flags=CountOnly File=/dev/nvidia0\n",
    ] {
        let other_scratch = node(text);
        let (other_tree, other_inventory) = read(&other_scratch);
        let other_inventory = other_inventory.unwrap();
        assert_eq!(
            (
                other_inventory.has_devices(&other_tree),
                other_inventory.warnings.len()
            ),
            (Ok(false), 0)
        );
    }
}

/// Slurm ignores records whose name is not in `GresTypes=`. If they counted as devices, every login would wait
/// for a filter that Slurm does not attach.
#[test]
fn records_outside_gres_types_are_no_devices() {
    let text = "Name=nic File=/dev/nic0\nName=gpu Fil=x\nAutoDetect=nvml\n";
    let scratch = node(text);
    scratch.file("etc/slurm/slurm.conf", "GresTypes=fpga\n");
    let (tree, inventory) = read(&scratch);
    let inventory = inventory.unwrap();
    assert_eq!(
        (inventory.has_devices(&tree), inventory.has_auto_detect()),
        (Ok(false), false)
    );
    assert_eq!(inventory.gpu_fault, None);
    assert_eq!(inventory.warnings.len(), 1);
}

/// Slurm's own filter keeps such devices from a job, and it must be there: so they count, and are on no list.
#[test]
fn faulty_gpu_record_is_left_out_and_counts_as_a_device() {
    for text in [
        "Name=gpu Fil=/dev/nvidia0",
        "Name=gpu File=/dev/nvidia0 UUID=GPU-1",
        "Name=gpu UUID=GPU-1",
        "Name=gpu Name=nic New=1 File=/dev/nvidia0",
        "NodeName=n1 New=1 Name=nic Name=gpu File=/dev/nvidia0",
        "NodeName=n1 NodeName=n2 Name=gpu File=/dev/nvidia0",
        "UUID=GPU-1 Name=gpu File=/dev/nvidia0",
        "AutoDetect=nvml UUID=GPU-1",
        "NodeName=n[1]x,n1 Name=gpu File=/dev/nvidia0",
        "Name=gpu File=/etc/x",
        "Name=gpu File=/dev/a[",
        "x",
    ] {
        let scratch = node(&format!("{text}\nName=nic File=/dev/nic0\n"));
        let (tree, inventory) = read(&scratch);
        let inventory = inventory.unwrap();
        assert_eq!(inventory.files, ["/dev/nic0"], "{text}");
        assert_eq!(inventory.has_devices(&tree), Ok(true), "{text}");
        assert_eq!(inventory.list_probes(&tree).unwrap(), [], "{text}");
        let fault = inventory.gpu_fault.unwrap();
        assert!(fault.contains("gres.conf:1: "), "{text}: {fault}");
        assert_eq!(inventory.warnings, [fault], "{text}");
    }
    let scratch = node("Name=gpu File=/dev/nvidia0,/dev/gone\n");
    let (tree, inventory) = read(&scratch);
    let found = inventory.unwrap().devices(&tree).unwrap();
    assert!(
        found.warnings.first().unwrap().contains("/dev/gone"),
        "{found:?}"
    );
}

#[test]
fn key_of_a_later_release_is_passed_over_if_the_nodes_slurmd_has_it() {
    let scratch = node("Name=gpu File=/dev/nvidia[0-1] UUID=GPU-1,GPU-2\n");
    for (release, files) in [
        (None, 0),
        (Some(Release::V26_05), 0),
        (Some(Release::V26_11), 2),
    ] {
        let (tree, inventory) = read_as(&scratch, release);
        let inventory = inventory.unwrap();
        assert_eq!(inventory.files.len(), files, "{release:?}");
        assert_eq!(inventory.gpu_fault.is_none(), files > 0, "{release:?}");
        assert_eq!(inventory.has_devices(&tree), Ok(true));
    }
    let without_file = node("Name=gpu UUID=GPU-1\n");
    let (tree, inventory) = read_as(&without_file, Some(Release::V26_11));
    let inventory = inventory.unwrap();
    assert_eq!(inventory.has_devices(&tree), Ok(true));
    assert!(inventory.gpu_fault.unwrap().contains("UUID= without File="));
}

#[test]
fn suffix_behind_brackets_is_a_name_from_slurm_23_11_on() {
    let scratch =
        node("NodeName=n[1-2]-gpu,n1 Name=gpu File=/dev/nvidia1\nName=nic File=/dev/nic0\n");
    for (release, files, has_fault) in [
        (Some(Release::V22_05), vec!["/dev/nic0"], false),
        (Some(Release::V23_02), vec!["/dev/nic0"], false),
        (
            Some(Release::V23_11),
            vec!["/dev/nic0", "/dev/nvidia1"],
            false,
        ),
        (None, vec!["/dev/nic0"], true),
    ] {
        let (_, inventory) = read_as(&scratch, release);
        let inventory = inventory.unwrap();
        assert_eq!(inventory.files, files, "{release:?}");
        assert_eq!(inventory.gpu_fault.is_some(), has_fault, "{release:?}");
    }
}

/// A release that is not known here may detect the GPUs by a word that no earlier one has.
#[test]
fn unknown_word_of_auto_detect_counts_as_devices_for_a_newer_slurmd() {
    let layout = Layout::new();
    layout.scratch.file("etc/slurm/slurm.conf", "");
    layout
        .scratch
        .file("etc/slurm/gres.conf", "AutoDetect=npu\n");
    layout.nvidia("0000:01:00.0", 1);
    for (release, has_devices) in [
        (None, false),
        (Some(Release::V26_11), false),
        (Some(Release::V26_11.next()), true),
    ] {
        let (tree, inventory) = read_as(&layout.scratch, release);
        let inventory = inventory.unwrap();
        assert_eq!(inventory.has_devices(&tree), Ok(has_devices), "{release:?}");
        assert_eq!(inventory.gpu_fault.is_some(), has_devices, "{release:?}");
        assert_eq!(inventory.devices(&tree).unwrap().devices, []);
    }
}
