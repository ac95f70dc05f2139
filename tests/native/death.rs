//! sshd is killed during a login: at most an empty leaf remains, and the next login or the end of
//! the job removes it.

use std::collections::BTreeMap;

use serde_json::json;

use crate::support::{ALICE, Fake, Node, eventually, on_node};

/// Lists the calls of a login from the creation of its leaf to its decision: each with its name,
/// and its number among the calls of that name.
fn trace_calls_from_mkdir(node: &Node) -> Vec<(String, usize)> {
    node.session_under_strace("/tmp/strace", &["-s", "200"], ALICE)
        .ok();
    let log = node.read("/tmp/strace");
    let login = log.split_whitespace().next().unwrap();
    let mut counts = BTreeMap::<&str, usize>::new();
    let mut calls = Vec::new();
    for line in log.lines().filter_map(|line| line.strip_prefix(login)) {
        let Some((call, rest)) = line.trim().split_once('(') else {
            continue;
        };
        if call.starts_with('<') {
            continue;
        }
        let number = counts.entry(call).or_default();
        *number += 1;
        if rest.contains("decision=") {
            break;
        }
        if call == "mkdirat" || !calls.is_empty() {
            calls.push((call.to_owned(), *number));
        }
    }
    calls
}

#[test]
fn killed_login_leaves_at_most_an_empty_leaf() {
    on_node(|node| {
        node.session_alone("");
        let job = node
            .job(ALICE, "4242")
            .with("leaf", json!("logins"))
            .start();
        let leaf = job.cgroup.child("logins");
        let before = node.processes().len();
        // The first login attaches the job's filter; every later one makes the same calls.
        node.session(ALICE).ok();
        leaf.remove();
        let calls = trace_calls_from_mkdir(node);
        assert!(calls.len() > 10, "{calls:?}");
        for (call, number) in &calls {
            eventually("the leaf is free", || leaf.pids_or_empty().is_empty());
            leaf.remove();
            let inject = format!("inject={call}:signal=SIGKILL:when={number}");
            let outcome = node.session_under_strace("/tmp/strace", &["-e", &inject], ALICE);
            let what = format!("killed at {call} {number}: {outcome}");
            eventually(&format!("no process is left, {what}"), || {
                node.processes().len() == before
            });
            eventually(&format!("the leaf is empty, {what}"), || {
                leaf.pids_or_empty().is_empty()
            });
            assert!(job.cgroup.children().len() <= 1, "{what}");
            assert_eq!(job.cgroup.our_filters().len(), 1, "{what}");
        }
        node.session(ALICE).ok().joins_cgroup(&leaf);
    });
}

#[test]
fn helper_dies_with_its_login() {
    on_node(|node| {
        node.arguments("timeout=60");
        let _job = node.job(ALICE, "4242").start();
        Fake::new()
            .verb("deaf", 0)
            .verb("sleep", 3600)
            .install(node);
        let mut login = node
            .command("pamtester")
            .args(["sshd", "alice", "acct_mgmt"])
            .spawn()
            .unwrap();
        eventually("the helper runs", || !node.helpers().is_empty());
        node.kill_program("pamtester");
        eventually("no helper is left", || node.helpers().is_empty());
        login.wait().unwrap();
    });
}
