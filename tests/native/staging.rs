//! What `register` refuses to take for a job's cgroup, and what a command of `run` gets of root.

use crate::support::{ALICE, BOB, Job, Node, eventually, on_node};

fn register(node: &Node, path: &str) -> crate::support::Outcome {
    node.job_adopt(&[
        "register", "--id", "7", "--user", "alice", "--policy", "closed", "--cgroup", path,
    ])
}

/// Refused for this reason, with nothing done to the cgroup.
fn refused(node: &Node, path: &str, why: &str) {
    register(node, path).exits(3).says("process ").says(why);
    assert!(!node.exists("/run/job-adopt/jobs/1001/7.json"));
    node.run("getfattr", &["-n", "trusted.job_adopt", &format!("/sys/fs/cgroup{path}")]).fails();
}

fn bare<'a>(node: &'a Node, owner: crate::support::User) -> Job<'a> {
    node.job(owner, "7").unstamped().unrecorded().start()
}

#[test]
fn the_cgroup_of_whoever_registers_is_no_job() {
    on_node(|node| {
        refused(node, node.outside().path(), "in it is ");
        let _job = bare(node, ALICE);
        refused(node, node.cgroup().path(), "in it is ");
    });
}

#[test]
fn the_cgroup_of_somebody_else_is_no_job() {
    on_node(|node| refused(node, bare(node, BOB).cgroup.path(), "belongs to uid 1002"));
}

#[test]
fn the_cgroup_of_sshd_is_no_job() {
    on_node(|node| {
        let job = bare(node, ALICE);
        let _sshd = node.sshd();
        let move_server = "cat /run/sshd.pid >/sys/fs/cgroup$0/cgroup.procs";
        node.run("sh", &["-c", move_server, job.cgroup.path()]).ok();
        refused(node, job.cgroup.path(), "sshd");
    });
}

#[test]
fn a_job_that_runs_already_is_registered_again() {
    on_node(|node| {
        let job = bare(node, ALICE);
        register(node, job.cgroup.path()).ok();
        let sshd = node.sshd();
        let mut login = sshd.stay(ALICE, "exec sleep infinity");
        eventually("the login has joined", || job.cgroup.pids().len() > 2);
        register(node, job.cgroup.path()).ok();
        node.job_adopt(&["unregister", "7"]).ok();
        let _ = login.wait();
    });
}

#[test]
fn the_stamp_of_a_job_that_nobody_knows_is_replaced() {
    on_node(|node| {
        let job = bare(node, ALICE);
        job.stamp("1002:99");
        register(node, job.cgroup.path()).ok();
        node.pam(ALICE).ok().says("Joined job 7");
    });
}

#[test]
fn the_stamp_of_a_job_that_is_known_is_not() {
    on_node(|node| {
        let theirs = node.job(BOB, "99").start();
        register(node, theirs.cgroup.path()).exits(3).says("the cgroup of job 99");
    });
}

/// `run` with an id that no other node has at this moment: they share one hierarchy.
fn run_with_id(node: &Node) -> String {
    let id = node.cgroup().path().trim_start_matches('/');
    format!("job-adopt run --user alice --id {id} --policy closed --")
}

/// A command of alice's, started by `run` from a shell that has done this before.
fn run(node: &Node, before: &str, script: &str) -> crate::support::Outcome {
    node.write("/root/script", script);
    node.sh(&format!("{before} {} sh -c \"$(cat /root/script)\"", run_with_id(node)))
}

#[test]
fn a_command_has_a_session_of_its_own() {
    on_node(|node| {
        let script = "read -r _ _ _ _ _ session terminal _ </proc/$$/stat
            echo \"$session\" = $$, terminal $terminal; [ \"$session\" = $$ ]";
        run(node, "", script).ok().says("terminal 0");
    });
}

#[test]
fn a_command_gets_what_its_caller_had_and_no_descriptor() {
    on_node(|node| {
        let before = "umask 027; ulimit -Sn 100; exec 7</etc/shadow;";
        let script = "umask; ulimit -Sn; [ ! -e /proc/$$/fd/7 ]";
        let outcome = run(node, before, script).ok();
        assert_eq!(outcome.stdout, "0027\n100\n");
    });
}

/// `run` under env(1) with these options, sent a signal when its command has begun.
fn signalled(node: &Node, env: &str, signal: &str, script: &str) -> crate::support::Outcome {
    let begun = "/home/alice/begun";
    let run = format!("env {env} {} sh -c ': >{begun}; {script}' & run=$!", run_with_id(node));
    let wait = format!("until [ -e {begun} ]; do sleep 0.05; done");
    node.sh(&format!("{run}; {wait}; kill -{signal} $run; wait $run"))
}

#[test]
fn signals_that_are_ignored_stay_so() {
    on_node(|node| {
        let env = "--ignore-signal=HUP --ignore-signal=CHLD";
        signalled(node, env, "HUP", "sleep 2; exit 5").exits(5);
    });
}

#[test]
fn a_quit_ends_the_job() {
    on_node(|node| {
        signalled(node, "--default-signal=QUIT", "QUIT", "exec sleep 30").exits(131);
        node.job_adopt(&["list"]).ok().omits("alice");
    });
}

#[test]
fn whatever_keeps_a_command_from_starting_is_told_by_one_status() {
    on_node(|node| {
        node.job_adopt(&["run", "--user", "nobody-here", "--", "true"]).exits(125);
        node.job_adopt(&["run", "--user", "root", "--policy", "closed", "--", "true"]).exits(2);
        node.configure("x = 1\n");
        node.job_adopt(&["run", "--user", "alice", "--policy", "closed", "--", "true"]).exits(125);
    });
}
