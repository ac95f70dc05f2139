//! Device policies of systemd (its `test-bpf-devices`): what a process of the unit may open under each. Ours are the
//! `DevicePolicy` and `DeviceAllow` of a record.

use super::{Question, assert_no_differences, find_differences, install_access, start_job};
use crate::support::on_node;

struct Table {
    name: &'static str,
    policy: &'static str,
    allow: &'static [&'static str],
    questions: &'static [Question],
}

const TABLES: [Table; 10] = [
    Table {
        name: "closed without a list",
        policy: "closed",
        allow: &[],
        questions: &[
            ("null is read", "r:/dev/null", true),
            ("null is written", "w:/dev/null", true),
            ("zero is read", "r:/dev/zero", true),
            ("zero is written", "w:/dev/zero", true),
            ("full is read", "r:/dev/full", true),
            ("full is written", "w:/dev/full", true),
            ("random is read", "r:/dev/random", true),
            ("random is written", "w:/dev/random", true),
            ("urandom is read", "r:/dev/urandom", true),
            ("urandom is written", "w:/dev/urandom", true),
            ("the own terminal is read", "r:/dev/tty", true),
            ("the own terminal is written", "w:/dev/tty", true),
            ("a new terminal is read", "r:/dev/ptmx", true),
            ("a new terminal is written", "w:/dev/ptmx", true),
            ("a pseudo-device is made", "mc:1:3", true),
            ("a terminal's node is not made", "mc:136:9", false),
            ("another device is not read", "r:/dev/fuse", false),
            ("another device is not made", "mc:10:229", false),
            ("a block device is not read", "r:/dev/loop0", false),
            // systemd adds the nodes that it shows in place of hidden ones. Only its own units have such nodes, and
            // they open for nobody.
            (
                "the stand-in of a hidden block device is not made",
                "mb:0:0",
                false,
            ),
        ],
    },
    Table {
        name: "strict with a list",
        policy: "strict",
        allow: &["/dev/null rw", "/dev/random r", "/dev/zero w"],
        questions: &[
            ("both accesses: read", "r:/dev/null", true),
            ("both accesses: write", "w:/dev/null", true),
            ("both accesses: at once", "rw:/dev/null", true),
            ("both accesses make no node", "mc:1:3", false),
            ("reading alone: read", "r:/dev/random", true),
            ("reading alone: write", "w:/dev/random", false),
            ("reading alone: at once", "rw:/dev/random", false),
            ("writing alone: read", "r:/dev/zero", false),
            ("writing alone: write", "w:/dev/zero", true),
            ("writing alone: at once", "rw:/dev/zero", false),
            ("not listed: read", "r:/dev/full", false),
            ("not listed: write", "w:/dev/full", false),
            ("not listed: another major", "r:/dev/tty", false),
        ],
    },
    Table {
        name: "strict with a driver by name",
        policy: "strict",
        allow: &["char-mem rw"],
        questions: &MEMORY_DEVICES,
    },
    Table {
        name: "strict with a driver by major",
        policy: "strict",
        allow: &["char-1 rw"],
        questions: &MEMORY_DEVICES,
    },
    Table {
        name: "strict with all character devices",
        policy: "strict",
        allow: &["char-* rw"],
        questions: &[
            ("a character device", "rw:/dev/null", true),
            ("one of another driver", "rw:/dev/tty", true),
            ("a block device", "r:/dev/loop0", false),
            ("making nodes is another access", "mc:1:3", false),
            // systemd matches the type, whatever the major; we list the drivers that the node has at the login, so that
            // what is loaded later stays closed.
            ("a major without a driver", "r:/dev/nobody", false),
        ],
    },
    Table {
        name: "strict with all block devices",
        policy: "strict",
        allow: &["block-* rw"],
        questions: &[
            ("a character device", "rw:/dev/null", false),
            ("one of another driver", "r:/dev/tty", false),
            ("a block device", "r:/dev/loop0", true),
        ],
    },
    Table {
        name: "strict with an empty list",
        policy: "strict",
        allow: &[],
        questions: &[
            ("null at once", "rw:/dev/null", false),
            ("null is read", "r:/dev/null", false),
            ("a node is made", "mc:1:3", false),
        ],
    },
    Table {
        name: "strict with a driver that the node lacks",
        policy: "strict",
        allow: &["char-no-such-driver rw"],
        questions: &[
            ("null at once", "rw:/dev/null", false),
            ("null is read", "r:/dev/null", false),
            ("a node is made", "mc:1:3", false),
        ],
    },
    Table {
        name: "auto with a list",
        policy: "auto",
        allow: &["/dev/fuse r"],
        questions: &[
            ("the listed device", "r:/dev/fuse", true),
            ("another access to it", "w:/dev/fuse", false),
            ("a pseudo-device", "rw:/dev/null", true),
            ("a device that is not listed", "r:/dev/loop0", false),
        ],
    },
    // systemd confines nothing here. A record that has a key about devices closes.
    Table {
        name: "auto with an empty list",
        policy: "auto",
        allow: &[],
        questions: &[
            ("a pseudo-device", "rw:/dev/null", true),
            ("a character device", "r:/dev/fuse", false),
            ("a block device", "r:/dev/loop0", false),
        ],
    },
];

const MEMORY_DEVICES: [Question; 8] = [
    ("null is read", "r:/dev/null", true),
    ("null is written", "w:/dev/null", true),
    ("another minor is read", "r:/dev/full", true),
    ("another minor is written", "w:/dev/full", true),
    ("another major is not read", "r:/dev/tty", false),
    ("another major is not written", "w:/dev/tty", false),
    ("no node is made", "mc:1:7", false),
    ("a block device of the number is not made", "mb:1:3", false),
];

#[test]
fn policies_open_what_they_open_in_units_of_systemd() {
    on_node(|node| {
        install_access(node);
        node.sh("mknod -m 666 /dev/nobody c 4095 0").ok();
        let mut differences = Vec::new();
        for table in TABLES {
            let job = start_job(node, table.policy, table.allow);
            let found = find_differences(node, &job.cgroup, table.name, table.questions);
            differences.extend(found);
        }
        assert_no_differences(&differences);
    });
}
