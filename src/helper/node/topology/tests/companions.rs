use super::layout::{Layout, display_result, paths};
use crate::node::{Device, topology};

fn companions(layout: &Layout, rules: &[&str]) -> Result<Vec<String>, String> {
    let device = |rule: &&str| Device {
        node: "/dev/given".to_owned(),
        rule: rule.parse().unwrap(),
    };
    let devices: Vec<_> = rules.iter().map(device).collect();
    display_result(topology::find_companions(&layout.tree(), &devices))
}

const SHARED: [&str; 3] = ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"];

fn node() -> Layout {
    let layout = Layout::new();
    layout.nvidia("0000:1b:00.0", 0);
    layout.drm("pci/0000:1b:00.0", &["card61", "renderD189"]);
    layout.amd("0000:c1:00.0", 128, 8);
    layout.gpu("0000:00:02.0", "i915", &["card60", "renderD188"]);
    layout.drm("platform/vgem", &["card62", "renderD190"]);
    layout
}

#[test]
fn nvidia_gpus_need_the_shared_nodes() {
    let layout = node();
    for rule in ["c:195:0:rw", "c:195:247:r"] {
        assert_eq!(paths(companions(&layout, &[rule])), SHARED);
    }
    layout.scratch.file(
        "proc/devices",
        "Character devices:\n195 nvidia-frontend\n510 nvidia-uvm\n",
    );
    assert_eq!(paths(companions(&layout, &["c:195:0:rw"])), SHARED);
}

#[test]
fn amd_cards_and_partitions_need_kfd() {
    let layout = node();
    for rule in ["c:226:128:rw", "c:226:135:rw"] {
        assert_eq!(
            companions(&layout, &[rule]),
            Ok(vec!["/dev/kfd c:238:0:rw".to_owned()])
        );
    }
    let both = paths(companions(
        &layout,
        &["c:226:128:rw", "c:226:129:rw", "c:195:0:rw"],
    ));
    assert_eq!(
        both,
        SHARED.into_iter().chain(["/dev/kfd"]).collect::<Vec<_>>()
    );
    layout.remove("dev/kfd");
    assert!(companions(&layout, &["c:226:128:rw"]).is_err());
}

/// The render node of another function or partition is none of the card's.
#[test]
fn amd_card_node_needs_the_render_node_of_its_function() {
    let layout = node();
    layout.amd("0000:c2:00.0", 140, 1);
    let kfd = "/dev/kfd c:238:0:rw".to_owned();
    for (card, render) in [(0, 128), (1, 129), (12, 140)] {
        let render = format!("/dev/dri/renderD{render} c:226:{render}:rw");
        let found = companions(&layout, &[&format!("c:226:{card}:rw")]);
        assert_eq!(found, Ok(vec![render, kfd.clone()]));
    }
    layout.remove("dev/dri/renderD140");
    assert_eq!(companions(&layout, &["c:226:12:rw"]), Ok(vec![kfd]));
}

#[test]
fn other_devices_need_no_companions() {
    let layout = node();
    let rules = [
        "c:195:248:rw",
        "c:195:255:rw",
        "c:195:-1:rw",
        "b:195:0:rw",
        "c:226:60:rw",
        "c:226:188:rw",
        "c:226:189:rw",
        "c:226:190:rw",
        "b:226:128:rw",
        "c:510:0:rw",
        "c:261:0:rw",
    ];
    assert_eq!(companions(&layout, &rules), Ok(Vec::new()));
    layout.remove("proc/devices");
    assert_eq!(companions(&layout, &[]), Ok(Vec::new()));
    assert!(companions(&layout, &["c:1:3:rw"]).is_err());
}

#[test]
fn drm_device_unknown_to_the_kernel_is_refused() {
    let why = companions(&node(), &["c:226:63:rw"]).unwrap_err();
    assert!(
        why.starts_with("read link /sys/dev/char/226:63/device: "),
        "{why}"
    );
}
