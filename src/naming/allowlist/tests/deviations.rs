//! What is read here on purpose otherwise than by the programs whose files they are: the table of
//! job-adopt-record(5), "DEVIATIONS".

use std::os::unix::fs::symlink;

use super::build_allowlist;
use crate::resolver::NameResolver;
use crate::testing::Scratch;
use helper::devices::{DeviceName, DeviceRequest, DeviceSettings, JobAllowlist, Policy};
use helper::node::Tree;

/// A specification with a device `0` that is `/dev/toy0`, and these parts of its first node.
fn spec_json(node: &str) -> String {
    format!(
        r#"{{"cdiVersion": "0.5.0", "kind": "example.com/toy", "devices": [{{"name": "0",
            "containerEdits": {{"deviceNodes": [{{"path": "/dev/toy0"{node}}}]}}}}]}}"#
    )
}

/// Lays out a node with a device and its specification.
fn node(spec: &str) -> Scratch {
    let scratch = Scratch::new();
    scratch.file("proc/devices", "Character devices:\n240 toy\n");
    scratch.file("dev/toy0", "c 240:0");
    scratch.file("etc/cdi/toy.json", spec);
    scratch
}

fn resolver(scratch: &Scratch) -> NameResolver {
    let settings = DeviceSettings {
        node_name: Some("n1".into()),
        ..DeviceSettings::default()
    };
    NameResolver::new(Tree::with_root(scratch.path(), scratch.trust()), settings)
}

/// Builds the list of a job that asks for a name.
fn ask(scratch: &Scratch, name: DeviceName) -> Result<JobAllowlist, String> {
    let request = DeviceRequest {
        policy: Policy::Strict,
        allow: &[],
    };
    build_allowlist(&request, &[name], &[], &resolver(scratch)).map_err(|error| error.to_string())
}

fn ask_cdi(scratch: &Scratch) -> Result<JobAllowlist, String> {
    ask(scratch, DeviceName::Cdi("example.com/toy=0".to_owned()))
}

fn rules(list: &JobAllowlist) -> Vec<String> {
    list.list.rules().iter().map(ToString::to_string).collect()
}

#[test]
fn specification_that_only_runtimes_take_does_not_resolve() {
    assert_eq!(
        rules(&ask_cdi(&node(&spec_json(""))).unwrap()),
        ["c:240:0:rw"]
    );
    let yaml = "cdiVersion: 0.5.0\nkind: example.com/toy\ndevices:\n- name: \"0\"\n  containerEdits:\n    \
                deviceNodes:\n    - path: /dev/toy0\n";
    for (what, spec, fault) in [
        ("YAML in a .json", yaml.to_owned(), "YAML"),
        (
            "keys in another case",
            spec_json("").replace("\"name\"", "\"Name\""),
            "devices[0]: no name",
        ),
        (
            "a number that is not whole",
            spec_json(", \"minor\": 0.0"),
            "not a whole number",
        ),
        (
            "a path with ..",
            spec_json(", \"hostPath\": \"/dev/../dev/toy0\""),
            "has a part ..",
        ),
    ] {
        let error = ask_cdi(&node(&spec)).unwrap_err();
        assert!(error.contains(fault), "{what}: {error}");
    }
    for (word, fault) in [
        ("0x0", "not a whole number"),
        ("0.0", "not a whole number"),
        ("&a 0", "an anchor (&) is not taken"),
    ] {
        let scratch = node("");
        std::fs::remove_file(scratch.path().join("etc/cdi/toy.json")).unwrap();
        scratch.file("etc/cdi/toy.yaml", &format!("{yaml}      minor: {word}\n"));
        let error = ask_cdi(&scratch).unwrap_err();
        assert!(error.contains(fault), "{word}: {error}");
    }
}

#[test]
fn devices_of_a_specification_are_bounded() {
    let device = |number: usize| {
        format!(
            r#"{{"name": "{number}", "containerEdits": {{"deviceNodes": [{{"path": "/dev/toy0"}}]}}}}"#
        )
    };
    for (count, resolves) in [(4096, true), (4097, false)] {
        let devices: Vec<_> = (0..count).map(device).collect();
        let spec = format!(
            r#"{{"cdiVersion": "0.5.0", "kind": "example.com/toy", "devices": [{}]}}"#,
            devices.join(",")
        );
        let result = ask_cdi(&node(&spec));
        assert_eq!(result.is_ok(), resolves, "{count}: {result:?}");
    }
}

#[test]
fn link_to_nothing_in_a_later_directory_hides_the_earlier_ones() {
    let scratch = node(&spec_json(""));
    scratch.dir("run/cdi");
    symlink("/gone", scratch.path().join("run/cdi/old.json")).unwrap();
    let error = ask_cdi(&scratch).unwrap_err();
    assert!(error.contains("run/cdi/old.json"), "{error}");
}

/// The filter opens for reading and writing what two entries of its list open for one each
/// (`entries_and_wildcards_of_one_device_add_up` in `kernel::bpf::generate`).
#[test]
fn reading_and_writing_in_two_entries_are_both_in_the_list() {
    let scratch = node(&spec_json(""));
    let allow = [("/dev/toy0", "r"), ("/dev/toy0", "w")]
        .map(|(spec, access)| (spec.to_owned(), access.to_owned()));
    let request = DeviceRequest {
        policy: Policy::Strict,
        allow: &allow,
    };
    let list = build_allowlist(&request, &[], &[], &resolver(&scratch)).unwrap();
    assert_eq!(rules(&list), ["c:240:0:r", "c:240:0:w"]);
}

#[test]
fn record_of_gres_conf_that_only_slurmd_takes_does_not_resolve() {
    let scratch = node("");
    scratch.file("etc/slurm/slurm.conf", "");
    let ask_gres = |text: &str| {
        scratch.file("etc/slurm/gres.conf", text);
        let name = DeviceName::Gres {
            name: "toy".to_owned(),
            index: 0,
        };
        ask(&scratch, name)
    };
    assert_eq!(
        rules(&ask_gres("Name=toy File=/dev/toy0\n").unwrap()),
        ["c:240:0:rw"]
    );
    for (text, fault) in [
        ("Name=toy File=//dev/toy0\n", "//dev/toy0 is not below /dev"),
        (
            "Name=toy File=/dev/../dev/toy0\n",
            "/dev/../dev/toy0 is not below /dev",
        ),
        (
            "Name=toy File=/dev/toy0\nName=toy File=/dev/toy0\n",
            "/dev/toy0 stands twice",
        ),
        ("Name=toy File=/dev/toy[0-1024]\n", "of too many"),
        (
            "NodeName=n[1][1][1][1][1],n1 Name=toy File=/dev/toy0\n",
            "of too many",
        ),
        (
            "NodeName=n1,m0000000001-[0000000001] Name=toy File=/dev/toy0\n",
            "of too many",
        ),
    ] {
        let error = ask_gres(text).unwrap_err();
        assert!(error.contains(fault), "{text}: {error}");
    }
    // As for Slurm, a range of more than 65,536 numbers is none.
    let error = ask_gres("NodeName=n1,n[0-65536] Name=toy File=/dev/toy0\n").unwrap_err();
    assert!(
        error.contains("no record with Name=toy for node n1"),
        "{error}"
    );
}
