//! Tests of the drop-ins, on a node with some devices.

use super::*;
use crate::testing::Scratch;
use facts::exempt_accounts::ExemptAccounts;
use helper::devices::DeviceSettings;
use helper::node::Tree;

/// Builds the drop-ins for a configuration; returns them and the warnings.
fn build(text: &str) -> (Result<BTreeMap<String, String>, String>, String) {
    let scratch = Scratch::new();
    scratch.file(
        "proc/devices",
        "Character devices:\n10 misc\n195 nvidia\n231 infiniband_verbs\n",
    );
    scratch.file("dev/x", "c 240:7");
    scratch.file("dev/odd%n", "c 240:8");
    scratch.file("dev/infiniband/uverbs0", "c 231:192");
    let resolver = Resolver::new(
        Tree::with_root(scratch.path(), scratch.trust()),
        DeviceSettings::default(),
    );
    let config = Config::parse(text.as_bytes()).unwrap();
    let mut out = Vec::new();
    let mut err = Vec::new();
    let mut output = Output {
        out: &mut out,
        err: &mut err,
    };
    let exempt = ExemptAccounts::read(&config, &[]).map(ExemptAccounts::into_uids);
    let files = exempt.and_then(|exempt| build_drop_ins(&config, &exempt, &resolver, &mut output));
    let files = files.map_err(|error| error.to_string());
    (files, String::from_utf8(err).unwrap())
}

fn error(text: &str) -> String {
    build(text).0.unwrap_err()
}

fn folders(text: &str) -> Vec<String> {
    build(text).0.unwrap().into_keys().collect()
}

/// The lines of the file for all users that follow the shipped ones.
fn added_lines(text: &str) -> Vec<String> {
    let closed = build(text).0.unwrap().remove("user-.slice.d").unwrap();
    closed
        .strip_prefix(CLOSED_DROP_IN)
        .unwrap()
        .lines()
        .map(str::to_owned)
        .collect()
}

#[test]
fn always_allowed_devices_are_allowed_in_slices() {
    assert_eq!(
        added_lines(""),
        ["# always_allowed of job_adopt.conf(5): none"]
    );
    assert_eq!(
        added_lines("always_allowed = /dev/x r, char-nvidia, /dev/char/10:229, /dev/infiniband/*"),
        [
            "# always_allowed of job_adopt.conf(5):",
            "DeviceAllow=/dev/x r",
            "DeviceAllow=char-nvidia rw",
            "DeviceAllow=/dev/char/10:229 rw",
            "DeviceAllow=/dev/infiniband/uverbs0 rw",
        ]
    );
    assert!(
        build("always_allowed = char-nvidia")
            .1
            .contains("GPUs of every job")
    );
}

#[test]
fn unresolved_entry_is_an_error_and_empty_entry_a_warning() {
    for text in ["/dev/none", "/dev/x, /dev/none*", "char-none"] {
        let error = error(&format!("always_allowed = {text}"));
        assert!(
            error.starts_with("always_allowed: ") && error.contains("none"),
            "{error}"
        );
    }
    assert!(error("always_allowed = /dev/odd%n").contains("no spelling"));
    let (files, warning) = build("always_allowed = /run/x, /dev/x r");
    assert!(files.unwrap()["user-.slice.d"].ends_with(":\nDeviceAllow=/dev/x r\n"));
    assert!(
        warning.contains("/run/x is not below /dev, and is skipped"),
        "{warning}"
    );
    let scratch = Scratch::new();
    let tree = Tree::with_root(scratch.path(), scratch.trust());
    let config = Config::parse(b"always_allowed = @hpc").unwrap();
    let mut out = Vec::new();
    let mut err = Vec::new();
    let mut output = Output {
        out: &mut out,
        err: &mut err,
    };
    let resolver = Resolver::new(tree, DeviceSettings::default());
    let lines = device_allow_lines(&config, &resolver, &mut output).unwrap();
    assert!(
        lines.contains("# @hpc rw is no device of this node\n"),
        "{lines}"
    );
    assert!(
        String::from_utf8(err)
            .unwrap()
            .contains("warning: always_allowed: @hpc")
    );
}

/// uid 1 is `daemon`, which every node has.
#[test]
fn root_exempt_accounts_and_flux_have_own_files() {
    assert_eq!(
        folders("flux_user = no-such-user"),
        ["user-.slice.d", "user-0.slice.d"]
    );
    let all = "exempt_uids = 7, 0, 1007\nflux_user = daemon";
    let names = [
        "user-.slice.d",
        "user-0.slice.d",
        "user-1.slice.d",
        "user-1007.slice.d",
    ];
    assert_eq!(folders(all)[..4], names);
    let files = build(all).0.unwrap();
    assert_eq!(files["user-0.slice.d"], EXEMPT_DROP_IN);
    assert!(files["user-7.slice.d"].ends_with(EXEMPT_DROP_IN));
    assert!(files["user-1.slice.d"].starts_with("# daemon: Flux"));
    assert!(error("exempt_groups = no-such-group").contains("no such group"));
}

#[test]
fn second_write_changes_no_file_and_stale_files_are_removed() {
    let scratch = Scratch::new();
    let units = scratch.path().join("etc/systemd/system");
    let write = |text: &str| {
        let planned = plan_drop_ins(scratch.path(), &build(text).0.unwrap()).unwrap();
        for change in &planned {
            change.apply(scratch.path()).unwrap();
        }
        planned.len()
    };
    assert_eq!(write("exempt_uids = 7, 8"), 4);
    assert_eq!(write("exempt_uids = 8, 7"), 0);
    std::fs::write(units.join("user-8.slice.d/own.conf"), "").unwrap();
    std::fs::create_dir(units.join("user-x.slice.d")).unwrap();
    std::fs::write(units.join("user-x.slice.d/job-adopt.conf"), "").unwrap();
    assert_eq!(write(""), 2);
    let mut folders: Vec<String> = std::fs::read_dir(&units)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    folders.sort();
    assert_eq!(
        folders,
        [
            "user-.slice.d",
            "user-0.slice.d",
            "user-7.slice.d",
            "user-8.slice.d",
            "user-x.slice.d"
        ]
    );
    assert!(!units.join("user-8.slice.d/job-adopt.conf").exists());
}
