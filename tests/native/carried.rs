//! One question a login: `session` goes by what `account` was told, as long as that is about the
//! same login, and holds.

use crate::helper::admit;
use crate::support::{ALICE, BOB, Cgroup, DENIED, Fake, LOOK, Node, OPENS, Outcome, Tool, on_node};

/// A transaction of alice's in these steps.
fn steps(node: &Node, steps: &[&str]) -> Outcome {
    node.install(&Tool::Steps.path(), "/usr/bin/steps");
    node.run("steps", &[&[ALICE.name], steps].concat()).exits(0)
}

/// A helper that answers `account` alone.
fn in_account_only(node: &Node, job: &str, cgroup: &Cgroup) {
    Fake::new().verb("account-only", 0).answers(&admit(job, cgroup)).install(node);
}

#[track_caller]
fn admitted(outcome: &Outcome, sessions: &[bool]) {
    let codes: Vec<bool> = outcome
        .stdout
        .lines()
        .filter_map(|line| line.strip_prefix("session "))
        .map(|code| code == "0")
        .collect();
    assert_eq!(codes, sessions, "{outcome}");
    assert!(outcome.stdout.starts_with("account 0\n"), "{outcome}");
}

#[test]
fn a_public_key_login_asks_once() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        in_account_only(node, "4242", &job.cgroup);
        let sshd = node.sshd();
        sshd.ssh(ALICE, LOOK).ok().stands_in(&job.cgroup);
        // Here sshd runs account in a process of its own.
        node.log.clear();
        sshd.ssh_password(ALICE, LOOK).fails();
        node.log.line("the helper ended without an answer: exit status 1");
    });
}

#[test]
fn what_account_was_told_counts_once_and_for_the_same_login() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        let _other = node.job(BOB, "4243").start();
        in_account_only(node, "4242", &job.cgroup);
        let of = |between: &[&str]| {
            let all = [&["connection=10.1.0.5 5000 10.1.0.6 22", "account"], between, &["session"]];
            steps(node, &all.concat())
        };
        admitted(&of(&[]), &[true]);
        admitted(&of(&["sleep=1"]), &[true]);
        admitted(&of(&["session"]), &[true, false]);
        for change in [
            "sleep=2000",
            "fork",
            "user=bob",
            "rhost=127.0.0.2",
            "connection=10.1.0.5 5001 10.1.0.6 22",
        ] {
            admitted(&of(&[change]), &[false]);
        }
        admitted(&steps(node, &["account", "fork", "account", "session"]), &[true]);
    });
}

#[test]
fn other_arguments_ask_anew() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        in_account_only(node, "4242", &job.cgroup);
        for (arguments, same) in [("log_level=info", true), ("log_level=quiet", false)] {
            node.stack(&format!(
                "account required pam_job_adopt.so log_level=info\n\
                 session required pam_job_adopt.so {arguments}\n"
            ));
            admitted(&steps(node, &["account", "session"]), &[same]);
        }
    });
}

/// A second session after one that asked: nothing is carried from session to session.
#[test]
fn session_carries_nothing() {
    on_node(|node| {
        let _job = node.job(ALICE, "4242").start();
        let off = "sh=mv /usr/libexec/job-adopt/resolve /usr/libexec/job-adopt/off";
        let outcome = steps(node, &["session", off, "session"]);
        assert!(outcome.stdout.starts_with("session 0\nsession "), "{outcome}");
        assert!(!outcome.stdout.ends_with("session 0\n"), "{outcome}");
    });
}

/// A job that is over between the phases is not joined, whatever account was told.
#[test]
fn a_job_that_has_ended_since_is_not_joined() {
    on_node(|node| {
        let first = node.job(ALICE, "4242").started(1_795_201_200).start();
        let _newest = node.job(ALICE, "4243").started(1_795_201_300).start();
        let over = "sh=job-adopt unregister 4243 >/dev/null";
        let outcome = steps(node, &["account", over, "session", "sh=cat /proc/self/cgroup"]);
        admitted(&outcome, &[true]);
        outcome.stands_in(&first.cgroup);
        let outcome = steps(node, &["account", "sh=job-adopt unregister 4242", "session"]);
        admitted(&outcome, &[false]);
    });
}

/// What `register` has said about the job meanwhile stays in force.
#[test]
fn a_newer_filter_is_not_replaced() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").devices(&["/dev/nvidia0", "/dev/nvidia1"]).start();
        node.pam(ALICE).ok();
        node.probe_in(&job.cgroup).devices(&[("/dev/nvidia1", OPENS)]);
        let narrower = format!(
            "sh=job-adopt register --id 4242 --uid {} --cgroup {} --device /dev/nvidia0",
            ALICE.uid,
            job.cgroup.path()
        );
        admitted(&steps(node, &["account", &narrower, "session"]), &[true]);
        node.probe_in(&job.cgroup).devices(&[("/dev/nvidia0", OPENS), ("/dev/nvidia1", DENIED)]);
        let adopted = node.log.find("the session's decision", |entry| {
            entry.text.contains("decision=adopt") && entry.field("phase") == Some("session")
        });
        assert_eq!(adopted.field("code"), Some("JA00"));
    });
}
