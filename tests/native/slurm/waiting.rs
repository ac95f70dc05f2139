//! What does not answer: a login is refused in time, and nobody else is held up.

use std::time::Duration;

use nix::sys::signal::Signal;

use crate::support::{ALICE, BOB, on_slurm, retry_until_in_time};

/// Of a budget of 3 s, with what the refusal itself takes.
const LIMIT: Duration = Duration::from_millis(4900);

#[test]
fn a_step_daemon_that_was_stopped() {
    on_slurm(|slurm| {
        let node = slurm.node;
        let (hers, his) = (slurm.alloc(ALICE, 1), slurm.alloc(BOB, 1));
        node.reporting("timeout=3");
        hers.signal_daemon(Signal::SIGSTOP);
        retry_until_in_time(LIMIT, || node.account(ALICE)).fails().says("[JA08]");
        node.pam(BOB).ok().joins(&his);
        for phase in ["account", "session"] {
            let entry = node.log.find(phase, |entry| {
                entry.field("code") == Some("JA00") && entry.field("phase") == Some(phase)
            });
            assert!(entry.field("ms").unwrap().parse::<u32>().unwrap() < 2000, "{}", entry.text);
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
fn a_job_that_is_frozen() {
    on_slurm(|slurm| {
        let node = slurm.node;
        let (hers, his) = (slurm.alloc(ALICE, 1), slurm.alloc(BOB, 1));
        node.reporting("timeout=3");
        hers.freeze(true);
        retry_until_in_time(LIMIT, || node.session(ALICE)).fails();
        // Its step's daemon is frozen with it, so that nothing is known of the job.
        retry_until_in_time(LIMIT, || node.account(ALICE)).fails().says("[JA08]");
        node.pam(BOB).ok().joins(&his);
        hers.freeze(false);
        node.pam(ALICE).ok().joins(&hers);
    });
}

/// What the admin's program says of it is what the login said.
#[test]
fn the_admins_program_says_the_same() {
    on_slurm(|slurm| {
        let job = slurm.alloc(ALICE, 1);
        let resolve = |user: &str| slurm.node.job_adopt(&["resolve", "--user", user]);
        resolve("alice").ok().says(&job.id).says("slurm");
        resolve("carol").exits(1).says("JA01");
        job.signal_daemon(Signal::SIGSTOP);
        resolve("alice").fails().says("JA08");
        job.signal_daemon(Signal::SIGCONT);
    });
}
