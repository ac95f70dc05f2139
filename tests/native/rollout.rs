//! Arguments for the first days, and those that open. Each use of one that opens is logged.

use std::time::Duration;

use crate::support::{ALICE, CAROL, LOOK, OPENS, OPS, eventually, on_node};

#[test]
fn observe_changes_no_decision_and_logs_each() {
    on_node(|node| {
        node.arguments("observe");
        let job = node.job(ALICE, "4242").devices(&["/dev/nvidia0"]).start();
        let sshd = node.sshd();
        let outcome = sshd.ssh(ALICE, LOOK).ok().joins_cgroup(&node.outside());
        outcome.devices(&[("/dev/nvidia1", OPENS)]);
        assert!(job.cgroup.filters().is_empty(), "observe attached a filter");
        sshd.ssh(CAROL, LOOK)
            .ok()
            .joins_cgroup(&node.outside())
            .omits("JA01");
        node.log.line("code=JA01");
        // No other module has put the logins into a job.
        let entry = node.log.line("agree=no");
        assert_eq!(
            entry.field("theirs"),
            Some(node.outside().path()),
            "{}",
            entry.text
        );
    });
}

#[test]
fn off_switch_admits_with_alert() {
    on_node(|node| {
        node.write("/run/job-adopt/off", "");
        node.pam(CAROL).ok();
        let alert = node.log.find("an alert", |entry| entry.severity() == 1);
        assert!(alert.text.contains("/run/job-adopt/off"), "{}", alert.text);
        node.sh("chown alice /run/job-adopt/off").ok();
        node.pam(CAROL).fails().says("[JA0");
    });
}

#[test]
fn exempt_users_and_groups_are_ignored() {
    on_node(|node| {
        node.reporting("exempt_uids=1003 exempt_groups=ops");
        node.pam(CAROL).ok().joins_cgroup(&node.outside());
        node.pam(OPS).ok().joins_cgroup(&node.outside());
        node.pam(ALICE).fails().says("[JA01]");
        node.arguments("exempt_groups=no-such-group");
        node.pam(OPS).fails();
    });
}

/// A level that hides all decisions hides none that leaves a login outside of its job.
#[test]
fn login_outside_of_jobs_is_logged_once_at_every_level() {
    on_node(|node| {
        for (arguments, user, text) in [
            ("exempt_groups=ops", OPS, "decision=exempt"),
            ("exempt_uids=1003", CAROL, "decision=exempt"),
            ("exempt_groups=ops exempt_join", OPS, "decision=exempt"),
            ("observe", CAROL, "decision=observe"),
            ("service=shhd", CAROL, "knob=service=shhd"),
        ] {
            node.log.clear();
            node.arguments(&format!("log_level=quiet {arguments}"));
            node.pam(user).ok();
            node.log.line(text);
            let entries = node.log.entries();
            let count = entries
                .iter()
                .filter(|entry| entry.text.contains("decision="))
                .count();
            assert_eq!(count, 1, "{arguments}");
        }
        node.log.clear();
        node.configure("enforce = if-exists:/run/compute-node\n");
        node.arguments("log_level=quiet");
        node.pam(CAROL).ok();
        let line = node.log.line("decision=ignore").text;
        assert!(line.contains("knob=enforce"), "{line}");
    });
}

#[test]
fn exempt_user_joins_job_and_enters_without_one() {
    on_node(|node| {
        node.reporting("exempt_groups=ops exempt_join");
        node.pam(OPS).ok().joins_cgroup(&node.outside());
        let job = node.job(OPS, "4242").start();
        node.pam(OPS).ok().joins_cgroup(&job.cgroup);
        node.log.line("decision=adopt");
        job.unstamp();
        node.log.clear();
        node.pam(OPS)
            .ok()
            .joins_cgroup(&node.outside())
            .omits("[JA");
        let entry = node.log.line("decision=exempt");
        assert_eq!(entry.field("knob"), Some("exempt_groups"), "{}", entry.text);
        assert_eq!(entry.field("code"), Some("JA07"), "{}", entry.text);
        node.pam(CAROL).fails().says("[JA01]");
        node.reporting("exempt_groups=ops exempt_join helper=/nonexistent wait_job=4");
        node.pam(OPS).ok().joins_cgroup(&node.outside());
    });
}

