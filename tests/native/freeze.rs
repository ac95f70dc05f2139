//! Frozen jobs: sshd would freeze if it moved into one.

use std::thread::scope;

use crate::support::{ALICE, Job, Node, Outcome, User, eventually, on_node, timeout_factor};

/// Asserts that one of several attempts is refused within a second, by the module's own measure: a
/// busy machine delays some.
fn assert_refused_within_a_second(node: &Node, phase: impl Fn(&Node, User) -> Outcome) {
    let took = || {
        node.log.clear();
        phase(node, ALICE).fails();
        node.log
            .decision("JA04")
            .field("ms")
            .unwrap()
            .parse::<u32>()
            .unwrap()
    };
    assert!(
        (0..5).any(|_| took() < 1000 * timeout_factor()),
        "{}",
        node.log
    );
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
        node.session_alone("timeout=60");
        let in_time = (0..5).find_map(|_| log_in_during_freeze(node, &job));
        in_time
            .expect("each freeze came after the move")
            .ok()
            .joins_cgroup(&job.cgroup);
    });
}

/// Runs a login, freezes the job when the login is about to move into it, and thaws it when the login is there.
/// Returns nothing if the freeze came after the move, as it can on a busy machine.
fn log_in_during_freeze(node: &Node, job: &Job<'_>) -> Option<Outcome> {
    const LOG: &str = "/tmp/strace";
    let procs = format!("/sys/fs/cgroup{}/cgroup.procs", job.cgroup.path());
    let inject = format!("inject=write:delay_enter={}", 1_500_000 * timeout_factor());
    let delay = ["-P", &procs, "-e", &inject];
    node.write(LOG, "");
    scope(|scope| {
        let login = scope.spawn(|| node.session_delayed_by_strace(LOG, &delay, ALICE));
        // strace writes the call down before the delay.
        eventually("the login is about to move", || {
            login.is_finished() || node.read(LOG).contains("write(")
        });
        job.cgroup.freeze(true);
        let in_time = job.cgroup.pids().len() == 1 && !login.is_finished();
        eventually("the login is in the job", || {
            login.is_finished() || job.cgroup.pids().len() == 2
        });
        job.cgroup.freeze(false);
        let outcome = login.join().unwrap();
        in_time.then_some(outcome)
    })
}
