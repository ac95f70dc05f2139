//! Selection among several jobs of one user.

use crate::support::{ALICE, BOB, Node, on_node};

fn with_two_jobs(
    node: &Node,
    then: impl FnOnce(&crate::support::Job<'_>, &crate::support::Job<'_>),
) {
    // The newer job has the smaller id, so that sorting names cannot find it.
    let older = node.job(ALICE, "4250").started(1_795_200_000).start();
    let newer = node.job(ALICE, "4242").started(1_795_200_100).start();
    then(&older, &newer);
}

#[test]
fn login_joins_newest_job_by_default() {
    on_node(|node| {
        node.reporting("");
        with_two_jobs(node, |_, newer| {
            node.pam(ALICE).ok().joins_cgroup(&newer.cgroup);
            assert_eq!(node.log.decision("JA00").field("rule"), Some("newest"));
        });
    });
}

#[test]
fn login_is_refused_where_site_requires_choice() {
    on_node(|node| {
        node.arguments("action_unknown=deny");
        with_two_jobs(node, |_, newer| {
            let outcome = node.pam(ALICE).fails().says("[JA05]");
            outcome
                .says("gpu017: login refused: you have 2 jobs here")
                .says("4242")
                .says("4250");
            newer.finish();
            std::fs::remove_file(node.path(&newer.record_path())).unwrap();
            node.pam(ALICE).ok();
        });
    });
}

#[test]
fn login_never_joins_job_of_another_user() {
    on_node(|node| {
        node.reporting("");
        let hers = node.job(ALICE, "1").started(1).start();
        let _his = node.job(BOB, "2").started(1_795_300_000).start();
        node.pam(ALICE).ok().joins_cgroup(&hers.cgroup);
    });
}

#[test]
fn ended_job_is_not_joined() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        job.finish();
        node.pam(ALICE).fails().says("[JA0");
    });
}

#[test]
fn refusal_names_job_that_has_just_ended() {
    on_node(|node| {
        node.create_dir("/run/job-adopt/jobs/1001", 0o755);
        let note = r#"printf '{"version":1,"ended":%s}' "$(date +%s)" >/run/job-adopt/jobs/1001/4242.ended"#;
        let clock = node.sh(&format!("{note}; date +%H:%M")).ok().stdout;
        let outcome = node.account(ALICE).fails().says("[JA03]");
        let text = format!(
            "login refused: your job 4242 here ended at {}",
            clock.trim()
        );
        assert!(
            outcome.output().contains(&text[..text.len() - 1]),
            "{outcome}"
        );
        let old = r#"printf '{"version":1,"ended":%s}' $(($(date +%s) - 601)) >/run/job-adopt/jobs/1001/4242.ended"#;
        node.sh(old).ok();
        node.account(ALICE).fails().says("[JA01]");
    });
}
