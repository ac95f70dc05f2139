//! The memory of a login to a job of a real Slurm, beside `pam_slurm_adopt`: what its sshd keeps while the session is
//! open, and what the helper takes at its peak.

use super::driver::compile;
use super::slurm::on_job;
use super::support::ALICE;
use super::{Goal, median, print_heading, print_row};

const MEMORY: &str = include_str!("memory.c");
const LOGINS: usize = 5;

pub(super) fn measure() {
    on_job(|slurm| {
        let node = slurm.node;
        compile(node, "memory", MEMORY, "-lpam");
        let measure = |service: &str| {
            let mut added = Vec::new();
            let mut of_child = Vec::new();
            for _ in 0..LOGINS {
                let outcome = node.run("memory", &[service, ALICE.name]).ok();
                let mut numbers = outcome.stdout.split_ascii_whitespace();
                added.push(numbers.next().unwrap().parse().unwrap());
                of_child.push(numbers.next().unwrap().parse().unwrap());
            }
            (median(added), median(of_child))
        };
        let (permit, _) = measure("permit");
        let (theirs, _) = measure("theirs");
        let (ours, helper) = measure("sshd");
        let their_part = theirs - permit;
        print_heading("memory of a login", "pam_slurm_adopt in sshd");
        print_row(
            "pam_slurm_adopt and libslurm in sshd",
            their_part,
            "KiB",
            1.0,
            Goal::None,
        );
        let ours = ours - permit;
        print_row(
            "ours in sshd, private",
            ours,
            "KiB",
            ours / their_part,
            Goal::AtMost(1.0, "a library's relocations and one reply"),
        );
        print_row(
            "helper at its peak, with shared pages",
            helper,
            "KiB",
            helper / their_part,
            Goal::None,
        );
    });
}
