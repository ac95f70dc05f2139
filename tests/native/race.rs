//! A job that ends while a login is on its way into it, and kernels that say no.

use std::time::Duration;

use crate::support::{ALICE, Job, Node, on_node};

/// Every system call at which a login can be held up while its job ends.
const STEPS: [&str; 8] = [
    "openat2",
    "openat",
    "bpf",
    "fgetxattr",
    "write",
    "read",
    "clone,clone3,fork,vfork",
    "execveat",
];

/// Asserts that strace did to the login what it was told to.
fn was_touched(node: &Node, how: &str, call: &str) {
    let trace = node.read("/tmp/strace");
    assert!(trace.contains(how), "no {call} was {how}, so this shows nothing\n{trace}");
}

/// Ends the job while the login is held up at the entry of `call`.
fn ends_at(node: &Node, job: &Job<'_>, call: &str) {
    let inject = format!("inject={call}:delay_enter=40000");
    std::thread::scope(|scope| {
        let login = scope.spawn(|| node.pam_under_strace(&["-e", &inject], ALICE));
        std::thread::sleep(Duration::from_millis(300));
        job.finish();
        let outcome = login.join().unwrap();
        assert!(outcome.code != 0, "{call}: admitted to a job that was gone: {outcome}");
    });
    was_touched(node, "DELAYED", call);
    assert!(!job.cgroup.exists(), "{call}: the login kept the job's cgroup");
}

#[test]
fn a_job_that_ends_on_the_way_admits_nobody() {
    for call in STEPS {
        on_node(|node| {
            node.stack(
                "account required pam_permit.so\nsession required pam_permit.so\n\
                 session required pam_job_adopt.so\n",
            );
            let job = node.job(ALICE, "4242").start();
            node.pam_under_strace(&["-e", "trace=none"], ALICE).ok();
            ends_at(node, &job, call);
        });
    }
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
        ("execveat,execve", "ENOMEM"),
    ];
    for (call, error) in failures {
        on_node(|node| {
            let job = node.job(ALICE, "4242").with("leaf", "logins".into()).start();
            let when = if call.starts_with("exec") { ":when=2+" } else { "" };
            let inject = format!("inject={call}:error={error}{when}");
            let outcome = node.pam_under_strace(&["-e", &inject], ALICE);
            assert!(outcome.code != 0, "{call} {error}: {outcome}");
            was_touched(node, "INJECTED", call);
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
            node.log.line("cgroup.procs");
        });
    }
}

/// `cgroup.kill` that comes before the move leaves a job with nobody but the login in it.
#[test]
fn a_job_that_was_killed_admits_nobody() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        node.session(ALICE).ok();
        job.cgroup.kill();
        node.session(ALICE).failed();
        assert!(job.cgroup.is_empty());
    });
}
