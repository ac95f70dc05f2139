//! The kernel's own tests of device programs (`cgroup_dev` and its predecessor `test_dev_cgroup`): a program that
//! allows two devices of one major, and asks at each open and each node that is made. Ours is made of a list.

use super::{Question, assert_no_differences, find_differences, install_access, start_job};
use crate::support::{Flags, on_node};

/// The newer test: one device may be written and made, another one read.
const BY_ACCESS: [Question; 12] = [
    ("allowed node is made", "mc:1:3", true),
    ("allowed device is read", "r:/dev/urandom", true),
    ("allowed device is written", "w:/dev/null", true),
    ("denied node is not made", "mc:1:5", false),
    ("denied device is not read", "r:/dev/random", false),
    ("denied device is not written", "w:/dev/zero", false),
    ("the written device is not read", "r:/dev/null", false),
    (
        "the written device is not opened for both",
        "rw:/dev/null",
        false,
    ),
    ("the read device is not written", "w:/dev/urandom", false),
    (
        "the read device is not opened for both",
        "rw:/dev/urandom",
        false,
    ),
    ("the read device's node is not made", "mc:1:9", false),
    (
        "a block device of the same numbers is not made",
        "mb:1:3",
        false,
    ),
];

/// Its predecessor: all accesses to two devices, and nothing else.
const BY_DEVICE: [Question; 11] = [
    ("denied node is not made", "mc:1:3", false),
    ("allowed node is made", "mc:1:5", true),
    ("copy of allowed: source", "r:/dev/urandom", true),
    ("copy of allowed: target", "w:/dev/zero", true),
    ("copy to denied: source", "r:/dev/urandom", true),
    ("copy to denied: target", "w:/dev/full", false),
    ("copy from denied: source", "r:/dev/random", false),
    ("copy from denied: target", "w:/dev/zero", true),
    ("allowed device for both", "rw:/dev/zero", true),
    ("denied device for both", "rw:/dev/full", false),
    (
        "a block device of the same numbers is not made",
        "mb:1:5",
        false,
    ),
];

#[test]
fn filter_is_asked_at_each_open_and_each_new_node() {
    on_node(|node| {
        install_access(node);
        let mut differences = Vec::new();
        for (name, allow, questions) in [
            (
                "by access",
                ["/dev/null wm", "/dev/urandom r"],
                BY_ACCESS.as_slice(),
            ),
            (
                "by device",
                ["/dev/zero rwm", "/dev/urandom rwm"],
                &BY_DEVICE,
            ),
        ] {
            let job = start_job(node, "strict", &allow);
            differences.extend(find_differences(node, &job.cgroup, name, questions));
            // One program is attached. The original's has no flags; ours lets others join it.
            let filters = job.cgroup.filters();
            if filters.len() != 1 || filters[0].flags != Flags::Multi {
                differences.push(format!("{name}: attached are {filters:?}"));
            }
        }
        assert_no_differences(&differences);
    });
}
