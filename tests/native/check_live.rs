//! `job-adopt check --live USER` runs the service's own stack and reads back what came of it.

use std::time::Duration;

use crate::check_node::Checked;
use crate::support::{ALICE, CAROL, Job, Node, eventually, on_node};

fn live(node: &Node, user: &str) -> Checked {
    Checked::behind(node, "", &format!("--live {user}"))
}

/// Asserts that nothing of a run is left: in the job, or anywhere on the node.
#[track_caller]
fn nothing_left(node: &Node, job: &Job<'_>, before: usize) {
    assert_eq!(job.cgroup.pids().len(), 1, "the login is in the job");
    eventually("no process is left", || node.processes().len() == before);
}

#[test]
fn a_login_that_joins_its_job_is_shown_with_its_devices() {
    on_node(|node| {
        let _sshd = node.sshd();
        let job = node.job(ALICE, "4242").devices(&["/dev/nvidia0"]).start();
        let before = node.processes().len();
        let checked = live(node, "alice");
        checked
            .says("fine", "live-stack", "admitted")
            .says("fine", "live-place", "is in job 4242")
            .says("fine", "live-place", job.cgroup.path())
            .says("fine", "live-filters", "(ours)")
            .says("fine", "live-filters", "opens /dev/nvidia0;")
            .says("fine", "live-filters", "is refused /dev/dri/renderD128 /dev/nvidia1");
        nothing_left(node, &job, before);
        assert_eq!(job.cgroup.our_filters().len(), 1, "the job keeps its filter");
    });
}

#[test]
fn whoever_asks_stays_where_they_are() {
    on_node(|node| {
        let _job = node.job(ALICE, "4242").start();
        let script = "job-adopt check --live alice >/dev/null; cat /proc/self/cgroup";
        node.sh(script).ok().stands_in(&node.outside());
    });
}

#[test]
fn the_cgroup_that_was_made_for_the_login_is_gone_again() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        job.cgroup.child("step").create();
        let leaf = job.cgroup.child("job-adopt");
        live(node, "alice").says("fine", "live-place", leaf.path());
        assert!(!leaf.exists());
        // Of somebody who was there before, it stays.
        leaf.create();
        live(node, "alice").says("fine", "live-place", leaf.path());
        assert!(leaf.exists());
    });
}

#[test]
fn a_refusal_is_shown_with_what_the_user_reads() {
    on_node(|node| {
        let checked = live(node, CAROL.name);
        checked.says("note", "live-stack", "[JA01]").says("note", "live-stack", "so it is to be");
        checked.spares("live-place", "");
    });
}

#[test]
fn another_module_that_refuses_is_told_from_this_one() {
    on_node(|node| {
        let _job = node.job(ALICE, "4242").start();
        node.stack(
            "account required pam_deny.so\naccount required pam_job_adopt.so\n\
             session required pam_job_adopt.so\n",
        );
        live(node, "alice").says("error", "live-stack", "this module did not refuse it");
    });
}

#[test]
fn a_stack_without_the_session_line_is_found() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        let before = node.processes().len();
        node.stack("account required pam_permit.so\nsession required pam_permit.so\n");
        let checked = live(node, "alice");
        checked.says("error", "live-stack", "is to be refused").says(
            "error",
            "live-place",
            "landed outside of any job",
        );
        nothing_left(node, &job, before);
    });
}

#[test]
fn a_module_that_moves_the_login_away_is_found() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        let away = node.outside();
        let script =
            format!("#!/bin/sh\necho $PPID > /sys/fs/cgroup{}/cgroup.procs\n", away.path());
        node.write("/run/away", &script);
        node.sh("install -m 0755 /run/away /usr/bin/away").ok();
        node.stack(
            "account required pam_job_adopt.so\nsession required pam_job_adopt.so\n\
             session optional pam_exec.so /usr/bin/away\n",
        );
        let before = node.processes().len();
        let checked = live(node, "alice");
        checked
            .says("fine", "live-stack", "admitted")
            .says("error", "live-place", "landed outside of job 4242")
            .says("error", "live-place", away.path());
        nothing_left(node, &job, before);
    });
}

#[test]
fn a_stack_that_is_stuck_is_ended_at_the_deadline() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        node.stack(
            "account required pam_job_adopt.so timeout=1\nsession required pam_job_adopt.so timeout=1\n\
             session required pam_exec.so /usr/bin/sleep infinity\n",
        );
        let before = node.processes().len();
        let began = std::time::Instant::now();
        live(node, "alice").says("error", "live-stack", "in the phase session");
        assert!(began.elapsed() < Duration::from_secs(25), "{:?}", began.elapsed());
        nothing_left(node, &job, before);
    });
}

#[test]
fn root_and_nobody_are_said_to_be_none_to_ask_for() {
    on_node(|node| {
        live(node, "root").says("unknown", "live-user", "never judged");
        live(node, "no-such-user").says("unknown", "live-user", "no such user");
        let alice = "setpriv --reuid 1001 --regid 1001 --clear-groups";
        Checked::behind(node, alice, "--live alice").says("unknown", "live-user", "only root");
    });
}
