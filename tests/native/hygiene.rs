//! sshd's process stays as it was, and a login leaves nothing behind.

use crate::helper::admitting_reply;
use crate::support::{ALICE, CAROL, Cgroup, Fake, Node, Outcome, Tool, eventually, on_node};

/// Runs accounts and sessions in one process, which compares itself before and after each.
fn run_cycles(node: &Node, user: crate::support::User, count: &str) -> Outcome {
    node.install(&Tool::Cycles.path(), "/usr/bin/cycles");
    node.run("cycles", &[user.name, count])
}

#[test]
fn two_handles_in_one_process_change_nothing() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").devices(&["/dev/nvidia0"]).start();
        let outcome = run_cycles(node, ALICE, "2").exits(0).omits("CHANGED");
        assert_eq!(outcome.stdout.matches("session 0").count(), 2, "{outcome}");
        outcome.joins_cgroup(&job.cgroup);
    });
}

#[test]
fn refusals_change_nothing() {
    on_node(|node| {
        run_cycles(node, CAROL, "3")
            .exits(10)
            .omits("CHANGED")
            .joins_cgroup(&node.outside());
        node.arguments("timeout=1");
        for fake in [
            Fake::new().verb("sleep", 3600),
            Fake::new().verb("undying", 0).verb("raise", 19),
            Fake::new().verb("flood", 1 << 20),
            Fake::new().verb("raise", 9),
        ] {
            fake.install(node);
            // The module waits 100 ms for a killed helper; one that a busy kernel ends later stays a zombie.
            let mut outcome = run_cycles(node, ALICE, "2");
            for _ in 1..5 {
                if outcome.stdout.contains("children 1") {
                    outcome = run_cycles(node, ALICE, "2");
                }
            }
            outcome.exits(10).omits("CHANGED");
        }
        let path = "/usr/libexec/job-adopt/helper";
        node.sh(&format!("echo no program >{path}")).ok();
        run_cycles(node, ALICE, "2").exits(10).omits("CHANGED");
        let _job = node.job(ALICE, "4242").unstamped().start();
        node.write_stack("account required pam_permit.so\nsession required pam_job_adopt.so\n");
        run_cycles(node, ALICE, "2")
            .exits(10)
            .joins_cgroup(&node.outside());
    });
}

#[test]
fn logins_through_step_daemon_change_nothing() {
    on_node(|node| {
        let step = node.step(ALICE, &["no-user"]);
        let outcome = run_cycles(node, ALICE, "2").exits(0).omits("CHANGED");
        assert_eq!(outcome.stdout.matches("session 0").count(), 2, "{outcome}");
        outcome.joins_cgroup(&step.leaf());
    });
}

/// The daemon refuses before it is asked to add, in its reply, and after the move.
#[test]
fn refusals_through_step_daemon_change_nothing() {
    let faults = [
        "hang",
        "refuse",
        "close-add",
        "exit-add",
        "hang-add",
        "lie",
        "elsewhere",
    ];
    for fault in faults.into_iter().chain(["hang-then", "exit-then"]) {
        on_node(|node| {
            let step = node.step(ALICE, &[fault]);
            // Debian 13's pam_exec sets SIGCHLD itself, so this stack has none: the test's program prints the cgroup.
            node.write_stack(
                "account required pam_permit.so\nsession required pam_permit.so\n\
                 session required pam_job_adopt.so timeout=1\n",
            );
            let before = node.processes().len();
            let outcome = run_cycles(node, ALICE, "2").exits(10).omits("CHANGED");
            outcome.says("[JA0").joins_cgroup(&node.outside());
            let daemon = usize::from(!fault.starts_with("exit"));
            eventually("nothing is left", || {
                node.processes().len() == before - 1 + daemon
            });
            step.assert_empty();
        });
    }
}

#[test]
fn closing_session_logs_nothing() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        node.session(ALICE)
            .ok()
            .says("session has successfully been closed");
        assert_eq!(job.cgroup.our_filters().len(), 1);
    });
}

