//! Frozen jobs: sshd would freeze if it moved into one.

use std::thread::scope;

use crate::support::{
    ALICE, Node, Outcome, User, eventually, on_node, run_while_held, timeout_factor,
};

/// Asserts that one of several attempts is refused within a second, by the module's own measure: a
/// busy machine delays some.
fn assert_refused_within_a_second(node: &Node, phase: impl Fn(&Node, User) -> Outcome) {
    let took = || {
        node.log.clear();
        phase(node, ALICE).fails();
        node.log.decision("JA04").field("ms").unwrap().parse::<u32>().unwrap()
    };
    assert!((0..5).any(|_| took() < 1000 * timeout_factor()), "{}", node.log);
}

#[test]
fn frozen_job_refuses_login_within_a_second() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        job.cgroup.freeze(true);
        assert_refused_within_a_second(node, Node::account);
        assert_refused_within_a_second(node, Node::session);
        let text = "gpu017: login refused: your job 4242 is suspended here.";
        node.account(ALICE).fails().says(text).says("[JA04]");
        assert_eq!(job.cgroup.pids().len(), 1);
        job.cgroup.freeze(false);
        node.pam(ALICE).ok();
    });
}

#[test]
fn job_below_frozen_ancestor_refuses_login_within_a_second() {
    on_node(|node| {
        let jobs = node.cgroup().child("jobs");
        let job = node.job(ALICE, "4242").start();
        jobs.freeze(true);
        assert_refused_within_a_second(node, Node::session);
        jobs.freeze(false);
        drop(job);
    });
}

/// A job that its user freezes between the check and the move freezes the login as well, and both
/// go on together.
#[test]
fn login_to_job_frozen_before_move_continues_after_thaw() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        let procs = format!("/sys/fs/cgroup{}/cgroup.procs", job.cgroup.path());
        let delay = ["-P", &procs, "-e", "inject=write:delay_enter=60000000"];
        node.session_alone("timeout=60");
        let login = || node.session_under_strace("/tmp/strace", &delay, ALICE);
        // The login is held until the job is frozen, however long that takes, and then freezes in it.
        scope(|scope| {
            let login = scope.spawn(|| {
                run_while_held(node, login, || {
                    job.cgroup.freeze(true);
                })
            });
            eventually("the login is in the job", || job.cgroup.pids().len() == 2);
            job.cgroup.freeze(false);
            login.join().unwrap().ok().joins_cgroup(&job.cgroup);
        });
    });
}
