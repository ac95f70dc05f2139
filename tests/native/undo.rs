//! Sessions that fail halfway: the process is where it was, and all that it made is gone.

use serde_json::json;

use crate::support::{
    ALICE, Job, Node, Outcome, missing_requirement, on_node, skip, timeout_factor,
};

/// Asserts that the session is refused and outside, and that no leaf is left.
fn assert_refused_and_undone(options: &[&str], file: Option<&str>) {
    on_node(|node| {
        node.session_reporting("");
        let job = node
            .job(ALICE, "4242")
            .with("leaf", json!("logins"))
            .start();
        let path = file.map(|file| format!("/sys/fs/cgroup{}/logins/{file}", job.cgroup.path()));
        let only: Vec<&str> = path.iter().flat_map(|path| ["-P", path.as_str()]).collect();
        let outcome = node.session_under_strace("/tmp/strace", &[&only, options].concat(), ALICE);
        assert!(
            node.read("/tmp/strace").contains("INJECTED"),
            "{options:?}: no such call"
        );
        node.log.line("decision=refuse");
        let children = job.cgroup.children();
        assert!(children.is_empty(), "{options:?}: {children:?} is left");
        assert_eq!(job.cgroup.pids().len(), 1, "{options:?}");
        outcome.joins_cgroup(&node.outside());
    });
}

#[test]
fn failing_move_leaves_no_leaf() {
    for error in ["EIO", "ENODEV", "EBUSY"] {
        let inject = format!("inject=write:error={error}");
        assert_refused_and_undone(&["-e", &inject], Some("cgroup.procs"));
    }
}

/// logind removes the scope of a session that nothing is in.
#[test]
fn login_whose_cgroup_is_gone_goes_back_to_the_one_above() {
    on_node(|node| {
        node.session_reporting("timeout=2");
        let job = node.job(ALICE, "4242").start();
        let path = |cgroup: &str| format!("/sys/fs/cgroup{cgroup}");
        let job_path = path(job.cgroup.path());
        let outside = path(node.outside().path());
        let outcome = node.sh(&format!(
            "mkdir {outside}/scope
             strace -f -qq -o /dev/null -P {job_path}/cgroup.procs \
                 -e inject=write:delay_exit=4000000 \
                 sh -c 'echo 0 >{outside}/scope/cgroup.procs && exec pamtester sshd alice open_session' &
             until [ $(wc -l <{job_path}/cgroup.procs) = 2 ]; do sleep 0.01; done
             rmdir {outside}/scope; wait"
        ));
        node.log.decision("JA08");
        assert_eq!(job.cgroup.pids().len(), 1, "the login is in the job");
        outcome.says("[JA08]").joins_cgroup(&node.outside());
    });
}

#[test]
fn failing_leaf_mark_leaves_no_leaf() {
    assert_refused_and_undone(&["-e", "inject=fsetxattr:error=EPERM"], None);
}

#[test]
fn failing_filter_leaves_no_leaf() {
    for number in 1..12 {
        let inject = format!("inject=bpf:error=ENOMEM:when={number}+");
        assert_refused_and_undone(&["-e", &inject], None);
    }
}

/// The proof after the move fails. Before it the stamp is read, and then, since a filter is attached, the accounts that
/// may be in the job and the mark of the leaf.
#[test]
fn stamp_lost_after_move_leaves_no_leaf() {
    assert_refused_and_undone(&["-e", "inject=fgetxattr:error=ENODATA:when=4"], None);
}

/// A lost leaf is made again only if the job still belongs to the user.
#[test]
fn leaf_of_job_with_new_owner_is_not_made_again() {
    if let Some(obstacle) = missing_requirement() {
        return skip(obstacle);
    }
    let lost = std::cell::Cell::new(0);
    for number in 4..12 {
        on_node(|node| {
            node.session_reporting("");
            let job = node
                .job(ALICE, "4242")
                .with("leaf", json!("logins"))
                .start();
            let gone = format!("inject=openat2:error=ENOENT:when={number}");
            let options = [
                "-e",
                "trace=openat2,mkdirat,fgetxattr",
                "-e",
                &gone,
                "-e",
                "inject=fgetxattr:error=ENODATA:when=2+",
            ];
            let outcome = node.session_under_strace("/tmp/strace", &options, ALICE);
            node.log.line("decision=refuse");
            let trace = node.read("/tmp/strace");
            let is_made = |line: &&str| line.contains("mkdirat(") && line.contains("\"logins\"");
            assert!(
                trace.lines().filter(is_made).count() < 2,
                "{number}:\n{trace}"
            );
            let after = trace.lines().skip_while(|line| !is_made(line));
            let lost_then =
                after.filter(|line| line.contains("ENOENT") && line.contains("INJECTED"));
            lost.set(lost.get() + lost_then.count());
            assert!(job.cgroup.children().is_empty(), "{number}");
            outcome.joins_cgroup(&node.outside());
        });
    }
    assert!(lost.get() > 0, "no leaf was lost");
}

