//! Numbers of GPUs by who counts them. The tables are facts of machines whose topology their projects
//! publish: `t/hwloc-data` of flux-core, `tests/hwloc/xml` of hwloc, and the KFD trees of AMD's device plugin
//! for Kubernetes.

use super::layout::{Layout, gpu_properties, paths};
use crate::node::topology::Numbering;

/// A GPU: its address, the port of the root bus that it is behind, and the processors close to that.
type Slot = (&'static str, &'static str, &'static str);

/// Four A100 behind two packages in four memory nodes each; Flux lists them in the order of these rows.
const IPA: [Slot; 4] = [
    ("0000:5f:00.0", "0000:59:01.0", "14-27,126-139"),
    ("0000:4e:00.0", "0000:48:01.0", "42-55,154-167"),
    ("0000:db:00.0", "0000:d7:01.0", "70-83,182-195"),
    ("0000:cb:00.0", "0000:c7:01.0", "98-111,210-223"),
];

/// Packages of that machine: a processor close to a GPU, and all of the package.
const IPA_PACKAGES: [(u32, &str); 4] = [
    (14, "0-55,112-167"),
    (42, "0-55,112-167"),
    (70, "56-111,168-223"),
    (98, "56-111,168-223"),
];

/// Four V100 in two domains, two on each memory node of a POWER9.
const SIERRA: [Slot; 4] = [
    ("0004:04:00.0", "0004:00:00.0", "0-87"),
    ("0004:05:00.0", "0004:00:00.0", "0-87"),
    ("0035:03:00.0", "0035:00:00.0", "88-175"),
    ("0035:04:00.0", "0035:00:00.0", "88-175"),
];

/// Eight of the sixteen V100 of a DGX-2, two behind each of its four root buses.
const DGX2: [Slot; 8] = [
    ("0000:34:00.0", "0000:2b:00.0", "0-23,48-71"),
    ("0000:3b:00.0", "0000:2b:00.0", "0-23,48-71"),
    ("0000:57:00.0", "0000:4e:00.0", "0-23,48-71"),
    ("0000:5e:00.0", "0000:4e:00.0", "0-23,48-71"),
    ("0000:b7:00.0", "0000:ae:00.0", "24-47,72-95"),
    ("0000:be:00.0", "0000:ae:00.0", "24-47,72-95"),
    ("0000:e0:00.0", "0000:d7:00.0", "24-47,72-95"),
    ("0000:e7:00.0", "0000:d7:00.0", "24-47,72-95"),
];

/// Eight GPUs of AMD on two packages: MI50 in one table of ROCm's numbers, MI210 in another, with the KFD
/// nodes in the same order. hwloc lists them by address; ROCm as the last column says.
const TWO_PACKAGES: [(Slot, u32); 8] = [
    (("0000:03:00.0", "0000:00:01.1", "0-23,48-71"), 2),
    (("0000:26:00.0", "0000:20:03.1", "0-23,48-71"), 3),
    (("0000:43:00.0", "0000:40:01.1", "0-23,48-71"), 1),
    (("0000:63:00.0", "0000:60:03.1", "0-23,48-71"), 0),
    (("0000:83:00.0", "0000:80:01.1", "24-47,72-95"), 6),
    (("0000:a3:00.0", "0000:a0:03.1", "24-47,72-95"), 7),
    (("0000:c3:00.0", "0000:c0:01.1", "24-47,72-95"), 5),
    (("0000:e3:00.0", "0000:e0:03.1", "24-47,72-95"), 4),
];

/// The eight dies of MI250X on HPE's EX235A, in the order of the cores that they are close to.
const EX235A: [Slot; 8] = [
    ("0000:d1:00.0", "0000:d0:01.1", "0-15,64-79"),
    ("0000:d6:00.0", "0000:d4:01.1", "0-15,64-79"),
    ("0000:c9:00.0", "0000:c8:01.1", "16-31,80-95"),
    ("0000:ce:00.0", "0000:cc:01.1", "16-31,80-95"),
    ("0000:d9:00.0", "0000:d8:01.1", "32-47,96-111"),
    ("0000:de:00.0", "0000:dc:01.1", "32-47,96-111"),
    ("0000:c1:00.0", "0000:c0:01.1", "48-63,112-127"),
    ("0000:c6:00.0", "0000:c4:01.1", "48-63,112-127"),
];

/// Four MI300A, one on each package and in a domain of its own.
const TUOLUMNE: [Slot; 4] = [
    ("0000:02:00.0", "0000:00:07.1", "0-23,96-119"),
    ("0001:02:00.0", "0001:00:07.1", "24-47,120-143"),
    ("0002:02:00.0", "0002:00:07.1", "48-71,144-167"),
    ("0003:02:00.0", "0003:00:07.1", "72-95,168-191"),
];

fn nvidia_node(slots: &[Slot]) -> Layout {
    let layout = Layout::new();
    for (minor, (address, port, processors)) in (0..).zip(slots) {
        layout.nvidia(address, minor);
        layout.plug(address, port, processors);
    }
    layout
}

/// Lays out AMD cards, which KFD lists in the order of the numbers beside them.
fn amd_node(slots: &[(Slot, u32)]) -> Layout {
    let layout = Layout::new();
    layout.kfd();
    for ((address, port, processors), number) in slots {
        let render = 128 + number;
        let names = [format!("card{number}"), format!("renderD{render}")];
        layout.gpu(address, "amdgpu", &names.each_ref().map(String::as_str));
        layout.kfd_node(number + 2, &gpu_properties(address, 0, render));
        layout.plug(address, port, processors);
    }
    layout
}

/// Asserts that somebody's numbers are the GPUs at these addresses, and that there are no more.
fn assert_numbers(layout: &Layout, numbering: Numbering, addresses: &[&str]) {
    for (index, address) in (0..).zip(addresses) {
        let one = layout.number(numbering, index);
        assert!(one.is_ok(), "{numbering}:{index}: {one:?}");
        assert_eq!(one, layout.address(address), "{numbering}:{index}");
    }
    let count = addresses.len();
    let why = format!(
        "the node has {count} GPUs that {numbering} counts, numbers 0 to {}",
        count - 1
    );
    assert_eq!(layout.number(numbering, count as u32), Err(why));
}

fn addresses(slots: &[Slot]) -> Vec<&'static str> {
    slots.iter().map(|(address, ..)| *address).collect()
}

