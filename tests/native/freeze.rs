//! A frozen job: moving in would freeze sshd.

use std::time::Duration;

use crate::support::{ALICE, Node, Outcome, User, eventually, on_node, while_held};

/// By the module's own measure; on a busy machine not every time.
fn refused_within_a_second(node: &Node, phase: impl Fn(&Node, User) -> Outcome) {
    let took = || {
        node.log.clear();
        phase(node, ALICE).failed();
        node.log.decision("JA04").field("ms").unwrap().parse::<u32>().unwrap()
    };
    assert!((0..5).any(|_| took() < 1000), "{}", node.log);
}

#[test]
fn a_frozen_job_is_refused_within_a_second() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        job.cgroup.freeze(true);
        refused_within_a_second(node, Node::account);
        refused_within_a_second(node, Node::session);
        let text = "gpu017: your job 4242 is suspended; a login would freeze with it.";
        node.account(ALICE).failed().says(text).says("[JA04]");
        assert_eq!(job.cgroup.pids().len(), 1);
        job.cgroup.freeze(false);
        node.pam(ALICE).ok();
    });
}

#[test]
fn so_is_one_below_a_frozen_ancestor() {
    on_node(|node| {
        let jobs = node.cgroup().child("jobs");
        let job = node.job(ALICE, "4242").start();
        jobs.freeze(true);
        refused_within_a_second(node, Node::session);
        jobs.freeze(false);
        drop(job);
    });
}

/// The job is frozen between the check and the move: the login must not hang in it.
#[test]
fn one_frozen_in_the_window_is_let_go() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        node.arguments("timeout=15");
        let procs = format!("/sys/fs/cgroup{}/cgroup.procs", job.cgroup.path());
        let delay = ["-P", &procs, "-e", "inject=write:delay_enter=6000000"];
        let login = || node.pam_under_strace(&delay, ALICE);
        let outcome = while_held(node, login, || _ = job.cgroup.freeze(true));
        assert!(outcome.code != 0, "{outcome}");
        assert!(outcome.took < Duration::from_secs(60), "{outcome}");
        job.cgroup.freeze(false);
        eventually("only the job is left", || job.cgroup.pids().len() == 1);
        node.pam(ALICE).ok();
    });
}
