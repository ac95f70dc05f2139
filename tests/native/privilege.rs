//! The helper's file and account, and what of root's could reach it.

use pam_job_adopt::protocol::{Reason, Refusal, Stack, Verdict};

use crate::helper::admit;
use crate::support::{ALICE, Fake, Node, on_node};

/// What a helper says of itself when the login is started like this.
fn described(node: &Node, prefix: &str) -> String {
    Fake::new().verb("describe", 0).install(node);
    node.log.clear();
    node.sh(&format!("{prefix} pamtester sshd alice acct_mgmt")).fails();
    node.log.line("helper: end");
    node.log.to_string()
}

/// Value of a key of `/proc/PID/status` in there.
fn value<'a>(seen: &'a str, key: &str) -> &'a str {
    let line = seen.lines().find_map(|line| line.split_once(&format!("helper: {key}:")));
    line.unwrap_or_else(|| panic!("no {key}\n{seen}")).1.trim()
}

#[test]
fn it_belongs_to_no_group_of_its_parents() {
    on_node(|node| {
        let seen = described(node, "setpriv --groups 5,42,1100");
        assert_eq!(value(&seen, "Groups"), "", "{seen}");
    });
}

/// Securebits under which a change of the user id drops nothing by itself.
#[test]
fn it_has_no_capability_whatever_securebits_say() {
    on_node(|node| {
        let seen = described(
            node,
            "setpriv --securebits +no_setuid_fixup --inh-caps +chown --ambient-caps +chown",
        );
        for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
            assert_eq!(value(&seen, set), "0".repeat(16), "{set}\n{seen}");
        }
    });
}

#[test]
fn its_account_may_not_have_roots_group() {
    on_node(|node| {
        let _job = node.job(ALICE, "4242").start();
        node.account(ALICE).ok();
        node.sh("sed -i 's/^job-adopt:x:990:990:/job-adopt:x:990:0:/' /etc/passwd").ok();
        node.account(ALICE).fails().says("[JA09]");
        node.session(ALICE).fails();
    });
}

#[test]
fn a_file_with_another_users_identity_is_no_helper() {
    on_node(|node| {
        let _job = node.job(ALICE, "4242").start();
        for mode in [0o4755, 0o2755] {
            node.mode("/usr/libexec/job-adopt/resolve", mode);
            node.account(ALICE).fails().says("[JA09]");
        }
        node.mode("/usr/libexec/job-adopt/resolve", 0o755);
        node.account(ALICE).ok();
    });
}

#[test]
fn every_folder_above_it_has_to_be_roots_alone() {
    on_node(|node| {
        let _job = node.job(ALICE, "4242").start();
        for folder in ["/usr/libexec", "/usr"] {
            node.mode(folder, 0o777);
            node.account(ALICE).fails().says("[JA09]");
            node.mode(folder, 0o755);
        }
        node.account(ALICE).ok();
    });
}

/// Account has to know that the session will hold; an answer that leaves it open does not do.
#[test]
fn an_answer_that_leaves_the_stack_open_does_not_admit() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        for (stack, admits) in
            [(Stack::Effective, true), (Stack::Unchecked, false), (Stack::Missing, false)]
        {
            let mut reply = admit("4242", &job.cgroup);
            reply.stack = stack;
            Fake::new().answers(&reply).install(node);
            let outcome = node.account(ALICE);
            assert_eq!(outcome.code == 0, admits, "{stack:?}: {outcome}");
        }
    });
}

#[test]
fn a_sites_message_has_a_limit() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        for (length, code) in [(400, "[JA01]"), (401, "[JA0")] {
            let mut reply = admit("4242", &job.cgroup);
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
            assert_eq!(outcome.output().contains("mmmm"), length == 400, "{length}: {outcome}");
        }
    });
}