#[test]
fn login_leaves_no_process() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        let before = node.processes().len();
        node.pam(ALICE).ok();
        node.pam(CAROL).fails();
        eventually("nothing is left", || node.processes().len() == before);
        assert_eq!(job.cgroup.pids().len(), 1);
    });
}

/// Descriptors of the next helper, records, leaves and locks could remain after a refusal.
#[test]
fn login_leaves_no_file() {
    on_node(|node| {
        let _job = node.job(ALICE, "4242").start();
        node.pam(ALICE).ok();
        let files = || node.sh("find /run /tmp /etc /dev -xdev | sort").ok().stdout;
        let cgroups = || count_descendants(node.cgroup());
        let before = (files(), cgroups());
        node.pam(ALICE).ok();
        node.pam(CAROL).fails();
        assert_eq!((files(), cgroups()), before);
    });
}

fn count_descendants(cgroup: &Cgroup) -> usize {
    1 + cgroup
        .children()
        .iter()
        .map(count_descendants)
        .sum::<usize>()
}

#[test]
fn valgrind_finds_no_leak_in_module() {
    on_node(|node| {
        let _job = node.job(ALICE, "4242").devices(&["/dev/nvidia0"]).start();
        for user in [ALICE, CAROL] {
            let options = "--leak-check=full --show-leak-kinds=definite,indirect,possible \
                           --keep-debuginfo=yes --log-file=/tmp/valgrind";
            let phases = "acct_mgmt open_session close_session";
            let command = format!("valgrind {options} pamtester sshd {} {phases}", user.name);
            let outcome = node.sh(&command);
            assert_eq!(outcome.code == 0, user == ALICE, "{outcome}");
            let report = node.read("/tmp/valgrind");
            assert!(report.contains("ERROR SUMMARY"), "{report}");
            assert!(!report.contains("pam_job_adopt"), "{report}");
            assert!(!report.contains("Invalid "), "{report}");
        }
    });
}

/// An application may ignore the end of its children, or reap every child, as sshd does.
#[test]
fn sigchld_disposition_of_application_changes_no_result() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        node.install(&Tool::Reaper.path(), "/usr/bin/reaper");
        for mode in ["default", "ignored", "nowait", "handler", "blocked"] {
            for _ in 0..5 {
                let outcome = node.run("reaper", &["alice", mode]).ok();
                outcome.says("account 0 session 0 called 0 reaped 0 same 1 pending 0");
            }
        }
        assert_eq!(job.cgroup.pids().len(), 1);
        let refused = node.run("reaper", &["carol", "handler"]).fails();
        refused
            .says("[JA01]")
            .says("called 0 reaped 0 same 1 pending 0");
    });
}

/// Another thread waits for any child, and may reap the helper. Then only a complete reply counts.
#[test]
fn helper_reaped_by_application_needs_complete_reply() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        node.install(&Tool::Reaper.path(), "/usr/bin/reaper");
        let reply = admitting_reply("4242", &job.cgroup).encode();
        Fake::new().says(&reply[..]).install(node);
        for _ in 0..10 {
            node.run("reaper", &["alice", "thread"])
                .ok()
                .says("account 0 session 0");
        }
        Fake::new().says(&reply[..reply.len() - 8]).install(node);
        for _ in 0..10 {
            node.run("reaper", &["alice", "thread"])
                .fails()
                .says("[JA0");
        }
        assert_eq!(job.cgroup.pids().len(), 1);
    });
}

/// A child of the application that ends during a call stays a child of the application, whose
/// handler learns of it.
#[test]
fn child_of_application_is_left_alone() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        node.install(&Tool::Reaper.path(), "/usr/bin/reaper");
        let slow = Fake::new()
            .verb("sleep", 1)
            .answers(&admitting_reply("4242", &job.cgroup));
        slow.install(node);
        let outcome = node.run("reaper", &["alice", "child"]).ok();
        outcome
            .says("child 7")
            .says("account 0 session 0 called 1 reaped 1 same 1 pending 0");
    });
}
