//! AMD cards in partitions. The tables are facts of nodes whose KFD topology AMD's device plugin for
//! Kubernetes publishes.

use super::layout::{Layout, paths};
use crate::node::topology;

/// Eight MI300X in CPX mode: bus, first render minor and partitions of each card. The kernel has 64
/// render minors and one is another device's, so that the last card lacks a partition.
const MI300_CPX: [(&str, u32, u32); 8] = [
    ("0000:05:00.0", 128, 8),
    ("0000:27:00.0", 136, 8),
    ("0000:47:00.0", 144, 8),
    ("0000:65:00.0", 152, 8),
    ("0000:85:00.0", 160, 8),
    ("0000:a7:00.0", 168, 8),
    ("0000:c7:00.0", 176, 8),
    ("0000:e5:00.0", 184, 7),
];

/// Eight MI308X with four partitions each, in two domains.
const MI308: [(&str, u32, u32); 8] = [
    ("0000:0a:00.0", 128, 4),
    ("0000:80:00.0", 136, 4),
    ("0000:a4:00.0", 144, 4),
    ("0000:c8:00.0", 152, 4),
    ("0001:0b:00.0", 160, 4),
    ("0001:81:00.0", 168, 4),
    ("0001:a5:00.0", 176, 4),
    ("0001:c9:00.0", 184, 4),
];

/// First bit of the partition's number in `location_id` that drivers have used.
const SHIFTS: [u32; 2] = [0, 28];

fn render(minor: u32) -> String {
    format!("/dev/dri/renderD{minor}")
}

/// Replaces the properties of a KFD node.
fn replace(layout: &Layout, node: u32, from: &str, to: &str) {
    let path = format!("sys/class/kfd/kfd/topology/nodes/{node}/properties");
    let text = std::fs::read_to_string(layout.scratch.path().join(&path)).unwrap();
    assert!(text.contains(from), "{text}");
    layout.scratch.file(&path, &text.replace(from, to));
}

#[test]
fn numbers_of_real_divided_nodes_are_partitions() {
    for (cards, count) in [(MI300_CPX, 63), (MI308, 32)] {
        for shift in SHIFTS {
            let layout = Layout::new();
            for (address, first, parts) in cards {
                layout.amd_with_shift(address, first, parts, shift);
            }
            let renders: Vec<u32> = cards
                .iter()
                .flat_map(|(_, first, parts)| *first..first + parts)
                .collect();
            assert_eq!(renders.len(), count as usize);
            for (index, minor) in (0..).zip(&renders) {
                let own = [render(*minor), "/dev/kfd".to_owned()];
                assert_eq!(paths(layout.index(index)), own, "{index} at bit {shift}");
            }
            let why = format!("the node has {count} GPUs, numbers 0 to {}", count - 1);
            assert_eq!(layout.index(count), Err(why));
            for (address, first, parts) in cards {
                let mut whole = vec![format!("/dev/dri/card{}", first - 128)];
                whole.extend((first..first + parts).map(render));
                whole.push("/dev/kfd".to_owned());
                assert_eq!(
                    paths(layout.address(address)),
                    whole,
                    "{address} at bit {shift}"
                );
            }
            let gpus = topology::list_gpus(&layout.tree()).unwrap();
            let listed: Vec<_> = gpus.into_iter().map(|gpu| gpu.own_node.node).collect();
            assert_eq!(listed, renders.into_iter().map(render).collect::<Vec<_>>());
        }
    }
}

#[test]
fn numbers_at_both_places_are_refused() {
    let layout = Layout::new();
    layout.amd_with_shift("0000:05:00.0", 128, 4, 0);
    layout.amd_with_shift("0000:27:00.0", 136, 4, 28);
    let why = layout.index(0).unwrap_err();
    assert!(
        why.ends_with("KFD numbers the partitions of this node in two ways"),
        "{why}"
    );
    assert_eq!(layout.address("05:00.0"), Err(why));
    // The card is numbered above the function all the same.
    assert!(layout.address("27:00.0").is_ok());
}

