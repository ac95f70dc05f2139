mod random;
mod reference;
mod rules;

use super::*;
use helper::node::ContainerParts;
use protocol::Access;

/// A JSON specification with these edits of its only device, `a`.
fn with_edits(version: &str, edits: &str) -> String {
    let device = format!(r#"{{"name": "a", "containerEdits": {edits}}}"#);
    format!(r#"{{"cdiVersion": "{version}", "kind": "v.example/c", "devices": [{device}]}}"#)
}

fn json(text: &str) -> Result<Spec, SpecError> {
    Spec::parse(text.as_bytes(), Format::Json)
}

/// Parses edits.
fn edits_of(version: &str, edits: &str) -> Result<Edits, SpecError> {
    json(&with_edits(version, edits)).map(|mut spec| spec.devices.remove(0).edits)
}

/// Parses a node with these keys besides its path.
fn node_of(keys: &str) -> Result<NodeEdit, SpecError> {
    let edits = format!(r#"{{"deviceNodes": [{{"path": "/dev/x"{keys}}}]}}"#);
    edits_of("1.1.0", &edits).map(|mut edits| edits.nodes.remove(0))
}

#[test]
fn node_keeps_the_values_of_the_file() {
    let keys = r#", "hostPath": "/dev/y", "type": "b", "major": 0, "minor": 9, "permissions": "r""#;
    let expected = NodeEdit {
        path: "/dev/x".to_owned(),
        host_path: Some("/dev/y".to_owned()),
        kind: Some(NodeKind::Block),
        major: Some(0),
        minor: Some(9),
        access: Some(Access::READ),
    };
    assert_eq!(node_of(keys), Ok(expected));
    let bare = NodeEdit {
        path: "/dev/x".to_owned(),
        host_path: None,
        kind: None,
        major: None,
        minor: None,
        access: None,
    };
    let nulls = [
        "hostPath",
        "type",
        "major",
        "minor",
        "permissions",
        "fileMode",
        "uid",
        "gid",
    ]
    .map(|key| format!(r#", "{key}": null"#));
    for each_keys in ["", r#", "type": "", "permissions": """#, &nulls.concat()] {
        assert_eq!(node_of(each_keys), Ok(bare.clone()), "{each_keys}");
    }
}

#[test]
fn types_and_permissions_have_the_meaning_of_the_standard() {
    let kinds = [
        ("b", NodeKind::Block),
        ("c", NodeKind::Char),
        ("u", NodeKind::Char),
    ];
    for (text, kind) in kinds.into_iter().chain([("p", NodeKind::Fifo)]) {
        assert_eq!(
            node_of(&format!(r#", "type": "{text}""#)).unwrap().kind,
            Some(kind)
        );
    }
    let sets = [
        ("rw", Access::RW),
        ("mwr", Access::ALL),
        ("rrrr", Access::READ),
    ];
    for (text, access) in sets
        .into_iter()
        .chain([("none", Access::NONE), ("m", Access::MKNOD)])
    {
        let node = node_of(&format!(r#", "permissions": "{text}""#));
        assert_eq!(node.unwrap().access, Some(access), "{text}");
    }
}

#[test]
fn edits_without_device_nodes_grant_nothing() {
    let edits = r#"{"env": ["A=1", "B=x=y", "C="], "additionalGids": [0, 44, 0, 105],
        "hooks": [{"hookName": "prestart", "path": "/bin/sh"}],
        "mounts": [{"hostPath": "/a", "containerPath": "/b"}]}"#;
    assert_eq!(edits_of("0.7.0", edits).unwrap().nodes, []);
}

/// No login gets a variable, so that none makes the file unusable as long as a runtime can set it.
#[test]
fn variable_with_a_newline_is_taken() {
    for variable in [r"A=1\nB=2", r"A=\n", r"A\n=1", r"A=\t"] {
        let edits = format!(r#"{{"env": ["{variable}"]}}"#);
        assert!(edits_of("1.1.0", &edits).is_ok(), "{variable}");
    }
}

#[test]
fn parts_for_containers_are_kept_to_be_named() {
    let edits = r#"{"deviceNodes": [{"path": "/dev/x", "gid": 0}], "additionalGids": [0, 44, 105],
        "env": ["NVIDIA_VISIBLE_DEVICES=void"],
        "mounts": [{"hostPath": "/usr/lib/libx.so", "containerPath": "/x"},
                   {"hostPath": "tmpfs", "containerPath": "/t", "type": "tmpfs"}],
        "hooks": [{"hookName": "createContainer", "path": "/usr/bin/hook"}],
        "intelRdt": {"closID": "a"},
        "netDevices": [{"hostInterfaceName": "ib0", "name": "ib1"}]}"#;
    let container = edits_of("1.1.0", edits).unwrap().container;
    assert_eq!(container.gids, [44, 105].into());
    let files = ["/usr/bin/hook", "/usr/lib/libx.so"].map(str::to_owned);
    assert_eq!(container.files, files.into());
    assert!(container.has_intel_rdt);
    assert_eq!(container.net_devices, ["ib0".to_owned()].into());
    let usual = container.usual_parts().join("; ");
    assert!(
        usual.contains("does not get NVIDIA_VISIBLE_DEVICES; fileMode, uid and gid"),
        "{usual}"
    );
    let bare = edits_of("1.1.0", r#"{"deviceNodes": [{"path": "/dev/x"}]}"#);
    assert_eq!(bare.unwrap().container, ContainerParts::default());
}

#[test]
fn device_is_found_by_its_whole_name_only() {
    let spec = json(&with_edits("0.3.0", r#"{"env": ["A=1"]}"#)).unwrap();
    let find = |name: &str| {
        spec.device(&name.parse().unwrap())
            .map(|device| device.name.as_str())
    };
    assert_eq!(find("v.example/c=a"), Some("a"));
    for other in [
        "v.example/c=b",
        "v.example/d=a",
        "w.example/c=a",
        "v.example/c=all",
        "V.example/c=a",
    ] {
        assert_eq!(find(other), None, "{other}");
    }
}

#[test]
fn unquoted_word_is_text_only_if_all_readers_agree() {
    let yaml = |name: &str| {
        let edits = "containerEdits: {deviceNodes: [{path: /dev/x, fileMode: 0666, major: 195}]}";
        let text = format!("cdiVersion: 0.5.0\nkind: v/c\ndevices:\n- name: {name}\n  {edits}\n");
        Spec::parse(text.as_bytes(), Format::Yaml).map(|spec| spec.devices[0].name.clone())
    };
    assert_eq!(yaml("0"), Ok("0".to_owned()));
    assert_eq!(yaml("'010'"), Ok("010".to_owned()));
    let error = yaml("010").unwrap_err().to_string();
    assert_eq!(error, "devices[0].name: not text: put it in quotes");
    let unquoted = with_edits("0.5.0", r#"{"env": ["A=1"]}"#).replace(r#""a""#, "0");
    assert_eq!(
        json(&unquoted).unwrap_err().to_string(),
        "devices[0].name: not text"
    );
}

#[test]
fn bytes_and_devices_of_a_file_are_bounded() {
    for format in [Format::Json, Format::Yaml] {
        let mut text = with_edits("0.3.0", r#"{"env": ["A=1"]}"#);
        text.extend(std::iter::repeat_n(' ', format.bytes_max() - text.len()));
        assert!(Spec::parse(text.as_bytes(), format).is_ok());
        text.push(' ');
        let error = Spec::parse(text.as_bytes(), format).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("longer than {} bytes", format.bytes_max())
        );
    }
    let devices = |count: usize| {
        let device = |at| format!(r#"{{"name": "d{at}", "containerEdits": {{"env": ["A=1"]}}}}"#);
        let devices: Vec<String> = (0..count).map(device).collect();
        let devices = devices.join(",");
        json(&format!(
            r#"{{"cdiVersion": "0.3.0", "kind": "v/c", "devices": [{devices}]}}"#
        ))
    };
    assert_eq!(devices(4096).unwrap().devices.len(), 4096);
    assert_eq!(
        devices(4097).unwrap_err().to_string(),
        "devices: more than 4096"
    );
}

#[test]
fn errors_contain_their_place() {
    let edits = r#"{"deviceNodes": [{"path": "/dev/x"}, {"path": "/dev/y", "major": 4096}]}"#;
    let error = edits_of("0.3.0", edits).unwrap_err();
    assert_eq!(
        error.place(),
        "devices[0] \"a\": containerEdits.deviceNodes[1].major"
    );
    let other_error =
        edits_of("0.6.0", r#"{"env": ["A=1"]}, "annotations": {"k": []}"#).unwrap_err();
    assert_eq!(other_error.place(), "devices[0] \"a\": annotations.\"k\"");
}
