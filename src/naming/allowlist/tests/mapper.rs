//! What the tests of flux-core's mapper (`t0043-sdexec-map`) ask of the devices of GPUs by number, on a node with two of
//! a kind. Cores and memory nodes, which the mapper maps as well, are not ours to map.

use super::{DeviceRequest, Policy, build_allowlist, gpu};
use crate::layout::Layout;
use crate::resolver::NameResolver;
use helper::devices::DeviceSettings;

const FIRST: &str = "0000:01:00.0";
const SECOND: &str = "0000:02:00.0";

/// Two GPUs of NVIDIA with a render node each.
fn add_nvidia(layout: &Layout) {
    for (address, number) in [(FIRST, 0), (SECOND, 1)] {
        layout.nvidia(address, number);
        layout.drm(
            &format!("pci/{address}"),
            &[&format!("renderD{}", 128 + number)],
        );
    }
}

fn add_amd(layout: &Layout) {
    layout.amd(FIRST, 128, 1);
    layout.amd(SECOND, 136, 1);
}

/// Two GPUs of a vendor whose driver has nothing but DRM nodes.
fn add_others(layout: &Layout) {
    layout.gpu(FIRST, "xe", &["card0", "renderD128"]);
    layout.gpu(SECOND, "xe", &["card1", "renderD129"]);
}

fn remove_dir(layout: &Layout, dir: &str) {
    std::fs::remove_dir_all(layout.scratch.path().join(dir)).unwrap();
}

/// What a row asks, the node, the numbers of the job's GPUs, and their rules, each once; `None` if there is none to be had.
type Row = (
    &'static str,
    fn(&Layout),
    &'static [&'static str],
    Option<&'static [&'static str]>,
);

