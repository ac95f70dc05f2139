//! Logins that are refused or not judged.

use super::*;

#[test]
fn user_without_job_gets_the_code_of_the_cause() {
    let bench = NodeBench::new();
    assert_eq!(bench.refusal().reason, Reason::NoJob);
    let now = bench.clock.seconds_since_epoch();
    bench
        .scratch
        .file("jobs/5/3.ended", &Note::new(now - 601).to_json());
    assert_eq!(bench.refusal().reason, Reason::NoJob);
    let ended = now - 30;
    bench
        .scratch
        .file("jobs/5/4.ended", &Note::new(ended).to_json());
    bench
        .scratch
        .file("jobs/5/5.ended", &Note::new(ended - 1).to_json());
    let refusal = bench.refusal();
    assert_eq!(
        (refusal.reason, refusal.ended),
        (Reason::Ended, Some(ended))
    );
    assert_eq!(refusal.jobs, ["4".parse().unwrap()]);
    bench.scratch.file("jobs/5/6.json", "{");
    assert_eq!(bench.refusal().reason, Reason::Configuration);
    assert!(bench.ask().detail.contains("jobs/5/6.json: "));
    std::fs::remove_dir_all(bench.scratch.path().join("jobs")).unwrap();
    assert_eq!(bench.refusal().reason, Reason::NoScheduler);
}

#[test]
fn jobs_that_take_no_logins_refuse_unless_another_takes_them() {
    let bench = NodeBench::new();
    let closed = format!(r#","logins":false{STRICT}"#);
    bench.job("7", &closed);
    bench.job("6", &closed);
    let now = bench.clock.seconds_since_epoch();
    bench
        .scratch
        .file("jobs/5/4.ended", &Note::new(now - 30).to_json());
    let refusal = bench.refusal();
    assert_eq!(refusal.reason, Reason::LoginsClosed);
    assert!(["6", "7"].contains(&refusal.jobs.first().unwrap().as_str()));
    bench.configure("hint = qstat\n");
    assert_eq!(bench.ask().hint, "", "the list of jobs is no help");
    bench.job("8", &format!(r#","logins":true{STRICT}"#));
    assert_eq!(bench.plan().job.as_str(), "8");
    std::fs::remove_file(bench.scratch.path().join("jobs/5/8.json")).unwrap();
    bench.scratch.file("jobs/5/9.json", "{");
    assert_eq!(bench.refusal().reason, Reason::Configuration);
}

#[test]
fn configuration_faults_refuse_and_are_named() {
    let bench = NodeBench::new();
    bench.job("7", STRICT);
    bench.configure("enforced = always\n");
    assert_eq!(bench.refusal().reason, Reason::Configuration);
    assert!(
        bench
            .ask()
            .detail
            .ends_with("job_adopt.conf:2: unknown key enforced, did you mean enforce?")
    );
    bench.configure("");
    bench.scratch.mode("job_adopt.conf", 0o666);
    assert_eq!(bench.refusal().reason, Reason::Configuration);
}

#[test]
fn login_is_not_judged_unless_enforced() {
    let bench = NodeBench::new();
    let marker = bench.scratch.path().join("compute");
    bench.configure(&format!("enforce = if-exists:{}\n", marker.display()));
    assert_eq!(bench.ask().verdict, Verdict::NotEnforced);
    bench.scratch.file("compute", "");
    assert_eq!(bench.refusal().reason, Reason::NoJob);
}

/// Asserts that the cause of a refusal begins with the session line of `etc/pam.d/sshd`, and that no warning has it.
fn assert_names_session_line(reply: &Reply) {
    let detail = &reply.detail;
    assert!(
        detail.starts_with("service sshd: session line at "),
        "{detail}"
    );
    assert!(detail.contains("etc/pam.d/sshd:1"), "{detail}");
    let mut warnings = reply.warnings.iter();
    assert!(
        warnings.all(|text| !text.contains("sshd")),
        "{:?}",
        reply.warnings
    );
}

#[test]
fn stack_is_judged_in_the_account_phase() {
    let mut bench = NodeBench::new();
    bench.job("7", STRICT);
    assert_eq!(bench.ask().stack, SessionLine::Unchecked);
    bench.request.phase = Phase::Account;
    assert_eq!(bench.ask().stack, SessionLine::Effective);
    bench
        .scratch
        .file("etc/pam.d/sshd", "session optional pam_job_adopt.so\n");
    let reply = bench.ask();
    assert_eq!(reply.stack, SessionLine::Missing);
    assert_names_session_line(&reply);
    std::fs::remove_dir_all(bench.scratch.path().join("cg/7")).unwrap();
    let without_job = bench.ask();
    assert_names_session_line(&without_job);
    let detail = &without_job.detail;
    assert!(
        detail.contains("; ") && detail.contains("/7 is not there"),
        "{detail}"
    );
}

#[test]
fn refusal_has_the_texts_of_the_site() {
    let bench = NodeBench::new();
    let path = bench.scratch.file("motd", "Ask hpc@x\n");
    bench.configure(&format!(
        "message_file = {}\nhint = qstat -u $USER\n",
        path.display()
    ));
    let reply = bench.ask();
    assert_eq!(
        (reply.message.as_str(), reply.hint.as_str()),
        ("Ask hpc@x", "qstat -u $USER")
    );
    // A mistake elsewhere leaves the text; a login that is admitted may still be refused.
    bench.configure(&format!(
        "sources = none\nmessage_file = {}\n",
        path.display()
    ));
    assert_eq!(bench.refusal().reason, Reason::Configuration);
    assert_eq!(bench.ask().message, "Ask hpc@x");
    bench.configure(&format!("message_file = {}\n", path.display()));
    bench.job("7", STRICT);
    let admitted = bench.ask();
    assert!(matches!(admitted.verdict, Verdict::Admit(_)));
    assert_eq!(admitted.message, "Ask hpc@x");
    std::fs::remove_file(path).unwrap();
    assert!(bench.ask().warnings.is_empty());
    std::fs::remove_dir_all(bench.scratch.path().join("jobs/5")).unwrap();
    let other_reply = bench.ask();
    assert_eq!(
        (other_reply.message.as_str(), other_reply.warnings.len()),
        ("", 1)
    );
}

#[test]
fn sources_are_queried_again_within_the_budget() {
    let mut bench = NodeBench::new();
    bench.request.wait_ms = 2000;
    let scratch = Rc::clone(&bench.scratch);
    bench.clock.run_at(Duration::from_millis(150), move || {
        scratch.dir("cg/7");
        let text =
            r#"{"version":1,"id":"7","uid":5,"cgroup":"/7","options":{"DevicePolicy":"auto"}}"#;
        scratch.file("jobs/5/7.json", text);
    });
    assert_eq!(bench.plan().job.as_str(), "7");
    assert_eq!(bench.clock.elapsed(), Duration::from_millis(200));
    std::fs::remove_dir_all(bench.scratch.path().join("jobs/5")).unwrap();
    bench.request.budget_ms = 450;
    assert_eq!(bench.refusal().reason, Reason::NoJob);
    assert_eq!(
        bench.clock.elapsed(),
        Duration::from_millis(400),
        "time is left for the reply"
    );
}
