//! What the tests of the reference code (container-device-interface) ask of a specification, in rows that are named
//! after the question.

use super::*;

const RELEASED: [&str; 8] = [
    "0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0",
];

/// Fails with all rows that differ.
#[track_caller]
fn assert_none(differences: &[String]) {
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// What an edit is, the edits, and whether they may be in a file.
const EDITS: [(&str, &str, bool); 44] = [
    // Those of a whole file may be empty, those of a device may not.
    ("no edit", "{}", false),
    ("variable", r#"{"env": ["LANG=C"]}"#, true),
    ("variable without a value", r#"{"env": ["LANG="]}"#, true),
    ("empty variable", r#"{"env": [""]}"#, false),
    ("variable without a name", r#"{"env": ["=C"]}"#, false),
    ("variable without a sign", r#"{"env": ["LANG"]}"#, false),
    (
        "second variable without a name",
        r#"{"env": ["LANG=C", "=C"]}"#,
        false,
    ),
    (
        "node by its path",
        r#"{"deviceNodes": [{"path": "/dev/zero"}]}"#,
        true,
    ),
    (
        "node by path and type",
        r#"{"deviceNodes": [{"path": "/dev/zero", "type": "c"}]}"#,
        true,
    ),
    (
        "node with all accesses",
        r#"{"deviceNodes": [{"path": "/dev/zero", "type": "b", "permissions": "rwm"}]}"#,
        true,
    ),
    (
        "node with no access",
        r#"{"deviceNodes": [{"path": "/dev/zero", "type": "b", "permissions": "none"}]}"#,
        true,
    ),
    (
        "node with an empty path",
        r#"{"deviceNodes": [{"path": ""}]}"#,
        false,
    ),
    (
        "node of an unknown type",
        r#"{"deviceNodes": [{"path": "/dev/zero", "type": "f"}]}"#,
        false,
    ),
    (
        "node with words for accesses",
        r#"{"deviceNodes": [{"path": "/dev/zero", "permissions": "read only"}]}"#,
        false,
    ),
    (
        "node with an unknown access among known ones",
        r#"{"deviceNodes": [{"path": "/dev/zero", "permissions": "rwx"}]}"#,
        false,
    ),
    (
        "mount",
        r#"{"mounts": [{"hostPath": "/opt/x", "containerPath": "/opt/x"}]}"#,
        true,
    ),
    (
        "mount without a source",
        r#"{"mounts": [{"hostPath": "", "containerPath": "/opt/x"}]}"#,
        false,
    ),
    (
        "mount without a target",
        r#"{"mounts": [{"hostPath": "/opt/x", "containerPath": ""}]}"#,
        false,
    ),
    ("hook before the start", HOOKS[0], true),
    ("hook when the runtime is created", HOOKS[1], true),
    ("hook when the container is created", HOOKS[2], true),
    ("hook when the container starts", HOOKS[3], true),
    ("hook after the start", HOOKS[4], true),
    ("hook after the stop", HOOKS[5], true),
    (
        "hook with arguments and variables",
        r#"{"hooks": [{"hookName": "prestart", "path": "/opt/x", "args": ["-v"], "env": ["A=1"]}]}"#,
        true,
    ),
    (
        "hook without a path",
        r#"{"hooks": [{"hookName": "prestart"}]}"#,
        false,
    ),
    (
        "hook of an unknown time",
        r#"{"hooks": [{"hookName": "CreateRuntime", "path": "/opt/x"}]}"#,
        false,
    ),
    (
        "hook with a variable without a name",
        r#"{"hooks": [{"hookName": "poststart", "path": "/opt/x", "env": ["=1"]}]}"#,
        false,
    ),
    (
        "class of service with a dot in it",
        r#"{"intelRdt": {"closID": "half.cache"}}"#,
        true,
    ),
    (
        "class of service that is the root",
        r#"{"intelRdt": {"closID": "/"}}"#,
        true,
    ),
    (
        "class of service in another",
        r#"{"intelRdt": {"closID": "half/cache"}}"#,
        false,
    ),
    (
        "class of service that is a dot",
        r#"{"intelRdt": {"closID": "."}}"#,
        false,
    ),
    (
        "class of service that is two dots",
        r#"{"intelRdt": {"closID": ".."}}"#,
        false,
    ),
    (
        "class of service in two lines",
        r#"{"intelRdt": {"closID": "half\ncache"}}"#,
        false,
    ),
    (
        "class of service with its schemata",
        r#"{"intelRdt": {"closID": "a", "l3CacheSchema": "L3:0=f", "memBwSchema": "MB:0=50",
            "schemata": ["L2:0=f"], "enableMonitoring": true}}"#,
        true,
    ),
    (
        "network device",
        r#"{"netDevices": [{"hostInterfaceName": "ib0", "name": "eth1"}]}"#,
        true,
    ),
    (
        "two network devices",
        r#"{"netDevices": [{"hostInterfaceName": "ib0", "name": "eth1"},
            {"hostInterfaceName": "ib1", "name": "eth2"}]}"#,
        true,
    ),
    (
        "network device without a name on the host",
        r#"{"netDevices": [{"hostInterfaceName": "", "name": "eth1"}]}"#,
        false,
    ),
    (
        "network device without a name in the container",
        r#"{"netDevices": [{"hostInterfaceName": "ib0", "name": ""}]}"#,
        false,
    ),
    ("groups", r#"{"additionalGids": [44, 105]}"#, true),
    (
        "one group several times",
        r#"{"additionalGids": [44, 105, 44]}"#,
        true,
    ),
    (
        "variable that is set twice",
        r#"{"env": ["LANG=C", "LANG=de"]}"#,
        true,
    ),
    (
        "node and variable",
        r#"{"env": ["LANG=C"], "deviceNodes": [{"path": "/dev/zero", "type": "c"}]}"#,
        true,
    ),
    (
        "good node and bad variable",
        r#"{"env": ["LANG"], "deviceNodes": [{"path": "/dev/zero"}]}"#,
        false,
    ),
];

/// A hook of each time.
const HOOKS: [&str; 6] = [
    r#"{"hooks": [{"hookName": "prestart", "path": "/opt/x"}]}"#,
    r#"{"hooks": [{"hookName": "createRuntime", "path": "/opt/x"}]}"#,
    r#"{"hooks": [{"hookName": "createContainer", "path": "/opt/x"}]}"#,
    r#"{"hooks": [{"hookName": "startContainer", "path": "/opt/x"}]}"#,
    r#"{"hooks": [{"hookName": "poststart", "path": "/opt/x"}]}"#,
    r#"{"hooks": [{"hookName": "poststop", "path": "/opt/x"}]}"#,
];

#[test]
fn edits_are_valid_as_in_the_reference_code() {
    let mut differences = Vec::new();
    for (name, edits, is_valid) in EDITS {
        let result = edits_of("1.1.0", edits);
        if result.is_ok() != is_valid {
            differences.push(format!("{name}: {result:?}"));
        }
    }
    assert_none(&differences);
}

/// What a file uses; its keys beside version and devices; its device; and the first version that has it.
const FIRST_VERSIONS: [(&str, &str, &str, &str); 27] = [
    ("nothing new", KIND, DEVICE, "0.3.0"),
    (
        "a device's name that begins with a digit",
        KIND,
        r#"{"name": "0", "containerEdits": {"env": ["A=1"]}}"#,
        "0.5.0",
    ),
    (
        "a device's name with a digit in it",
        KIND,
        r#"{"name": "a0", "containerEdits": {"env": ["A=1"]}}"#,
        "0.3.0",
    ),
    (
        "a dot in the class",
        r#""kind": "v.example/c.d""#,
        DEVICE,
        "0.6.0",
    ),
    (
        "an empty list of each new key",
        r#""kind": "v.example/c", "containerEdits": {"additionalGids": [], "netDevices": []}"#,
        DEVICE,
        "0.3.0",
    ),
    (
        "a mount of a type, in the file's edits",
        r#""kind": "v.example/c", "containerEdits":
            {"mounts": [{"hostPath": "/a", "containerPath": "/b", "type": "bind"}]}"#,
        DEVICE,
        "0.4.0",
    ),
    (
        "a mount of a type, in a device's edits",
        KIND,
        r#"{"name": "a", "containerEdits":
            {"mounts": [{"hostPath": "/a", "containerPath": "/b", "type": "bind"}]}}"#,
        "0.4.0",
    ),
    (
        "a mount without a type",
        KIND,
        r#"{"name": "a", "containerEdits": {"mounts": [{"hostPath": "/a", "containerPath": "/b"}]}}"#,
        "0.3.0",
    ),
    (
        "another path on the host, in the file's edits",
        r#""kind": "v.example/c", "containerEdits":
            {"deviceNodes": [{"path": "/dev/a", "hostPath": "/dev/b"}]}"#,
        DEVICE,
        "0.5.0",
    ),
    (
        "another path on the host, in a device's edits",
        KIND,
        r#"{"name": "a", "containerEdits": {"deviceNodes": [{"path": "/dev/a", "hostPath": "/dev/b"}]}}"#,
        "0.5.0",
    ),
    (
        "the same path on the host",
        r#""kind": "v.example/c", "containerEdits":
            {"deviceNodes": [{"path": "/dev/a", "hostPath": "/dev/a"}]}"#,
        DEVICE,
        "0.5.0",
    ),
    (
        "an annotation of the file",
        r#""kind": "v.example/c", "annotations": {"v.example/x": "y"}"#,
        DEVICE,
        "0.6.0",
    ),
    (
        "an annotation of a device",
        KIND,
        r#"{"name": "a", "annotations": {"v.example/x": "y"}, "containerEdits": {"env": ["A=1"]}}"#,
        "0.6.0",
    ),
    (
        "a group, in the file's edits",
        r#""kind": "v.example/c", "containerEdits": {"additionalGids": [7]}"#,
        DEVICE,
        "0.7.0",
    ),
    (
        "a group, in a device's edits",
        KIND,
        r#"{"name": "a", "containerEdits": {"additionalGids": [7]}}"#,
        "0.7.0",
    ),
    (
        "a class of service, in the file's edits",
        r#""kind": "v.example/c", "containerEdits": {"intelRdt": {"closID": "x"}}"#,
        DEVICE,
        "0.7.0",
    ),
    (
        "a class of service, in a device's edits",
        KIND,
        r#"{"name": "a", "containerEdits": {"intelRdt": {"closID": "x"}}}"#,
        "0.7.0",
    ),
    (
        "a class of service without a name",
        r#""kind": "v.example/c", "containerEdits": {"intelRdt": {}}"#,
        DEVICE,
        "0.7.0",
    ),
    (
        "schemata, in the file's edits",
        r#""kind": "v.example/c", "containerEdits": {"intelRdt": {"schemata": ["x"]}}"#,
        DEVICE,
        "1.1.0",
    ),
    (
        "schemata, in a device's edits",
        KIND,
        r#"{"name": "a", "containerEdits": {"intelRdt": {"schemata": ["x"]}}}"#,
        "1.1.0",
    ),
    (
        "monitoring, in the file's edits",
        r#""kind": "v.example/c", "containerEdits": {"intelRdt": {"enableMonitoring": true}}"#,
        DEVICE,
        "1.1.0",
    ),
    (
        "monitoring, in a device's edits",
        KIND,
        r#"{"name": "a", "containerEdits": {"intelRdt": {"enableMonitoring": true}}}"#,
        "1.1.0",
    ),
    (
        "no monitoring, which is the default",
        KIND,
        r#"{"name": "a", "containerEdits": {"intelRdt": {"enableMonitoring": false}}}"#,
        "0.7.0",
    ),
    (
        "a network device, in the file's edits",
        r#""kind": "v.example/c", "containerEdits":
            {"netDevices": [{"hostInterfaceName": "a", "name": "b"}]}"#,
        DEVICE,
        "1.1.0",
    ),
    (
        "a network device, in a device's edits",
        KIND,
        r#"{"name": "a", "containerEdits": {"netDevices": [{"hostInterfaceName": "a", "name": "b"}]}}"#,
        "1.1.0",
    ),
    (
        "three new keys: the newest counts",
        r#""kind": "v.example/c", "annotations": {"x": "y"}, "containerEdits":
            {"deviceNodes": [{"path": "/dev/a", "hostPath": "/dev/b"}],
             "mounts": [{"hostPath": "/a", "containerPath": "/b", "type": "bind"}]}"#,
        DEVICE,
        "0.6.0",
    ),
    (
        "new keys of file and device: the newest counts",
        r#""kind": "v.example/c", "annotations": {"x": "y"}, "containerEdits": {"additionalGids": [7]}"#,
        r#"{"name": "a", "containerEdits": {"netDevices": [{"hostInterfaceName": "a", "name": "b"}]}}"#,
        "1.1.0",
    ),
];

const KIND: &str = r#""kind": "v.example/c""#;
const DEVICE: &str = r#"{"name": "a", "containerEdits": {"env": ["A=1"]}}"#;

/// A runtime of an older version must not take a file for one of its own, so each version is tried.
#[test]
fn file_is_valid_from_the_version_that_the_reference_code_requires() {
    let mut differences = Vec::new();
    for (name, keys, device, first) in FIRST_VERSIONS {
        for version in RELEASED {
            let text = format!(r#"{{"cdiVersion": "{version}", {keys}, "devices": [{device}]}}"#);
            let result = json(&text);
            if result.is_ok() != (version >= first) {
                differences.push(format!("{name}: in {version}: {result:?}"));
            }
        }
    }
    assert_none(&differences);
}

/// What a version is, the version, and whether a file may have it.
const VERSIONS: [(&str, &str, bool); 11] = [
    ("the newest", "1.1.0", true),
    ("with a v", "v1.1.0", true),
    ("the oldest that is supported", "0.3.0", true),
    ("released, but not supported", "0.1.0", false),
    ("released, but not supported, with a v", "v0.2.0", false),
    ("not released yet", "1.2.0", false),
    ("never released", "0.0.0", false),
    ("no version", "latest", false),
    ("none", "", false),
    ("two numbers", "1.0", false),
    ("four numbers", "1.0.0.0", false),
];

#[test]
fn versions_are_valid_as_in_the_reference_code() {
    let mut differences = Vec::new();
    for (name, version, is_valid) in VERSIONS {
        let result = edits_of(version, r#"{"env": ["A=1"]}"#);
        if result.is_ok() != is_valid {
            differences.push(format!("{name}: {version:?}: {result:?}"));
        }
    }
    assert_none(&differences);
}

/// What a file is, the file in YAML, and whether it is a specification.
const FILES: [(&str, &str, bool); 17] = [
    ("empty", "", false),
    ("an empty object", "{}", false),
    ("other keys", "answer: 42\n", false),
    (
        "one device",
        "cdiVersion: 0.3.0\nkind: v.example/c\ndevices:\n- {name: a, containerEdits: {env: [A=1]}}\n",
        true,
    ),
    (
        "a device with a node",
        "cdiVersion: 0.3.0\nkind: v.example/c\ndevices:\n\
         - {name: a, containerEdits: {deviceNodes: [{path: /dev/zero}]}}\n",
        true,
    ),
    (
        "three devices",
        "cdiVersion: 0.3.0\nkind: v.example/c\ndevices:\n- {name: a, containerEdits: {env: [A=1]}}\n\
         - {name: b, containerEdits: {env: [A=2]}}\n- {name: c, containerEdits: {env: [A=3]}}\n",
        true,
    ),
    (
        "a mount in memory with options",
        "cdiVersion: 0.4.0\nkind: v.example/c\ndevices:\n- name: a\n  containerEdits:\n    mounts:\n\
         \x20   - {hostPath: tmpfs, containerPath: /t, type: tmpfs, options: [ro, mode=755, size=65536k]}\n",
        true,
    ),
    (
        "without a version",
        "kind: v.example/c\ndevices:\n- {name: a, containerEdits: {env: [A=1]}}\n",
        false,
    ),
    (
        "with an empty version",
        "cdiVersion: ''\nkind: v.example/c\ndevices:\n- {name: a, containerEdits: {env: [A=1]}}\n",
        false,
    ),
    (
        "with a version that never was",
        "cdiVersion: 0.0.0\nkind: v.example/c\ndevices:\n- {name: a, containerEdits: {env: [A=1]}}\n",
        false,
    ),
    (
        "without a kind",
        "cdiVersion: 0.3.0\ndevices:\n- {name: a, containerEdits: {env: [A=1]}}\n",
        false,
    ),
    (
        "with an invalid vendor",
        "cdiVersion: 0.3.0\nkind: v.example-/c\ndevices:\n- {name: a, containerEdits: {env: [A=1]}}\n",
        false,
    ),
    (
        "with an invalid class",
        "cdiVersion: 0.3.0\nkind: v.example/c=\ndevices:\n- {name: a, containerEdits: {env: [A=1]}}\n",
        false,
    ),
    (
        "with an invalid device's name",
        "cdiVersion: 0.3.0\nkind: v.example/c\ndevices:\n- {name: a b c, containerEdits: {env: [A=1]}}\n",
        false,
    ),
    (
        "with a device without edits",
        "cdiVersion: 0.3.0\nkind: v.example/c\ndevices:\n- {name: a}\n",
        false,
    ),
    (
        "with one name for two devices",
        "cdiVersion: 0.3.0\nkind: v.example/c\ndevices:\n- {name: a, containerEdits: {env: [A=1]}}\n\
         - {name: b, containerEdits: {env: [A=2]}}\n- {name: a, containerEdits: {env: [A=3]}}\n",
        false,
    ),
    (
        "without devices",
        "cdiVersion: 0.3.0\nkind: v.example/c\ncontainerEdits: {env: [A=1]}\n",
        false,
    ),
];

#[test]
fn files_are_valid_as_in_the_reference_code() {
    let mut differences = Vec::new();
    for (name, text, is_valid) in FILES {
        let result = Spec::parse(text.as_bytes(), Format::Yaml);
        if result.is_ok() != is_valid {
            differences.push(format!("{name}: {result:?}"));
        }
    }
    assert_none(&differences);
}
