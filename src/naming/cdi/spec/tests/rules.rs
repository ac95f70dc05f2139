//! Each rule of the standard, with values that follow it and values that break it.

use super::*;

/// Edits, the version that introduced them, the version before, and the place of its error.
const SINCE: [(&str, &str, &str, &str); 10] = [
    (
        r#"{"mounts": [{"hostPath": "/a", "containerPath": "/a", "type": "none"}]}"#,
        "0.4.0",
        "0.3.0",
        "mounts[0].type",
    ),
    (
        r#"{"deviceNodes": [{"path": "/dev/x", "hostPath": "/dev/x"}]}"#,
        "0.5.0",
        "0.4.0",
        "deviceNodes[0].hostPath",
    ),
    (
        r#"{"additionalGids": [0]}"#,
        "0.7.0",
        "0.6.0",
        "additionalGids[0]",
    ),
    (
        r#"{"additionalGIDs": [0]}"#,
        "0.7.0",
        "0.6.0",
        "additionalGIDs[0]",
    ),
    (r#"{"intelRdt": {}}"#, "0.7.0", "0.6.0", "intelRdt"),
    (
        r#"{"intelRdt": {"schemata": ["x"]}}"#,
        "1.1.0",
        "1.0.0",
        "intelRdt.schemata[0]",
    ),
    (
        r#"{"intelRdt": {"enableMonitoring": true}}"#,
        "1.1.0",
        "1.0.0",
        "intelRdt.enableMonitoring",
    ),
    (
        r#"{"netDevices": [{"hostInterfaceName": "a", "name": "b"}]}"#,
        "1.1.0",
        "1.0.0",
        "netDevices[0]",
    ),
    (
        r#"{"env": ["A=1"]}, "annotations": {"a": "b"}"#,
        "0.6.0",
        "0.5.0",
        "",
    ),
    (
        r#"{"env": ["A=1"]}, "annotations": {"a": null}"#,
        "0.6.0",
        "0.5.0",
        "",
    ),
];

#[test]
fn key_is_refused_before_its_version() {
    for (edits, enough, before, place) in SINCE {
        assert!(
            edits_of(enough, edits).is_ok(),
            "{edits}: {:?}",
            edits_of(enough, edits)
        );
        assert!(edits_of("1.1.0", edits).is_ok(), "{edits}");
        let error = edits_of(before, edits).unwrap_err();
        let rest = format!("came with version {enough}, the file says {before}");
        assert!(error.to_string().ends_with(&rest), "{edits}: {error}");
        let place = if place.is_empty() {
            "annotations".to_owned()
        } else {
            format!("containerEdits.{place}")
        };
        assert_eq!(error.place(), format!("devices[0] \"a\": {place}"));
    }
    for (from, to, enough, before) in [
        (r#""name": "a""#, r#""name": "0""#, "0.5.0", "0.4.0"),
        ("v.example/c", "v.example/c.d", "0.6.0", "0.5.0"),
        (
            r#""kind""#,
            r#""annotations": {"a": ""}, "kind""#,
            "0.6.0",
            "0.5.0",
        ),
    ] {
        let text = |version| with_edits(version, r#"{"env": ["A=1"]}"#).replace(from, to);
        assert!(json(&text(enough)).is_ok(), "{to}");
        assert!(json(&text(before)).is_err(), "{to}");
    }
}

#[test]
fn empty_values_need_no_version() {
    let edits = r#"{"env": ["A=1"], "mounts": [], "netDevices": [], "additionalGids": [],
        "additionalGIDs": null, "intelRdt": null, "hooks": null}, "annotations": {}"#;
    assert!(
        edits_of("0.3.0", edits).is_ok(),
        "{:?}",
        edits_of("0.3.0", edits)
    );
}

#[test]
fn monitoring_by_kind_is_refused_from_version_1_1() {
    let edits = r#"{"intelRdt": {"enableCMT": true, "enableMBM": false}}"#;
    assert!(edits_of("1.0.0", edits).is_ok());
    let error = edits_of("1.1.0", edits).unwrap_err().to_string();
    assert!(
        error.ends_with("intelRdt: unknown key \"enableCMT\""),
        "{error}"
    );
}

#[test]
fn only_released_versions_are_accepted() {
    let known = [
        "0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0",
    ];
    let edits = r#"{"env": ["A=1"]}"#;
    for version in known {
        assert!(
            edits_of(version, edits).is_ok() && edits_of(&format!("v{version}"), edits).is_ok()
        );
    }
    let odd = [
        "", "v", "0.1.0", "0.2.0", "0.9.0", "1.2.0", "1.1", "1.1.0 ", "vv1.1.0", "V1.1.0", "1.1.1",
        "01.1.0",
    ];
    for version in odd {
        assert_eq!(
            edits_of(version, edits).unwrap_err().place(),
            "cdiVersion",
            "{version:?}"
        );
    }
}

#[test]
fn specification_without_version_kind_or_edits_is_refused() {
    let whole = with_edits("0.3.0", r#"{"env": ["A=1"]}"#);
    let broken = [
        (r#""cdiVersion": "0.3.0","#, "", "no cdiVersion"),
        ("\"0.3.0\"", "null", "no cdiVersion"),
        ("\"0.3.0\"", "0.3", "cdiVersion: not text"),
        (r#""kind": "v.example/c","#, "", "no kind"),
        ("v.example/c", "v.example", "kind: not VENDOR/CLASS"),
        ("v.example/c", "/c", "kind: the vendor is empty"),
        (
            "v.example/c",
            "v.example/c/d",
            "kind: the class has the character '/'",
        ),
        (r#""name": "a","#, "", "devices[0]: no name"),
        (
            r#""name": "a""#,
            r#""name": """#,
            "devices[0].name: the device's name is empty",
        ),
        (
            r#""name": "a""#,
            r#""name": "a b""#,
            "devices[0].name: the device's name has the character ' '",
        ),
        (
            r#", "containerEdits": {"env": ["A=1"]}"#,
            "",
            "devices[0] \"a\": no containerEdits",
        ),
        (
            r#"{"env": ["A=1"]}"#,
            "{}",
            "devices[0] \"a\": containerEdits: empty",
        ),
        (
            r#"{"env": ["A=1"]}"#,
            r#"{"env": []}"#,
            "devices[0] \"a\": containerEdits: empty",
        ),
        (
            r#"{"env": ["A=1"]}"#,
            "[]",
            "devices[0] \"a\": containerEdits: not an object",
        ),
        (
            r#"[{"name": "a", "containerEdits": {"env": ["A=1"]}}]"#,
            "[]",
            "no devices",
        ),
        (
            r#"[{"name": "a", "containerEdits": {"env": ["A=1"]}}]"#,
            "null",
            "no devices",
        ),
        (
            r#"[{"name": "a", "containerEdits": {"env": ["A=1"]}}]"#,
            "{}",
            "devices: not a list",
        ),
        (
            r#"[{"name": "a", "containerEdits": {"env": ["A=1"]}}]"#,
            "[null]",
            "devices[0]: not an object",
        ),
        (
            r#"[{"name": "a","#,
            r#"[{"name": "a", "containerEdits": {"env": ["A=1"]}}, {"name": "a","#,
            "devices: \"a\" stands twice",
        ),
        (
            r#""kind""#,
            r#""CDIVersion": "0.3.0", "kind""#,
            "unknown key \"CDIVersion\"",
        ),
        (
            r#""name""#,
            r#""x\n": 1, "name""#,
            "devices[0]: unknown key \"x\\n\"",
        ),
        (
            r#""kind""#,
            r#""containerEdits": [], "kind""#,
            "containerEdits: not an object",
        ),
    ];
    assert!(json(&whole).is_ok());
    for (from, to, why) in broken {
        assert!(whole.contains(from), "{from}");
        let error = json(&whole.replacen(from, to, 1)).unwrap_err();
        assert_eq!(error.to_string(), why);
    }
    for text in ["[]", "null", "\"\"", r#"["0.3.0", "v/c", []]"#] {
        assert_eq!(
            json(text).unwrap_err().to_string(),
            "not an object",
            "{text}"
        );
    }
    let empty = whole.replace(r#""kind""#, r#""containerEdits": {}, "kind""#);
    assert!(json(&empty).is_ok(), "edits of the whole file may be empty");
}

#[test]
fn invalid_node_is_refused() {
    let odd = [
        (r#""type": "d""#, "type"),
        (r#""type": "cc""#, "type"),
        (r#""type": 1"#, "type"),
        (r#""permissions": "x""#, "permissions"),
        (r#""permissions": "r w""#, "permissions"),
        (r#""permissions": "nonee""#, "permissions"),
        (r#""permissions": "RW""#, "permissions"),
        (r#""major": -1"#, "major"),
        (r#""major": 4096"#, "major"),
        (r#""major": 4294967491"#, "major"),
        (r#""major": 1.0"#, "major"),
        (r#""major": "195""#, "major"),
        (r#""major": true"#, "major"),
        (r#""minor": -1"#, "minor"),
        (r#""minor": 1048576"#, "minor"),
        (r#""minor": 18446744073709551615"#, "minor"),
        (r#""fileMode": -1"#, "fileMode"),
        (r#""uid": 4294967296"#, "uid"),
        (r#""gid": "44""#, "gid"),
        (r#""hostPath": "dev/x""#, "hostPath"),
        (r#""hostPath": "/dev/../x""#, "hostPath"),
        (r#""hostPath": "/dev/x\u0000""#, "hostPath"),
        (r#""hostPath": "/dev/x\n""#, "hostPath"),
        (r#""hostPath": ["/dev/x"]"#, "hostPath"),
    ];
    for (key, place) in odd {
        let error = node_of(&format!(", {key}")).unwrap_err();
        assert_eq!(
            error.place(),
            format!("devices[0] \"a\": containerEdits.deviceNodes[0].{place}")
        );
    }
    let long = |length: usize| node_of(&format!(r#", "hostPath": "/{}""#, "x".repeat(length - 1)));
    assert!(long(4095).is_ok() && long(4096).is_err());
    for path in ["", "dev/x", "/dev/..", "../x", "/dev/\\u001b"] {
        let edits = format!(r#"{{"deviceNodes": [{{"path": "{path}"}}]}}"#);
        assert!(edits_of("1.1.0", &edits).is_err(), "{path}");
    }
    assert!(
        edits_of("1.1.0", r#"{"deviceNodes": [{}]}"#).is_err(),
        "no path"
    );
    assert!(
        node_of(r#", "hostPath": "/dev/a..b/...""#).is_ok(),
        "dots in a name are no way up"
    );
}

#[test]
fn invalid_edits_are_refused() {
    let long = format!(r#"{{"intelRdt": {{"closID": "{}"}}}}"#, "x".repeat(4096));
    let odd = [
        (r#"{"env": ["A"]}"#, "env[0]"),
        (r#"{"env": ["A=1", "=1"]}"#, "env[1]"),
        (r#"{"env": [""]}"#, "env[0]"),
        (r#"{"env": [null]}"#, "env[0]"),
        (r#"{"env": ["A=\u0000"]}"#, "env[0]"),
        (r#"{"env": "A=1"}"#, "env"),
        (r#"{"env": {"A": "1"}}"#, "env"),
        (r#"{"deviceNodes": [null]}"#, "deviceNodes[0]"),
        (r#"{"deviceNodes": [["/dev/x"]]}"#, "deviceNodes[0]"),
        (r#"{"additionalGids": [-1]}"#, "additionalGids[0]"),
        (r#"{"additionalGids": [4294967296]}"#, "additionalGids[0]"),
        (r#"{"additionalGids": [1], "additionalGIDs": [1]}"#, ""),
        (r#"{"hooks": [{"hookName": "prestart"}]}"#, "hooks[0]"),
        (r#"{"hooks": [{"path": "/bin/x"}]}"#, "hooks[0]"),
        (
            r#"{"hooks": [{"hookName": "prestop", "path": "/bin/x"}]}"#,
            "hooks[0].hookName",
        ),
        (
            r#"{"hooks": [{"hookName": "prestart", "path": ""}]}"#,
            "hooks[0].path",
        ),
        (
            r#"{"hooks": [{"hookName": "prestart", "path": "x"}]}"#,
            "hooks[0].path",
        ),
        (
            r#"{"hooks": [{"hookName": "prestart", "path": "/x", "args": [{}]}]}"#,
            "hooks[0].args[0]",
        ),
        (
            r#"{"hooks": [{"hookName": "prestart", "path": "/x", "env": ["A"]}]}"#,
            "hooks[0].env[0]",
        ),
        (
            r#"{"hooks": [{"hookName": "prestart", "path": "/x", "timeout": 0}]}"#,
            "hooks[0].timeout",
        ),
        (
            r#"{"hooks": [{"hookName": "prestart", "path": "/x", "cwd": "/"}]}"#,
            "hooks[0]",
        ),
        (r#"{"mounts": [{"hostPath": "/a"}]}"#, "mounts[0]"),
        (
            r#"{"mounts": [{"hostPath": "", "containerPath": "/a"}]}"#,
            "mounts[0].hostPath",
        ),
        (
            r#"{"mounts": [{"hostPath": "/a", "containerPath": ""}]}"#,
            "mounts[0].containerPath",
        ),
        (
            r#"{"mounts": [{"hostPath": "/a", "containerPath": "/a", "options": "ro"}]}"#,
            "mounts[0].options",
        ),
        (
            r#"{"mounts": [{"hostPath": "/a", "containerPath": "/a", "x": 1}]}"#,
            "mounts[0]",
        ),
        (r#"{"intelRdt": {"closID": "."}}"#, "intelRdt.closID"),
        (r#"{"intelRdt": {"closID": ".."}}"#, "intelRdt.closID"),
        (r#"{"intelRdt": {"closID": "a/b"}}"#, "intelRdt.closID"),
        (r#"{"intelRdt": {"closID": "a\n"}}"#, "intelRdt.closID"),
        (&long, "intelRdt.closID"),
        (
            r#"{"intelRdt": {"l3CacheSchema": 1}}"#,
            "intelRdt.l3CacheSchema",
        ),
        (
            r#"{"intelRdt": {"enableMonitoring": "true"}}"#,
            "intelRdt.enableMonitoring",
        ),
        (r#"{"intelRdt": {"x": 1}}"#, "intelRdt"),
        (r#"{"netDevices": [{"name": "a"}]}"#, "netDevices[0]"),
        (
            r#"{"netDevices": [{"hostInterfaceName": "a", "name": ""}]}"#,
            "netDevices[0].name",
        ),
        (
            r#"{"netDevices": [{"hostInterfaceName": "a", "name": "b"}, {"hostInterfaceName": "a", "name": "c"}]}"#,
            "netDevices[1].hostInterfaceName",
        ),
        (
            r#"{"netDevices": [{"hostInterfaceName": "a", "name": "b"}, {"hostInterfaceName": "c", "name": "b"}]}"#,
            "netDevices[1].name",
        ),
        (r#"{"envs": []}"#, ""),
    ];
    for (edits, place) in odd {
        let error = edits_of("1.1.0", edits).unwrap_err();
        let place = if place.is_empty() {
            String::new()
        } else {
            format!(".{place}")
        };
        assert_eq!(
            error.place(),
            format!("devices[0] \"a\": containerEdits{place}"),
            "{edits}: {error}"
        );
    }
}

#[test]
fn class_of_service_is_one_directory_or_the_root() {
    for name in ["a", "...", "/", ""] {
        let edits = format!(r#"{{"intelRdt": {{"closID": "{name}"}}}}"#);
        assert!(edits_of("0.7.0", &edits).is_ok(), "{name:?}");
    }
}

#[test]
fn annotations_accept_texts_and_scalars_only() {
    for (annotations, fits) in [
        (r#"{"a": "b", "": ""}"#, true),
        (r#"{"a": 1, "b": 1.5, "c": true, "d": null}"#, true),
        (r#"{"a": {}}"#, false),
        (r#"{"a": ["b"]}"#, false),
        (r#"["a"]"#, false),
        (r#""a""#, false),
    ] {
        let edits = format!(r#"{{"env": ["A=1"]}}, "annotations": {annotations}"#);
        assert_eq!(edits_of("1.1.0", &edits).is_ok(), fits, "{annotations}");
    }
}

/// Generators write an empty text for the node's own path. The key came with version 0.5.0.
#[test]
fn empty_host_path_counts_as_missing() {
    for (version, host_path, fits) in [
        ("0.3.0", r#""""#, true),
        ("0.3.0", r#""/dev/y""#, false),
        ("0.5.0", "7", false),
    ] {
        let edits =
            format!(r#"{{"deviceNodes": [{{"path": "/dev/x", "hostPath": {host_path}}}]}}"#);
        let read = edits_of(version, &edits).map(|edits| edits.nodes[0].host_path.clone());
        assert_eq!(
            read.clone().ok(),
            fits.then_some(None),
            "{host_path}: {read:?}"
        );
    }
}
