//! `job-adopt resolve` agrees with the module and names the cause.

use crate::support::{ALICE, CAROL, Node, OPS, Outcome, on_node};

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
        outcome
            .says("cause: service sshd: no session line for pam_job_adopt.so; ")
            .says("; /run/job-adopt/jobs/1001/4242.json: ");
    });
}

/// A refusal would frighten the admin of a node that does not ask us yet.
#[test]
fn stack_without_our_lines_affects_no_login() {
    on_node(|node| {
        node.write_stack("account required pam_permit.so\nsession required pam_permit.so\n");
        let outcome = run_resolve(node, &[]).exits(1).says("[JA09]");
        assert!(
            outcome.stdout.starts_with("logins are not affected: "),
            "{outcome}"
        );
        node.write_stack("account required pam_job_adopt.so\nsession required pam_permit.so\n");
        run_resolve(node, &[]).exits(1).omits("not affected");
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

/// The command answers without the helper that a login starts. It must not promise what that one refuses.
#[test]
fn helper_that_gives_no_reply_is_named() {
    const HELPER: &str = "/opt/helper/helper";
    on_node(|node| {
        let _job = node.job(ALICE, "4242").start();
        node.sh("mkdir -p /opt/helper && install /usr/libexec/job-adopt/helper /opt/helper")
            .ok();
        node.arguments(&format!("helper={HELPER}"));
        run_resolve(node, &[]).exits(0).says("JA00");
        for (break_helper, code, cause) in [
            ("chmod 644", "[JA09]", "is not executable"),
            (
                "chmod 750",
                "[JA09]",
                "start helper: execveat: Permission denied",
            ),
            ("chmod 777", "[JA09]", "is writable by others than root"),
            ("cp /bin/false", "[JA09]", "ended without an answer"),
            ("rm", "[JA09]", "No such file or directory"),
        ] {
            node.sh(&format!("chmod 755 {HELPER} && {break_helper} {HELPER}"))
                .ok();
            node.account(ALICE).fails().says(code);
            run_resolve(node, &[])
                .exits(1)
                .says(code)
                .says("cause: ")
                .says(cause)
                .omits("JA00");
        }
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
        run_resolve(node, &[])
            .exits(1)
            .says("[JA01]")
            .omits("switched off");
    });
}

/// The prediction is what the module does by the arguments of its lines.
#[test]
fn arguments_of_pam_lines_count() {
    on_node(|node| {
        for (arguments, text) in [
            (
                "action_no_jobs=ignore",
                "not judged: JA01, but action_no_jobs lets the login in",
            ),
            (
                "exempt_uids=1001",
                "not judged: exempt_uids lets alice in, outside of jobs",
            ),
            (
                "exempt_uids=1001 exempt_join",
                "not judged: JA01, but exempt_uids lets the login in",
            ),
            (
                "observe",
                "not judged: the line only observes; without observe: JA01",
            ),
        ] {
            node.arguments(arguments);
            run_resolve(node, &[])
                .exits(0)
                .says(text)
                .says(&format!("sshd:2: {arguments}"));
            node.pam(ALICE).ok();
        }
        node.arguments("exempt_groups=ops");
        let outcome = node.job_adopt(&["resolve", "--user", OPS.name]).exits(0);
        outcome.says("exempt_groups lets opsuser in");
        // libpam has the service in lower case.
        let upper = ["resolve", "--user", "opsuser", "--service", "SSHD"];
        node.job_adopt(&upper)
            .ok()
            .says("exempt_groups lets opsuser in");
        run_resolve(node, &[]).exits(1).says("[JA01]");
        node.arguments("no_such=1");
        run_resolve(node, &[])
            .exits(1)
            .says("[JA09]")
            .says("argument no_such=1: is unknown");
        node.pam(ALICE).fails();
        let auto = serde_json::json!({ "DevicePolicy": "auto" });
        let _job = node.job(ALICE, "4242").with("options", auto).start();
        node.arguments("require_devices");
        run_resolve(node, &[]).exits(1).says("[JA06]");
        node.pam(ALICE).fails();
        node.arguments("");
        run_resolve(node, &[]).exits(0).says("JA00");
    });
}

#[test]
fn different_arguments_of_account_and_session_are_noted() {
    on_node(|node| {
        let _job = node.job(ALICE, "4242").start();
        node.write_stack(
            "account required pam_permit.so\naccount required pam_job_adopt.so timeout=4\n\
             session required pam_permit.so\nsession required pam_job_adopt.so\n",
        );
        let text = "note: account and session line have different arguments";
        run_resolve(node, &[])
            .exits(0)
            .says(text)
            .says("account line: /etc/pam.d/sshd:2: timeout=4");
    });
}

/// The session line decides, also if the account line ignores the login.
#[test]
fn session_line_decides_after_account_line_that_ignores() {
    on_node(|node| {
        node.write_stack(
            "account required pam_permit.so\naccount required pam_job_adopt.so exempt_uids=1001\n\
             session required pam_permit.so\nsession required pam_job_adopt.so\n",
        );
        let text = "phase: account ignores the login, and session judges it";
        run_resolve(node, &[]).exits(1).says("[JA01]").says(text);
        node.pam(ALICE).fails();
        let _job = node.job(ALICE, "4242").start();
        run_resolve(node, &[]).exits(0).says("JA00").says(text);
        node.pam(ALICE).ok();
    });
}

/// What kills first for lack of memory is the process with the highest score.
#[test]
fn oom_score_of_the_jobs_processes_is_shown_beside_that_of_a_login() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        let login =
            "oom score: 0, or what sshd was started with if that is more; the job's processes: ";
        job.resolved()
            .ok()
            .says(&format!("{login}0\n"))
            .omits("differs");
        let score = format!("/proc/{}/oom_score_adj", job.cgroup.pids()[0]);
        std::fs::write(score, "500").unwrap();
        let pid = job.cgroup.pids()[0].to_string();
        Outcome::run(std::process::Command::new("renice").args(["-n", "10", &pid])).ok();
        let same = |key: &str, value: u32| {
            let sshd = "or what sshd was started with if that is more";
            format!("{key}: {value}, {sshd}; the job's processes: {value}\n")
        };
        job.resolved()
            .ok()
            .says(&same("oom score", 500))
            .says(&same("nice", 10))
            .omits("differs");
    });
}

#[test]
fn devices_of_a_login_are_shown_beside_those_of_the_job() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").devices(&["/dev/nvidia0"]).start();
        job.resolved()
            .ok()
            .says("devices: those of the list, as the job's processes");
    });
}
