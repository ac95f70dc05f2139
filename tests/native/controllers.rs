//! Limits of a job's cgroup hold for its logins. Only a cgroup v2 with controllers can show that;
//! the kernel tier boots one, and other runs skip these tests.

use serde_json::json;

use crate::support::{ALICE, Cgroup, Job, Node, eventually, on_node};

/// Starts a job whose cgroup has these controllers, on a node that delegates them.
fn start_job_with_controllers(node: &Node) -> Job<'_> {
    for cgroup in [node.cgroup().clone(), node.cgroup().child("jobs")] {
        cgroup.write("cgroup.subtree_control", "+memory +pids");
    }
    node.job(ALICE, "4242").start()
}

/// Reads the number behind `word` in a file of words and numbers.
fn read_count(cgroup: &Cgroup, file: &str, word: &str) -> u64 {
    let text = cgroup.read(file);
    let line = text.lines().find_map(|line| line.strip_prefix(word)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {word} in {text}")).parse().unwrap()
}

#[test]
#[ignore = "needs controllers in cgroup v2, as on the machines of tests/kernel"]
fn process_limit_of_job_holds_for_login() {
    on_node(|node| {
        let job = start_job_with_controllers(node);
        node.run_in_session("(true) && echo forked", ALICE).ok().says("forked");
        let limit = job.cgroup.read("pids.current");
        job.cgroup.write("pids.max", &limit);
        // The session's own process joins beyond the limit, and cannot fork.
        let outcome = node.session(ALICE);
        outcome.omits("forked");
        eventually("the login was held", || read_count(&job.cgroup, "pids.events", "max") > 0);
        node.log.decision("JA00");
        job.cgroup.write("pids.max", "max");
        node.session(ALICE).ok().says("forked");
    });
}

#[test]
#[ignore = "needs controllers in cgroup v2, as on the machines of tests/kernel"]
fn memory_limit_of_job_holds_for_login() {
    on_node(|node| {
        let job = start_job_with_controllers(node);
        // A single process allocates the memory: while a killed one is still ending, the kernel may
        // kill a second one for the allocation of another.
        let script = "dd if=/dev/zero of=/dev/null bs=64M count=1; echo ended with $?";
        node.run_in_session(script, ALICE).ok().says("ended with 0");
        job.cgroup.write("memory.max", "32M");
        assert_eq!(read_count(&job.cgroup, "memory.events", "oom_kill"), 0);
        node.session(ALICE).ok().says("ended with 137");
        assert!(read_count(&job.cgroup, "memory.events", "oom_kill") > 0);
        assert_eq!(job.cgroup.pids().len(), 1, "the job itself was ended");
    });
}

/// A job that enables controllers for its children has its logins in a leaf; the job's limit still
/// counts.
#[test]
#[ignore = "needs controllers in cgroup v2, as on the machines of tests/kernel"]
fn login_in_leaf_is_held_to_limit_of_job() {
    on_node(|node| {
        let cgroup = node.cgroup().child("jobs").child("outer");
        for above in [node.cgroup().clone(), node.cgroup().child("jobs")] {
            above.write("cgroup.subtree_control", "+memory +pids");
        }
        let job = node.job(ALICE, "4242").with("leaf", json!("logins")).in_cgroup(cgroup).start();
        let script = "cat /proc/self/cgroup; (true) && echo forked";
        let leaf = job.cgroup.child("logins");
        node.run_in_session(script, ALICE).ok().says("forked").joins_cgroup(&leaf);
        job.cgroup.write("pids.max", &job.cgroup.read("pids.current"));
        node.session(ALICE).omits("forked");
        eventually("the login was held", || read_count(&job.cgroup, "pids.events", "max") > 0);
    });
}
