//! Device rules of opencontainers/cgroups, which runc and other container runtimes use: what a list of rules allows,
//! and what is left of one list when another takes its place.
//!
//! Its rules allow and deny, in an order. Ours only allow: what is on no entry is denied, and the order of entries means
//! nothing. So these questions of its tests have no counterpart: all devices but one, a rule that takes an earlier
//! one back, a hole in a wildcard, and one minor of all majors.

use super::{Question, assert_no_differences, find_differences, install_access, start_job};
use crate::support::{ALICE, Flags, on_node};
use serde_json::json;

/// What runc allows in every container, in our spelling.
const RUNC_DEFAULTS: [&str; 11] = [
    "char-* m",
    "block-* m",
    "/dev/char/1:3 rwm",
    "/dev/char/1:8 rwm",
    "/dev/char/1:7 rwm",
    "/dev/char/5:0 rwm",
    "/dev/char/1:5 rwm",
    "/dev/char/1:9 rwm",
    "char-136 rwm",
    "/dev/char/5:2 rwm",
    "/dev/char/10:200 rwm",
];

struct Rules {
    name: &'static str,
    allow: &'static [&'static str],
    questions: &'static [Question],
}

const LISTS: [Rules; 12] = [
    Rules {
        name: "no rule",
        allow: &[],
        questions: &[
            ("no device is opened", "r:/dev/null", false),
            ("no node is made", "mc:1:3", false),
            ("no block device is opened", "r:/dev/loop0", false),
        ],
    },
    Rules {
        name: "runc's defaults",
        allow: &RUNC_DEFAULTS,
        questions: &[
            ("any character device is made", "mc:10:229", true),
            ("any block device is made", "mb:7:1", true),
            ("making one opens none", "r:/dev/fuse", false),
            ("making one opens no block device", "r:/dev/loop0", false),
            ("null", "rw:/dev/null", true),
            ("random", "rw:/dev/random", true),
            ("full", "rw:/dev/full", true),
            ("the own terminal", "rw:/dev/tty", true),
            ("zero", "rw:/dev/zero", true),
            ("urandom", "rw:/dev/urandom", true),
            ("a terminal's node", "mc:136:9", true),
            ("a new terminal", "rw:/dev/ptmx", true),
            ("a tunnel", "rw:/dev/tunnel", true),
            ("a neighbour of the tunnel", "r:/dev/fuse", false),
            // runc's wildcard is any major; ours is every driver that the node has at the login.
            ("a major without a driver is not made", "mc:4095:0", false),
        ],
    },
    Rules {
        name: "one device",
        allow: &["/dev/char/1:3 rm"],
        questions: &[
            ("its access", "r:/dev/null", true),
            ("its other access", "mc:1:3", true),
            ("an access that it lacks", "w:/dev/null", false),
            ("both together", "rw:/dev/null", false),
            ("its neighbour", "r:/dev/zero", false),
            ("a block device of its numbers", "mb:1:3", false),
        ],
    },
    Rules {
        name: "a block device",
        allow: &["/dev/block/7:0 rw"],
        questions: &[
            ("it", "r:/dev/loop0", true),
            ("its node", "mb:7:0", false),
            ("its neighbour's node", "mb:7:1", false),
            ("a character device of its numbers", "mc:7:0", false),
        ],
    },
    Rules {
        name: "a wildcard of minors",
        allow: &["block-7 m"],
        questions: &[
            ("the first minor", "mb:7:0", true),
            ("the last minor", "mb:7:1048575", true),
            ("the next major", "mb:8:0", false),
            ("a character device", "mc:7:0", false),
            ("another access", "r:/dev/loop0", false),
        ],
    },
    Rules {
        name: "a second rule for another device",
        allow: &["/dev/char/1:3 rwm", "/dev/block/7:0 r"],
        questions: &[
            ("the first", "rw:/dev/null", true),
            ("the second", "r:/dev/loop0", true),
            ("the second's other access", "w:/dev/loop0", false),
        ],
    },
    Rules {
        name: "a rule inside a wildcard",
        allow: &["char-1 rwm", "/dev/char/1:3 rm"],
        questions: &[
            ("keeps what the wildcard has", "w:/dev/null", true),
            ("keeps both together", "rw:/dev/null", true),
            ("leaves the rest", "rw:/dev/zero", true),
        ],
    },
    Rules {
        name: "a wildcard after a rule inside it",
        allow: &["/dev/char/1:3 w", "char-1 r"],
        questions: &[
            ("both accesses of the device", "rw:/dev/null", true),
            ("the wildcard's access of another", "r:/dev/zero", true),
            ("the rule's access of another", "w:/dev/zero", false),
        ],
    },
    Rules {
        name: "the same rule twice",
        allow: &["/dev/char/1:3 rm", "/dev/char/1:3 rm"],
        questions: &[
            ("its access", "r:/dev/null", true),
            ("what it lacks", "w:/dev/null", false),
        ],
    },
    Rules {
        name: "two rules for one device",
        allow: &["/dev/char/1:3 rm", "/dev/char/1:3 rw"],
        questions: &[
            ("an access of both", "r:/dev/null", true),
            ("accesses of either together", "rw:/dev/null", true),
            ("the access of the first alone", "mc:1:3", true),
        ],
    },
    Rules {
        name: "two rules for one wildcard",
        allow: &["char-1 r", "char-1 w"],
        questions: &[
            ("accesses of either together", "rw:/dev/full", true),
            ("an access of neither", "mc:1:7", false),
        ],
    },
    Rules {
        name: "a narrower rule for the same device",
        allow: &["/dev/char/1:3 rw", "/dev/char/1:3 r"],
        questions: &[
            ("takes nothing back", "w:/dev/null", true),
            ("adds nothing", "mc:1:3", false),
        ],
    },
];

