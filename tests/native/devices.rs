//! `job-adopt devices`: what it says is what the kernel does.

use serde_json::Value;

use crate::support::{ALICE, Cgroup, DENIED, Flags, Node, Outcome, on_node};

/// The answer in JSON, with this exit status.
fn json(node: &Node, code: i32, arguments: &[&str]) -> Value {
    let outcome = node.job_adopt(&[&["devices", "--json"], arguments].concat()).exits(code);
    let value: Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert_eq!(value["schema"], 1, "{outcome}");
    value
}

fn at(node: &Node, code: i32, cgroup: &Cgroup) -> Value {
    json(node, code, &["--cgroup", cgroup.path()])
}

fn array<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().unwrap()
}

fn device<'a>(value: &'a Value, path: &str) -> &'a Value {
    array(value, "devices").iter().find(|device| device["node"] == path).unwrap()
}

/// `owner attached in_force` of the filters of that name.
fn filters(value: &Value, name: &str) -> Vec<String> {
    let shown = |filter: &Value| {
        let text = |key: &str| filter[key].to_string().replace('"', "");
        [text("owner"), text("attached"), text("in_force")].join(" ")
    };
    array(value, "filters").iter().filter(|filter| filter["name"] == name).map(shown).collect()
}

fn id(value: &Value, owner: &str) -> Value {
    let mut all = array(value, "filters").iter();
    all.find(|filter| filter["owner"] == owner).unwrap()["id"].clone()
}

/// Asserts that opening each node for both in `cgroup` fails just where `value` says so.
fn agrees(node: &Node, cgroup: &Cgroup, value: &Value) {
    let paths: Vec<&str> =
        array(value, "devices").iter().map(|device| device["node"].as_str().unwrap()).collect();
    assert!(paths.len() > 12, "{paths:?}");
    let probe = Outcome::run(node.daemon(cgroup, "probe").args(&paths)).ok();
    for path in paths {
        let allowed = array(device(value, path), "allowed").iter().any(|access| access == "rw");
        assert_eq!(probe.device(path) != DENIED, allowed, "{path}: {value}");
    }
}

#[test]
fn what_filters_let_through_is_what_can_be_opened() {
    on_node(|node| {
        let devices = ["/dev/nvidia0", "/dev/nvidia1 r", "/dev/nvidia2", "block-loop rw"];
        let job = node.job(ALICE, "4242").devices(&devices).start();
        let jobs = node.cgroup().child("jobs");
        jobs.attach(Flags::Multi, "foreign", &["195:2", "1:7"]);
        node.pam(ALICE).ok();
        let value = at(node, 0, &job.cgroup);
        agrees(node, &job.cgroup, &value);
        assert_eq!(filters(&value, "foreign"), ["unknown allow-multi true"]);
        assert_eq!(array(&value, "filters").len(), 2, "{value}");
        let (ours, foreign) = (id(&value, "ours"), id(&value, "unknown"));
        let of = |path: &str| {
            let device = device(&value, path);
            (device["allowed"].to_string(), device["refused_by"].clone())
        };
        assert_eq!(of("/dev/nvidia0"), (r#"["r","w","rw"]"#.into(), vec![ours.clone()].into()));
        assert_eq!(of("/dev/nvidia1"), (r#"["r"]"#.into(), vec![ours.clone()].into()));
        assert_eq!(of("/dev/nvidia2").0, "[]");
        let both = of("/dev/nvidia2").1;
        assert!(both.as_array().unwrap().contains(&ours), "{both}");
        assert!(both.as_array().unwrap().contains(&foreign), "{both}");
        assert_eq!(of("/dev/full"), ("[]".into(), vec![foreign].into()));
        assert_eq!(of("/dev/null"), (r#"["r","w","rw","m"]"#.into(), Value::Array(Vec::new())));
        // The cgroup above has the foreign one alone.
        let above = at(node, 0, &jobs);
        agrees(node, &jobs, &above);
        assert_eq!(array(&above, "filters").len(), 1, "{above}");
    });
}

#[test]
fn a_pin_and_its_original_are_told_apart() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").devices(&["/dev/nvidia0", "/dev/nvidia2"]).start();
        let jobs = node.cgroup().child("jobs");
        jobs.attach(Flags::Override, "Slurm_Cgroup_v2", &["195:2"]);
        node.pam(ALICE).ok();
        let value = at(node, 0, &job.cgroup);
        assert_eq!(
            filters(&value, "Slurm_Cgroup_v2"),
            ["pin allow-multi true", "slurm allow-override false"]
        );
        agrees(node, &job.cgroup, &value);
        // It is still a pin when the original is gone.
        jobs.detach(&jobs.filters()[0]);
        let value = at(node, 0, &job.cgroup);
        assert_eq!(filters(&value, "Slurm_Cgroup_v2"), ["pin allow-multi true"]);
        let table = node.job_adopt(&["devices", "--cgroup", job.cgroup.path()]).exits(0);
        table.says("IN FORCE").says("Slurm_Cgroup_v2").says("REFUSED BY");
    });
}

#[test]
fn the_same_list_at_two_levels_is_no_pin() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        for cgroup in [node.cgroup().child("jobs"), job.cgroup.clone()] {
            cgroup.attach(Flags::Multi, "sd_devices", &["195:2"]);
        }
        let value = at(node, 0, &job.cgroup);
        assert_eq!(filters(&value, "sd_devices"), ["systemd allow-multi true"; 2]);
        agrees(node, &job.cgroup, &value);
    });
}

