use super::*;
use crate::testing::Scratch;
use helper::devices::Settings;

/// What is shown on a node with these devices, and what is said besides.
fn shown(text: &str) -> (Result<BTreeMap<String, String>, String>, String) {
    let scratch = Scratch::new();
    scratch.file("proc/devices", "Character devices:\n10 misc\n195 nvidia\n231 infiniband_verbs\n");
    scratch.file("dev/x", "c 240:7");
    scratch.file("dev/odd%n", "c 240:8");
    scratch.file("dev/infiniband/uverbs0", "c 231:192");
    let resolver =
        Resolver::new(Tree::with_root(scratch.path(), scratch.trust()), Settings::default());
    let config = Config::parse(text.as_bytes()).unwrap();
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut output = Output { out: &mut out, err: &mut err };
    let files = files(&config, &resolver, &mut output);
    let files = files.map_err(|error| error.to_string());
    (files, String::from_utf8(err).unwrap())
}

fn fails(text: &str) -> String {
    shown(text).0.unwrap_err()
}

fn folders(text: &str) -> Vec<String> {
    shown(text).0.unwrap().into_keys().collect()
}

/// The lines of the file for all users that follow those that are shipped.
fn added(text: &str) -> Vec<String> {
    let closed = shown(text).0.unwrap().remove("user-.slice.d").unwrap();
    closed.strip_prefix(CLOSED).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn what_is_always_allowed_is_allowed_there_too() {
    assert_eq!(added(""), ["# always_allowed of job_adopt.conf(5): none"]);
    assert_eq!(
        added("always_allowed = /dev/x r, char-nvidia, /dev/char/10:229, /dev/infiniband/*"),
        [
            "# always_allowed of job_adopt.conf(5):",
            "DeviceAllow=/dev/x r",
            "DeviceAllow=char-nvidia rw",
            "DeviceAllow=/dev/char/10:229 rw",
            "DeviceAllow=/dev/infiniband/uverbs0 rw",
        ]
    );
    assert!(shown("always_allowed = char-nvidia").1.contains("GPUs of every job"));
}

#[test]
fn what_does_not_resolve_is_an_error_and_nothing_is_silent() {
    for text in ["/dev/none", "/dev/x, /dev/none*", "char-none"] {
        let error = fails(&format!("always_allowed = {text}"));
        assert!(error.starts_with("always_allowed: ") && error.contains("none"), "{error}");
    }
    assert!(fails("always_allowed = /dev/odd%n").contains("no spelling"));
    let scratch = Scratch::new();
    let tree = Tree::with_root(scratch.path(), scratch.trust());
    let config = Config::parse(b"always_allowed = @hpc").unwrap();
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut output = Output { out: &mut out, err: &mut err };
    let lines =
        always_allowed(&config, &Resolver::new(tree, Settings::default()), &mut output).unwrap();
    assert!(lines.contains("# @hpc rw is no device of this node\n"), "{lines}");
    assert!(String::from_utf8(err).unwrap().contains("warning: always_allowed: @hpc"));
}

/// uid 1 is `daemon`, which every node has.
#[test]
fn root_the_exempt_and_flux_have_files_of_their_own() {
    assert_eq!(folders("flux_user = no-such-user"), ["user-.slice.d", "user-0.slice.d"]);
    let all = "exempt_uids = 7, 0, 1007\nflux_user = daemon";
    let names = ["user-.slice.d", "user-0.slice.d", "user-1.slice.d", "user-1007.slice.d"];
    assert_eq!(folders(all)[..4], names);
    let files = shown(all).0.unwrap();
    assert_eq!(files["user-0.slice.d"], EXEMPT);
    assert!(files["user-7.slice.d"].ends_with(EXEMPT));
    assert!(files["user-1.slice.d"].starts_with("# daemon: Flux"));
    assert!(fails("exempt_groups = no-such-group").contains("no such group"));
}

#[test]
fn a_second_call_changes_nothing_and_the_stale_go() {
    let scratch = Scratch::new();
    let units = scratch.path().join("etc/systemd/system");
    let write = |text: &str| {
        let mut out = Vec::new();
        let mut output = Output { out: &mut out, err: &mut Vec::new() };
        let changed = put(&units, &shown(text).0.unwrap(), &mut output).unwrap();
        (changed, String::from_utf8(out).unwrap())
    };
    assert!(write("exempt_uids = 7, 8").0);
    assert_eq!(write("exempt_uids = 8, 7"), (false, String::new()));
    std::fs::write(units.join("user-8.slice.d/own.conf"), "").unwrap();
    std::fs::create_dir(units.join("user-x.slice.d")).unwrap();
    std::fs::write(units.join("user-x.slice.d/job-adopt.conf"), "").unwrap();
    let (changed, said) = write("");
    assert!(
        changed && said.contains("user-7.slice.d") && said.contains("user-8.slice.d"),
        "{said}"
    );
    let mut left: Vec<String> = std::fs::read_dir(&units)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    left.sort();
    assert_eq!(left, ["user-.slice.d", "user-0.slice.d", "user-8.slice.d", "user-x.slice.d"]);
    assert!(!units.join("user-8.slice.d/job-adopt.conf").exists());
}
