//! The cost of a login to a registered job, by the number of the job's processes.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use super::driver::{Cost, compile, install, run};
use super::support::{ALICE, on_node};
use super::{Goal, median, print_heading, print_row};

const CROWD: &str = include_str!("crowd.c");
const LOGINS: &str = "60";
const FLOOR: &str = "the kernel lists the processes once";
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
        compile(node, "crowd", CROWD, "-lc");
        print_heading(
            "account and session, by processes of the job",
            "a job of 10",
        );
        let mut crowds = Vec::new();
        let mut first = f64::NAN;
        for (size, goal) in SIZES {
            let missing = size - job.cgroup.pids().len();
            let mut crowd = node.daemon(&job.cgroup, "crowd");
            crowd.args([missing.to_string(), ALICE.uid.to_string()]);
            let mut crowd = crowd.stdout(Stdio::piped()).spawn().unwrap();
            let mut ready = String::new();
            BufReader::new(crowd.stdout.take().unwrap())
                .read_line(&mut ready)
                .unwrap();
            assert_eq!(ready, "ready\n");
            crowds.push(crowd);
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
