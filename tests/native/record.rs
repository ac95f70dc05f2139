//! Records that are not what they should be: refused, named, and no harm to their neighbours.

use std::os::unix::fs::{chown, symlink};

use serde_json::json;

use crate::support::{ALICE, BOB, Job, Node, on_node};

/// Breaks the record of a job; the login that would have joined it has to be refused.
fn refused(what: &str, code: &str, damage: impl FnOnce(&Node, &Job<'_>)) {
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

fn text_is_refused(what: &str, text: &str) {
    refused(what, "[JA09]", |_, job| job.record(text));
}

#[test]
fn malformed_text() {
    text_is_refused("empty", "");
    text_is_refused("cut off", r#"{"version":1,"id":"4242","uid":1001,"cgroup":"#);
    text_is_refused("no object", "[1]");
    text_is_refused("binary", "\u{0}\u{1}\u{2}");
}

/// One key changed in a record that is sound otherwise.
fn key_is_refused(key: &str, value: serde_json::Value) {
    refused(key, "[JA09]", |node, job| {
        let mut record: serde_json::Value =
            serde_json::from_str(&node.read(&job.record_path())).unwrap();
        record[key] = value;
        job.record(&record.to_string());
    });
}

#[test]
fn values_out_of_place() {
    key_is_refused("version", json!(2));
    key_is_refused("uid", json!(1002));
    key_is_refused("uid", json!("1001"));
    key_is_refused("id", json!("4243"));
    key_is_refused("id", json!("../4242"));
    key_is_refused("leaf", json!("cgroup.procs"));
    key_is_refused("unknown", json!(1));
}

#[test]
fn policies_that_are_none() {
    key_is_refused("options", json!({ "DevicePolicy": "open" }));
    key_is_refused("options", json!({ "DevicePolicy": "closed", "DeviceAllow": ["/dev/null"] }));
    key_is_refused("options", json!({ "DeviceAllow": "/dev/null" }));
    key_is_refused("options", json!({ "DeviceAllow": [["/dev/null"]] }));
    key_is_refused("options", json!({ "DevicePolcy": "closed" }));
}

#[test]
fn cgroups_that_are_none() {
    for path in ["relative", "/", "/a/../b", "//a", "/a/", "/a/./b", "/a\nb"] {
        key_is_refused("cgroup", json!(path));
    }
}

/// A record that says nothing about devices could mean anything.
#[test]
fn silence_about_devices() {
    refused("silent", "[JA09]", |node, job| {
        let mut record: serde_json::Value =
            serde_json::from_str(&node.read(&job.record_path())).unwrap();
        record.as_object_mut().unwrap().remove("options");
        job.record(&record.to_string());
    });
}

#[test]
fn files_that_others_could_have_written() {
    refused("not root's", "[JA09]", |node, job| {
        chown(node.path(&job.record_path()), Some(ALICE.uid), None).unwrap();
    });
    refused("group-writable", "[JA09]", |node, job| node.mode(&job.record_path(), 0o664));
    refused("writable by all", "[JA09]", |node, job| node.mode(&job.record_path(), 0o646));
    refused("a link's second name", "[JA09]", |node, job| {
        let path = node.path(&job.record_path());
        std::fs::hard_link(&path, node.path("/run/job-adopt/other")).unwrap();
    });
    refused("folder of the user's", "[JA09]", |node, _| {
        chown(node.path("/run/job-adopt/jobs/1001"), Some(ALICE.uid), None).unwrap();
    });
    refused("folder writable by all", "[JA09]", |node, _| {
        node.mode("/run/job-adopt/jobs/1001", 0o777);
    });
}

#[test]
fn things_that_are_no_files() {
    refused("a symbolic link", "[JA09]", |node, job| {
        let path = node.path(&job.record_path());
        std::fs::rename(&path, node.path("/run/job-adopt/elsewhere.json")).unwrap();
        symlink("/run/job-adopt/elsewhere.json", path).unwrap();
    });
    refused("a FIFO", "[JA09]", |node, job| {
        node.sh(&format!("rm {0}; mkfifo -m 644 {0}", job.record_path())).ok();
    });
    refused("a folder", "[JA09]", |node, job| {
        node.sh(&format!("rm {0}; mkdir {0}", job.record_path())).ok();
    });
    refused("a folder behind a link", "[JA0", |node, _| {
        node.sh("cd /run/job-adopt/jobs; mv 1001 moved; ln -s moved 1001").ok();
    });
}

#[test]
fn ten_mebibytes() {
    let text = format!("{{\"version\":1,\"id\":\"{}\"}}", "4".repeat(10 << 20));
    text_is_refused("10 MiB", &text);
}

#[test]
fn a_cgroup_that_is_gone_or_was_never_there() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        node.pam(ALICE).ok();
        job.finish();
        node.pam(ALICE).fails();
        assert!(!job.cgroup.exists(), "a login made the cgroup of a job");
        job.record(&node.read(&job.record_path()).replace(job.cgroup.path(), "/ja-never-was"));
        node.pam(ALICE).fails();
    });
}

/// A name that is used again is another directory, and carries no stamp.
#[test]
fn a_cgroup_that_was_made_anew() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        job.finish();
        let _again = node.job(ALICE, "4242").unstamped().unrecorded().start();
        node.session(ALICE).fails();
        node.log.decision("JA07");
    });
}

/// The helper finds the job; whose it is, the stamp decides.
#[test]
fn a_cgroup_without_its_stamp() {
    for stamp in [None, Some("1002:4242"), Some("1001:4243"), Some("1001:42420"), Some("")] {
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
fn a_broken_record_hides_no_good_one() {
    on_node(|node| {
        node.reporting("");
        let good = node.job(ALICE, "1").start();
        let bad = node.job(ALICE, "2").start();
        bad.record("{");
        node.pam(ALICE).ok().stands_in(&good.cgroup);
        node.log.line("2.json");
        let other = node.job(BOB, "3").start();
        node.pam(BOB).ok().stands_in(&other.cgroup);
    });
}