fn sorted(slots: &[Slot]) -> Vec<&'static str> {
    let mut addresses = addresses(slots);
    addresses.sort_unstable();
    addresses
}

#[test]
fn flux_counts_gpus_by_the_processors_close_to_them() {
    let layout = nvidia_node(&IPA);
    for (first, processors) in IPA_PACKAGES {
        layout.package(first, processors);
    }
    assert_numbers(&layout, Numbering::Flux, &addresses(&IPA));
    assert_numbers(&layout, Numbering::Nvidia, &sorted(&IPA));
}

#[test]
fn flux_counts_gpus_of_published_machines_as_listed() {
    for slots in [&SIERRA[..], &DGX2] {
        let layout = nvidia_node(slots);
        for numbering in [Numbering::Flux, Numbering::Nvidia] {
            assert_numbers(&layout, numbering, &addresses(slots));
        }
    }
    let numbered: Vec<_> = EX235A.iter().copied().zip(0..).collect();
    assert_numbers(&amd_node(&numbered), Numbering::Flux, &addresses(&EX235A));
}

#[test]
fn rocm_counts_gpus_by_kfd_node() {
    let layout = amd_node(&TWO_PACKAGES);
    let by_address = TWO_PACKAGES.map(|((address, ..), _)| address);
    assert_numbers(&layout, Numbering::Flux, &by_address);
    let mut by_node = TWO_PACKAGES;
    by_node.sort_by_key(|(_, number)| *number);
    let by_node = by_node.map(|((address, ..), _)| address);
    assert_numbers(&layout, Numbering::Rocm, &by_node);
}

#[test]
fn partitions_of_a_card_keep_their_order_for_everybody() {
    for parts in [1, 3, 6] {
        let layout = Layout::new();
        for (at, (address, port, processors)) in (0..).zip(TUOLUMNE) {
            layout.amd(address, 128 + 8 * at, parts);
            layout.plug(address, port, processors);
        }
        layout.flux();
        for index in 0..4 * parts {
            let plain = layout.index(index);
            assert!(plain.is_ok(), "{plain:?}");
            for numbering in [Numbering::Flux, Numbering::Rocm] {
                assert_eq!(layout.number(numbering, index), plain, "{parts} {index}");
            }
        }
    }
}

#[test]
fn number_that_means_several_gpus_is_refused_with_all() {
    let layout = amd_node(&TWO_PACKAGES);
    let why = layout.index(0).unwrap_err();
    assert_eq!(
        why,
        "which GPU the number means is not certain on this node: 0000:03:00.0 by address, 0000:63:00.0 as \
         rocm:0; write one of these"
    );
    // A partition has no address of its own, and is named by ROCm's number.
    let divided = Layout::new();
    divided.amd("0000:05:00.0", 136, 2);
    divided.amd("0000:c1:00.0", 128, 2);
    let parts = divided.index(0).unwrap_err();
    assert!(
        parts.contains(": rocm:2 (renderD136 of 0000:05:00.0) by address, rocm:0 (renderD128 of "),
        "{parts}"
    );
    assert_eq!(
        paths(divided.number(Numbering::Rocm, 2))[0],
        "/dev/dri/renderD136"
    );
    // Both mean the same card.
    let mut same = TWO_PACKAGES;
    same[0].1 = 0;
    same[3].1 = 2;
    let same_first = amd_node(&same);
    assert_eq!(same_first.index(0), same_first.address("03:00.0"));
    assert!(same_first.index(2).is_err());
}

