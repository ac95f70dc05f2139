//! The unit that makes moves into cgroups fast: its command, on a machine with a kernel of its own.

use std::fs::read_to_string;
use std::process::Command;

use crate::support::{ALICE, LOOK, Outcome, on_node};

const UNIT: &str = include_str!("../../packaging/systemd/job-adopt-favordynmods.service");

/// Returns the mount options of the machine's cgroup v2.
fn mount_options() -> String {
    let mounts = read_to_string("/proc/self/mounts").unwrap();
    let mount = mounts
        .lines()
        .find(|line| line.contains(" /sys/fs/cgroup cgroup2 "))
        .unwrap();
    mount.split(' ').nth(3).unwrap().to_owned()
}

/// Runs the unit's command in systemd's way.
fn run_unit() -> Outcome {
    let command = UNIT
        .lines()
        .find_map(|line| line.strip_prefix("ExecStart="))
        .unwrap();
    assert!(
        !command.contains(['%', '$', '\\']),
        "systemd would read it otherwise: {command}"
    );
    Outcome::run(Command::new("sh").args(["-c", command]))
}

#[test]
#[ignore = "it is for the whole machine until that boots: only on the machines of tests/kernel"]
fn unit_sets_mount_option_repeatedly_and_logins_work() {
    let before = mount_options();
    for _ in 0..2 {
        run_unit().ok();
        assert!(
            mount_options().contains("favordynmods"),
            "{}",
            mount_options()
        );
        for option in before.split(',') {
            assert!(
                mount_options().split(',').any(|kept| kept == option),
                "{option}: {}",
                mount_options()
            );
        }
    }
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        node.sshd().ssh(ALICE, LOOK).ok().joins_cgroup(&job.cgroup);
        let checked = node.job_adopt(&["check", "--verbose"]);
        checked.says("fine cgroup-favordynmods /sys/fs/cgroup: is mounted with favordynmods");
    });
}

#[test]
#[ignore = "it would set the option where it did not fail: only on the machines of tests/kernel"]
fn unit_fails_where_mount_rejects_option() {
    let command = "unshare --mount sh -c 'mount -t tmpfs tmpfs /sys/fs/cgroup && exec \"$@\"' sh";
    let line = UNIT
        .lines()
        .find_map(|line| line.strip_prefix("ExecStart="))
        .unwrap();
    let failed = Outcome::run(Command::new("sh").args(["-c", &format!("{command} {line}")]));
    failed.fails().says("favordynmods");
}