/// A list that takes the place of another.
struct Transition {
    name: &'static str,
    before: &'static [&'static str],
    after: &'static [&'static str],
    questions: &'static [Question],
}

const TRANSITIONS: [Transition; 10] = [
    Transition {
        name: "the same list",
        before: &["/dev/char/1:3 rwm"],
        after: &["/dev/char/1:3 rwm"],
        questions: &[
            ("keeps its device", "rw:/dev/null", true),
            ("adds none", "r:/dev/zero", false),
        ],
    },
    Transition {
        name: "from all to some",
        before: &["char-* rwm"],
        after: &["/dev/char/1:3 r"],
        questions: &[
            ("keeps what is listed", "r:/dev/null", true),
            ("takes other accesses", "w:/dev/null", false),
            ("takes other devices", "r:/dev/zero", false),
        ],
    },
    Transition {
        name: "from some to all",
        before: &["/dev/char/1:3 r"],
        after: &["char-* rwm"],
        questions: &[
            ("adds accesses", "rw:/dev/null", true),
            ("adds devices", "rw:/dev/zero", true),
        ],
    },
    Transition {
        name: "one more device",
        before: &["/dev/char/1:3 rwm"],
        after: &["/dev/char/1:3 rwm", "/dev/block/7:0 rwm"],
        questions: &[
            ("keeps the first", "rw:/dev/null", true),
            ("adds the second", "r:/dev/loop0", true),
        ],
    },
    Transition {
        name: "one device less",
        before: &["/dev/char/1:3 rwm", "/dev/block/7:0 rwm"],
        after: &["/dev/char/1:3 rwm"],
        questions: &[
            ("keeps the first", "rw:/dev/null", true),
            ("takes the second", "r:/dev/loop0", false),
            ("takes its node", "mb:7:0", false),
        ],
    },
    Transition {
        name: "one more and one less",
        before: &["/dev/char/1:3 rwm", "/dev/char/1:7 rw"],
        after: &["/dev/char/1:3 rwm", "/dev/char/1:5 rw"],
        questions: &[
            ("keeps the common one", "rw:/dev/null", true),
            ("takes the old one", "r:/dev/full", false),
            ("adds the new one", "rw:/dev/zero", true),
        ],
    },
    Transition {
        name: "more accesses",
        before: &["/dev/char/1:3 r"],
        after: &["/dev/char/1:3 rwm"],
        questions: &[
            ("adds writing", "rw:/dev/null", true),
            ("adds making", "mc:1:3", true),
        ],
    },
    Transition {
        name: "fewer accesses",
        before: &["/dev/char/1:3 rw"],
        after: &["/dev/char/1:3 w"],
        questions: &[
            ("keeps writing", "w:/dev/null", true),
            ("takes reading", "r:/dev/null", false),
            ("takes both together", "rw:/dev/null", false),
        ],
    },
    Transition {
        name: "other accesses",
        before: &["/dev/char/1:3 rw"],
        after: &["/dev/char/1:3 rm"],
        questions: &[
            ("keeps the common one", "r:/dev/null", true),
            ("takes the old one", "w:/dev/null", false),
            ("adds the new one", "mc:1:3", true),
        ],
    },
    Transition {
        name: "a hole in a wildcard",
        before: &["char-1 rw"],
        after: &["/dev/char/1:3 rw", "/dev/char/1:7 rw"],
        questions: &[
            ("takes the unlisted minor", "r:/dev/zero", false),
            ("keeps a listed one", "rw:/dev/null", true),
        ],
    },
];

#[test]
fn list_allows_what_the_same_rules_allow_a_container() {
    on_node(|node| {
        install_access(node);
        node.sh("mknod -m 666 /dev/tunnel c 10 200").ok();
        let mut differences = Vec::new();
        for rules in LISTS {
            let job = start_job(node, "strict", rules.allow);
            let found = find_differences(node, &job.cgroup, rules.name, rules.questions);
            differences.extend(found);
        }
        assert_no_differences(&differences);
    });
}

/// A privileged container has no filter. A record without a key about devices is one.
#[test]
fn job_without_containment_opens_what_a_privileged_container_opens() {
    on_node(|node| {
        install_access(node);
        let auto = json!({ "DevicePolicy": "auto" });
        let job = node.job(ALICE, "4242").with("options", auto).start();
        node.pam(ALICE).ok();
        let questions = [
            ("a pseudo-device", "rw:/dev/null", true),
            ("a character device", "r:/dev/fuse", true),
            ("a block device", "r:/dev/loop0", true),
            ("a node", "mb:8:0", true),
        ];
        let differences = find_differences(node, &job.cgroup, "privileged", &questions);
        assert_no_differences(&differences);
    });
}

#[test]
fn changed_list_allows_nothing_of_the_list_before() {
    on_node(|node| {
        install_access(node);
        let mut differences = Vec::new();
        for transition in TRANSITIONS {
            let job = start_job(node, "strict", transition.before);
            let record = node.read(&job.record_path());
            let mut changed: serde_json::Value = serde_json::from_str(&record).unwrap();
            let entries = transition.after.iter().map(|entry| {
                let (spec, access) = entry.split_once(' ').unwrap();
                json!([spec, access])
            });
            changed["options"]["DeviceAllow"] = entries.collect();
            job.record(&changed.to_string());
            node.pam(ALICE).ok();
            let name = transition.name;
            let found = find_differences(node, &job.cgroup, name, transition.questions);
            differences.extend(found);
            let filters = job.cgroup.filters();
            if filters.len() != 1 || filters[0].flags != Flags::Multi {
                differences.push(format!("{name}: attached are {filters:?}"));
            }
        }
        assert_no_differences(&differences);
    });
}
