//! A job that ends while a login is on its way into it, and kernels that say no.

use crate::support::{ALICE, Job, Node, on_node, run_while_held, try_run_while_held};

/// Whether strace did to the login what it was told to.
fn was_touched(node: &Node, how: &str) -> bool {
    node.read("/tmp/strace").contains(how)
}

/// Ends the job while the login is held up at the entry of its `number`th `call`; says whether
/// there was such a call.
fn ends_at(node: &Node, job: &Job<'_>, call: &str, number: u32) -> bool {
    let inject = format!("inject={call}:delay_enter=60000000:when={number}");
    let login = || node.pam_under_strace(&["-e", &inject], ALICE);
    let (outcome, held) = try_run_while_held(node, login, || job.finish());
    if !held {
        outcome.ok();
        return false;
    }
    assert!(outcome.code != 0, "{call} {number}: admitted to a job that was gone: {outcome}");
    assert!(!job.cgroup.exists(), "{call} {number}: the login kept the job's cgroup");
    true
}

/// Ends the job at every one of these calls in turn.
fn ends_at_every(call: &str, at_least: u32) {
    for number in 1..60 {
        let mut held = false;
        on_node(|node| {
            // The session alone: an account phase before it would be what refuses.
            node.stack(
                "account required pam_permit.so\nsession required pam_permit.so\n\
                 session required pam_job_adopt.so\n",
            );
            let job = node.job(ALICE, "4242").start();
            held = ends_at(node, &job, call, number);
            assert!(held || number > at_least, "there are not {at_least} calls of {call}");
        });
        if !held {
            return;
        }
    }
}

#[test]
fn a_job_that_ends_while_its_helper_starts_admits_nobody() {
    ends_at_every("clone,clone3", 1);
}

#[test]
fn a_job_that_ends_while_its_cgroup_is_opened_admits_nobody() {
    ends_at_every("openat2", 2);
}

#[test]
fn a_job_that_ends_while_its_stamp_is_read_admits_nobody() {
    ends_at_every("fgetxattr", 2);
}

#[test]
fn a_job_that_ends_while_its_filter_is_made_admits_nobody() {
    ends_at_every("bpf", 3);
}

#[test]
fn a_job_that_ends_just_before_the_move_admits_nobody() {
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

/// The kernel refuses one call of the session; the login is refused and stays where it was.
#[test]
fn a_call_that_fails_refuses() {
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
            let job = node.job(ALICE, "4242").with("leaf", "logins".into()).start();
            let inject = format!("inject={call}:error={error}");
            let outcome = node.pam_under_strace(&["-e", &inject], ALICE);
            assert!(outcome.code != 0, "{call} {error}: {outcome}");
            assert!(was_touched(node, "INJECTED"), "{call}: no such call");
            assert_eq!(job.cgroup.pids().len(), 1, "{call} {error}");
            assert!(job.cgroup.children().is_empty(), "{call} {error}");
        });
    }
}

/// The move itself fails: what the kernel says is in the log, the login is not in the job.
#[test]
fn a_move_that_fails_refuses() {
    for error in ["ENODEV", "EBUSY", "EACCES", "EAGAIN", "ENOSPC"] {
        on_node(|node| {
            let job = node.job(ALICE, "4242").start();
            let procs = format!("/sys/fs/cgroup{}/cgroup.procs", job.cgroup.path());
            let inject = format!("inject=write:error={error}");
            let outcome = node.pam_under_strace(&["-P", &procs, "-e", &inject], ALICE);
            assert!(outcome.code != 0, "{error}: {outcome}");
            assert!(was_touched(node, "INJECTED"));
            node.log.line("move to ");
            assert_eq!(job.cgroup.pids().len(), 1);
        });
    }
}

/// A stamp that is withdrawn before the move, as `unregister` does, then `cgroup.kill`.
#[test]
fn a_job_that_is_withdrawn_just_before_the_move_admits_nobody() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        let procs = format!("/sys/fs/cgroup{}/cgroup.procs", job.cgroup.path());
        let delay = ["-P", &procs, "-e", "inject=write:delay_enter=60000000"];
        let withdraw = || {
            job.unstamp();
            job.cgroup.kill();
        };
        run_while_held(node, || node.session_under_strace("/tmp/strace", &delay, ALICE), withdraw)
            .fails();
        assert!(job.cgroup.is_empty());
        node.log.decision("JA03");
    });
}
