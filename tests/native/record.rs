//! Unsound records: they are refused and named, and harm no other record.

use std::os::unix::fs::{chown, symlink};

use serde_json::json;

use crate::support::{ALICE, BOB, Job, Node, on_node};

/// Damages the record of a job, and asserts that the login to it is refused.
fn assert_damage_refused(what: &str, code: &str, damage: impl FnOnce(&Node, &Job<'_>)) {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        node.pam(ALICE).ok();
        damage(node, &job);
        for outcome in [node.account(ALICE), node.session(ALICE)] {
            assert!(outcome.code != 0, "{what}: {outcome}");
        }
        node.account(ALICE).says(code);
        node.log.line("4242");
        assert_eq!(job.cgroup.pids().len(), 1, "{what}: something joined");
    });
}

fn assert_text_refused(what: &str, text: &str) {
    assert_damage_refused(what, "[JA09]", |_, job| job.record(text));
}

#[test]
fn malformed_record_refuses_login() {
    assert_text_refused("empty", "");
    assert_text_refused(
        "cut off",
        r#"{"version":1,"id":"4242","uid":1001,"cgroup":"#,
    );
    assert_text_refused("no object", "[1]");
    assert_text_refused("binary", "\u{0}\u{1}\u{2}");
}

/// Asserts that one changed key of a sound record refuses.
fn assert_key_refused(key: &str, value: serde_json::Value) {
    assert_damage_refused(key, "[JA09]", |node, job| {
        let mut record: serde_json::Value =
            serde_json::from_str(&node.read(&job.record_path())).unwrap();
        record[key] = value;
        job.record(&record.to_string());
    });
}

#[test]
fn record_with_unsound_value_refuses_login() {
    assert_key_refused("version", json!(2));
    assert_key_refused("uid", json!(1002));
    assert_key_refused("uid", json!("1001"));
    assert_key_refused("id", json!("4243"));
    assert_key_refused("id", json!("../4242"));
    assert_key_refused("leaf", json!("cgroup.procs"));
    assert_key_refused("unknown", json!(1));
}

#[test]
fn record_with_unknown_policy_refuses_login() {
    assert_key_refused("options", json!({ "DevicePolicy": "open" }));
    assert_key_refused(
        "options",
        json!({ "DevicePolicy": "closed", "DeviceAllow": ["/dev/null"] }),
    );
    assert_key_refused("options", json!({ "DeviceAllow": "/dev/null" }));
    assert_key_refused("options", json!({ "DeviceAllow": [["/dev/null"]] }));
    assert_key_refused("options", json!({ "DevicePolcy": "closed" }));
}

#[test]
fn record_with_unsound_cgroup_refuses_login() {
    for path in ["relative", "/", "/a/../b", "//a", "/a/", "/a/./b", "/a\nb"] {
        assert_key_refused("cgroup", json!(path));
    }
}

/// A record without devices could mean anything.
#[test]
fn record_without_devices_refuses_login() {
    assert_damage_refused("silent", "[JA09]", |node, job| {
        let mut record: serde_json::Value =
            serde_json::from_str(&node.read(&job.record_path())).unwrap();
        record.as_object_mut().unwrap().remove("options");
        job.record(&record.to_string());
    });
}

#[test]
fn record_writable_by_others_refuses_login() {
    assert_damage_refused("not root's", "[JA09]", |node, job| {
        chown(node.path(&job.record_path()), Some(ALICE.uid), None).unwrap();
    });
    assert_damage_refused("group-writable", "[JA09]", |node, job| {
        node.set_mode(&job.record_path(), 0o664)
    });
    assert_damage_refused("writable by all", "[JA09]", |node, job| {
        node.set_mode(&job.record_path(), 0o646)
    });
    assert_damage_refused("a link's second name", "[JA09]", |node, job| {
        let path = node.path(&job.record_path());
        std::fs::hard_link(&path, node.path("/run/job-adopt/other")).unwrap();
    });
    assert_damage_refused("folder of the user's", "[JA09]", |node, _| {
        chown(node.path("/run/job-adopt/jobs/1001"), Some(ALICE.uid), None).unwrap();
    });
    assert_damage_refused("folder writable by all", "[JA09]", |node, _| {
        node.set_mode("/run/job-adopt/jobs/1001", 0o777);
    });
}

#[test]
fn record_that_is_no_regular_file_refuses_login() {
    assert_damage_refused("a symbolic link", "[JA09]", |node, job| {
        let path = node.path(&job.record_path());
        std::fs::rename(&path, node.path("/run/job-adopt/elsewhere.json")).unwrap();
        symlink("/run/job-adopt/elsewhere.json", path).unwrap();
    });
    assert_damage_refused("a FIFO", "[JA09]", |node, job| {
        node.sh(&format!("rm {0}; mkfifo -m 644 {0}", job.record_path()))
            .ok();
    });
    assert_damage_refused("a folder", "[JA09]", |node, job| {
        node.sh(&format!("rm {0}; mkdir {0}", job.record_path()))
            .ok();
    });
    assert_damage_refused("a folder behind a link", "[JA0", |node, _| {
        node.sh("cd /run/job-adopt/jobs; mv 1001 moved; ln -s moved 1001")
            .ok();
    });
}

#[test]
fn oversized_record_refuses_login() {
    let text = format!("{{\"version\":1,\"id\":\"{}\"}}", "4".repeat(10 << 20));
    assert_text_refused("10 MiB", &text);
}

#[test]
fn missing_cgroup_refuses_login() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        node.pam(ALICE).ok();
        job.finish();
        node.pam(ALICE).fails();
        assert!(!job.cgroup.exists(), "a login made the cgroup of a job");
        job.record(
            &node
                .read(&job.record_path())
                .replace(job.cgroup.path(), "/ja-never-was"),
        );
        node.pam(ALICE).fails();
    });
}

/// A new directory of the same name has no stamp.
#[test]
fn recreated_cgroup_refuses_login() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        job.finish();
        let _again = node.job(ALICE, "4242").unstamped().unrecorded().start();
        node.session(ALICE).fails();
        node.log.decision("JA07");
    });
}

/// The helper finds the job; the stamp decides who owns it.
#[test]
fn unstamped_cgroup_refuses_login() {
    for stamp in [
        None,
        Some("1002:4242"),
        Some("1001:4243"),
        Some("1001:42420"),
        Some(""),
    ] {
        on_node(|node| {
            let job = node.job(ALICE, "4242").unstamped().start();
            if let Some(stamp) = stamp {
                job.stamp(stamp);
            }
            node.session(ALICE).fails();
            assert_eq!(job.cgroup.pids().len(), 1, "{stamp:?}");
            node.log.decision("JA07");
        });
    }
}

#[test]
fn broken_record_hides_no_sound_one() {
    on_node(|node| {
        node.reporting("");
        let good = node.job(ALICE, "1").start();
        let bad = node.job(ALICE, "2").start();
        bad.record("{");
        node.pam(ALICE).ok().joins_cgroup(&good.cgroup);
        node.log.line("2.json");
        let other = node.job(BOB, "3").start();
        node.pam(BOB).ok().joins_cgroup(&other.cgroup);
    });
}
