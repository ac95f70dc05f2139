//! What the tests of opencontainers/cgroups ask of a list of device rules in text (`TestDeviceEmulatorLoad`), each rule in
//! our spelling. What the rules of a list allow together is asked of real filters.

use super::{DeviceRequest, Policy, Specifier, build_allowlist};
use crate::resolver::NameResolver;
use crate::testing::Scratch;
use helper::devices::DeviceSettings;
use helper::node::Tree;

/// What a row asks, entries of `DeviceAllow`, and the rules; what is dropped is not among them.
type Row = (
    &'static str,
    &'static [(&'static str, &'static str)],
    &'static [&'static str],
);

const ROWS: [Row; 26] = [
    (
        "one device, two accesses",
        &[("/dev/char/4:2", "rw")],
        &["c:4:2:rw"],
    ),
    ("all minors of a major", &[("block-7", "m")], &["b:7:-1:m"]),
    ("all minors of the first major", &[("block-0", "m")], &[]),
    (
        "all devices, and one of them again",
        &[("block-*", "rwm"), ("/dev/block/7:1", "r")],
        &["b:7:-1:rwm", "b:8:-1:rwm", "b:7:1:r"],
    ),
    (
        "many rules keep their order",
        &[
            ("block-*", "m"),
            ("/dev/char/1:3", "rwm"),
            ("/dev/char/1:5", "rwm"),
            ("/dev/char/1:7", "rwm"),
            ("/dev/char/1:8", "rwm"),
            ("/dev/char/1:9", "rwm"),
            ("/dev/char/5:0", "rwm"),
            ("/dev/char/5:2", "rwm"),
            ("char-136", "rwm"),
            ("/dev/char/10:200", "rwm"),
        ],
        &[
            "b:7:-1:m",
            "b:8:-1:m",
            "c:1:3:rwm",
            "c:1:5:rwm",
            "c:1:7:rwm",
            "c:1:8:rwm",
            "c:1:9:rwm",
            "c:5:0:rwm",
            "c:5:2:rwm",
            "c:136:-1:rwm",
            "c:10:200:rwm",
        ],
    ),
    (
        "the same rule twice is one",
        &[("/dev/char/4:2", "rm"), ("/dev/char/4:2", "rm")],
        &["c:4:2:rm"],
    ),
    (
        "the same accesses in another order are the same",
        &[("/dev/char/4:2", "rm"), ("/dev/char/4:2", "mr")],
        &["c:4:2:rm"],
    ),
    (
        "a rule inside a wildcard stays",
        &[("char-136", "rw"), ("/dev/char/136:9", "r")],
        &["c:136:-1:rw", "c:136:9:r"],
    ),
    (
        "two rules for one device stay",
        &[("/dev/block/8:2", "rw"), ("/dev/block/8:2", "rm")],
        &["b:8:2:rw", "b:8:2:rm"],
    ),
    (
        "a device of each type with the same numbers",
        &[("/dev/char/8:2", "r"), ("/dev/block/8:2", "w")],
        &["c:8:2:r", "b:8:2:w"],
    ),
    (
        "the largest numbers",
        &[("/dev/char/4095:1048575", "r")],
        &["c:4095:1048575:r"],
    ),
    (
        "a major that is too large",
        &[("/dev/char/4096:0", "r")],
        &[],
    ),
    (
        "a minor that is too large",
        &[("/dev/char/0:1048576", "r")],
        &[],
    ),
    ("no minor", &[("/dev/block/1", "r")], &[]),
    ("no accesses", &[("/dev/block/1:0", "")], &[]),
    ("a type that is none", &[("/dev/pipe/1:0", "rwm")], &[]),
    ("a negative major", &[("/dev/char/-1:3", "rwm")], &[]),
    (
        "a major that is a word",
        &[("/dev/char/mem:27", "rwm")],
        &[],
    ),
    ("a negative minor", &[("/dev/block/1:-4", "rwm")], &[]),
    (
        "a minor that is a word",
        &[("/dev/block/1:null", "rwm")],
        &[],
    ),
    (
        "an unknown access among known ones",
        &[("/dev/block/1:7", "rwk")],
        &[],
    ),
    // A container's rule may leave these out; an entry of ours has no word for them.
    ("a minor of all majors", &[("/dev/char/*:3", "rwm")], &[]),
    ("a minor by a sign", &[("/dev/char/1:*", "rwm")], &[]),
    ("devices of both types", &[("*", "rwm")], &[]),
    (
        "all devices in the kernel's spelling",
        &[("a *:* rwm", "rwm")],
        &[],
    ),
    (
        "a bad rule between two good ones",
        &[
            ("/dev/char/4:2", "r"),
            ("/dev/char/x:2", "r"),
            ("/dev/char/4:3", "r"),
        ],
        &["c:4:2:r", "c:4:3:r"],
    ),
];