const ROWS: [Row; 24] = [
    (
        "NVIDIA: the first",
        add_nvidia,
        &["flux:0"],
        Some(&[
            "c:195:0:rw",
            "c:195:255:rw",
            "c:226:128:rw",
            "c:510:0:rw",
            "c:510:1:rw",
        ]),
    ),
    (
        "NVIDIA: the second",
        add_nvidia,
        &["flux:1"],
        Some(&[
            "c:195:1:rw",
            "c:195:255:rw",
            "c:226:129:rw",
            "c:510:0:rw",
            "c:510:1:rw",
        ]),
    ),
    (
        "NVIDIA: both share nodes",
        add_nvidia,
        &["flux:0", "flux:1"],
        Some(&[
            "c:195:0:rw",
            "c:195:1:rw",
            "c:195:255:rw",
            "c:226:128:rw",
            "c:226:129:rw",
            "c:510:0:rw",
            "c:510:1:rw",
        ]),
    ),
    (
        "NVIDIA: one twice",
        add_nvidia,
        &["flux:0", "flux:0"],
        Some(&[
            "c:195:0:rw",
            "c:195:255:rw",
            "c:226:128:rw",
            "c:510:0:rw",
            "c:510:1:rw",
        ]),
    ),
    ("NVIDIA: none", add_nvidia, &[], Some(&[])),
    ("NVIDIA: a third", add_nvidia, &["flux:2"], None),
    (
        "NVIDIA: a third beside the first",
        add_nvidia,
        &["flux:0", "flux:2"],
        None,
    ),
    (
        "NVIDIA: without the driver's information",
        |layout| {
            add_nvidia(layout);
            layout.remove(&format!("proc/driver/nvidia/gpus/{FIRST}/information"));
        },
        &["flux:0"],
        None,
    ),
    (
        "NVIDIA: without its node",
        |layout| {
            add_nvidia(layout);
            layout.remove("dev/nvidia0");
        },
        &["flux:0"],
        None,
    ),
    (
        "NVIDIA: without the node of the other",
        |layout| {
            add_nvidia(layout);
            layout.remove("dev/nvidia1");
        },
        &["flux:0"],
        Some(&[
            "c:195:0:rw",
            "c:195:255:rw",
            "c:226:128:rw",
            "c:510:0:rw",
            "c:510:1:rw",
        ]),
    ),
    (
        "NVIDIA: without a render node",
        |layout| {
            layout.nvidia(FIRST, 0);
            layout.nvidia(SECOND, 1);
        },
        &["flux:0"],
        Some(&["c:195:0:rw", "c:195:255:rw", "c:510:0:rw", "c:510:1:rw"]),
    ),
    (
        "NVIDIA: without the tools' node",
        |layout| {
            add_nvidia(layout);
            layout.remove("dev/nvidia-uvm-tools");
        },
        &["flux:0"],
        Some(&[
            "c:195:0:rw",
            "c:195:255:rw",
            "c:226:128:rw",
            "c:510:0:rw",
            "c:510:1:rw",
        ]),
    ),
    (
        "AMD: the first",
        add_amd,
        &["flux:0"],
        Some(&["c:226:0:rw", "c:226:128:rw", "c:238:0:rw"]),
    ),
    (
        "AMD: the second",
        add_amd,
        &["flux:1"],
        Some(&["c:226:136:rw", "c:226:8:rw", "c:238:0:rw"]),
    ),
    (
        "AMD: both share one node",
        add_amd,
        &["flux:0", "flux:1"],
        Some(&[
            "c:226:0:rw",
            "c:226:128:rw",
            "c:226:136:rw",
            "c:226:8:rw",
            "c:238:0:rw",
        ]),
    ),
    (
        "AMD: without the shared node",
        |layout| {
            add_amd(layout);
            layout.remove("dev/kfd");
        },
        &["flux:0"],
        None,
    ),
    (
        "AMD: without DRM nodes",
        |layout| {
            add_amd(layout);
            remove_dir(layout, &format!("sys/devices/pci/{FIRST}/drm"));
        },
        &["flux:0"],
        None,
    ),
    (
        "AMD: without a render node in /dev",
        |layout| {
            add_amd(layout);
            layout.remove("dev/dri/renderD128");
        },
        &["flux:0"],
        None,
    ),
    ("AMD: a third", add_amd, &["flux:2"], None),
    (
        "another vendor: the first",
        add_others,
        &["flux:0"],
        Some(&["c:226:0:rw", "c:226:128:rw"]),
    ),
    (
        "another vendor: both",
        add_others,
        &["flux:0", "flux:1"],
        Some(&["c:226:0:rw", "c:226:128:rw", "c:226:129:rw", "c:226:1:rw"]),
    ),
    ("a node without GPUs: none", |_| (), &[], Some(&[])),
    ("a node without GPUs: the first", |_| (), &["flux:0"], None),
    (
        // Flux counts what its libraries see; which of the vendors' that are, nobody can know.
        "two vendors: the first",
        |layout| {
            layout.nvidia(FIRST, 0);
            layout.amd(SECOND, 136, 1);
        },
        &["flux:0"],
        None,
    ),
];

#[test]
fn numbers_have_the_devices_that_flux_maps_them_to() {
    let mut differences = Vec::new();
    for (name, lay_out, numbers, expected) in ROWS {
        let layout = Layout::new();
        layout.flux();
        lay_out(&layout);
        let resolver = NameResolver::new(layout.tree(), DeviceSettings::default());
        let request = DeviceRequest {
            policy: Policy::Strict,
            allow: &[],
        };
        let names: Vec<_> = numbers.iter().map(|number| gpu(*number)).collect();
        let found = build_allowlist(&request, &names, &[], &resolver);
        let rules = found.as_ref().ok().map(|allowlist| {
            let texts = allowlist.list.rules().iter().map(ToString::to_string);
            let mut sorted: Vec<String> = texts.collect();
            sorted.sort();
            sorted
        });
        let is_same = match (&rules, expected) {
            (Some(rules), Some(expected)) => rules == expected,
            (None, None) => true,
            _ => false,
        };
        if !is_same {
            let why = found.err().map(|error| error.to_string());
            differences.push(format!("{name}: {rules:?} {why:?}"));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}
