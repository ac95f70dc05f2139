//! The harness itself: a node is private and complete, and leaves nothing.

use crate::support::{
    ALICE, Cgroup, DENIED, Flags, LOOK, Mount, OPENS, eventually, on_node, on_node_with,
};

#[test]
fn node_devices_distinguish_denial_from_absence() {
    on_node(|node| {
        let all = [
            ("/dev/nvidia0", OPENS),
            ("/dev/nvidia3", OPENS),
            ("/dev/null", "ok"),
        ];
        node.sh(LOOK)
            .ok()
            .devices(&all)
            .joins_cgroup(&node.outside());
        node.outside().attach(Flags::Multi, "foreign", &["195:0"]);
        node.sh(LOOK)
            .ok()
            .devices(&[("/dev/nvidia0", DENIED), ("/dev/nvidia3", OPENS)]);
    });
}

/// Simulates a killed test run: the node has no owner.
#[test]
fn node_without_owner_removes_itself() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        node.abandon();
        eventually("its processes and cgroups are gone", || {
            !node.cgroup().exists()
        });
        assert!(!job.cgroup.exists());
    });
}

#[test]
fn node_has_requested_cgroup_layout() {
    for mount in [Mount::Unified, Mount::Hybrid] {
        on_node_with(mount, |node| {
            let script = format!("stat --file-system --format %T {}", mount.path());
            node.sh(&script).ok().says("cgroup2fs");
        });
    }
}

#[test]
fn node_with_cgroup_namespace_has_root_cgroup() {
    on_node_with(Mount::Namespace, |node| {
        let slice = node.cgroup().child("user.slice");
        assert_eq!(slice.create().path(), "/user.slice");
        node.sh("test -d /sys/fs/cgroup/user.slice && cat /proc/self/cgroup")
            .ok()
            .says("0::/node");
        let host = Cgroup::new("/user.slice");
        assert!(!host.exists() || host.dir() != slice.dir());
    });
}

#[test]
fn node_has_working_sshd_and_log() {
    on_node(|node| {
        node.write_stack("auth required pam_unix.so\naccount required pam_permit.so\nsession required pam_permit.so\n");
        let sshd = node.sshd();
        sshd.ssh(ALICE, "id -un").ok().says("alice");
        sshd.ssh_password(ALICE, "id -un").ok().says("alice");
        sshd.shell(ALICE, "tty\nexit\n").ok().says("/dev/pts/");
        sshd.sftp(ALICE, "ls /dev/null\n").ok().says("/dev/null");
        node.log.line("Accepted publickey for alice");
    });
}

#[test]
fn job_runs_as_owner_in_its_cgroup() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        assert_eq!(job.cgroup.pids().len(), 1);
        let pid = job.cgroup.pids()[0];
        let status = || std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        eventually("the job's process is its owner's", || {
            status().contains("Uid:\t1001\t")
        });
        assert!(node.read(&job.record_path()).contains("\"id\":\"4242\""));
        job.finish();
        assert!(!job.cgroup.exists());
    });
}

/// The notes are for the last program of `cargo test`, in a folder beside that of the programs.
#[test]
fn run_without_root_reports_skipped_tests() {
    on_node(|node| {
        node.sh("mkdir -p /tmp/debug/deps && mkdir --mode 1777 /tmp/debug/skipped")
            .ok();
        node.install(&std::env::current_exe().unwrap(), "/tmp/debug/deps/native");
        let nobody = "env -u JOB_ADOPT_TESTS setpriv --reuid 65534 --regid 65534 --clear-groups";
        let run = format!("cd /; {nobody} /tmp/debug/deps/native world::");
        let outcome = node
            .sh(&format!("{run}; sort -u /tmp/debug/skipped/$$"))
            .ok();
        let count = outcome.stdout.matches("... ok").count();
        let line = format!("native: needs root: {count} tests were skipped; make test-all as root");
        assert_eq!(outcome.stderr.matches(&line).count(), 1, "{outcome}");
        assert_eq!(
            outcome
                .stdout
                .matches("needs root\tpam_job_adopt\tworld::")
                .count(),
            count
        );
    });
}
