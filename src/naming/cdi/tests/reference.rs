//! What the tests of the reference code (container-device-interface) ask of names, of files in several directories and
//! of the devices that a name stands for.

use super::*;

/// Fails with all rows that differ.
#[track_caller]
fn assert_none(differences: &[String]) {
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// What a name is, the name, and its kind and device if it is qualified.
const NAMES: [(&str, &str, Option<[&str; 2]>); 27] = [
    ("plain", "v.example/gpu=one", Some(["v.example/gpu", "one"])),
    ("one letter each", "v/c=d", Some(["v/c", "d"])),
    ("class of one letter", "vv/c=dd", Some(["vv/c", "dd"])),
    ("vendor of one letter", "v/cc=dd", Some(["v/cc", "dd"])),
    (
        "device that is a digit",
        "v.example/gpu=7",
        Some(["v.example/gpu", "7"]),
    ),
    (
        "digits at the end of each part",
        "v1.example2/gpu3=one4",
        Some(["v1.example2/gpu3", "one4"]),
    ),
    (
        "class with a dot",
        "v1.example/gpu.mig=one",
        Some(["v1.example/gpu.mig", "one"]),
    ),
    (
        "vendor with a hyphen, others with underlines",
        "a-v.example/gpu_1=one_1",
        Some(["a-v.example/gpu_1", "one_1"]),
    ),
    (
        "device with a colon and a dot",
        "a-v.example/g-pu_2=one_1:2.3",
        Some(["a-v.example/g-pu_2", "one_1:2.3"]),
    ),
    // The reference takes it; the text demands a DNS subdomain.
    ("vendor with an underline", "a_v.example/gpu=one", None),
    (
        "vendor that begins with an underline",
        "_v.example/gpu=one",
        None,
    ),
    ("vendor that ends with a hyphen", "v.example-/gpu=one", None),
    (
        "class that begins with an underline",
        "v.example/_gpu=one",
        None,
    ),
    (
        "class that ends with an underline",
        "v.example/gpu_=one",
        None,
    ),
    (
        "device that begins with a hyphen",
        "v.example/gpu=-one",
        None,
    ),
    ("device that ends with a colon", "v.example/gpu=one:", None),
    ("wildcards", "*.example/*gpu=*one*", None),
    ("nothing", "", None),
    ("path", "/dev/gpu=one", None),
    ("no device", "v.example/gpu", None),
    ("empty device", "v.example/gpu=", None),
    ("no class", "v.example=one", None),
    ("empty class", "v.example/=one", None),
    ("empty vendor", "/gpu=one", None),
    ("device alone", "one", None),
    ("second sign", "v.example/gpu=one=two", None),
    ("second slash", "v.example/gpu/mig=one", None),
];

#[test]
fn names_are_qualified_as_in_the_reference_code() {
    let mut differences = Vec::new();
    for (name, text, parts) in NAMES {
        let parsed = text.parse::<QualifiedName>().ok();
        let found = parsed.as_ref().map(|parsed| [parsed.kind(), parsed.name()]);
        if found != parts {
            differences.push(format!("{name}: {text:?}: {found:?}"));
        }
        if parsed.is_some_and(|parsed| parsed.to_string() != text) {
            differences.push(format!("{name}: {text:?} is written otherwise"));
        }
    }
    assert_none(&differences);
}

/// A file with these devices, each with the minor of its block device.
fn specification(kind: &str, devices: &[(&str, u32)]) -> String {
    let devices: Vec<String> = devices
        .iter()
        .map(|(name, minor)| {
            format!(
                r#"{{"name":"{name}","containerEdits":{{"deviceNodes":
                   [{{"path":"/dev/v{minor}","type":"b","major":10,"minor":{minor}}}]}}}}"#
            )
        })
        .collect();
    format!(
        r#"{{"cdiVersion":"0.3.0","kind":"{kind}","devices":[{}]}}"#,
        devices.join(",")
    )
}

/// Resolves names by the files below `etc/cdi` and `run/cdi`.
fn rules_of(scratch: &Scratch, texts: &[&str]) -> Result<Vec<String>, String> {
    let tree = Tree::with_root(scratch.path(), scratch.trust());
    let dirs = ["/etc/cdi".into(), "/run/cdi".into()];
    let catalog = Catalog::read(&tree, &dirs).map_err(|fault| fault.to_string())?;
    let names: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
    let resolved = resolve(&tree, &catalog, &names).map_err(|error| error.why.to_string())?;
    let rules = resolved
        .devices
        .iter()
        .map(|device| device.rule.to_string());
    Ok(rules.collect())
}

