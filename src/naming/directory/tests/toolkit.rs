//! What the tests of NVIDIA's container toolkit (`cuda_image`, `container_config`) ask of device lists: mounts below its
//! folder there, files of a directory of root's here.
//!
//! Three of its questions have no counterpart: a list in a variable, whether a container may have one, and
//! annotations. No variable of a process says anything about devices here, whoever sets it.

use super::{read_list, symlink};
use crate::testing::Scratch;

/// What a row asks, the files below `run`, and how the devices are displayed; `None` if the list must be refused.
type Row = (
    &'static str,
    &'static [&'static str],
    Option<&'static [&'static str]>,
);

const ONE: &str = "GPU-edfee158-11c1-52b8-0517-92f30e7fac88";
const OTHER: &str = "GPU-f22fb098-d1b3-3806-2655-ba25f02229c1";

const ROWS: [Row; 46] = [
    ("no entry", &[], Some(&[])),
    (
        "an entry of another folder",
        &["other/GPU-edfee158-11c1-52b8-0517-92f30e7fac88"],
        Some(&[]),
    ),
    (
        "one GPU",
        &["list/GPU-edfee158-11c1-52b8-0517-92f30e7fac88"],
        Some(&[ONE]),
    ),
    (
        "two GPUs",
        &[
            "list/GPU-edfee158-11c1-52b8-0517-92f30e7fac88",
            "list/GPU-f22fb098-d1b3-3806-2655-ba25f02229c1",
        ],
        Some(&[ONE, OTHER]),
    ),
    (
        "one GPU, and one of another folder",
        &[
            "list/GPU-edfee158-11c1-52b8-0517-92f30e7fac88",
            "other/GPU-f22fb098-d1b3-3806-2655-ba25f02229c1",
        ],
        Some(&[ONE]),
    ),
    (
        "two instances with slashes in their names",
        &[
            "list/MIG-GPU-edfee158-11c1-52b8-0517-92f30e7fac88/0/1",
            "list/MIG-GPU-f22fb098-d1b3-3806-2655-ba25f02229c1/0/1",
        ],
        Some(&[
            "MIG-GPU-edfee158-11c1-52b8-0517-92f30e7fac88/0/1",
            "MIG-GPU-f22fb098-d1b3-3806-2655-ba25f02229c1/0/1",
        ]),
    ),
    (
        "an instance by its own UUID",
        &["list/MIG-edfee158-11c1-52b8-0517-92f30e7fac88"],
        Some(&["MIG-edfee158-11c1-52b8-0517-92f30e7fac88"]),
    ),
    (
        "a GPU and an instance",
        &[
            "list/GPU-edfee158-11c1-52b8-0517-92f30e7fac88",
            "list/MIG-GPU-f22fb098-d1b3-3806-2655-ba25f02229c1/0/1",
        ],
        Some(&[ONE, "MIG-GPU-f22fb098-d1b3-3806-2655-ba25f02229c1/0/1"]),
    ),
    (
        "a CDI device by folders",
        &["list/cdi/nvidia.com/gpu/one"],
        Some(&["nvidia.com/gpu=one"]),
    ),
    (
        "a CDI device by its name",
        &["list/cdi/nvidia.com/gpu=one"],
        Some(&["nvidia.com/gpu=one"]),
    ),
    (
        "all as a CDI device",
        &["list/cdi/nvidia.com/gpu=all"],
        Some(&["nvidia.com/gpu=all"]),
    ),
    (
        "a CDI device between two GPUs",
        &[
            "list/GPU-edfee158-11c1-52b8-0517-92f30e7fac88",
            "list/cdi/nvidia.com/gpu/one",
            "list/GPU-f22fb098-d1b3-3806-2655-ba25f02229c1",
        ],
        Some(&[ONE, OTHER, "nvidia.com/gpu=one"]),
    ),
    (
        "CDI devices of two classes",
        &["list/cdi/nvidia.com/gpu/one", "list/cdi/nvidia.com/mig/two"],
        Some(&["nvidia.com/gpu=one", "nvidia.com/mig=two"]),
    ),
    (
        "a CDI device of another vendor",
        &["list/cdi/vendor.example/net/eth0"],
        Some(&["vendor.example/net=eth0"]),
    ),
    // The toolkit hands any name on, and asks no more.
    (
        "a CDI name outside of its folder",
        &["list/nvidia.com/gpu=all"],
        None,
    ),
    // The toolkit warns, and takes the rest.
    (
        "a CDI device without a name",
        &["list/cdi/nvidia.com/gpu"],
        None,
    ),
    (
        "a CDI device with an empty name",
        &["list/cdi/nvidia.com/gpu="],
        None,
    ),
    (
        "a CDI device without a class",
        &["list/cdi/nvidia.com"],
        None,
    ),
    (
        "a CDI device of an invalid vendor",
        &["list/cdi/-nvidia/gpu/one"],
        None,
    ),
    (
        "a CDI device of an invalid class",
        &["list/cdi/nvidia.com/-gpu/one"],
        None,
    ),
    (
        "a CDI device of an invalid name",
        &["list/cdi/nvidia.com/gpu/-one"],
        None,
    ),
    // The toolkit makes a name of it that no specification can have.
    (
        "a CDI device with a slash in its name",
        &["list/cdi/nvidia.com/gpu/one/two"],
        None,
    ),
    (
        "a GPU beside a CDI device without a name",
        &[
            "list/GPU-edfee158-11c1-52b8-0517-92f30e7fac88",
            "list/cdi/nvidia.com/gpu",
        ],
        None,
    ),
    // The toolkit keeps channels apart from GPUs: they are devices of the job all the same.
    ("a channel", &["list/imex/0"], Some(&["imex/0"])),
    (
        "two channels",
        &["list/imex/3", "list/imex/4"],
        Some(&["imex/3", "imex/4"]),
    ),
    (
        "a channel between two GPUs",
        &[
            "list/GPU-edfee158-11c1-52b8-0517-92f30e7fac88",
            "list/imex/0",
            "list/GPU-f22fb098-d1b3-3806-2655-ba25f02229c1",
        ],
        Some(&[ONE, OTHER, "imex/0"]),
    ),
    // In its variable, all channels are none.
    ("all channels", &["list/imex/all"], None),
    ("a channel that is no number", &["list/imex/one"], None),
    ("all", &["list/all"], Some(&["all GPUs"])),
    (
        "all and one GPU",
        &["list/all", "list/GPU-edfee158-11c1-52b8-0517-92f30e7fac88"],
        Some(&[ONE, "all GPUs"]),
    ),
    (
        "all and a channel",
        &["list/all", "list/imex/0"],
        Some(&["all GPUs", "imex/0"]),
    ),
    // Both leave a container without GPUs: with the driver's files, and without. A login has those of the node.
    ("none", &["list/none"], Some(&[])),
    ("void", &["list/void"], Some(&[])),
    // In the variable the toolkit takes `void` before all others, and else the first of `all` and `none`.
    ("none and all", &["list/none", "list/all"], None),
    ("void and all", &["list/void", "list/all"], None),
    ("none and void", &["list/none", "list/void"], None),
    (
        "void and one GPU",
        &["list/void", "list/GPU-edfee158-11c1-52b8-0517-92f30e7fac88"],
        None,
    ),
    (
        "none and a CDI device",
        &["list/none", "list/cdi/nvidia.com/gpu/one"],
        None,
    ),
    // A number follows the order of a library, of which there are several.
    ("the number of a GPU", &["list/0"], None),
    ("two numbers", &["list/0", "list/1"], None),
    (
        "a number and a name",
        &["list/0", "list/GPU-edfee158-11c1-52b8-0517-92f30e7fac88"],
        None,
    ),
    ("numbers with a comma between", &["list/0,1"], None),
    ("an instance by numbers", &["list/0:1"], None),
    ("a word", &["list/GPU0"], None),
    ("a word with slashes", &["list/GPU0/0/1"], None),
    ("a part of a UUID", &["list/GPU-edfee158"], None),
];

