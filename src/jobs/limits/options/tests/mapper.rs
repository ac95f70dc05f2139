//! What the tests of flux-core's mapper (`t0043-sdexec-map`) and of its percentages (`libsdexec/test/parse`) ask of
//! cores, memory nodes and memory.
//!
//! Flux numbers cores, and its mapper turns them into the kernel's processors; here both sides have the kernel's numbers.
//! Flux gives a job the part of a configured `MemoryMax` that its cores are of the node's; here the scheduler's own
//! number counts as it is.

use super::{MalformedSize, Size, resolve};
use crate::testing::Scratch;

/// What a size is, the size, and its meaning; `None` if it must be refused.
const SIZES: [(&str, &str, Option<Size>); 26] = [
    ("bytes", "1024", Some(Size::Bytes(1024))),
    (
        "few bytes, which are no percentage",
        "10",
        Some(Size::Bytes(10)),
    ),
    ("kibibytes", "4K", Some(Size::Bytes(4 << 10))),
    ("mebibytes", "512M", Some(Size::Bytes(512 << 20))),
    ("gibibytes", "8G", Some(Size::Bytes(8 << 30))),
    ("tebibytes", "2T", Some(Size::Bytes(2 << 40))),
    ("a percentage", "50%", Some(Size::Percent(50))),
    ("a small percentage", "10%", Some(Size::Percent(10))),
    ("all", "100%", Some(Size::Percent(100))),
    ("no limit", "infinity", Some(Size::Infinity)),
    // Flux takes these; there is one spelling here, that of systemd's pages, and percentages are whole.
    ("gibibytes in a small letter", "4g", None),
    ("no limit in capitals", "INFINITY", None),
    ("a part of a percentage", "33.3%", None),
    ("a part of a gibibyte", "1.5G", None),
    // With nothing no job can run.
    ("no percentage", "0%", None),
    ("a word", "not-a-size", None),
    ("a word of percents", "x%", None),
    ("percents with a letter behind", "10%x", None),
    ("percents below none", "-10%", None),
    ("percents above all", "110%", None),
    ("percents alone", "%", None),
    ("nothing", "", None),
    ("a unit alone", "K", None),
    ("a unit that is none", "4Q", None),
    ("two units", "4KM", None),
    ("a blank before the unit", "4 K", None),
];

#[test]
fn sizes_mean_what_they_mean_to_the_mapper() {
    let mut differences = Vec::new();
    for (name, text, size) in SIZES {
        let found = text.parse::<Size>();
        if found != size.ok_or(MalformedSize) {
            differences.push(format!("{name}: {text:?}: {found:?}"));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// What a row asks, options, and the files of the cgroup with what they hold.
type Row = (
    &'static str,
    &'static [(&'static str, &'static str)],
    &'static [(&'static str, &'static str)],
);

const ROWS: [Row; 13] = [
    ("nothing", &[], &[]),
    (
        "the first core",
        &[("cores", "0-1")],
        &[("cpuset.cpus", "0-1"), ("cpuset.mems", "0")],
    ),
    (
        "the second core",
        &[("cores", "2-3")],
        &[("cpuset.cpus", "2-3"), ("cpuset.mems", "0")],
    ),
    (
        "both cores",
        &[("cores", "0-3")],
        &[("cpuset.cpus", "0-3"), ("cpuset.mems", "0")],
    ),
    (
        "a part of a core",
        &[("cores", "1")],
        &[("cpuset.cpus", "1"), ("cpuset.mems", "0")],
    ),
    (
        "other memory nodes than those of the cores",
        &[("cores", "0-1"), ("memory_nodes", "1")],
        &[("cpuset.cpus", "0-1"), ("cpuset.mems", "1")],
    ),
    (
        "half of the cores leave the memory as it is",
        &[("cores", "0-1"), ("memory", "8G")],
        &[
            ("cpuset.cpus", "0-1"),
            ("cpuset.mems", "0"),
            ("memory.max", "8589934592"),
        ],
    ),
    (
        "half of the cores leave a percentage as it is",
        &[("cores", "0-1"), ("memory", "95%")],
        &[
            ("cpuset.cpus", "0-1"),
            ("cpuset.mems", "0"),
            ("memory.max", "972800000"),
        ],
    ),
    (
        "all cores leave the memory as it is",
        &[("cores", "0-3"), ("memory", "8G")],
        &[
            ("cpuset.cpus", "0-3"),
            ("cpuset.mems", "0"),
            ("memory.max", "8589934592"),
        ],
    ),
    (
        "memory without cores",
        &[("memory", "8G")],
        &[("memory.max", "8589934592")],
    ),
    (
        "bytes",
        &[("memory", "134217728")],
        &[("memory.max", "134217728")],
    ),
    (
        "no limit",
        &[("memory", "infinity")],
        &[("memory.max", "max")],
    ),
    (
        "three kinds of memory at once",
        &[("memory", "8G"), ("memory_high", "6G"), ("swap", "4G")],
        &[
            ("memory.max", "8589934592"),
            ("memory.high", "6442450944"),
            ("memory.swap.max", "4294967296"),
        ],
    ),
];

#[test]
fn cores_and_memory_become_the_limits_that_the_mapper_makes() {
    let node = Scratch::new();
    node.file("sys/devices/system/cpu/present", "0-3\n");
    node.file("sys/devices/system/cpu/online", "0-3\n");
    let nodes = "sys/devices/system/node";
    node.file(&format!("{nodes}/online"), "0-1\n");
    node.file(&format!("{nodes}/has_memory"), "0-1\n");
    node.file(&format!("{nodes}/node0/cpulist"), "0-3\n");
    node.file(&format!("{nodes}/node1/cpulist"), "\n");
    node.file("proc/meminfo", "MemTotal:        1000000 kB\n");
    let mut differences = Vec::new();
    for (name, options, files) in ROWS {
        let mut found = resolve(&node, options).unwrap();
        found.sort();
        let text = |(file, value): &(&str, &str)| ((*file).to_owned(), (*value).to_owned());
        let mut expected: Vec<_> = files.iter().map(text).collect();
        expected.sort();
        if found != expected {
            differences.push(format!("{name}: {found:?}"));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}
