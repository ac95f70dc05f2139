//! One question per login: `session` uses the reply to `account`, if that is about the same login
//! and still holds.

use crate::helper::admitting_reply;
use crate::support::{ALICE, BOB, Cgroup, DENIED, Fake, LOOK, Node, OPENS, Outcome, Tool, on_node};

/// Runs these steps of a transaction of alice.
fn run_steps(node: &Node, steps: &[&str]) -> Outcome {
    node.install(&Tool::Steps.path(), "/usr/bin/steps");
    node.run("steps", &[&[ALICE.name], steps].concat()).exits(0)
}

/// Installs a helper that answers `account` only.
fn install_helper_for_account_only(node: &Node, job: &str, cgroup: &Cgroup) {
    Fake::new()
        .verb("account-only", 0)
        .answers(&admitting_reply(job, cgroup))
        .install(node);
}

#[track_caller]
fn assert_admitted(outcome: &Outcome, sessions: &[bool]) {
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
fn public_key_login_asks_helper_once() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        install_helper_for_account_only(node, "4242", &job.cgroup);
        let sshd = node.sshd();
        sshd.ssh(ALICE, LOOK).ok().joins_cgroup(&job.cgroup);
        // For keyboard-interactive logins sshd runs `account` in a process of its own.
        node.log.clear();
        sshd.ssh_password(ALICE, LOOK).fails();
        node.log
            .line("the helper ended without an answer: exit status 1");
    });
}

#[test]
fn reply_to_account_counts_once_and_for_same_login() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        let _other = node.job(BOB, "4243").start();
        install_helper_for_account_only(node, "4242", &job.cgroup);
        let of = |between: &[&str]| {
            let all = [
                &["connection=10.1.0.5 5000 10.1.0.6 22", "account"],
                between,
                &["session"],
            ];
            run_steps(node, &all.concat())
        };
        assert_admitted(&of(&[]), &[true]);
        assert_admitted(&of(&["sleep=1"]), &[true]);
        assert_admitted(&of(&["session"]), &[true, false]);
        for change in [
            "sleep=2000",
            "fork",
            "user=bob",
            "rhost=127.0.0.2",
            "connection=10.1.0.5 5001 10.1.0.6 22",
        ] {
            assert_admitted(&of(&[change]), &[false]);
        }
        assert_admitted(
            &run_steps(node, &["account", "fork", "account", "session"]),
            &[true],
        );
    });
}

#[test]
fn different_arguments_ask_helper_again() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        install_helper_for_account_only(node, "4242", &job.cgroup);
        for (arguments, same) in [("log_level=info", true), ("log_level=quiet", false)] {
            node.write_stack(&format!(
                "account required pam_job_adopt.so log_level=info\n\
                 session required pam_job_adopt.so {arguments}\n"
            ));
            assert_admitted(&run_steps(node, &["account", "session"]), &[same]);
        }
    });
}

/// A second session asks again: no reply is carried from one session to the next.
#[test]
fn second_session_asks_helper_again() {
    on_node(|node| {
        let _job = node.job(ALICE, "4242").start();
        let off = "sh=mv /usr/libexec/job-adopt/helper /usr/libexec/job-adopt/off";
        let outcome = run_steps(node, &["session", off, "session"]);
        assert!(
            outcome.stdout.starts_with("session 0\nsession "),
            "{outcome}"
        );
        assert!(!outcome.stdout.ends_with("session 0\n"), "{outcome}");
    });
}

/// The job ends between the phases, and its end counts more than the reply to `account`.
#[test]
fn job_that_ended_after_account_is_not_joined() {
    on_node(|node| {
        let first = node.job(ALICE, "4242").started(1_795_201_200).start();
        let _newest = node.job(ALICE, "4243").started(1_795_201_300).start();
        let over = "sh=job-adopt unregister 4243 >/dev/null";
        let outcome = run_steps(
            node,
            &["account", over, "session", "sh=cat /proc/self/cgroup"],
        );
        assert_admitted(&outcome, &[true]);
        outcome.joins_cgroup(&first.cgroup);
        let jobless = run_steps(
            node,
            &["account", "sh=job-adopt unregister 4242", "session"],
        );
        assert_admitted(&jobless, &[false]);
    });
}

/// A filter that `register` has attached meanwhile stays in force.
#[test]
fn newer_filter_is_not_replaced_by_carried_reply() {
    on_node(|node| {
        let job = node
            .job(ALICE, "4242")
            .devices(&["/dev/nvidia0", "/dev/nvidia1"])
            .start();
        node.pam(ALICE).ok();
        node.probe_in(&job.cgroup)
            .devices(&[("/dev/nvidia1", OPENS)]);
        let narrower = format!(
            "sh=job-adopt register --id 4242 --uid {} --cgroup {} --device /dev/nvidia0",
            ALICE.uid,
            job.cgroup.path()
        );
        assert_admitted(
            &run_steps(node, &["account", &narrower, "session"]),
            &[true],
        );
        node.probe_in(&job.cgroup)
            .devices(&[("/dev/nvidia0", OPENS), ("/dev/nvidia1", DENIED)]);
        let adopted = node.log.find("the session's decision", |entry| {
            entry.text.contains("decision=adopt") && entry.field("phase") == Some("session")
        });
        assert_eq!(adopted.field("code"), Some("JA00"));
    });
}
