//! What one call costs: its system calls, the bytes that it reads, and its time.

use crate::driver::run;
use crate::support::{ALICE, Node};

/// Number of timed logins, and of timed runs of a command within [`COMMAND_SECONDS`].
const LOGINS: &str = "40";
const PAIR_RUNS: usize = 10;
const COMMAND_RUNS: &str = "10";
const COMMAND_SECONDS: &str = "1";
const TRACE: &str = "/tmp/growth-trace";
const PHASES: &str = "acct_mgmt open_session";

/// The costs of one call. Other load changes only the time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Figures {
    pub(super) calls: f64,
    /// Bytes that were read, received or listed.
    pub(super) bytes: f64,
    /// The fastest run: whatever else runs can only add to it.
    pub(super) us: f64,
}

impl Figures {
    /// Measures a login of alice through the service `sshd`, without what libpam and its caller need for the service
    /// `permit`. The first login of a job attaches filters and makes directories, and is not measured.
    pub(super) fn of_login(node: &Node) -> Self {
        let [ours, permit] = ["sshd", "permit"].map(|service| {
            let login = format!("pamtester {service} {} {PHASES}", ALICE.name);
            node.sh(&login).ok();
            count(node, &login)
        });
        let costs = run(node, &["sshd", "both", LOGINS, "0"]);
        Self {
            calls: (ours.0 - permit.0) as f64,
            bytes: (ours.1 - permit.1) as f64,
            us: fastest(costs.iter().map(|cost| cost.calls)),
        }
    }

    /// Measures a command that may run any number of times. It may report that it has found something (status 1).
    pub(super) fn of_command(node: &Node, command: &str) -> Self {
        let (calls, bytes) = count(node, command);
        let us = measure_time(node, COMMAND_RUNS, command);
        Self {
            calls: calls as f64,
            bytes: bytes as f64,
            us,
        }
    }

    /// Measures two commands of which each undoes the other.
    pub(super) fn of_pair(node: &Node, commands: [&str; 2]) -> [Self; 2] {
        let counts = commands.map(|command| count(node, command));
        let mut all_times = [Vec::new(), Vec::new()];
        for _ in 0..PAIR_RUNS {
            for (command, times) in commands.iter().zip(&mut all_times) {
                times.push(measure_time(node, "1", command));
            }
        }
        let mut counts = counts.into_iter();
        all_times.map(|times| {
            let (calls, bytes) = counts.next().unwrap();
            Self {
                calls: calls as f64,
                bytes: bytes as f64,
                us: fastest(times.into_iter()),
            }
        })
    }
}

/// Counts the system calls of a command and of what it starts, and the bytes that these read.
fn count(node: &Node, command: &str) -> (usize, usize) {
    let outcome = node.sh(&format!("strace -f -qq -o {TRACE} {command}"));
    assert!((0..=1).contains(&outcome.code), "{outcome}");
    let trace = node.read(TRACE);
    let mut calls = 0;
    let mut bytes = 0;
    for line in trace.lines() {
        let (_, text) = line.split_once(' ').unwrap();
        let call = text.trim_start();
        // An exit, a signal, or the second half of a call.
        let is_second_half = call.starts_with("<...");
        if !call.starts_with(['+', '-']) && !is_second_half {
            calls += 1;
        }
        let name = call.trim_start_matches("<... ");
        if ["read", "pread", "recv", "getdents"]
            .iter()
            .any(|reader| name.starts_with(reader) && !name.starts_with("readlink"))
        {
            let result = call.rsplit_once(" = ").map(|(_, result)| result);
            bytes += result
                .and_then(|result| result.parse::<usize>().ok())
                .unwrap_or(0);
        }
    }
    (calls, bytes)
}

/// Returns the microseconds of the fastest run of a command.
fn measure_time(node: &Node, runs: &str, command: &str) -> f64 {
    let time = format!("grow time {runs} {COMMAND_SECONDS} {command}");
    let outcome = node.sh(&time).ok();
    fastest(outcome.stdout.lines().map(|line| line.parse().unwrap()))
}

fn fastest(times: impl Iterator<Item = f64>) -> f64 {
    times.fold(f64::INFINITY, f64::min)
}
