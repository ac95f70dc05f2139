//! Leaves that another process removes during a login: that is not the end of the job.

use serde_json::json;

use crate::support::{ALICE, Job, Node, Outcome, on_node, run_while_delayed, run_while_held};

fn leaf_file(job: &Job<'_>) -> String {
    format!("/sys/fs/cgroup{}/job-adopt/cgroup.procs", job.cgroup.path())
}

/// Asserts that the login is in the job or refused, never admitted outside of it, and never told
/// that the job ended.
#[track_caller]
fn assert_inside_or_refused(node: &Node, outcome: Outcome, job: &Job<'_>) {
    node.log.line("decision=");
    let log = node.log.to_string();
    assert!(!log.contains("decision=opened"), "{outcome}\n{log}");
    assert!(!log.contains("code=JA03"), "{outcome}\n{log}");
    if outcome.code == 0 {
        let there = outcome.cgroup().starts_with(job.cgroup.path());
        assert!(there, "admitted outside: {outcome}");
    }
}

#[test]
fn leaf_removed_by_user_admits_no_login_outside() {
    on_node(|node| {
        node.session_alone("action_no_jobs=ignore");
        let job = node.job(ALICE, "4242").devices(&["/dev/nvidia0"]).start();
        job.cgroup.child("mine").create();
        job.cgroup.child("job-adopt").create();
        // A scheduler may delegate the cgroup so.
        node.sh(&format!(
            "chown -R alice /sys/fs/cgroup{}",
            job.cgroup.path()
        ))
        .ok();
        let procs = leaf_file(&job);
        let delay = [
            "-P",
            &procs,
            "-e",
            "inject=write:delay_enter=60000000:when=1",
        ];
        let login = || node.session_under_strace("/tmp/strace", &delay, ALICE);
        let outcome = run_while_held(node, login, || {
            let remove = format!("rmdir /sys/fs/cgroup{}/job-adopt", job.cgroup.path());
            node.sh(&format!("setpriv --reuid 1001 --clear-groups {remove}"))
                .ok();
        });
        assert_inside_or_refused(node, outcome, &job);
    });
}

/// The rollback of a failing login must not remove the leaf that another login is about to join.
#[test]
fn rollback_of_one_login_admits_no_other_outside() {
    on_node(|node| {
        node.session_alone("action_no_jobs=ignore");
        let job = node.job(ALICE, "4242").devices(&["/dev/nvidia0"]).start();
        job.cgroup.child("step").create();
        let procs = leaf_file(&job);
        let fails = ["-e", "inject=bpf:error=ENOMEM:delay_enter=1200000:when=1"];
        let waits = [
            "-P",
            &procs,
            "-e",
            "inject=write:delay_enter=2000000:when=1",
        ];
        let other = std::thread::scope(|scope| {
            let mut other = None;
            let failing = || node.session_delayed_by_strace("/tmp/one", &fails, ALICE);
            let start = || node.session_delayed_by_strace("/tmp/other", &waits, ALICE);
            run_while_delayed(node, failing, || other = Some(scope.spawn(start))).fails();
            other.expect("the first was not held up").join().unwrap()
        });
        assert_inside_or_refused(node, other, &job);
    });
}

#[test]
fn unsuitable_leaf_refuses_login() {
    on_node(|node| {
        node.session_alone("");
        for (what, spoil) in [
            (
                "children",
                (|job| _ = job_leaf(job).child("below").create()) as fn(&Job<'_>),
            ),
            ("controllers handed down", |job| {
                let available = job_leaf(job).read("cgroup.controllers");
                if let Some(controller) = available.split_whitespace().next() {
                    job_leaf(job).write("cgroup.subtree_control", &format!("+{controller}"));
                } else {
                    job_leaf(job).child("below").create();
                }
            }),
        ] {
            let job = node
                .job(ALICE, "4242")
                .with("leaf", json!("logins"))
                .start();
            job_leaf(&job).create();
            spoil(&job);
            let outcome = node.session(ALICE);
            assert!(outcome.code != 0, "{what}: {outcome}");
            assert!(job_leaf(&job).pids().is_empty(), "{what}");
            assert_eq!(job.cgroup.pids().len(), 1, "{what}");
        }
    });
}

fn job_leaf(job: &Job<'_>) -> crate::support::Cgroup {
    job.cgroup.child("logins")
}