/// A failure to open sshd's own cgroup does not mean that the job has ended.
#[test]
fn missing_origin_cgroup_is_not_reported_as_ended_job() {
    on_node(|node| {
        node.session_reporting("action_no_jobs=ignore");
        let job = node.job(ALICE, "4242").devices(&["/dev/nvidia0"]).start();
        let options = [
            "-P",
            "/proc/self/cgroup",
            "-e",
            "inject=openat:error=ENOENT:when=1",
        ];
        node.session_under_strace("/tmp/strace", &options, ALICE);
        assert!(node.read("/tmp/strace").contains("INJECTED"));
        node.log.decision("JA07");
        assert_eq!(job.cgroup.pids().len(), 1);
    });
}

#[test]
fn require_devices_counts_in_session_too() {
    on_node(|node| {
        node.session_reporting("require_devices");
        let auto = json!({ "DevicePolicy": "auto" });
        let job = node
            .job(ALICE, "4242")
            .with("options", auto)
            .with("leaf", json!("logins"))
            .start();
        let outcome = node.session(ALICE);
        node.log.decision("JA06");
        assert!(job.cgroup.children().is_empty() && job.cgroup.pids().len() == 1);
        outcome.joins_cgroup(&node.outside());
    });
}

/// Kernels before 5.6 lack `openat2`, and so do seccomp filters that do not know it.
#[test]
fn kernel_without_openat2_admits() {
    on_node(|node| {
        node.session_alone("");
        let job = node.job(ALICE, "4242").devices(&["/dev/nvidia0"]).start();
        let without = ["-e", "inject=openat2:error=ENOSYS"];
        let outcome = node
            .session_under_strace("/tmp/strace", &without, ALICE)
            .ok();
        outcome.joins_cgroup(&job.cgroup);
        assert_eq!(job.cgroup.our_filters().len(), 1);
    });
}

/// Only the leaf is frozen, which the job's own state does not show.
#[test]
fn frozen_leaf_refuses_login_before_move() {
    on_node(|node| {
        node.session_reporting("");
        let job = node
            .job(ALICE, "4242")
            .with("leaf", json!("logins"))
            .start();
        let leaf = job.cgroup.child("logins");
        leaf.create().freeze(true);
        let took = || {
            node.log.clear();
            node.session(ALICE).joins_cgroup(&node.outside());
            node.log
                .decision("JA04")
                .field("ms")
                .unwrap()
                .parse::<u32>()
                .unwrap()
        };
        // By the module's own measure; a busy machine delays some attempts.
        assert!(
            (0..5).any(|_| took() < 1000 * timeout_factor()),
            "{}",
            node.log
        );
    });
}

/// Writes to the job's `cgroup.procs` in a cgroup namespace, where paths mean something else.
fn run_in_cgroup_namespace(node: &Node, job: &Job<'_>) -> Outcome {
    let procs = format!("/sys/fs/cgroup{}/cgroup.procs", job.cgroup.path());
    let trace = [
        "-f",
        "-qq",
        "-o",
        "/tmp/strace",
        "-e",
        "trace=write",
        "-e",
        "signal=none",
        "-P",
        &procs,
    ];
    let login = [
        "unshare",
        "--cgroup",
        "pamtester",
        "sshd",
        "alice",
        "open_session",
    ];
    node.run("strace", &[&trace[..], &login].concat())
}

#[test]
fn cgroup_namespace_refuses_login_before_move() {
    on_node(|node| {
        node.session_reporting("");
        let job = node.job(ALICE, "4242").start();
        let outcome = run_in_cgroup_namespace(node, &job);
        node.log.line("decision=refuse");
        assert!(
            !node.read("/tmp/strace").contains("write("),
            "it was moved: {outcome}"
        );
        assert_eq!(
            (outcome.cgroup(), job.cgroup.pids().len()),
            ("/", 1),
            "{outcome}"
        );
    });
}
