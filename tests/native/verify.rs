//! A login succeeds only when what was done has been read back: here it is undone in between.

use crate::support::{ALICE, Job, Node, eventually, on_node, run_while_held};

/// Runs a login that is held up, does `harm` meanwhile, and asserts that the login is refused and
/// not in the job.
fn undone(node: &Node, job: &Job<'_>, options: &[&str], harm: impl FnOnce()) {
    node.pam(ALICE).ok();
    run_while_held(node, || node.pam_under_strace(options, ALICE), harm).fails();
    assert_eq!(job.cgroup.pids().len(), 1, "the login is still in the job");
    node.pam(ALICE).ok();
}

/// The session alone, so that the calls can be counted.
fn session_only(node: &Node) {
    node.stack(
        "account required pam_permit.so\nsession required pam_permit.so\n\
         session required pam_job_adopt.so\n",
    );
}

#[test]
fn a_filter_that_is_gone_after_the_move_refuses() {
    on_node(|node| {
        session_only(node);
        let job = node.job(ALICE, "4242").devices(&["/dev/nvidia0"]).start();
        let procs = format!("/sys/fs/cgroup{}/cgroup.procs", job.cgroup.path());
        let held = ["-P", &procs, "-e", "inject=write:delay_enter=60000000"];
        undone(node, &job, &held, || job.cgroup.detach(&job.cgroup.our_filters()[0]));
    });
}

#[test]
fn a_login_that_was_moved_elsewhere_is_refused() {
    on_node(|node| {
        session_only(node);
        let job = node.job(ALICE, "4242").start();
        // Read once for the way back, and once more after the move.
        let held = ["-P", "/proc/self/cgroup", "-e", "inject=openat:delay_enter=60000000:when=2"];
        undone(node, &job, &held, || {
            eventually("the login is in the job", || job.cgroup.pids().len() == 2);
            node.outside().write("cgroup.procs", &job.cgroup.pids()[1].to_string());
        });
    });
}

/// The budget is over when the stamp has been read: nothing is moved any more.
#[test]
fn a_login_that_is_late_does_not_move() {
    on_node(|node| {
        node.session_alone("timeout=2");
        let job = node.job(ALICE, "4242").start();
        let held = ["-e", "inject=fgetxattr:delay_enter=3000000:when=1"];
        node.session_under_strace("/tmp/strace", &held, ALICE).fails();
        node.log.decision("JA08");
        assert_eq!(job.cgroup.pids().len(), 1, "the login is in the job");
    });
}