/// Names of a file's devices, each with the minor of its node.
type Devices = &'static [(&'static str, u32)];

/// The names that a row asks for, and their rules; `None` if they must be refused.
type Wanted = (&'static [&'static str], Option<&'static [&'static str]>);

/// What a row asks; files with kind and devices; and the names.
struct Files {
    name: &'static str,
    files: &'static [(&'static str, &'static str, Devices)],
    wanted: &'static [Wanted],
}

const FILES: [Files; 10] = [
    Files {
        name: "no directory",
        files: &[],
        wanted: &[(&["v1.example/d=a"], None)],
    },
    Files {
        name: "one file",
        files: &[("etc/cdi/v1.json", "v1.example/d", &[("a", 1)])],
        wanted: &[
            (&["v1.example/d=a"], Some(&["b:10:1:rw"])),
            (&["v1.example/d=b"], None),
            (&["v2.example/d=a"], None),
            (&["v1.example/e=a"], None),
            (&["no-name"], None),
        ],
    },
    Files {
        name: "a file of the second directory overrides one device",
        files: &[
            ("etc/cdi/v1.json", "v1.example/d", &[("a", 1), ("b", 2)]),
            ("run/cdi/v1.json", "v1.example/d", &[("a", 3)]),
        ],
        wanted: &[
            (&["v1.example/d=a"], Some(&["b:10:3:rw"])),
            (&["v1.example/d=b"], Some(&["b:10:2:rw"])),
        ],
    },
    Files {
        name: "two files of one directory conflict",
        files: &[
            ("run/cdi/v1.json", "v1.example/d", &[("a", 1), ("b", 2)]),
            ("run/cdi/v1-more.json", "v1.example/d", &[("a", 1)]),
        ],
        wanted: &[
            (&["v1.example/d=a"], None),
            (&["v1.example/d=b"], Some(&["b:10:2:rw"])),
            (&["v1.example/d=b", "v1.example/d=a"], None),
        ],
    },
    Files {
        name: "a conflict below an override",
        files: &[
            ("etc/cdi/v1.json", "v1.example/d", &[("a", 1)]),
            ("etc/cdi/v1-more.json", "v1.example/d", &[("a", 2)]),
            ("run/cdi/v1.json", "v1.example/d", &[("a", 3)]),
        ],
        wanted: &[(&["v1.example/d=a"], Some(&["b:10:3:rw"]))],
    },
    Files {
        name: "two files of one directory without a conflict",
        files: &[
            ("run/cdi/v1.json", "v1.example/d", &[("a", 1)]),
            ("run/cdi/v1-more.json", "v1.example/d", &[("b", 2)]),
        ],
        wanted: &[(
            &["v1.example/d=a", "v1.example/d=b"],
            Some(&["b:10:1:rw", "b:10:2:rw"]),
        )],
    },
    Files {
        name: "several vendors and classes",
        files: &[
            ("etc/cdi/v1.json", "v1.example/d", &[("a", 1)]),
            ("etc/cdi/v1-e.json", "v1.example/e", &[("a", 2)]),
            ("etc/cdi/v2.json", "v2.example/d", &[("a", 3)]),
        ],
        wanted: &[
            (&["v1.example/d=a"], Some(&["b:10:1:rw"])),
            (&["v1.example/e=a"], Some(&["b:10:2:rw"])),
            (&["v2.example/d=a"], Some(&["b:10:3:rw"])),
            (&["v2.example/e=a"], None),
        ],
    },
    Files {
        name: "a broken file of another vendor",
        files: &[
            ("etc/cdi/v1.json", "v1.example/d", &[("a", 1)]),
            ("etc/cdi/v2.json", "v2.example/d", &[("a", 2), ("a", 3)]),
        ],
        wanted: &[
            (&["v1.example/d=a"], Some(&["b:10:1:rw"])),
            (&["v2.example/d=a"], None),
        ],
    },
    Files {
        name: "a file of another ending",
        files: &[
            ("etc/cdi/v1.json.tmp", "v1.example/d", &[("a", 1)]),
            ("etc/cdi/v1.txt", "v1.example/d", &[("a", 2)]),
        ],
        wanted: &[(&["v1.example/d=a"], None)],
    },
    Files {
        name: "a name that stands twice",
        files: &[("etc/cdi/v1.json", "v1.example/d", &[("a", 1)])],
        wanted: &[(&["v1.example/d=a", "v1.example/d=a"], Some(&["b:10:1:rw"]))],
    },
];