#[test]
fn partition_of_no_card_has_no_number_and_hides_no_other_card() {
    // Another bus, another domain, bits between the two layouts, the location of the card itself.
    for (from, to) in [
        ("location_id 1281\n", "location_id 1537\n"),
        ("domain 0\n", "domain 1\n"),
        ("location_id 1281\n", "location_id 66817\n"),
        ("location_id 1281\n", "location_id 1280\n"),
        ("unique_id", "unique_id 7\nother_id"),
        ("unique_id", "other_id"),
    ] {
        let layout = Layout::new();
        layout.amd("0000:05:00.0", 128, 2);
        layout.amd("0000:27:00.0", 136, 2);
        replace(&layout, 129, from, to);
        let why = layout.index(2).unwrap_err();
        assert!(why.contains("/nodes/129/properties: location_id"), "{why}");
        assert!(
            why.contains("renderD129 fits no AMD card in sysfs, or several: name the"),
            "{why}"
        );
        let other = [
            "/dev/dri/card8".to_owned(),
            render(136),
            render(137),
            "/dev/kfd".to_owned(),
        ];
        assert_eq!(paths(layout.address("27:00.0")), other, "{to}");
        if to.contains("1280") || to.contains("_id") && !to.contains("1537") {
            assert_eq!(layout.address("05:00.0"), Err(why), "{to}");
        }
    }
}

#[test]
fn card_of_another_function_takes_no_partition() {
    // Both functions of the device fit, and no id tells them apart.
    let layout = Layout::new();
    layout.amd("0000:05:02.0", 128, 2);
    layout.amd("0000:05:02.1", 136, 2);
    for node in [128, 129, 136, 137] {
        replace(&layout, node, "unique_id", "other_id");
    }
    let why = layout.index(0).unwrap_err();
    assert!(
        why.contains("renderD129 fits no AMD card in sysfs, or several"),
        "{why}"
    );
    for address in ["05:02.0", "05:02.1"] {
        assert_eq!(layout.address(address), Err(why.clone()));
    }
    // The id does.
    let other_layout = Layout::new();
    other_layout.amd("0000:05:02.0", 128, 2);
    other_layout.amd("0000:05:02.1", 136, 2);
    for (index, minor) in (0..).zip([128, 129, 136, 137]) {
        assert_eq!(
            paths(other_layout.index(index)),
            [render(minor), "/dev/kfd".to_owned()]
        );
    }
    // So do the numbers above the function, whatever the ids.
    let high_layout = Layout::new();
    high_layout.amd_with_shift("0000:05:02.0", 128, 2, 28);
    high_layout.amd_with_shift("0000:05:02.1", 136, 2, 28);
    for node in [128, 129, 136, 137] {
        replace(&high_layout, node, "unique_id", "other_id");
    }
    assert_eq!(paths(high_layout.index(1))[0], render(129));
    assert_eq!(paths(high_layout.index(3))[0], render(137));
}

#[test]
fn cards_with_one_unique_id_are_cards() {
    let layout = Layout::new();
    for (address, first) in [("0000:05:00.0", 128), ("0000:27:00.0", 136)] {
        layout.amd(address, first, 2);
        for node in [first, first + 1] {
            replace(&layout, node, "unique_id", "unique_id 5\nother_id");
        }
    }
    for (index, minor) in (0..).zip([128, 129, 136, 137]) {
        assert_eq!(paths(layout.index(index))[0], render(minor));
    }
    assert_eq!(
        paths(layout.address("27:00.0"))[1..3],
        [render(136), render(137)]
    );
}

#[test]
fn render_node_of_the_card_at_another_location_is_refused() {
    for (from, to) in [
        ("location_id 1280", "location_id 9984"),
        ("domain 0", "domain 1"),
    ] {
        let layout = Layout::new();
        layout.amd("0000:05:00.0", 128, 1);
        layout.amd("0000:27:00.0", 136, 1);
        replace(&layout, 128, from, to);
        for found in [layout.index(1), layout.address("05:00.0")] {
            let why = found.unwrap_err();
            assert!(why.contains("with renderD128 fits no AMD card"), "{why}");
        }
    }
}

