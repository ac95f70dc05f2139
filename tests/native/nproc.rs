//! Process limits that the login's own stack has set before our line.

use crate::support::{ALICE, HELPER, Node, eventually, on_node};

/// Starts a process of the helper's account, so that a limit of zero is exceeded.
fn use_up_limit(node: &Node) -> std::process::Child {
    let id = HELPER.uid.to_string();
    let mut command = node.daemon(&node.outside(), "setpriv");
    command.args([
        "--reuid",
        &id,
        "--regid",
        &id,
        "--clear-groups",
        "sleep",
        "infinity",
    ]);
    command.spawn().unwrap()
}

/// Runs account and session under a limit of no process per user.
fn login_under_used_up_limit(node: &Node, privileges: &str) -> crate::support::Outcome {
    let phases = "pamtester sshd alice acct_mgmt open_session close_session";
    node.sh(&format!(
        "exec prlimit --nproc=0:0 setpriv {privileges} {phases}"
    ))
}

fn may_raise_limits() -> bool {
    const SYS_RESOURCE: u32 = 24;
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .unwrap();
    u64::from_str_radix(effective.trim(), 16).unwrap() >> SYS_RESOURCE & 1 == 1
}

#[test]
fn used_up_process_limit_is_raised_or_named() {
    on_node(|node| {
        let _job = node.job(ALICE, "4242").start();
        let mut other = use_up_limit(node);
        eventually("it runs", || !node.helpers().is_empty());
        if may_raise_limits() {
            login_under_used_up_limit(node, "--inh-caps=-chown").ok();
        }
        login_under_used_up_limit(node, "--bounding-set=-sys_resource")
            .fails()
            .says("[JA0");
        let entry = node.log.find("the limit", |entry| {
            entry.text.contains("decision=") && entry.text.to_lowercase().contains("nproc")
        });
        assert_eq!(entry.severity(), 3, "{}", entry.text);
        other.kill().unwrap();
        other.wait().unwrap();
    });
}
