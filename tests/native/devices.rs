//! `job-adopt devices` reports what the kernel does.

use serde_json::Value;

use crate::support::{ALICE, Cgroup, DENIED, Flags, Node, OPS, Outcome, User, on_node};

/// Returns the JSON output of `job-adopt devices`, and asserts this exit status.
fn devices_json(node: &Node, code: i32, arguments: &[&str]) -> Value {
    let outcome = node.job_adopt(&[&["devices", "--json"], arguments].concat()).exits(code);
    let value: Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert_eq!(value["schema"], 1, "{outcome}");
    value
}

fn cgroup_json(node: &Node, code: i32, cgroup: &Cgroup) -> Value {
    devices_json(node, code, &["--cgroup", cgroup.path()])
}

fn json_array<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().unwrap()
}

fn device_json<'a>(value: &'a Value, path: &str) -> &'a Value {
    json_array(value, "devices").iter().find(|device| device["node"] == path).unwrap()
}

/// Lists `owner attached in_force` of the filters with that name.
fn filter_summaries(value: &Value, name: &str) -> Vec<String> {
    let shown = |filter: &Value| {
        let text = |key: &str| filter[key].to_string().replace('"', "");
        [text("owner"), text("attached"), text("in_force")].join(" ")
    };
    json_array(value, "filters").iter().filter(|filter| filter["name"] == name).map(shown).collect()
}

fn program_id(value: &Value, owner: &str) -> Value {
    let mut all = json_array(value, "filters").iter();
    all.find(|filter| filter["owner"] == owner).unwrap()["id"].clone()
}

/// Asserts that opening each device for reading and writing in `cgroup` fails exactly where `value`
/// reports it.
fn assert_kernel_agrees(node: &Node, cgroup: &Cgroup, value: &Value) {
    let paths: Vec<&str> = json_array(value, "devices")
        .iter()
        .map(|device| device["node"].as_str().unwrap())
        .collect();
    assert!(paths.len() > 12, "{paths:?}");
    let probe = Outcome::run(node.daemon(cgroup, "probe").args(&paths)).ok();
    for path in paths {
        let allowed =
            json_array(device_json(value, path), "allowed").iter().any(|access| access == "rw");
        assert_eq!(probe.device(path) != DENIED, allowed, "{path}: {value}");
    }
}

#[test]
fn reported_devices_are_those_that_open() {
    on_node(|node| {
        let devices = ["/dev/nvidia0", "/dev/nvidia1 r", "/dev/nvidia2", "block-loop rw"];
        let job = node.job(ALICE, "4242").devices(&devices).start();
        let jobs = node.cgroup().child("jobs");
        jobs.attach(Flags::Multi, "foreign", &["195:2", "1:7"]);
        node.pam(ALICE).ok();
        let value = cgroup_json(node, 0, &job.cgroup);
        assert_kernel_agrees(node, &job.cgroup, &value);
        assert_eq!(filter_summaries(&value, "foreign"), ["unknown allow-multi true"]);
        assert_eq!(json_array(&value, "filters").len(), 2, "{value}");
        let (ours, foreign) = (program_id(&value, "ours"), program_id(&value, "unknown"));
        let of = |path: &str| {
            let device = device_json(&value, path);
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
        // The cgroup above has only the foreign filter.
        let above = cgroup_json(node, 0, &jobs);
        assert_kernel_agrees(node, &jobs, &above);
        assert_eq!(json_array(&above, "filters").len(), 1, "{above}");
    });
}

#[test]
fn pin_and_its_original_are_distinguished() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").devices(&["/dev/nvidia0", "/dev/nvidia2"]).start();
        let jobs = node.cgroup().child("jobs");
        jobs.attach(Flags::Override, "Slurm_Cgroup_v2", &["195:2"]);
        node.pam(ALICE).ok();
        let value = cgroup_json(node, 0, &job.cgroup);
        assert_eq!(
            filter_summaries(&value, "Slurm_Cgroup_v2"),
            ["pin allow-multi true", "slurm allow-override false"]
        );
        assert_kernel_agrees(node, &job.cgroup, &value);
        // The pin counts as one even without its original.
        jobs.detach(&jobs.filters()[0]);
        let alone = cgroup_json(node, 0, &job.cgroup);
        assert_eq!(filter_summaries(&alone, "Slurm_Cgroup_v2"), ["pin allow-multi true"]);
        let table = node.job_adopt(&["devices", "--cgroup", job.cgroup.path()]).exits(0);
        table.says("IN FORCE").says("Slurm_Cgroup_v2").says("REFUSED BY");
    });
}

