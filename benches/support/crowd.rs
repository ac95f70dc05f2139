//! The cost of a login to a registered job, by the number of the job's processes.

use super::driver::{Cost, install, run};
use super::support::{ALICE, on_node, start_crowd};
use super::{Goal, median, print_heading, print_row};

const LOGINS: &str = "60";
const FLOOR: &str = "each phase looks at 64 processes";
const SIZES: [(usize, Goal); 3] = [
    (10, Goal::None),
    (3_000, Goal::AtMost(1.5, FLOOR)),
    (10_000, Goal::AtMost(2.0, FLOOR)),
];

pub(super) fn measure() {
    on_node(|node| {
        let job = node
            .job(ALICE, "4242")
            .devices(&["/dev/nvidia0", "/dev/nvidia1"])
            .start();
        node.arguments("log_level=quiet");
        install(node);
        print_heading(
            "account and session, by processes of the job",
            "a job of 10",
        );
        let mut crowds = Vec::new();
        let mut first = f64::NAN;
        for (size, goal) in SIZES {
            let missing = size - job.cgroup.pids().len();
            crowds.push(start_crowd(node, &job.cgroup, ALICE, missing));
            let costs = run(node, &["sshd", "both", LOGINS, "0"]);
            let cost = median(costs.iter().map(|cost: &Cost| cost.calls).collect());
            if first.is_nan() {
                first = cost;
            }
            print_row(&format!("{size} processes"), cost, "us", cost / first, goal);
        }
        job.finish();
        for mut crowd in crowds {
            crowd.wait().unwrap();
        }
    });
}