#[test]
fn rules_of_containers_have_one_spelling_as_entries() {
    let scratch = Scratch::new();
    let drivers =
        "Character devices:\n  1 mem\n  5 /dev/tty\n136 pts\n\nBlock devices:\n  7 loop\n  8 sd\n";
    scratch.file("proc/devices", drivers);
    let tree = Tree::with_root(scratch.path(), scratch.trust());
    let resolver = NameResolver::new(tree, DeviceSettings::default());
    let mut differences = Vec::new();
    for (name, entries, rules) in ROWS {
        let owned = |(spec, access): &(&str, &str)| ((*spec).to_owned(), (*access).to_owned());
        let allow: Vec<_> = entries.iter().map(owned).collect();
        let request = DeviceRequest {
            policy: Policy::Strict,
            allow: &allow,
        };
        let allowlist = build_allowlist(&request, &[], &[], &resolver).unwrap();
        let texts = allowlist.list.rules().iter().map(ToString::to_string);
        let found: Vec<String> = texts.collect();
        if found != rules {
            differences.push(format!("{name}: {found:?}"));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// What a row asks, an entry of flux-core's `allowed-devices`, and its rules; `None` for an entry that a configuration
/// must not have.
type SiteEntry = (&'static str, &'static str, Option<&'static [&'static str]>);

/// flux-core since 0.88 takes the same texts for `sdexec.allowed-devices`.
const SITE_ENTRIES: [SiteEntry; 21] = [
    (
        "Slingshot",
        "/dev/cxi*",
        Some(&["c:505:0:rw", "c:505:1:rw"]),
    ),
    (
        "InfiniBand",
        "/dev/infiniband/*",
        Some(&["c:10:120:rw", "c:231:192:rw"]),
    ),
    ("XPMEM", "/dev/xpmem", Some(&["c:10:60:rw"])),
    ("one access", "/dev/xpmem r", Some(&["c:10:60:r"])),
    ("all accesses", "/dev/xpmem rwm", Some(&["c:10:60:rwm"])),
    ("several blanks", "/dev/xpmem   r", Some(&["c:10:60:r"])),
    ("a tab", "/dev/xpmem\tr", Some(&["c:10:60:r"])),
    ("blanks and tabs", "/dev/xpmem \t w", Some(&["c:10:60:w"])),
    (
        "blanks behind the access",
        "/dev/xpmem r  ",
        Some(&["c:10:60:r"]),
    ),
    (
        "one character",
        "/dev/cxi?",
        Some(&["c:505:0:rw", "c:505:1:rw"]),
    ),
    (
        "a set of characters",
        "/dev/cxi[1-9]",
        Some(&["c:505:1:rw"]),
    ),
    (
        "a pattern of folders",
        "/dev/*/uverbs0",
        Some(&["c:231:192:rw"]),
    ),
    ("a pattern that nothing matches", "/dev/knem*", Some(&[])),
    ("a path that is missing", "/dev/knem", Some(&[])),
    ("a driver", "char-pts", Some(&["c:136:-1:rw"])),
    ("an empty entry", "", Some(&[])),
    ("a path elsewhere", "/run/xpmem", Some(&[])),
    ("a pattern elsewhere", "/run/*", Some(&[])),
    ("folders of any depth", "/dev/**", None),
    (
        "folders of any depth within a path",
        "/dev/**/uverbs0",
        None,
    ),
    ("an unknown access", "/dev/xpmem x", None),
];

#[test]
fn entries_of_a_site_open_what_they_open_to_jobs_of_flux() {
    let scratch = Scratch::new();
    scratch.file("proc/devices", "Character devices:\n136 pts\n");
    for (name, numbers) in [
        ("cxi0", "505:0"),
        ("cxi1", "505:1"),
        ("xpmem", "10:60"),
        ("infiniband/uverbs0", "231:192"),
        ("infiniband/rdma_cm", "10:120"),
    ] {
        scratch.file(&format!("dev/{name}"), &format!("c {numbers}"));
    }
    scratch.file("run/xpmem", "c 10:60");
    let tree = Tree::with_root(scratch.path(), scratch.trust());
    let resolver = NameResolver::new(tree, DeviceSettings::default());
    let mut differences = Vec::new();
    for (name, text, expected) in SITE_ENTRIES {
        let found = Specifier::parse_site_entry(text).ok().map(|entry| {
            let devices = resolver
                .specifiers
                .resolve_specifier(&entry)
                .unwrap_or_default()
                .devices;
            let mut rules: Vec<String> = devices
                .iter()
                .map(|device| device.rule.to_string())
                .collect();
            rules.sort();
            rules
        });
        let is_same = match (&found, expected) {
            (Some(found), Some(expected)) => found == expected,
            (None, None) => true,
            _ => false,
        };
        if !is_same {
            differences.push(format!("{name}: {text:?}: {found:?}"));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}
