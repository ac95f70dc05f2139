//! `job-adopt resolve` agrees with the module, and says why.

use crate::support::{ALICE, CAROL, Node, Outcome, on_node};

fn resolve(node: &Node, options: &[&str]) -> Outcome {
    node.job_adopt(&[&["resolve", "--user", ALICE.name], options].concat())
}

#[test]
fn a_broken_configuration_is_named() {
    on_node(|node| {
        let _job = node.job(ALICE, "4242").start();
        node.configure("# site\nenforced = always\n");
        let cause = "cause: /etc/security/job_adopt.conf:2: unknown key enforced";
        resolve(node, &[]).exits(1).says("[JA09]").says(cause);
    });
}

#[test]
fn a_stack_without_our_session_line_is_named_beside_the_cause() {
    on_node(|node| {
        node.folder("/run/job-adopt/jobs/1001", 0o755);
        node.write("/run/job-adopt/jobs/1001/4242.json", "{");
        node.stack("account required pam_job_adopt.so\nsession required pam_permit.so\n");
        let outcome = resolve(node, &[]).exits(1).says("[JA09]");
        outcome.says("cause: /run/job-adopt/jobs/1001/4242.json: ").says("warning: service sshd: ");
    });
}

/// Root may read what the helper may not.
#[test]
fn what_the_helper_cannot_read_is_named_to_root_as_well() {
    on_node(|node| {
        let _job = node.job(ALICE, "4242").start();
        node.configure("env = id\n");
        node.mode("/etc/security/job_adopt.conf", 0o600);
        node.account(ALICE).fails().says("[JA09]");
        let cause = "cause: /etc/security/job_adopt.conf: cannot open: Permission denied; jobs are \
                     looked up as the user job-adopt";
        resolve(node, &[]).exits(1).says("[JA09]").says(cause);
        node.mode("/etc/security/job_adopt.conf", 0o644);
        resolve(node, &[]).exits(0).says("JA00");
    });
}

#[test]
fn so_is_that_the_helpers_account_is_missing() {
    on_node(|node| {
        let _job = node.job(ALICE, "4242").start();
        node.sh("sed -i /^job-adopt:/d /etc/passwd").ok();
        node.account(ALICE).fails().says("[JA09]");
        resolve(node, &[])
            .exits(1)
            .says("[JA09]")
            .says("cause: the system user job-adopt does not");
    });
}

#[test]
fn a_relative_path_is_no_configuration() {
    on_node(|node| {
        let outcome = resolve(node, &["--conf", "job_adopt.conf"]).exits(2);
        outcome.says("'job_adopt.conf' for '--conf <FILE>': not an absolute path");
    });
}

#[test]
fn the_switch_is_the_modules_switch() {
    on_node(|node| {
        node.write("/run/job-adopt/off", "");
        node.pam(CAROL).ok();
        resolve(node, &[]).exits(0).says("switched off");
        node.sh("chown alice /run/job-adopt/off").ok();
        node.pam(CAROL).fails().says("[JA0");
        resolve(node, &[]).exits(1).says("[JA01]").omits("switched off");
    });
}