#[test]
fn if_exists_ignores_logins_on_other_nodes() {
    on_node(|node| {
        node.configure("enforce = if-exists:/run/compute-node\n");
        node.pam(CAROL).ok();
        node.write("/run/compute-node", "");
        node.pam(CAROL).fails().says("[JA01]");
    });
}

#[test]
fn wait_job_admits_to_job_that_is_starting() {
    on_node(|node| {
        node.arguments("wait_job=3");
        let refused = node.account(CAROL).fails().says("[JA01]");
        assert!(refused.took >= Duration::from_secs(3), "{refused}");
        std::thread::scope(|scope| {
            node.arguments("wait_job=30");
            let login = scope.spawn(|| node.account(ALICE));
            eventually("the login waits", || !node.helpers().is_empty());
            assert!(!login.is_finished(), "the login did not wait");
            let _job = node.job(ALICE, "4242").start();
            let admitted = login.join().unwrap().ok();
            assert!(admitted.took < Duration::from_secs(20), "{admitted}");
        });
    });
}

#[test]
fn each_opening_argument_logs_its_use() {
    on_node(|node| {
        let opened = |knob: &str| {
            let entry = node.log.line("decision=opened");
            assert!(entry.text.contains(knob), "{}", entry.text);
            assert_eq!(entry.severity(), 1, "{}", entry.text);
            node.log.clear();
        };
        node.reporting("action_no_jobs=ignore");
        node.pam(CAROL).ok().joins_cgroup(&node.outside());
        opened("action_no_jobs");
        node.reporting("action_generic_failure=allow helper=/nonexistent");
        node.pam(CAROL).ok().joins_cgroup(&node.outside());
        opened("action_generic_failure");
        let job = node.job(ALICE, "4242").unstamped().start();
        node.reporting("action_adopt_failure=allow");
        node.pam(ALICE).ok().joins_cgroup(&node.outside());
        opened("action_adopt_failure");
        drop(job);
    });
}

#[test]
fn require_devices_refuses_job_without_containment() {
    on_node(|node| {
        let auto = serde_json::json!({ "DevicePolicy": "auto" });
        let job = node.job(ALICE, "4242").with("options", auto).start();
        node.reporting("");
        node.pam(ALICE).ok().joins_cgroup(&job.cgroup);
        assert_eq!(node.log.decision("JA00").field("containment"), Some("none"));
        node.reporting("require_devices");
        node.pam(ALICE).fails();
    });
}

#[test]
fn site_message_is_added_to_refusal() {
    on_node(|node| {
        node.write("/etc/issue.job", "Help: help@example.org\x1b[31m\n");
        node.configure("hint = qstat -u $USER\nmessage_file = /etc/issue.job\n");
        let outcome = node.account(CAROL).fails().says(" [JA01]");
        outcome
            .says("Your jobs: qstat -u $USER   ")
            .says("Help: help@example.org")
            .omits("\x1b");
    });
}

#[test]
fn wrong_configuration_refuses_and_is_named() {
    on_node(|node| {
        let _job = node.job(ALICE, "4242").start();
        let wrong = [
            ("# fine\nregistri = /run/x\n", "registri"),
            ("sources = slurmish\n", "sources"),
            ("enforce = maybe\n", "enforce"),
            ("registry = run/x\n", "registry"),
            ("always_allowed = /dev/null rwx\n", "always_allowed"),
            ("# fine\nhint\n", "job_adopt.conf:2:"),
        ];
        for (text, key) in wrong {
            node.configure(text);
            node.log.clear();
            let outcome = node.account(ALICE);
            assert!(outcome.code != 0, "{text}: {outcome}");
            outcome.says("[JA09]").omits(key);
            let entry = node.log.decision("JA09");
            assert!(entry.text.contains("job_adopt.conf"), "{}", entry.text);
            assert!(entry.text.contains(key), "{key}: {}", entry.text);
        }
        node.configure("");
        node.account(ALICE).ok();
        node.set_mode("/etc/security/job_adopt.conf", 0o666);
        node.account(ALICE).fails().says("[JA09]");
        node.sh("chmod 644 /etc/security/job_adopt.conf; chown alice /etc/security/job_adopt.conf")
            .ok();
        node.account(ALICE).fails().says("[JA09]");
    });
}