#[test]
fn same_list_at_two_levels_is_no_pin() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        for cgroup in [node.cgroup().child("jobs"), job.cgroup.clone()] {
            cgroup.attach(Flags::Multi, "sd_devices", &["195:2"]);
        }
        let value = cgroup_json(node, 0, &job.cgroup);
        assert_eq!(filter_summaries(&value, "sd_devices"), ["systemd allow-multi true"; 2]);
        assert_kernel_agrees(node, &job.cgroup, &value);
    });
}

#[test]
fn unnamed_programs_are_recognised_by_instructions() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        for (name, owner) in [("imp", "flux-imp"), ("runc", "runc"), ("crun", "container-runtime")]
        {
            let cgroup = job.cgroup.child(name);
            cgroup.create().attach(Flags::Multi, name, &["195:2", "1:7"]);
            let value = cgroup_json(node, 0, &cgroup);
            assert_eq!(filter_summaries(&value, ""), [format!("{owner} allow-multi true")]);
            assert!(json_array(device_json(&value, "/dev/full"), "allowed").is_empty(), "{value}");
            assert_kernel_agrees(node, &cgroup, &value);
        }
    });
}

#[test]
fn missing_and_unintelligible_filters_are_reported() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        let path = job.cgroup.path();
        let none = format!("{path}: no filter: everything is allowed\n");
        assert_eq!(node.job_adopt(&["devices", "--cgroup", path]).exits(0).stdout, none);
        job.cgroup.attach(Flags::Multi, "opaque", &["195:2"]);
        let value = cgroup_json(node, 3, &job.cgroup);
        assert!(device_json(&value, "/dev/null")["allowed"].is_null(), "{value}");
        let table = node.job_adopt(&["devices", "--cgroup", path]).exits(3);
        table.says("cannot tell").says("opaque").omits("rwm");
    });
}

#[test]
fn devices_of_job_are_those_of_its_leaf() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").devices(&["/dev/nvidia0"]).start();
        job.cgroup.attach(Flags::Override, "foreign", &["195:2"]);
        let before = devices_json(node, 0, &["--job", "4242"]);
        assert_eq!(before["cgroup"], job.cgroup.path());
        node.pam(ALICE).ok();
        let leaf = job.cgroup.child("job-adopt");
        let value = devices_json(node, 0, &["--job", "4242"]);
        // A job without a child has its logins in its own cgroup.
        assert_eq!(value["cgroup"], leaf.path(), "{value}");
        assert_kernel_agrees(node, &leaf, &value);
        node.job_adopt(&["devices", "--job", "7"]).exits(3).says("the registry has none");
    });
}

#[test]
fn names_resolve_without_root_and_below_another_root() {
    on_node(|node| {
        let value = devices_json(node, 0, &["/dev/nvidia0", "/dev/null r"]);
        assert_eq!(device_json(&value, "/dev/nvidia0")["major"], 195);
        assert_eq!(device_json(&value, "/dev/null")["driver"], "mem");
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

/// The group of the node decides, whatever the filter lets through.
#[test]
fn node_whose_mode_keeps_the_user_out_is_named() {
    on_node(|node| {
        node.sh("chgrp ops /dev/nvidia0; chmod 0660 /dev/nvidia0").ok();
        let _job = node.job(ALICE, "4242").devices(&["/dev/nvidia0"]).start();
        node.pam(ALICE).ok();
        let mode = "/dev/nvidia0: mode 0660, for the group ops alone";
        let out = format!("{mode}, which keeps alice out, whatever");
        let devices = |arguments: &[&str]| node.job_adopt(&[&["devices"], arguments].concat()).ok();
        devices(&["--job", "4242"]).says(&out);
        devices(&["--job", "4242", "--user", OPS.name]).omits(mode);
        devices(&["/dev/nvidia0"]).says(&format!("{mode}, whatever"));
        devices(&["/dev/nvidia0", "--user", "1001"]).says(&out);
        devices(&["/dev/nvidia0", "--user", OPS.name]).omits(mode);
        node.job_adopt(&["devices", "/dev/nvidia0", "--user", "none-here"]).exits(3);
        let as_user = |user: User| {
            let id = user.uid;
            node.sh(&format!("setpriv --reuid {id} --clear-groups job-adopt devices /dev/nvidia0"))
        };
        as_user(ALICE).ok().says(&out);
        as_user(OPS).ok().omits(mode);
    });
}
