//! The cost of a lookup by a CDI name, by the contents of the specification directories.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use super::lookup::Scratch;
use super::{Goal, print_heading, print_row};

/// The only requested device of all specifications, and the nodes that every device of its file
/// gets. Every machine has these nodes.
const ASKED: &str = "/dev/full";
const SHARED: [&str; 2] = ["/dev/null", "/dev/zero"];
/// Number of GPUs, and of MIG instances of each.
const GPUS: u32 = 8;
const INSTANCES: u32 = 7;
/// Number of driver libraries, which a specification mounts one by one.
const LIBRARIES: u32 = 48;
/// Maximum bytes of a YAML file.
const YAML_MAX: usize = 1 << 20;

pub(super) fn measure() {
    let scratch = Scratch::new();
    let dir = scratch.dir.join("cdi");
    print_heading("look-up, by how the device is named", "a path");
    scratch.own(r#""options": {"DeviceAllow": [["/dev/full", "rw"]]}"#);
    let path = scratch.cost();
    print_row("a path", path, "us", 1.0, Goal::None);

    scratch.own(r#""cdi": ["site.org/gpu=0:0"]"#);
    let against = |what: &str, goal: Goal| {
        let cost = scratch.cost();
        print_row(what, cost, "us", cost / path, goal);
        fs::remove_dir_all(&dir).unwrap();
        fs::create_dir(&dir).unwrap();
    };

    write_file(&dir.join("one.yaml"), &specification("gpu", 1, 1));
    against("CDI, a file of one device", Goal::None);

    let whole = specification("gpu", GPUS, INSTANCES);
    write_file(&dir.join("gpus.yaml"), &whole);
    let bytes = whole.len() / 1024;
    against(
        &format!("CDI, {GPUS} GPUs in {INSTANCES} parts each, {bytes} KiB"),
        Goal::Below(10.0, "the whole file is parsed"),
    );

    for number in 0..64 {
        let class = if number == 0 {
            "gpu".to_owned()
        } else {
            format!("gpu{number}")
        };
        write_file(
            &dir.join(format!("{number}.yaml")),
            &specification(&class, 1, 1),
        );
    }
    against("CDI, 64 files", Goal::Below(8.0, "each file is parsed"));

    let mut gpus = GPUS;
    while specification("gpu", gpus * 2, INSTANCES).len() < YAML_MAX {
        gpus *= 2;
    }
    let mut large = specification("gpu", gpus, INSTANCES);
    // The rest is a comment, which the parser must read too.
    large.extend(std::iter::once('#').chain(std::iter::repeat_n('x', YAML_MAX - 1 - large.len())));
    write_file(&dir.join("large.yaml"), &large);
    against("CDI, a file of 1 MiB", Goal::None);
}

fn write_file(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
}

/// Returns a specification with the devices, mounts and hooks that a vendor's tool writes: each
/// device by index and by UUID, and all of them as `all`.
fn specification(class: &str, gpus: u32, instances: u32) -> String {
    let mut text = String::from("---\ncdiVersion: 0.5.0\ncontainerEdits:\n  deviceNodes:\n");
    SHARED
        .iter()
        .for_each(|path| write_node(&mut text, 2, path));
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
                write_node(&mut nodes, 4, &path);
            }
            let uuid = format!("MIG-00000000-0000-0000-{gpu:04}-{part:012}");
            for name in [format!("{gpu}:{part}"), uuid] {
                writeln!(
                    text,
                    "- containerEdits:\n    deviceNodes:\n{nodes}  name: \"{name}\""
                )
                .unwrap();
            }
        }
    }
    text.push_str("- containerEdits:\n    deviceNodes:\n");
    for (gpu, part) in (0..gpus).flat_map(|gpu| (0..instances).map(move |part| (gpu, part))) {
        nodes_of(gpu, part)
            .iter()
            .for_each(|path| write_node(&mut text, 4, path));
    }
    writeln!(text, "  name: all\nkind: site.org/{class}").unwrap();
    text
}

/// Returns the GPU's node and two capabilities; for the requested device, nodes that exist.
fn nodes_of(gpu: u32, part: u32) -> [String; 3] {
    match (gpu, part) {
        (0, 0) => std::array::from_fn(|_| ASKED.to_owned()),
        _ => {
            let cap = gpu * 200 + part * 9;
            let cap_node = |number: u32| format!("/dev/driver-caps/driver-cap{number}");
            [
                cap_node(cap),
                cap_node(cap + 1),
                format!("/dev/driver{gpu}"),
            ]
        }
    }
}

fn write_node(text: &mut String, indent: usize, path: &str) {
    for (at, line) in ["fileMode: 438", &format!("path: {path}"), "permissions: rw"]
        .iter()
        .enumerate()
    {
        let first = if at == 0 { "- " } else { "  " };
        writeln!(text, "{:indent$}{first}{line}", "").unwrap();
    }
}
