//! Peers that do not answer: a login is refused in time and delays no other.

use std::time::Duration;

use nix::sys::signal::Signal;

use crate::support::{ALICE, BOB, on_slurm, retry_until_in_time};

/// A budget of 3 s, and the time of the refusal itself.
const LIMIT: Duration = Duration::from_millis(4900);

#[test]
fn stopped_step_daemon_refuses_login_in_time() {
    on_slurm(|slurm| {
        let node = slurm.node;
        let hers = slurm.alloc(ALICE, 1);
        let his = slurm.alloc(BOB, 1);
        node.reporting("timeout=3");
        hers.signal_daemon(Signal::SIGSTOP);
        retry_until_in_time(LIMIT, || node.account(ALICE))
            .fails()
            .says("[JA08]");
        node.pam(BOB).ok().joins(&his);
        for phase in ["account", "session"] {
            let entry = node.log.find(phase, |entry| {
                entry.field("code") == Some("JA00") && entry.field("phase") == Some(phase)
            });
            assert!(
                entry.field("ms").unwrap().parse::<u32>().unwrap() < 2000,
                "{}",
                entry.text
            );
        }
        node.session_reporting("timeout=3");
        retry_until_in_time(LIMIT, || node.session(ALICE)).stays_outside();
        hers.signal_daemon(Signal::SIGCONT);
        node.reporting("");
        node.pam(ALICE).ok().joins(&hers);
        hers.cancel();
        his.cancel();
        slurm.assert_nothing_left();
    });
}

#[test]
fn late_step_daemon_of_newest_job_is_waited_for() {
    on_slurm(|slurm| {
        let node = slurm.node;
        let older = slurm.alloc(ALICE, 1);
        let newer = slurm.alloc(ALICE, 1);
        let assert_rule = |rule: &str| {
            assert_eq!(node.log.decision("JA00").field("rule"), Some(rule));
            node.log.clear();
        };
        node.reporting("timeout=3");
        newer.signal_daemon(Signal::SIGSTOP);
        node.pam(ALICE).ok().joins(&older);
        assert_rule("answered");
        node.reporting("timeout=20");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // Longer than the helper waits for a daemon that cannot have the newest job (1 s).
                std::thread::sleep(Duration::from_millis(1500));
                newer.signal_daemon(Signal::SIGCONT);
            });
            node.pam(ALICE).ok().joins(&newer);
        });
        assert_rule("newest");
    });
}

#[test]
fn frozen_slurm_job_refuses_login_in_time() {
    on_slurm(|slurm| {
        let node = slurm.node;
        let hers = slurm.alloc(ALICE, 1);
        let his = slurm.alloc(BOB, 1);
        node.reporting("timeout=3");
        hers.freeze(true);
        retry_until_in_time(LIMIT, || node.session(ALICE)).fails();
        // The step's daemon is frozen with the job, so the job's state is unknown.
        retry_until_in_time(LIMIT, || node.account(ALICE))
            .fails()
            .says("[JA08]");
        node.pam(BOB).ok().joins(&his);
        hers.freeze(false);
        node.pam(ALICE).ok().joins(&hers);
    });
}

/// `job-adopt resolve` prints the same reason as the login.
#[test]
fn resolve_gives_same_reason_as_login() {
    on_slurm(|slurm| {
        let job = slurm.alloc(ALICE, 1);
        let resolve = |user: &str| slurm.node.job_adopt(&["resolve", "--user", user]);
        resolve("alice").ok().says(&job.id).says("slurm");
        resolve("carol").exits(1).says("JA01");
        slurm.node.arguments("timeout=1");
        job.signal_daemon(Signal::SIGSTOP);
        resolve("alice").fails().says("JA08");
        job.signal_daemon(Signal::SIGCONT);
    });
}