#[test]
fn programs_without_a_name_are_known_by_their_shape() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        for (name, owner) in [("imp", "flux-imp"), ("runc", "runc"), ("crun", "container-runtime")]
        {
            let cgroup = job.cgroup.child(name);
            cgroup.create().attach(Flags::Multi, name, &["195:2", "1:7"]);
            let value = at(node, 0, &cgroup);
            assert_eq!(filters(&value, ""), [format!("{owner} allow-multi true")]);
            assert!(array(device(&value, "/dev/full"), "allowed").is_empty(), "{value}");
            agrees(node, &cgroup, &value);
        }
    });
}

#[test]
fn no_filter_is_said_and_a_filter_that_is_not_understood_is_not_guessed() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        let path = job.cgroup.path();
        let none = format!("{path}: no filter: everything is allowed\n");
        assert_eq!(node.job_adopt(&["devices", "--cgroup", path]).exits(0).stdout, none);
        job.cgroup.attach(Flags::Multi, "opaque", &["195:2"]);
        let value = at(node, 3, &job.cgroup);
        assert!(device(&value, "/dev/null")["allowed"].is_null(), "{value}");
        let table = node.job_adopt(&["devices", "--cgroup", path]).exits(3);
        table.says("cannot tell").says("opaque").omits("rwm");
    });
}

#[test]
fn a_job_is_shown_where_its_logins_go() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").devices(&["/dev/nvidia0"]).start();
        job.cgroup.attach(Flags::Override, "foreign", &["195:2"]);
        let before = json(node, 0, &["--job", "4242"]);
        assert_eq!(before["cgroup"], job.cgroup.path());
        node.pam(ALICE).ok();
        let leaf = job.cgroup.child("job-adopt");
        let value = json(node, 0, &["--job", "4242"]);
        // Without a child of its own the job has its logins in its own cgroup.
        assert_eq!(value["cgroup"], leaf.path(), "{value}");
        agrees(node, &leaf, &value);
        node.job_adopt(&["devices", "--job", "7"]).exits(3).says("the registry has none");
    });
}

#[test]
fn names_resolve_for_anybody_and_below_another_root() {
    on_node(|node| {
        let value = json(node, 0, &["/dev/nvidia0", "/dev/null r"]);
        assert_eq!(device(&value, "/dev/nvidia0")["major"], 195);
        assert_eq!(device(&value, "/dev/null")["driver"], "mem");
        let some = node.job_adopt(&["devices", "/dev/nvidia0", "/dev/none"]).exits(1);
        some.says("195:0").says("refused: No such file or directory");
        node.sh("mkdir -p /tmp/laid/dev && echo c 195:7 >/tmp/laid/dev/nvidia9").ok();
        node.sh("chown -R alice /tmp/laid").ok();
        let alice = "setpriv --reuid 1001 --regid 1001 --clear-groups job-adopt devices";
        node.sh(&format!("{alice} --root /tmp/laid /dev/nvidia9")).ok().says("195:7");
        node.sh(&format!("{alice} --root /tmp/laid /dev/null")).exits(1).says("refused: ");
        node.sh(&format!("{alice} --cgroup /a")).exits(3).says("must be run as root");
    });
}