#[test]
fn flux_counts_on_its_own_nodes_alone() {
    let layout = nvidia_node(&IPA);
    for index in 0..4 {
        assert_eq!(
            layout.index(index),
            layout.number(Numbering::Nvidia, index),
            "{index}"
        );
    }
    layout.flux();
    for index in 0..4 {
        let why = layout.index(index).unwrap_err();
        assert!(why.contains(&format!("as flux:{index}; ")), "{why}");
    }
}

#[test]
fn package_decides_before_the_first_processor() {
    // Packages take turns: even processors belong to the first one, odd ones to the second.
    let slots = [
        ("0000:90:00.0", "0000:80:01.0", "2,6"),
        ("0000:10:00.0", "0000:00:01.0", "1,5"),
    ];
    let layout = nvidia_node(&slots);
    assert_numbers(&layout, Numbering::Flux, &["0000:10:00.0", "0000:90:00.0"]);
    layout.package(2, "0,2,4,6");
    layout.package(1, "1,3,5,7");
    assert_numbers(&layout, Numbering::Flux, &addresses(&slots));
}

#[test]
fn bus_of_a_larger_part_comes_after_those_within() {
    let slots = [
        ("0000:90:00.0", "0000:80:01.0", "8-11"),
        ("0000:50:00.0", "0000:40:01.0", "0-7"),
        ("0000:20:00.0", "0000:18:01.0", "0-15"),
        ("0000:10:00.0", "0000:08:01.0", ""),
    ];
    let layout = nvidia_node(&slots);
    let order = [
        "0000:50:00.0",
        "0000:90:00.0",
        "0000:20:00.0",
        "0000:10:00.0",
    ];
    assert_numbers(&layout, Numbering::Flux, &order);
}

#[test]
fn functions_behind_a_port_are_counted_with_it() {
    let slots = [
        ("0000:30:00.0", "0000:00:01.0", "0-7"),
        ("0000:20:00.0", "0000:00:02.0", "0-7"),
    ];
    assert_numbers(&nvidia_node(&slots), Numbering::Flux, &addresses(&slots));
}

#[test]
fn order_that_is_not_certain_is_refused() {
    let overlapping = [
        ("0000:10:00.0", "0000:00:01.0", "0-7"),
        ("0000:90:00.0", "0000:80:01.0", "4-11"),
    ];
    let mixed = nvidia_node(&IPA);
    mixed.gpu("0000:00:02.0", "i915", &["card0", "renderD128"]);
    let broken = nvidia_node(&[("0000:10:00.0", "0000:00:01.0", "x")]);
    for (layout, words) in [
        (&nvidia_node(&overlapping), "overlap"),
        (
            &nvidia_node(&[("10000:10:00.0", "10000:00:01.0", "0-7")]),
            "hwloc hides 10000:10:00.0 ",
        ),
        (&mixed, "several makers"),
        (&broken, "no list of processors"),
    ] {
        let why = layout.number(Numbering::Flux, 0).unwrap_err();
        assert!(why.contains(words), "{why}");
    }
    // Whoever does not ask for Flux's numbers is not concerned.
    assert!(broken.index(0).is_ok());
}

#[test]
fn numbers_of_one_vendor_skip_those_of_others() {
    let layout = nvidia_node(&IPA);
    layout.gpu("0000:00:02.0", "i915", &["card0", "renderD128"]);
    layout.habana("0000:01:00.0", 0);
    assert_numbers(&layout, Numbering::Nvidia, &sorted(&IPA));
    assert_eq!(
        layout.number(Numbering::Rocm, 0),
        Err("the node has no GPUs that rocm counts".to_owned())
    );
    let why = layout.index(0).unwrap_err();
    assert!(
        why.contains(": 0000:00:02.0 by address, 0000:4e:00.0 as nvidia:0; "),
        "{why}"
    );
    // Habana's cards are no GPUs of hwloc's.
    let with_habana = nvidia_node(&SIERRA);
    with_habana.habana("0000:01:00.0", 0);
    assert_numbers(&with_habana, Numbering::Flux, &addresses(&SIERRA));
}
