//! Meaning of `DevicePolicy` and `DeviceAllow`, as the kernel enforces it.

use serde_json::json;

use crate::support::{ALICE, DENIED, LOOK, Node, OPENS, Outcome, on_node};

/// Runs `script` in a login to a job that is registered with this policy.
fn login_under_policy(node: &Node, policy: &str, devices: &[&str], script: &str) -> Outcome {
    let job = node.job(ALICE, "4242").policy(policy, devices).register();
    let outcome = node.sshd().ssh(ALICE, script).ok();
    drop(job);
    outcome
}

#[test]
fn closed_adds_pseudo_devices() {
    on_node(|node| {
        let script = "probe /dev/null /dev/zero /dev/full /dev/random /dev/urandom /dev/ptmx \
                      /dev/fuse /dev/nvidia0 /dev/nvidia1";
        let outcome = login_under_policy(node, "closed", &["/dev/nvidia0"], script);
        for device in ["null", "zero", "full", "random", "urandom", "ptmx"] {
            assert_eq!(outcome.device(&format!("/dev/{device}")), "ok", "{outcome}");
        }
        outcome.devices(&[
            ("/dev/nvidia0", OPENS),
            ("/dev/nvidia1", DENIED),
            ("/dev/fuse", DENIED),
        ]);
    });
}

#[test]
fn strict_allows_only_the_list() {
    on_node(|node| {
        let outcome = login_under_policy(node, "strict", &["/dev/nvidia0", "/dev/null"], LOOK);
        let outcome = outcome.devices(&[("/dev/nvidia0", OPENS), ("/dev/null", "ok")]);
        outcome.devices(&[("/dev/nvidia1", DENIED), ("/dev/full", DENIED)]);
    });
}

#[test]
fn auto_with_list_is_closed() {
    on_node(|node| {
        let outcome = login_under_policy(node, "auto", &["/dev/nvidia0"], LOOK);
        outcome.devices(&[
            ("/dev/nvidia0", OPENS),
            ("/dev/nvidia1", DENIED),
            ("/dev/full", "ok"),
        ]);
    });
}

/// An empty list is a key about devices, so it closes.
#[test]
fn auto_with_empty_list_is_closed() {
    on_node(|node| {
        for policy in ["auto", "closed"] {
            let outcome = login_under_policy(node, policy, &[], LOOK);
            outcome.devices(&[("/dev/nvidia0", DENIED), ("/dev/null", "ok")]);
        }
        let outcome = login_under_policy(node, "strict", &[], LOOK);
        outcome.devices(&[("/dev/nvidia0", DENIED), ("/dev/null", DENIED)]);
    });
}

#[test]
fn auto_without_list_contains_nothing() {
    on_node(|node| {
        let auto = json!({ "DevicePolicy": "auto" });
        let job = node.job(ALICE, "4242").with("options", auto).start();
        let outcome = node.sshd().ssh(ALICE, LOOK).ok().joins_cgroup(&job.cgroup);
        outcome.devices(&[("/dev/nvidia0", OPENS), ("/dev/nvidia3", OPENS)]);
        assert!(job.cgroup.filters().is_empty());
    });
}

#[test]
fn class_opens_every_minor_of_its_drivers() {
    on_node(|node| {
        let loops = "for n in 0 1 2; do [ -e /dev/loop$n ] || mknod -m 666 /dev/loop$n b 7 $n; done; \
                     chmod 666 /dev/loop0; grep -q ' loop$' /proc/devices";
        node.sh(loops).ok();
        let script = "for n in 0 1 2; do head -c0 /dev/loop$n && echo loop$n opens; done; true";
        let denied = login_under_policy(node, "closed", &[], script);
        denied.omits("opens").says("Operation not permitted");
        let allowed = login_under_policy(node, "closed", &["block-loop r"], script);
        allowed.says("loop0 opens").says("loop2 opens");
    });
}

#[test]
fn access_letters_limit_open_mode() {
    on_node(|node| {
        let script = "(exec </dev/nvidia0) 2>&1; (exec >/dev/nvidia0) 2>&1; (exec <>/dev/nvidia0) 2>&1; true";
        let answers = |outcome: &Outcome| -> Vec<bool> {
            outcome
                .stdout
                .lines()
                .map(|line| line.contains("No such device"))
                .collect()
        };
        for (access, expected) in [
            ("r", [true, false, false]),
            ("w", [false, true, false]),
            ("rw", [true, true, true]),
            ("m", [false, false, false]),
        ] {
            let outcome =
                login_under_policy(node, "closed", &[&format!("/dev/nvidia0 {access}")], script);
            assert_eq!(answers(&outcome), expected, "{access}: {outcome}");
        }
        // Two entries for one device add up; otherwise no user could open it for reading and
        // writing.
        let outcome = login_under_policy(
            node,
            "closed",
            &["/dev/nvidia0 r", "/dev/nvidia0 w"],
            script,
        );
        assert_eq!(answers(&outcome), [true, true, true], "{outcome}");
    });
}

#[test]
fn unresolvable_name_is_logged_and_opens_nothing() {
    on_node(|node| {
        let absent = [
            "/dev/nvidia7",
            "char-no-such-driver",
            "/dev/nvidia0",
            "/dev/nvidia1 rwx",
        ];
        let outcome = login_under_policy(node, "closed", &absent, LOOK);
        outcome.devices(&[("/dev/nvidia0", OPENS), ("/dev/nvidia1", DENIED)]);
        node.log.line("dropped=\"/dev/nvidia7 rw: ");
        node.log.line("dropped=\"char-no-such-driver rw: ");
        let line = node.log.line("action=register job=4242 uid=1001");
        assert_eq!(line.field("dropped"), Some("3"), "{}", node.log);
    });
}

#[test]
fn site_devices_open_in_all_but_strict_jobs() {
    on_node(|node| {
        node.configure("always_allowed = /dev/fuse, /dev/nvidia3 r, /dev/not-here\n");
        let script = "probe /dev/fuse /dev/nvidia3; (exec </dev/nvidia3) 2>&1; true";
        let fuse = |outcome: &Outcome| outcome.device("/dev/fuse") != DENIED;
        let outcome = login_under_policy(node, "closed", &[], script);
        assert!(fuse(&outcome), "{outcome}");
        outcome
            .devices(&[("/dev/nvidia3", DENIED)])
            .says("No such device");
        node.log.line("dropped=\"/dev/not-here rw: ");
        let strict = login_under_policy(node, "strict", &[], script);
        assert!(!fuse(&strict), "{strict}");
    });
}

/// A login is refused only for the want of numbers, which an older build, or another program, left out.
#[test]
fn record_without_numbers_refuses_login_and_names_command() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        let record = node.read(&job.record_path());
        for text in [
            json!({ "cdi": ["nvidia.com/gpu=3"] }),
            json!({ "options": { "DevicePolicy": "closed" } }),
        ] {
            let mut written = json!({
                "version": 1, "id": "4242", "uid": ALICE.uid, "cgroup": job.cgroup.path(),
            });
            for (key, value) in text.as_object().unwrap() {
                written[key] = value.clone();
            }
            node.write(&job.record_path(), &written.to_string());
            node.account(ALICE).fails().says("[JA09]");
            node.session(ALICE).fails();
            node.log
                .line("its record has no device numbers: run job-adopt register --again 4242");
        }
        node.write(&job.record_path(), &record);
        node.session(ALICE).ok();
    });
}