#[test]
fn entries_name_what_they_name_to_the_container_toolkit() {
    let mut differences = Vec::new();
    for (name, files, expected) in ROWS {
        let scratch = Scratch::new();
        scratch.dir("run/list");
        for file in files {
            scratch.file(&format!("run/{file}"), "");
        }
        let found = read_list(&scratch);
        let is_same = match (&found, expected) {
            (Ok(found), Some(expected)) => found == expected,
            (Err(_), None) => true,
            _ => false,
        };
        if !is_same {
            differences.push(format!("{name}: {found:?}"));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// The toolkit passes mounts of any other file than `/dev/null` over. Whoever lays something else there means
/// something that is not known here.
#[test]
fn entry_that_is_neither_a_file_nor_a_mount_of_null_refuses_the_list() {
    for (name, lay_out) in [
        (
            "a link",
            (|path| symlink("/dev/null", path).unwrap()) as fn(&std::path::Path),
        ),
        ("a socket", |path| {
            drop(std::os::unix::net::UnixListener::bind(path).unwrap())
        }),
        ("a pipe", |path| {
            nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRUSR).unwrap()
        }),
        ("a folder", |path| std::fs::create_dir(path).unwrap()),
    ] {
        let scratch = Scratch::new();
        lay_out(&scratch.dir("run/list").join(ONE));
        assert!(read_list(&scratch).is_err(), "{name}");
    }
}
