//! What a look-up costs by a CDI name, by what the directories of specifications hold.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use super::lookup::Scratch;
use super::{Goal, heading, row};

/// Of the devices of all specifications the one that is asked for, and what every one of its file
/// gets: nodes that any machine has.
const ASKED: &str = "/dev/full";
const SHARED: [&str; 2] = ["/dev/null", "/dev/zero"];
/// GPUs, and MIG instances of each.
const GPUS: u32 = 8;
const INSTANCES: u32 = 7;
/// Drivers' libraries, which a specification mounts one by one.
const LIBRARIES: u32 = 48;
/// Most bytes of a file in YAML.
const YAML_MAX: usize = 1 << 20;

pub(super) fn measure() {
    let scratch = Scratch::new();
    let dir = scratch.dir.join("cdi");
    heading("look-up, by how the device is named", "a path");
    scratch.own(r#""options": {"DeviceAllow": [["/dev/full", "rw"]]}"#);
    let path = scratch.cost();
    row("a path", path, "us", 1.0, Goal::None);

    scratch.own(r#""cdi": ["site.org/gpu=0:0"]"#);
    let against = |what: &str, goal: Goal| {
        let cost = scratch.cost();
        row(what, cost, "us", cost / path, goal);
        fs::remove_dir_all(&dir).unwrap();
        fs::create_dir(&dir).unwrap();
    };

    put(&dir.join("one.yaml"), &specification("gpu", 1, 1));
    against("CDI, a file of one device", Goal::None);

    let whole = specification("gpu", GPUS, INSTANCES);
    put(&dir.join("gpus.yaml"), &whole);
    let bytes = whole.len() / 1024;
    against(&format!("CDI, {GPUS} GPUs in {INSTANCES} parts each, {bytes} KiB"), Goal::Below(10.0));

    for number in 0..64 {
        let class = if number == 0 { "gpu".to_owned() } else { format!("gpu{number}") };
        put(&dir.join(format!("{number}.yaml")), &specification(&class, 1, 1));
    }
    against("CDI, 64 files", Goal::Below(8.0));

    let mut gpus = GPUS;
    while specification("gpu", gpus * 2, INSTANCES).len() < YAML_MAX {
        gpus *= 2;
    }
    let mut large = specification("gpu", gpus, INSTANCES);
    // The rest in a comment, which has to be read as well.
    large.extend(std::iter::once('#').chain(std::iter::repeat_n('x', YAML_MAX - 1 - large.len())));
    put(&dir.join("large.yaml"), &large);
    against("CDI, a file of 1 MiB", Goal::None);
}

fn put(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
}

/// A specification with the devices, the mounts and the hooks that a vendor's tool writes, each
/// device by index and by UUID, and all of them as `all`.
fn specification(class: &str, gpus: u32, instances: u32) -> String {
    let mut text = String::from("---\ncdiVersion: 0.5.0\ncontainerEdits:\n  deviceNodes:\n");
    SHARED.iter().for_each(|path| node(&mut text, 2, path));
    text.push_str("  hooks:\n");
    for name in ["create-symlinks", "enable-cuda-compat", "update-ldcache"] {
        write!(
            text,
            "  - args:\n    - cdi-hook\n    - {name}\n    - --folder\n    - /usr/lib64\n    \
             hookName: createContainer\n    path: /usr/bin/cdi-hook\n"
        )
        .unwrap();
    }
    text.push_str("  mounts:\n");
    for number in 0..LIBRARIES {
        write!(
            text,
            "  - containerPath: /usr/lib64/libdriver-{number}.so.570.86.15\n    \
             hostPath: /usr/lib64/libdriver-{number}.so.570.86.15\n    options:\n    \
             - ro\n    - nosuid\n    - nodev\n    - rbind\n    - rprivate\n"
        )
        .unwrap();
    }
    text.push_str("devices:\n");
    for gpu in 0..gpus {
        for part in 0..instances {
            let mut nodes = String::new();
            for path in nodes_of(gpu, part) {
                node(&mut nodes, 4, &path);
            }
            let uuid = format!("MIG-00000000-0000-0000-{gpu:04}-{part:012}");
            for name in [format!("{gpu}:{part}"), uuid] {
                writeln!(text, "- containerEdits:\n    deviceNodes:\n{nodes}  name: \"{name}\"")
                    .unwrap();
            }
        }
    }
    text.push_str("- containerEdits:\n    deviceNodes:\n");
    for (gpu, part) in (0..gpus).flat_map(|gpu| (0..instances).map(move |part| (gpu, part))) {
        nodes_of(gpu, part).iter().for_each(|path| node(&mut text, 4, path));
    }
    writeln!(text, "  name: all\nkind: site.org/{class}").unwrap();
    text
}

/// The GPU's node and two capabilities; of the device that is asked for, what is there.
fn nodes_of(gpu: u32, part: u32) -> [String; 3] {
    match (gpu, part) {
        (0, 0) => std::array::from_fn(|_| ASKED.to_owned()),
        _ => {
            let cap = gpu * 200 + part * 9;
            let cap_node = |cap: u32| format!("/dev/driver-caps/driver-cap{cap}");
            [cap_node(cap), cap_node(cap + 1), format!("/dev/driver{gpu}")]
        }
    }
}

fn node(text: &mut String, indent: usize, path: &str) {
    for (at, line) in
        ["fileMode: 438", &format!("path: {path}"), "permissions: rw"].iter().enumerate()
    {
        let first = if at == 0 { "- " } else { "  " };
        writeln!(text, "{:indent$}{first}{line}", "").unwrap();
    }
}
