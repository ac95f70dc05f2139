//! sshd's process is a guest's house, and nothing is left behind.

use crate::helper::admit;
use crate::support::{ALICE, CAROL, Cgroup, Fake, Node, Outcome, Tool, eventually, on_node};

/// Accounts and sessions in one process, which compares itself before and after each.
fn cycles(node: &Node, user: crate::support::User, count: &str) -> Outcome {
    node.install(&Tool::Cycles.path(), "/usr/bin/cycles");
    node.run("cycles", &[user.name, count])
}

#[test]
fn two_handles_in_one_process_change_nothing() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").devices(&["/dev/nvidia0"]).start();
        let outcome = cycles(node, ALICE, "2").exits(0).omits("CHANGED");
        assert_eq!(outcome.stdout.matches("session 0").count(), 2, "{outcome}");
        outcome.stands_in(&job.cgroup);
    });
}

#[test]
fn refusals_change_nothing_either() {
    on_node(|node| {
        cycles(node, CAROL, "3").exits(10).omits("CHANGED").stands_in(&node.outside());
        node.arguments("timeout=1");
        for fake in [
            Fake::new().verb("sleep", 3600),
            Fake::new().verb("undying", 0).verb("raise", 19),
            Fake::new().verb("flood", 1 << 20),
            Fake::new().verb("raise", 9),
        ] {
            fake.install(node);
            cycles(node, ALICE, "2").exits(10).omits("CHANGED");
        }
        let path = "/usr/libexec/job-adopt/resolve";
        node.sh(&format!("echo no program >{path}")).ok();
        cycles(node, ALICE, "2").exits(10).omits("CHANGED");
        let _job = node.job(ALICE, "4242").unstamped().start();
        node.stack("account required pam_permit.so\nsession required pam_job_adopt.so\n");
        cycles(node, ALICE, "2").exits(10).stands_in(&node.outside());
    });
}

#[test]
fn logins_through_a_step_daemon_change_nothing() {
    on_node(|node| {
        let step = node.step(ALICE, &["no-user"]);
        let outcome = cycles(node, ALICE, "2").exits(0).omits("CHANGED");
        assert_eq!(outcome.stdout.matches("session 0").count(), 2, "{outcome}");
        outcome.stands_in(&step.leaf());
    });
}

/// Refused before the daemon is asked to add, by its answer, and by what is seen afterwards.
#[test]
fn neither_do_refusals_through_a_step_daemon() {
    let faults = ["hang", "refuse", "close-add", "exit-add", "hang-add", "lie", "elsewhere"];
    for fault in faults.into_iter().chain(["hang-then", "exit-then"]) {
        on_node(|node| {
            let step = node.step(ALICE, &[fault]);
            node.session_alone("timeout=1");
            let before = node.processes().len();
            let outcome = cycles(node, ALICE, "2").exits(10).omits("CHANGED");
            outcome.says("[JA0").stands_in(&node.outside());
            let daemon = usize::from(!fault.starts_with("exit"));
            eventually("nothing is left", || node.processes().len() == before - 1 + daemon);
            step.empty();
        });
    }
}

#[test]
fn the_session_is_closed_without_a_word() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        node.session(ALICE).ok().says("session has successfully been closed");
        assert_eq!(job.cgroup.our_filters().len(), 1);
    });
}

#[test]
fn no_process_is_left_of_a_login() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        let before = node.processes().len();
        node.pam(ALICE).ok();
        node.pam(CAROL).fails();
        eventually("nothing is left", || node.processes().len() == before);
        assert_eq!(job.cgroup.pids().len(), 1);
    });
}

/// What a refusal could leave: descriptors of the next, records, leaves, locks.
#[test]
fn no_file_is_left_of_a_login() {
    on_node(|node| {
        let _job = node.job(ALICE, "4242").start();
        node.pam(ALICE).ok();
        let files = || node.sh("find /run /tmp /etc /dev -xdev | sort").ok().stdout;
        let cgroups = || count(node.cgroup());
        let before = (files(), cgroups());
        node.pam(ALICE).ok();
        node.pam(CAROL).fails();
        assert_eq!((files(), cgroups()), before);
    });
}

fn count(cgroup: &Cgroup) -> usize {
    1 + cgroup.children().iter().map(count).sum::<usize>()
}

#[test]
fn valgrind_finds_no_leak_in_the_module() {
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

/// An application may ignore its children's end, or reap whatever ends; sshd does the latter.
#[test]
fn an_applications_view_of_its_children_does_not_matter() {
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
        refused.says("[JA01]").says("called 0 reaped 0 same 1 pending 0");
    });
}

/// Another thread waits for whatever child ends, and may well reap the helper. Then a whole answer
/// counts, and a part of one does not.
#[test]
fn a_helper_that_the_application_reaps_has_to_have_answered_in_whole() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        node.install(&Tool::Reaper.path(), "/usr/bin/reaper");
        let reply = admit("4242", &job.cgroup).encode();
        Fake::new().says(&reply[..]).install(node);
        for _ in 0..10 {
            node.run("reaper", &["alice", "thread"]).ok().says("account 0 session 0");
        }
        Fake::new().says(&reply[..reply.len() - 8]).install(node);
        for _ in 0..10 {
            node.run("reaper", &["alice", "thread"]).fails().says("[JA0");
        }
        assert_eq!(job.cgroup.pids().len(), 1);
    });
}

/// A child of the application's that ends in the middle of a call stays its own, and its handler
/// hears of it.
#[test]
fn an_applications_own_child_is_left_to_it() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        node.install(&Tool::Reaper.path(), "/usr/bin/reaper");
        let slow = Fake::new().verb("sleep", 1).answers(&admit("4242", &job.cgroup));
        slow.install(node);
        let outcome = node.run("reaper", &["alice", "child"]).ok();
        outcome.says("child 7").says("account 0 session 0 called 1 reaped 1 same 1 pending 0");
    });
}