#[test]
fn files_of_several_directories_count_as_in_the_reference_code() {
    let mut differences = Vec::new();
    for row in FILES {
        let scratch = Scratch::new();
        scratch.file("proc/devices", "Block devices:\n 10 v\n");
        for minor in 1..=3 {
            scratch.file(&format!("dev/v{minor}"), &format!("b 10:{minor}"));
        }
        for (path, kind, devices) in row.files {
            scratch.file(path, &specification(kind, devices));
        }
        for (names, rules) in row.wanted {
            let found = rules_of(&scratch, names);
            let is_same = match (&found, rules) {
                (Ok(found), Some(rules)) => found == rules,
                (Err(_), None) => true,
                _ => false,
            };
            if !is_same {
                differences.push(format!("{}: {names:?}: {found:?}", row.name));
            }
        }
    }
    assert_none(&differences);
}

/// What a device's edits are, the edits, the rules of the device, and the groups that are named beside it.
const EDITS: [(&str, &str, &[&str], &[u32]); 12] = [
    ("variable alone", r#""env": ["A=1"]"#, &[], &[]),
    (
        "node by its path",
        r#""deviceNodes": [{"path": "/dev/null"}]"#,
        &["c:1:3:rw"],
        &[],
    ),
    (
        "node with its type",
        r#""deviceNodes": [{"path": "/dev/null", "type": "c"}]"#,
        &["c:1:3:rw"],
        &[],
    ),
    (
        "node and variable",
        r#""env": ["A=1"], "deviceNodes": [{"path": "/dev/null", "type": "c"}]"#,
        &["c:1:3:rw"],
        &[],
    ),
    // A container may make the node as well. No login needs to: the node is there.
    (
        "accesses left out",
        r#""deviceNodes": [{"path": "/dev/null", "type": "c", "major": 1, "minor": 3, "permissions": ""}]"#,
        &["c:1:3:rw"],
        &[],
    ),
    (
        "no access",
        r#""deviceNodes": [{"path": "/dev/null", "type": "c", "major": 1, "minor": 3, "permissions": "none"}]"#,
        &[],
        &[],
    ),
    (
        "reading alone",
        r#""deviceNodes": [{"path": "/dev/null", "permissions": "r"}]"#,
        &["c:1:3:r"],
        &[],
    ),
    (
        "two nodes",
        r#""deviceNodes": [{"path": "/dev/null"}, {"path": "/dev/zero", "permissions": "r"}]"#,
        &["c:1:3:rw", "c:1:5:r"],
        &[],
    ),
    ("groups", r#""additionalGids": [4, 5, 6]"#, &[], &[4, 5, 6]),
    (
        "groups that stand several times",
        r#""additionalGids": [4, 5, 6, 5, 6, 4]"#,
        &[],
        &[4, 5, 6],
    ),
    (
        "group of root, which is left out",
        r#""additionalGids": [0]"#,
        &[],
        &[],
    ),
    (
        "mount and hook, which give no device",
        r#""mounts": [{"hostPath": "/dev/zero", "containerPath": "/dev/zero"}],
           "hooks": [{"hookName": "prestart", "path": "/bin/x"}]"#,
        &[],
        &[],
    ),
];

#[test]
fn edits_give_the_devices_that_the_reference_code_gives_a_container() {
    let mut differences = Vec::new();
    for (name, edits, rules, gids) in EDITS {
        let scratch = Scratch::new();
        scratch.file("dev/null", "c 1:3");
        scratch.file("dev/zero", "c 1:5");
        scratch.file("proc/devices", "Character devices:\n  1 mem\n");
        let text = format!(
            r#"{{"cdiVersion":"1.1.0","kind":"v.example/d",
                "devices":[{{"name":"a","containerEdits":{{{edits}}}}}]}}"#
        );
        scratch.file("etc/cdi/v.json", &text);
        let tree = Tree::with_root(scratch.path(), scratch.trust());
        let catalog = Catalog::read(&tree, &["/etc/cdi".into()]).unwrap();
        let resolved = resolve(&tree, &catalog, &["v.example/d=a".to_owned()]).unwrap();
        let found: Vec<String> = resolved
            .devices
            .iter()
            .map(|device| device.rule.to_string())
            .collect();
        let found_gids: Vec<u32> = resolved.container.gids.into_iter().collect();
        if found != rules || found_gids != gids {
            differences.push(format!("{name}: {found:?}, groups {found_gids:?}"));
        }
    }
    assert_none(&differences);
}
