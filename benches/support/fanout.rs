//! The cost of many concurrent logins into one job, compared with `pam_permit` alone in the same
//! server.

use std::time::Duration;

use super::support::{ALICE, Node, Sshd, on_node};
use super::{Goal, median, print_heading, print_row};

const LOGINS: usize = 256;
const ROUNDS: usize = 5;
/// The minimum rate, relative to `pam_permit`.
const RATE: Goal = Goal::AtLeast(0.96, "each login starts one helper and moves once");
pub(super) const PERMIT: &str = "account required pam_permit.so\nsession required pam_permit.so\n";
const OURS: &str = "account required pam_job_adopt.so log_level=quiet\n\
                    session required pam_job_adopt.so log_level=quiet\n";

pub(super) fn measure() {
    on_node(|node| {
        let _job = node
            .job(ALICE, "4242")
            .devices(&["/dev/nvidia0", "/dev/nvidia1"])
            .start();
        let sshd = node.sshd();
        compare(
            node,
            &sshd,
            "OpenSSH's default key exchange",
            &["-o", "KexAlgorithms=+curve25519-sha256"],
            RATE,
        );
        compare(node, &sshd, "curve25519 alone", &[], RATE);
    });
}

/// Runs rounds of each in turn, so that other load affects both.
fn compare(node: &Node, sshd: &Sshd<'_>, title: &str, options: &[&str], goal: Goal) {
    let round = |stack: &str| {
        node.write_stack(stack);
        let burst = sshd.burst(ALICE, LOGINS, options, || {});
        assert!(burst.complaints.is_empty(), "{:?}", burst.complaints);
        (burst.took, burst.cpu)
    };
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let mut took = [const { Vec::new() }; 3];
    let mut cpu = [const { Vec::new() }; 3];
    for turn in 0..ROUNDS {
        // Each goes first equally often.
        let (permit, ours) = match turn % 2 {
            0 => (round(PERMIT), round(OURS)),
            _ => {
                let ours = round(OURS);
                (round(PERMIT), ours)
            }
        };
        for (values, [theirs, our]) in [
            (&mut took, [ms(permit.0), ms(ours.0)]),
            (&mut cpu, [ms(permit.1), ms(ours.1)]),
        ] {
            values[0].push(theirs);
            values[1].push(our);
            values[2].push(theirs / our);
        }
    }
    print_heading(&format!("{LOGINS} logins at once, {title}"), "pam_permit");
    for (what, row_goal, [permit, ours, ratio]) in
        [("rate", goal, took), ("processor time", Goal::None, cpu)]
    {
        let permit = median(permit);
        let ours = median(ours);
        print_row(
            &format!("pam_permit, {what}"),
            permit,
            "ms",
            1.0,
            Goal::None,
        );
        print_row(
            &format!("account and session, {what}"),
            ours,
            "ms",
            median(ratio),
            row_goal,
        );
    }
}