#[test]
fn two_partitions_at_one_location_are_refused() {
    let layout = Layout::new();
    layout.amd("0000:05:00.0", 128, 3);
    replace(&layout, 130, "location_id 1282", "location_id 1281");
    let why = layout.address("05:00.0").unwrap_err();
    assert!(
        why.ends_with("nodes/130/properties: another GPU has the location_id 1281 too"),
        "{why}"
    );
    assert_eq!(layout.index(0), Err(why));
}

#[test]
fn render_node_of_another_device_is_no_partition() {
    let layout = Layout::new();
    layout.amd("0000:05:00.0", 128, 2);
    layout.remove("sys/devices/platform/amdgpu_xcp_129/drm/renderD129/device");
    // The kernel's link may be missing in a container.
    assert_eq!(paths(layout.index(1))[0], render(129));
    layout.link(
        "../../../card",
        "sys/devices/platform/amdgpu_xcp_129/drm/renderD129/device",
    );
    let why = layout.index(0).unwrap_err();
    assert!(
        why.ends_with("renderD129 is of card and of no partition"),
        "{why}"
    );
}

#[test]
fn driver_without_domains_still_has_whole_cards() {
    let layout = Layout::new();
    layout.amd("0000:05:00.0", 128, 1);
    layout.amd("0001:27:00.0", 136, 1);
    for node in [128, 136] {
        replace(&layout, node, "domain", "other");
    }
    assert_eq!(paths(layout.index(1))[0], "/dev/dri/card8");
    replace(&layout, 136, "other 1", "domain x");
    assert!(
        layout
            .index(1)
            .unwrap_err()
            .ends_with("no number for domain")
    );
}

#[test]
fn last_partition_of_a_divided_card_does_not_open_the_card() {
    let layout = Layout::new();
    layout.amd("0000:05:00.0", 128, 1);
    let mode = "sys/devices/pci/0000:05:00.0/current_compute_partition";
    layout.scratch.file(mode, "SPX\n");
    assert_eq!(paths(layout.index(0))[0], "/dev/dri/card0");
    for divided in ["DPX\n", "TPX\n", "QPX\n", "CPX\n"] {
        layout.scratch.file(mode, divided);
        assert_eq!(paths(layout.index(0)), [render(128), "/dev/kfd".to_owned()]);
        assert_eq!(paths(layout.address("05:00.0"))[0], "/dev/dri/card0");
    }
}

#[test]
fn mode_that_contradicts_the_partitions_is_refused() {
    for (mode, parts) in [("SPX", 2), ("CPX", 0), ("UNKNOWN", 1), ("", 1)] {
        let layout = Layout::new();
        layout.amd("0000:05:00.0", 128, parts);
        layout.scratch.file(
            "sys/devices/pci/0000:05:00.0/current_compute_partition",
            mode,
        );
        let why = format!(
            "0000:05:00.0 is in the partition mode {mode}, and KFD lists {parts} GPUs of it: no GPU \
             of this node has a number"
        );
        assert_eq!(layout.index(0), Err(why));
        assert!(layout.address("05:00.0").is_ok());
    }
}

#[test]
fn missing_node_of_a_partition_shifts_no_number() {
    let layout = Layout::new();
    layout.amd("0000:05:00.0", 128, 3);
    layout.remove("dev/dri/renderD129");
    assert!(
        layout
            .index(1)
            .unwrap_err()
            .starts_with("/dev/dri/renderD129: ")
    );
    assert_eq!(paths(layout.index(2))[0], render(130));
    let gpus = topology::list_gpus(&layout.tree()).unwrap();
    let listed: Vec<_> = gpus.into_iter().map(|gpu| gpu.own_node.node).collect();
    assert_eq!(listed, [render(128), render(130)]);
}
