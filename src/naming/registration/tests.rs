//! What the tests of Flux's IMP (flux-security, `device`) and of its helper (flux-core, `imp-exec-helper`) ask of
//! `DevicePolicy` and `DeviceAllow`: the same options in a record of ours.

use super::*;
use crate::testing::Scratch;
use helper::devices::DeviceSettings;
use helper::jobs::records::Options;
use helper::node::Tree;

/// What becomes of a job with some options.
#[derive(Debug, PartialEq, Eq)]
enum Expected {
    /// The record is invalid, and no login is let in. The IMP starts no such job.
    Refused,
    /// All devices open.
    Uncontained,
    /// These rules alone.
    Strict(&'static [&'static str]),
    /// The pseudo-devices, and these rules behind them.
    Closed(&'static [&'static str]),
}
use Expected::{Closed, Refused, Strict, Uncontained};

const PSEUDO_DEVICES: [&str; 8] = [
    "c:1:3:rwm",
    "c:1:5:rwm",
    "c:1:7:rwm",
    "c:1:8:rwm",
    "c:1:9:rwm",
    "c:5:0:rwm",
    "c:5:2:rwm",
    "c:136:-1:rw",
];

/// What a row asks, the options, and what they mean.
const OPTIONS: [(&str, &str, Expected); 55] = [
    // The IMP confines nothing. A record has to say so.
    ("no option", "{}", Refused),
    (
        "auto without a list",
        r#"{"DevicePolicy": "auto"}"#,
        Uncontained,
    ),
    // The IMP confines nothing. A prolog that lists no device means none.
    (
        "auto with an empty list",
        r#"{"DevicePolicy": "auto", "DeviceAllow": []}"#,
        Closed(&[]),
    ),
    (
        "no policy, and an empty list",
        r#"{"DeviceAllow": []}"#,
        Closed(&[]),
    ),
    (
        "no policy, and a list",
        r#"{"DeviceAllow": [["/dev/fuse", "r"]]}"#,
        Closed(&["c:10:229:r"]),
    ),
    (
        "auto with a list",
        r#"{"DevicePolicy": "auto", "DeviceAllow": [["/dev/fuse", "rw"]]}"#,
        Closed(&["c:10:229:rw"]),
    ),
    (
        "closed without a list",
        r#"{"DevicePolicy": "closed"}"#,
        Closed(&[]),
    ),
    (
        "closed with an empty list",
        r#"{"DevicePolicy": "closed", "DeviceAllow": []}"#,
        Closed(&[]),
    ),
    (
        "closed: what is listed comes behind the pseudo-devices",
        r#"{"DevicePolicy": "closed", "DeviceAllow": [["/dev/fuse", "rw"]]}"#,
        Closed(&["c:10:229:rw"]),
    ),
    (
        "closed: a listed pseudo-device keeps its accesses",
        r#"{"DevicePolicy": "closed", "DeviceAllow": [["/dev/null", "r"]]}"#,
        Closed(&["c:1:3:r"]),
    ),
    (
        "strict without a list",
        r#"{"DevicePolicy": "strict"}"#,
        Strict(&[]),
    ),
    (
        "strict with an empty list",
        r#"{"DevicePolicy": "strict", "DeviceAllow": []}"#,
        Strict(&[]),
    ),
    (
        "strict with a path",
        r#"{"DevicePolicy": "strict", "DeviceAllow": [["/dev/null", "rw"]]}"#,
        Strict(&["c:1:3:rw"]),
    ),
    (
        "strict with a class of character devices",
        r#"{"DevicePolicy": "strict", "DeviceAllow": [["char-pts", "rw"]]}"#,
        Strict(&["c:136:-1:rw"]),
    ),
    (
        "strict with a class of block devices",
        r#"{"DevicePolicy": "strict", "DeviceAllow": [["block-loop", "rw"]]}"#,
        Strict(&["b:7:-1:rw"]),
    ),
    (
        "a class whose name is a path",
        r#"{"DevicePolicy": "strict", "DeviceAllow": [["char-/dev/tty", "r"]]}"#,
        Strict(&["c:5:-1:r"]),
    ),
    (
        "two entries keep their order",
        r#"{"DevicePolicy": "strict", "DeviceAllow": [["char-pts", "r"], ["/dev/null", "w"]]}"#,
        Strict(&["c:136:-1:r", "c:1:3:w"]),
    ),
    (
        "a device by a link",
        r#"{"DevicePolicy": "strict", "DeviceAllow": [["/dev/by-name", "r"]]}"#,
        Strict(&["c:10:229:r"]),
    ),
    (
        "a path that is missing",
        r#"{"DevicePolicy": "strict", "DeviceAllow": [["/dev/gone", "rw"]]}"#,
        Strict(&[]),
    ),
    (
        "a path that is no device",
        r#"{"DevicePolicy": "strict", "DeviceAllow": [["/dev/file", "rw"]]}"#,
        Strict(&[]),
    ),
    (
        "a class that is missing",
        r#"{"DevicePolicy": "strict", "DeviceAllow": [["char-gone", "rw"]]}"#,
        Strict(&[]),
    ),
    (
        "a class of the other type",
        r#"{"DevicePolicy": "strict", "DeviceAllow": [["block-pts", "rw"]]}"#,
        Strict(&[]),
    ),
    (
        "a class without a name",
        r#"{"DevicePolicy": "strict", "DeviceAllow": [["char-", "rw"]]}"#,
        Strict(&[]),
    ),
    (
        "a text that is no specifier",
        r#"{"DevicePolicy": "strict", "DeviceAllow": [["nothing", "rw"]]}"#,
        Strict(&[]),
    ),
    (
        "an empty text",
        r#"{"DevicePolicy": "strict", "DeviceAllow": [["", "rw"]]}"#,
        Strict(&[]),
    ),
    (
        "a path elsewhere",
        r#"{"DevicePolicy": "strict", "DeviceAllow": [["/sys/null", "rw"]]}"#,
        Strict(&[]),
    ),
    (
        "an unknown access",
        r#"{"DevicePolicy": "strict", "DeviceAllow": [["/dev/null", "z"]]}"#,
        Strict(&[]),
    ),
    (
        "no access",
        r#"{"DevicePolicy": "strict", "DeviceAllow": [["/dev/null", ""]]}"#,
        Strict(&[]),
    ),
    (
        "four letters",
        r#"{"DevicePolicy": "strict", "DeviceAllow": [["/dev/null", "rwmr"]]}"#,
        Strict(&[]),
    ),
    (
        "a letter that stands twice",
        r#"{"DevicePolicy": "strict", "DeviceAllow": [["/dev/null", "rr"]]}"#,
        Strict(&["c:1:3:r"]),
    ),
    (
        "letters in another order",
        r#"{"DevicePolicy": "strict", "DeviceAllow": [["/dev/null", "mwr"]]}"#,
        Strict(&["c:1:3:rwm"]),
    ),
    (
        "a bad entry before a good one",
        r#"{"DevicePolicy": "strict", "DeviceAllow": [["/dev/gone", "rw"], ["/dev/null", "r"]]}"#,
        Strict(&["c:1:3:r"]),
    ),
    (
        "a bad entry alone in an auto list",
        r#"{"DevicePolicy": "auto", "DeviceAllow": [["/dev/gone", "rw"]]}"#,
        Closed(&[]),
    ),
    // The IMP stores it twice.
    (
        "an entry that stands twice",
        r#"{"DevicePolicy": "strict", "DeviceAllow": [["/dev/null", "r"], ["/dev/null", "r"]]}"#,
        Strict(&["c:1:3:r"]),
    ),
    // The IMP compares the name literally; systemd, whose properties these are, takes a pattern.
    (
        "a pattern of classes",
        r#"{"DevicePolicy": "strict", "DeviceAllow": [["char-p*", "rw"]]}"#,
        Strict(&["c:136:-1:rw"]),
    ),
    // The IMP takes it for a name.
    (
        "a class by its major",
        r#"{"DevicePolicy": "strict", "DeviceAllow": [["char-136", "rw"]]}"#,
        Strict(&["c:136:-1:rw"]),
    ),
    // The IMP needs a node of that name.
    (
        "a device by its numbers",
        r#"{"DevicePolicy": "strict", "DeviceAllow": [["/dev/char/195:0", "rw"]]}"#,
        Strict(&["c:195:0:rw"]),
    ),
    // The IMP asks the file system, and would take whatever the path leads to.
    (
        "a path that leads out of /dev",
        r#"{"DevicePolicy": "strict", "DeviceAllow": [["/dev/../dev/null", "rw"]]}"#,
        Strict(&[]),
    ),
    // The IMP takes what its own process has there.
    (
        "a descriptor",
        r#"{"DevicePolicy": "strict", "DeviceAllow": [["/dev/fd/0", "rw"]]}"#,
        Strict(&[]),
    ),
    ("an unknown policy", r#"{"DevicePolicy": "open"}"#, Refused),
    (
        "a policy in capitals",
        r#"{"DevicePolicy": "CLOSED"}"#,
        Refused,
    ),
    ("an empty policy", r#"{"DevicePolicy": ""}"#, Refused),
    (
        "a policy that is a number",
        r#"{"DevicePolicy": 7}"#,
        Refused,
    ),
    (
        "a policy that is null",
        r#"{"DevicePolicy": null}"#,
        Refused,
    ),
    (
        "a list that is a text",
        r#"{"DeviceAllow": "/dev/null rw"}"#,
        Refused,
    ),
    (
        "a list that is an object",
        r#"{"DeviceAllow": {"/dev/null": "rw"}}"#,
        Refused,
    ),
    ("a list that is null", r#"{"DeviceAllow": null}"#, Refused),
    (
        "an entry that is a text",
        r#"{"DeviceAllow": ["/dev/null rw"]}"#,
        Refused,
    ),
    (
        "an entry without an access",
        r#"{"DeviceAllow": [["/dev/null"]]}"#,
        Refused,
    ),
    (
        "an entry of a number",
        r#"{"DeviceAllow": [[195, "rw"]]}"#,
        Refused,
    ),
    (
        "an entry with a number for its access",
        r#"{"DeviceAllow": [["/dev/null", 6]]}"#,
        Refused,
    ),
    // The IMP ignores what is behind the second text.
    (
        "an entry of three texts",
        r#"{"DeviceAllow": [["/dev/null", "r", "w"]]}"#,
        Refused,
    ),
    // The IMP takes the last one.
    (
        "a policy that stands twice",
        r#"{"DevicePolicy": "auto", "DevicePolicy": "closed"}"#,
        Refused,
    ),
    // The IMP ignores it. A key of another spelling would open all devices unnoticed.
    (
        "an unknown option",
        r#"{"DevicePolicy": "closed", "Deviceallow": []}"#,
        Refused,
    ),
    ("options that are a list", r#"["closed", []]"#, Refused),
];

/// Lays out a node.
fn lay_out() -> Scratch {
    let scratch = Scratch::new();
    let drivers = "Character devices:\n  1 mem\n  5 /dev/tty\n 10 misc\n136 pts\n195 nvidia\n\n\
                   Block devices:\n  7 loop\n";
    scratch.file("proc/devices", drivers);
    scratch.file("proc/sys/kernel/random/boot_id", "b1\n");
    for (name, numbers) in [
        ("null", "c 1:3"),
        ("zero", "c 1:5"),
        ("full", "c 1:7"),
        ("random", "c 1:8"),
        ("urandom", "c 1:9"),
        ("tty", "c 5:0"),
        ("ptmx", "c 5:2"),
        ("fuse", "c 10:229"),
        ("file", "text"),
    ] {
        scratch.file(&format!("dev/{name}"), numbers);
    }
    std::os::unix::fs::symlink("fuse", scratch.path().join("dev/by-name")).unwrap();
    scratch
}

/// Resolves a job with these options; `None` for a record that is refused.
fn resolve(scratch: &Scratch, options: &str) -> Option<Registration> {
    let text = format!(r#"{{"version":1,"id":"1","uid":5,"cgroup":"/a","options":{options}}}"#);
    let record = Record::parse(text.as_bytes()).ok()?;
    let tree = Tree::with_root(scratch.path(), scratch.trust());
    let resolver = NameResolver::new(tree, DeviceSettings::default());
    resolve_record(&record, &Config::default(), &resolver).ok()
}

#[test]
fn options_mean_what_they_mean_to_the_imp() {
    let scratch = lay_out();
    let mut differences = Vec::new();
    for (name, options, expected) in OPTIONS {
        let found = resolve(&scratch, options).map(|registration| registration.list);
        let rules = found.iter().flatten().next().map(|list| {
            let texts = list.rules.rules().iter().map(ToString::to_string);
            texts.collect::<Vec<_>>()
        });
        let is_same = match (&expected, &found, &rules) {
            (Refused, None, _) | (Uncontained, Some(None), _) => true,
            (Strict(expected), _, Some(rules)) => rules == expected,
            (Closed(expected), _, Some(rules)) => {
                *rules == [PSEUDO_DEVICES.as_slice(), expected].concat()
            }
            _ => false,
        };
        if !is_same {
            differences.push(format!("{name}: {expected:?}, and {found:?}"));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// The helper's output is an option object beside the signed job, whose text is not read here.
#[test]
fn input_of_the_imp_is_taken_as_its_options_alone_are() {
    let mut differences = Vec::new();
    for (name, options, expected) in OPTIONS {
        let text = format!(r#"{{"J": "signed", "options": {options}}}"#);
        let is_taken = Options::parse_imp_input(text.as_bytes()).is_ok();
        // That a record has to name a policy is no matter of the input.
        let is_expected = expected != Refused || options == "{}";
        if is_taken != is_expected {
            differences.push(format!("{name}: {is_taken}"));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// Resolves a job with these keys on a node.
fn register(
    scratch: &Scratch,
    config: &Config,
    keys: &str,
) -> Result<Registration, RegistrationError> {
    let text = format!(r#"{{"version":1,"id":"1","uid":5,"cgroup":"/a",{keys}}}"#);
    let record = Record::parse(text.as_bytes()).unwrap();
    let tree = Tree::with_root(scratch.path(), scratch.trust());
    let resolver = NameResolver::new(tree, config.devices.clone());
    resolve_record(&record, config, &resolver)
}

#[test]
fn unknown_names_and_too_many_devices_are_errors() {
    let scratch = lay_out();
    let error = |keys: &str| {
        register(&scratch, &Config::default(), keys)
            .unwrap_err()
            .to_string()
    };
    for (keys, name) in [
        (r#""cdi":["nvidia.com/gpu=0","b"]"#, "nvidia.com/gpu=0"),
        (r#""gpus":[3]"#, "GPU 3"),
        (r#""gres":{"gpu":[1]}"#, "gpu:1"),
        (r#""device_dir":"/run/d""#, "/run/d"),
    ] {
        assert!(error(keys).contains(name), "{}", error(keys));
    }
    let lines: String = (0..1025).map(|major| format!("{major} same\n")).collect();
    scratch.file("proc/devices", &format!("Block devices:\n{lines}"));
    let all = r#""options":{"DevicePolicy":"strict","DeviceAllow":[["block-same","r"]]}"#;
    assert!(
        error(all).contains("more than 1024 entries"),
        "{}",
        error(all)
    );
}

#[test]
fn site_devices_and_what_is_left_out_are_told() {
    let scratch = lay_out();
    let config = Config {
        always_allowed: vec![
            "char-nvidia r".parse().unwrap(),
            "/dev/gone".parse().unwrap(),
        ],
        ..Config::default()
    };
    let registration = register(&scratch, &config, r#""options":{"DeviceAllow":[]}"#).unwrap();
    let list = registration.list.unwrap();
    assert!(list.rules.rules().contains(&"c:195:-1:r".parse().unwrap()));
    let has = |texts: &[String], start: &str| texts.iter().any(|text| text.starts_with(start));
    assert!(has(&registration.dropped, "/dev/gone rw: "));
    assert!(has(&registration.warnings, "char-nvidia r opens"));
}

/// A login compares these with the node's.
#[test]
fn boot_and_drivers_are_noted() {
    let scratch = lay_out();
    let keys = r#""options":{"DevicePolicy":"strict","DeviceAllow":[["/dev/fuse","r"],["/dev/tty","r"],["/dev/none","r"]]}"#;
    scratch.file("dev/none", "c 300:1");
    let list = register(&scratch, &Config::default(), keys)
        .unwrap()
        .list
        .unwrap();
    assert_eq!(list.boot_id, "b1");
    let drivers: Vec<_> = list
        .drivers
        .iter()
        .map(|(major, names)| format!("{major} {}", names.join(" ")))
        .collect();
    assert_eq!(drivers, ["c:5 /dev/tty", "c:10 misc"]);
    assert_eq!(list.rules.rules().len(), 3);
}

#[test]
fn parts_for_containers_of_a_specification_are_kept_for_warnings() {
    let scratch = lay_out();
    let spec = r#"{"cdiVersion":"1.1.0","kind":"v.com/x","devices":[{"name":"0","containerEdits":{
        "deviceNodes":[{"path":"/dev/x"}],"additionalGids":[44,105],"intelRdt":{"closID":"a"},
        "netDevices":[{"hostInterfaceName":"ib0","name":"ib1"}],
        "mounts":[{"hostPath":"/gone","containerPath":"/gone"}]}}]}"#;
    scratch.file("etc/cdi/x.json", spec);
    scratch.file("dev/x", "c 195:0");
    let registration = register(&scratch, &Config::default(), r#""cdi":["v.com/x=0"]"#).unwrap();
    let warnings = registration
        .container
        .warnings(&["render (105)".to_owned()], "alice", &[]);
    assert_eq!(
        warnings,
        [
            "containers get the groups render (105); alice lacks them",
            "intelRdt is for containers: a login has the resource class of its job",
            "network devices are for containers: a login does not get ib0",
        ]
    );
}
