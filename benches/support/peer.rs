//! The time that a user waits for a login by a real sshd, through ours and through `pam_slurm_adopt`,
//! to a job of a real Slurm.

use super::fanout::PERMIT;
use super::slurm::{OURS, THEIRS, on_job};
use super::support::{ALICE, Sshd};
use super::{Goal, print_heading, print_row};

const STACKS: [&str; 3] = [PERMIT, THEIRS, OURS];
/// Number of logins at once, and of rounds: the 99th percentile needs hundreds of logins.
const BURSTS: [(usize, usize); 2] = [(16, 24), (256, 3)];

pub(super) fn measure() {
    on_job(|slurm| {
        let sshd = slurm.node.sshd();
        for (logins, rounds) in BURSTS {
            compare(&sshd, logins, rounds);
        }
    });
}

/// Runs rounds of each in rotating order, so that other load affects all of them.
fn compare(sshd: &Sshd<'_>, logins: usize, rounds: usize) {
    let mut waits = [const { Vec::new() }; STACKS.len()];
    for round in 0..rounds {
        for turn in 0..STACKS.len() {
            let kind = (round + turn) % STACKS.len();
            sshd.node().write_stack(STACKS[kind]);
            let burst = sshd.burst(ALICE, logins, &[], || {});
            assert!(burst.complaints.is_empty(), "{:?}", burst.complaints);
            waits[kind].extend(burst.waits.iter().map(|wait| wait.as_secs_f64() * 1e3));
        }
    }
    waits
        .iter_mut()
        .for_each(|waits| waits.sort_by(f64::total_cmp));
    let title = format!("Slurm, {logins} logins at once, until the first line of the command");
    print_heading(&title, "pam_slurm_adopt");
    let goals = [
        (
            "median",
            50,
            Goal::AtMost(1.03, "one more process beside those of sshd"),
        ),
        (
            "99th percentile",
            99,
            Goal::AtMost(1.05, "the daemon lets in one after another"),
        ),
        (
            "worst",
            100,
            Goal::AtMost(1.05, "the daemon lets in one after another"),
        ),
    ];
    for (what, percent, goal) in goals {
        let [permit, theirs, ours] = waits
            .each_ref()
            .map(|waits| waits[(waits.len() * percent).div_ceil(100) - 1]);
        print_row(
            &format!("pam_permit, {what}"),
            permit,
            "ms",
            permit / theirs,
            Goal::None,
        );
        print_row(
            &format!("pam_slurm_adopt, {what}"),
            theirs,
            "ms",
            1.0,
            Goal::None,
        );
        print_row(
            &format!("account and session, {what}"),
            ours,
            "ms",
            ours / theirs,
            goal,
        );
    }
}
