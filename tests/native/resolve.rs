//! `job-adopt resolve` agrees with the module and names the cause.

use crate::support::{ALICE, CAROL, Node, Outcome, on_node};

fn run_resolve(node: &Node, options: &[&str]) -> Outcome {
    node.job_adopt(&[&["resolve", "--user", ALICE.name], options].concat())
}

#[test]
fn broken_configuration_is_named() {
    on_node(|node| {
        let _job = node.job(ALICE, "4242").start();
        node.configure("# site\nenforced = always\n");
        let cause = "cause: /etc/security/job_adopt.conf:2: unknown key enforced";
        run_resolve(node, &[]).exits(1).says("[JA09]").says(cause);
    });
}

#[test]
fn stack_without_session_line_is_named_beside_cause() {
    on_node(|node| {
        node.create_dir("/run/job-adopt/jobs/1001", 0o755);
        node.write("/run/job-adopt/jobs/1001/4242.json", "{");
        node.write_stack("account required pam_job_adopt.so\nsession required pam_permit.so\n");
        let outcome = run_resolve(node, &[]).exits(1).says("[JA09]");
        outcome.says("cause: /run/job-adopt/jobs/1001/4242.json: ").says("warning: service sshd: ");
    });
}

/// Root can read what the helper cannot.
#[test]
fn file_unreadable_to_helper_is_named_to_root() {
    on_node(|node| {
        let _job = node.job(ALICE, "4242").start();
        node.configure("env = id\n");
        node.set_mode("/etc/security/job_adopt.conf", 0o600);
        node.account(ALICE).fails().says("[JA09]");
        let cause = "cause: /etc/security/job_adopt.conf: cannot open: Permission denied; jobs are \
                     looked up as the user job-adopt";
        run_resolve(node, &[]).exits(1).says("[JA09]").says(cause);
        node.set_mode("/etc/security/job_adopt.conf", 0o644);
        run_resolve(node, &[]).exits(0).says("JA00");
    });
}

#[test]
fn missing_helper_account_is_named() {
    on_node(|node| {
        let _job = node.job(ALICE, "4242").start();
        node.sh("sed -i /^job-adopt:/d /etc/passwd").ok();
        node.account(ALICE).fails().says("[JA09]");
        run_resolve(node, &[])
            .exits(1)
            .says("[JA09]")
            .says("cause: the system user job-adopt does not");
    });
}

#[test]
fn relative_path_of_configuration_is_refused() {
    on_node(|node| {
        let outcome = run_resolve(node, &["--conf", "job_adopt.conf"]).exits(2);
        outcome.says("'job_adopt.conf' for '--conf <FILE>': not an absolute path");
    });
}

#[test]
fn off_switch_counts_as_in_module() {
    on_node(|node| {
        node.write("/run/job-adopt/off", "");
        node.pam(CAROL).ok();
        run_resolve(node, &[]).exits(0).says("switched off");
        node.sh("chown alice /run/job-adopt/off").ok();
        node.pam(CAROL).fails().says("[JA0");
        run_resolve(node, &[]).exits(1).says("[JA01]").omits("switched off");
    });
}
