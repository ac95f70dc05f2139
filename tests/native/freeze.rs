//! A frozen job: moving in would freeze sshd.

use crate::support::{
    ALICE, Node, Outcome, User, eventually, on_node, run_while_delayed, timeout_factor,
};

/// By the module's own measure; on a busy machine not every time.
fn refused_within_a_second(node: &Node, phase: impl Fn(&Node, User) -> Outcome) {
    let took = || {
        node.log.clear();
        phase(node, ALICE).fails();
        node.log.decision("JA04").field("ms").unwrap().parse::<u32>().unwrap()
    };
    assert!((0..5).any(|_| took() < 1000 * timeout_factor()), "{}", node.log);
}

#[test]
fn a_frozen_job_is_refused_within_a_second() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        job.cgroup.freeze(true);
        refused_within_a_second(node, Node::account);
        refused_within_a_second(node, Node::session);
        let text = "gpu017: your job 4242 is suspended; a login would freeze with it.";
        node.account(ALICE).fails().says(text).says("[JA04]");
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

/// A job that its user freezes between the check and the move: their login freezes with it, as
/// those do that are there already, and goes on with it.
#[test]
fn one_frozen_in_the_window_goes_on_with_its_job() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        let procs = format!("/sys/fs/cgroup{}/cgroup.procs", job.cgroup.path());
        let delay = ["-P", &procs, "-e", "inject=write:delay_enter=1500000"];
        node.session_alone("");
        let login = || node.session_under_strace("/tmp/strace", &delay, ALICE);
        let outcome = run_while_delayed(node, login, || {
            job.cgroup.freeze(true);
            eventually("the login is in the job", || job.cgroup.pids().len() == 2);
            job.cgroup.freeze(false);
        });
        outcome.ok().stands_in(&job.cgroup);
    });
}
