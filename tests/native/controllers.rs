//! Limits of a job's cgroup hold its logins too. Only a cgroup v2 that has controllers can show it, which
//! the kernel tier boots: `cargo test` elsewhere leaves these out.

use serde_json::json;

use crate::support::{ALICE, Cgroup, Job, Node, eventually, on_node};

/// A job whose cgroup has these controllers, in a node that hands them down.
fn job(node: &Node) -> Job<'_> {
    for cgroup in [node.cgroup().clone(), node.cgroup().child("jobs")] {
        cgroup.write("cgroup.subtree_control", "+memory +pids");
    }
    node.job(ALICE, "4242").start()
}

/// The number behind that word in a file of words and numbers.
fn count(cgroup: &Cgroup, file: &str, word: &str) -> u64 {
    let text = cgroup.read(file);
    let line = text.lines().find_map(|line| line.strip_prefix(word)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {word} in {text}")).parse().unwrap()
}

#[test]
#[ignore = "needs controllers in cgroup v2, as on the machines of tests/kernel"]
fn the_jobs_limit_on_processes_holds_a_login() {
    on_node(|node| {
        let job = job(node);
        node.run_in_session("(true) && echo forked", ALICE).ok().says("forked");
        let limit = job.cgroup.read("pids.current");
        job.cgroup.write("pids.max", &limit);
        // The session's own process is let in, beyond the limit, and can start none.
        let outcome = node.session(ALICE);
        outcome.omits("forked");
        eventually("the login was held", || count(&job.cgroup, "pids.events", "max") > 0);
        node.log.decision("JA00");
        job.cgroup.write("pids.max", "max");
        node.session(ALICE).ok().says("forked");
    });
}

#[test]
#[ignore = "needs controllers in cgroup v2, as on the machines of tests/kernel"]
fn the_jobs_limit_on_memory_holds_a_login() {
    on_node(|node| {
        let job = job(node);
        // By one process: while one that was killed is still ending, the kernel may kill a second for
        // what another asks for.
        let script = "dd if=/dev/zero of=/dev/null bs=64M count=1; echo ended with $?";
        node.run_in_session(script, ALICE).ok().says("ended with 0");
        job.cgroup.write("memory.max", "32M");
        assert_eq!(count(&job.cgroup, "memory.events", "oom_kill"), 0);
        node.session(ALICE).ok().says("ended with 137");
        assert!(count(&job.cgroup, "memory.events", "oom_kill") > 0);
        assert_eq!(job.cgroup.pids().len(), 1, "the job itself was ended");
    });
}

/// The leaf is not the job's own cgroup where that hands controllers down; the job's limit still counts.
#[test]
#[ignore = "needs controllers in cgroup v2, as on the machines of tests/kernel"]
fn a_leaf_below_has_the_jobs_limit_too() {
    on_node(|node| {
        let cgroup = node.cgroup().child("jobs").child("outer");
        for above in [node.cgroup().clone(), node.cgroup().child("jobs")] {
            above.write("cgroup.subtree_control", "+memory +pids");
        }
        let job = node.job(ALICE, "4242").with("leaf", json!("logins")).in_cgroup(cgroup).start();
        let script = "cat /proc/self/cgroup; (true) && echo forked";
        let leaf = job.cgroup.child("logins");
        node.run_in_session(script, ALICE).ok().says("forked").stands_in(&leaf);
        job.cgroup.write("pids.max", &job.cgroup.read("pids.current"));
        node.session(ALICE).omits("forked");
        eventually("the login was held", || count(&job.cgroup, "pids.events", "max") > 0);
    });
}
