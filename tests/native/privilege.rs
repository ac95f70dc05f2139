//! The helper's file and account, and the privileges of root that could reach the helper.

use protocol::{Reason, Refusal, SessionLine, Verdict};

use crate::helper::admitting_reply;
use crate::support::{ALICE, Fake, Node, on_node};

/// Returns a helper's description of itself when the login starts like this.
fn describe_helper(node: &Node, prefix: &str) -> String {
    Fake::new().verb("describe", 0).install(node);
    node.log.clear();
    node.sh(&format!("{prefix} pamtester sshd alice acct_mgmt"))
        .fails();
    node.log.line("helper: end");
    node.log.to_string()
}

/// Returns the value of a key of `/proc/PID/status` in that description.
fn status_value<'a>(seen: &'a str, key: &str) -> &'a str {
    let line = seen
        .lines()
        .find_map(|line| line.split_once(&format!("helper: {key}:")));
    line.unwrap_or_else(|| panic!("no {key}\n{seen}")).1.trim()
}

#[test]
fn helper_has_no_group_of_its_parent() {
    on_node(|node| {
        let seen = describe_helper(node, "setpriv --groups 5,42,1100");
        assert_eq!(status_value(&seen, "Groups"), "", "{seen}");
    });
}

/// Under these securebits a change of the uid drops no capability by itself.
#[test]
fn helper_has_no_capability_under_any_securebits() {
    on_node(|node| {
        let seen = describe_helper(
            node,
            "setpriv --securebits +no_setuid_fixup --inh-caps +chown --ambient-caps +chown",
        );
        for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
            assert_eq!(status_value(&seen, set), "0".repeat(16), "{set}\n{seen}");
        }
    });
}

#[test]
fn helper_account_with_group_of_root_refuses_login() {
    on_node(|node| {
        let _job = node.job(ALICE, "4242").start();
        node.account(ALICE).ok();
        node.sh("sed -i 's/^job-adopt:x:990:990:/job-adopt:x:990:0:/' /etc/passwd")
            .ok();
        node.account(ALICE).fails().says("[JA09]");
        node.session(ALICE).fails();
    });
}

#[test]
fn setuid_helper_file_refuses_login() {
    on_node(|node| {
        let _job = node.job(ALICE, "4242").start();
        for mode in [0o4755, 0o2755] {
            node.set_mode("/usr/libexec/job-adopt/helper", mode);
            node.account(ALICE).fails().says("[JA09]");
        }
        node.set_mode("/usr/libexec/job-adopt/helper", 0o755);
        node.account(ALICE).ok();
    });
}

#[test]
fn helper_in_folder_writable_by_others_refuses_login() {
    on_node(|node| {
        let _job = node.job(ALICE, "4242").start();
        for folder in ["/usr/libexec", "/usr"] {
            node.set_mode(folder, 0o777);
            node.account(ALICE).fails().says("[JA09]");
            node.set_mode(folder, 0o755);
        }
        node.account(ALICE).ok();
    });
}

/// `account` must know that the session will hold, so a reply without that key refuses.
#[test]
fn reply_without_stack_key_refuses_account() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        for (stack, admits) in [
            (SessionLine::Effective, true),
            (SessionLine::Unchecked, false),
            (SessionLine::Missing, false),
        ] {
            let mut reply = admitting_reply("4242", &job.cgroup);
            reply.stack = stack;
            Fake::new().answers(&reply).install(node);
            let outcome = node.account(ALICE);
            assert_eq!(outcome.code == 0, admits, "{stack:?}: {outcome}");
        }
    });
}

#[test]
fn overlong_site_message_is_cut() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        for (length, code) in [(400, "[JA01]"), (401, "[JA0")] {
            let mut reply = admitting_reply("4242", &job.cgroup);
            let reason = Reason::NoJob;
            reply.verdict = Verdict::Refuse(Refusal {
                reason,
                jobs: Vec::new(),
                ended: None,
                device: String::new(),
            });
            reply.message = "m".repeat(length);
            Fake::new().answers(&reply).install(node);
            let outcome = node.account(ALICE).fails().says(code);
            assert_eq!(
                outcome.output().contains("mmmm"),
                length == 400,
                "{length}: {outcome}"
            );
        }
    });
}
