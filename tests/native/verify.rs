//! A login succeeds only after its effects were read back: here they are undone in between.

use crate::support::{ALICE, Job, Node, eventually, on_node, run_while_held};

/// Runs a delayed login, does `harm` during the delay, and asserts that the login is refused and
/// not in the job.
fn assert_harm_refuses(node: &Node, job: &Job<'_>, options: &[&str], harm: impl FnOnce()) {
    node.pam(ALICE).ok();
    run_while_held(node, || node.pam_under_strace(options, ALICE), harm).fails();
    assert_eq!(job.cgroup.pids().len(), 1, "the login is still in the job");
    node.pam(ALICE).ok();
}

/// Installs the session line alone, so that the calls can be counted.
fn install_session_line(node: &Node) {
    node.write_stack(
        "account required pam_permit.so\nsession required pam_permit.so\n\
         session required pam_job_adopt.so\n",
    );
}

#[test]
fn filter_lost_after_move_refuses_login() {
    on_node(|node| {
        install_session_line(node);
        let job = node.job(ALICE, "4242").devices(&["/dev/nvidia0"]).start();
        let procs = format!("/sys/fs/cgroup{}/cgroup.procs", job.cgroup.path());
        let held = ["-P", &procs, "-e", "inject=write:delay_enter=60000000"];
        assert_harm_refuses(node, &job, &held, || {
            job.cgroup.detach(&job.cgroup.our_filters()[0])
        });
    });
}

#[test]
fn login_moved_elsewhere_is_refused() {
    on_node(|node| {
        install_session_line(node);
        let job = node.job(ALICE, "4242").start();
        // First read for the way back, then after the move.
        let held = [
            "-P",
            "/proc/self/cgroup",
            "-e",
            "inject=openat:delay_enter=60000000:when=2",
        ];
        assert_harm_refuses(node, &job, &held, || {
            eventually("the login is in the job", || job.cgroup.pids().len() == 2);
            node.outside()
                .write("cgroup.procs", &job.cgroup.pids()[1].to_string());
        });
    });
}

/// The kernel holds up the move itself for longer than the budget.
#[test]
fn login_that_a_slow_move_made_late_is_moved_back() {
    on_node(|node| {
        node.session_reporting("timeout=2");
        let job = node.job(ALICE, "4242").start();
        let procs = format!("/sys/fs/cgroup{}/cgroup.procs", job.cgroup.path());
        let held = ["-P", &procs, "-e", "inject=write:delay_exit=3000000"];
        let outcome = node.session_under_strace("/tmp/strace", &held, ALICE);
        node.log.decision("JA08");
        assert_eq!(job.cgroup.pids().len(), 1, "the login is in the job");
        outcome.joins_cgroup(&node.outside());
    });
}

/// The budget ends after the stamp was read: no move follows.
#[test]
fn late_login_does_not_move() {
    on_node(|node| {
        node.session_alone("timeout=2");
        let job = node.job(ALICE, "4242").start();
        let held = ["-e", "inject=fgetxattr:delay_enter=3000000:when=1"];
        node.session_under_strace("/tmp/strace", &held, ALICE)
            .fails();
        node.log.decision("JA08");
        assert_eq!(job.cgroup.pids().len(), 1, "the login is in the job");
    });
}
