//! Jobs that end during a login, and kernels that fail a call.

use crate::support::{ALICE, Job, Node, on_node, run_while_held, try_run_while_held};

/// Returns whether strace injected its fault into the login.
fn was_delayed(node: &Node, how: &str) -> bool {
    node.read("/tmp/strace").contains(how)
}

/// Ends the job while strace delays the login at the entry of its `number`th `call`. Returns
/// whether the login makes such a call.
fn end_job_at(node: &Node, job: &Job<'_>, call: &str, number: u32) -> bool {
    let inject = format!("inject={call}:delay_enter=60000000:when={number}");
    let login = || node.pam_under_strace(&["-e", &inject], ALICE);
    let (outcome, held) = try_run_while_held(node, login, || job.finish());
    if !held {
        outcome.ok();
        return false;
    }
    assert!(
        outcome.code != 0,
        "{call} {number}: admitted to a job that was gone: {outcome}"
    );
    assert!(
        !job.cgroup.exists(),
        "{call} {number}: the login kept the job's cgroup"
    );
    true
}

/// Ends the job at each of these calls in turn.
fn end_job_at_every(call: &str, at_least: u32) {
    for number in 1..60 {
        let mut held = false;
        on_node(|node| {
            // Only the session: an account phase before it would be the one to refuse.
            node.write_stack(
                "account required pam_permit.so\nsession required pam_permit.so\n\
                 session required pam_job_adopt.so\n",
            );
            let job = node.job(ALICE, "4242").start();
            held = end_job_at(node, &job, call, number);
            assert!(
                held || number > at_least,
                "there are not {at_least} calls of {call}"
            );
        });
        if !held {
            return;
        }
    }
}

#[test]
fn job_that_ends_while_helper_starts_refuses_login() {
    end_job_at_every("clone,clone3", 1);
}

#[test]
fn job_that_ends_while_cgroup_is_opened_refuses_login() {
    end_job_at_every("openat2", 2);
}

#[test]
fn job_that_ends_while_stamp_is_read_refuses_login() {
    end_job_at_every("fgetxattr", 2);
}

#[test]
fn job_that_ends_while_filter_is_made_refuses_login() {
    end_job_at_every("bpf", 3);
}

#[test]
fn job_that_ends_just_before_move_refuses_login() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        let procs = format!("/sys/fs/cgroup{}/cgroup.procs", job.cgroup.path());
        let delay = ["-P", &procs, "-e", "inject=write:delay_enter=60000000"];
        run_while_held(
            node,
            || node.session_under_strace("/tmp/strace", &delay, ALICE),
            || job.finish(),
        )
        .fails();
        assert!(!job.cgroup.exists());
        node.log.decision("JA03");
    });
}

/// The kernel fails one call of the session. The login is refused and stays where it was.
#[test]
fn failing_call_refuses_login() {
    let failures = [
        ("openat2", "EACCES"),
        ("bpf", "EPERM"),
        ("bpf", "ENOMEM"),
        ("fgetxattr", "EIO"),
        ("pipe2", "EMFILE"),
        ("clone,clone3,fork,vfork", "EAGAIN"),
        ("execveat", "ENOMEM"),
    ];
    for (call, error) in failures {
        on_node(|node| {
            let job = node
                .job(ALICE, "4242")
                .with("leaf", "logins".into())
                .start();
            let inject = format!("inject={call}:error={error}");
            let outcome = node.pam_under_strace(&["-e", &inject], ALICE);
            assert!(outcome.code != 0, "{call} {error}: {outcome}");
            assert!(was_delayed(node, "INJECTED"), "{call}: no such call");
            assert_eq!(job.cgroup.pids().len(), 1, "{call} {error}");
            assert!(job.cgroup.children().is_empty(), "{call} {error}");
        });
    }
}

/// The move itself fails: the log has the kernel's error, and the login is not in the job.
#[test]
fn failing_move_refuses_login() {
    for error in ["ENODEV", "EBUSY", "EACCES", "EAGAIN", "ENOSPC"] {
        on_node(|node| {
            let job = node.job(ALICE, "4242").start();
            let procs = format!("/sys/fs/cgroup{}/cgroup.procs", job.cgroup.path());
            let inject = format!("inject=write:error={error}");
            let outcome = node.pam_under_strace(&["-P", &procs, "-e", &inject], ALICE);
            assert!(outcome.code != 0, "{error}: {outcome}");
            assert!(was_delayed(node, "INJECTED"));
            node.log.line("move to ");
            assert_eq!(job.cgroup.pids().len(), 1);
        });
    }
}

/// `unregister` first removes the stamp, then writes to `cgroup.kill`.
#[test]
fn job_withdrawn_just_before_move_refuses_login() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        let procs = format!("/sys/fs/cgroup{}/cgroup.procs", job.cgroup.path());
        let delay = ["-P", &procs, "-e", "inject=write:delay_enter=60000000"];
        let withdraw = || {
            job.unstamp();
            job.cgroup.kill();
        };
        run_while_held(
            node,
            || node.session_under_strace("/tmp/strace", &delay, ALICE),
            withdraw,
        )
        .fails();
        assert!(job.cgroup.is_empty());
        node.log.decision("JA03");
    });
}
