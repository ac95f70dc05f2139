//! What a login to a job of a real Slurm's costs, through ours and through `pam_slurm_adopt`, by
//! how many jobs the node has. The others are stand-ins, of another user.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use super::driver::{compile, install, run};
use super::support::{ALICE, BOB, SPOOL, Slurm, on_slurm};
use super::{Goal, heading, median, row};

const STEPDS: &str = include_str!("stepds.c");
const JOBS: [usize; 3] = [1, 10, 100];
/// A number far from those that Slurm gives out.
const FIRST: usize = 70_000;
const ROUNDS: usize = 6;
const OURS: &str = "account required pam_job_adopt.so log_level=quiet\n\
                    session required pam_permit.so\n\
                    session required pam_job_adopt.so log_level=quiet\n";
/// As its documentation has sites write who want it to fail closed.
const THEIRS: &str = "account required pam_slurm_adopt.so action_adopt_failure=deny \
                      action_generic_failure=deny log_level=quiet service=*\n\
                      session required pam_permit.so\n";
/// Services and phases, the first to be taken off the others.
const KINDS: [[&str; 2]; 5] = [
    ["permit", "both"],
    ["theirs", "account"],
    ["sshd", "account"],
    ["sshd", "session"],
    ["sshd", "both"],
];

/// Logins one after the other.
#[derive(Debug)]
struct Pace {
    title: &'static str,
    per_round: &'static str,
    pause_us: &'static str,
}

const PACES: [Pace; 2] = [
    Pace { title: "back to back", per_round: "30", pause_us: "0" },
    // Far enough apart for the kernel to wait for a grace period at every move.
    Pace { title: "50 ms apart", per_round: "8", pause_us: "50000" },
];

pub(super) fn measure() {
    on_slurm(|slurm| {
        let node = slurm.node;
        install(node);
        compile(node, "stepds", STEPDS, "-lc");
        node.write("/etc/pam.d/sshd", OURS);
        node.write("/etc/pam.d/theirs", THEIRS);
        let job = slurm.batch(ALICE, 1);
        for jobs in JOBS {
            let others = Others::start(slurm, jobs - 1);
            for pace in &PACES {
                compare(slurm, jobs, pace);
            }
            others.end(slurm);
        }
        job.cancel();
    });
}

fn compare(slurm: &Slurm<'_>, jobs: usize, pace: &Pace) {
    // Rounds of each in turn, so that what else the machine does meets all of them, and each after
    // every other: who is adopted leaves the step's daemon with work for a second.
    let mut costs = [const { Vec::new() }; KINDS.len()];
    for round in 0..ROUNDS {
        for turn in 0..KINDS.len() {
            let kind = (round + turn) % KINDS.len();
            let [service, phases] = KINDS[kind];
            let measured = run(slurm.node, &[service, phases, pace.per_round, pace.pause_us]);
            costs[kind].extend(measured.iter().map(|cost| cost.whole));
        }
    }
    let [permit, theirs, account, session, both] = costs.map(median);
    // What the session alone may cost against theirs, and both.
    let (alone, whole) = match (jobs, pace.pause_us) {
        (1, "0") => (Goal::AtMost(0.5), Goal::AtMost(0.8)),
        (100, "0") => (Goal::AtMost(0.5), Goal::AtMost(0.9)),
        (_, "0") => (Goal::None, Goal::None),
        _ => (Goal::None, Goal::AtMost(1.0)),
    };
    let jobs = if jobs == 1 { "1 job".to_owned() } else { format!("{jobs} jobs") };
    heading(&format!("Slurm, {jobs}, {}", pace.title), "pam_slurm_adopt");
    let above = |what: &str, cost: f64, goal: Goal| {
        let cost = cost - permit;
        row(what, cost, "us", cost / (theirs - permit), goal);
    };
    above("pam_slurm_adopt (account)", theirs, Goal::None);
    above("account", account, Goal::None);
    above("session", session, alone);
    above("account and session", both, whole);
}

/// Jobs of another user's, as far as a login can tell: they are at their sockets.
#[derive(Debug)]
struct Others(Child);

impl Others {
    fn start(slurm: &Slurm<'_>, count: usize) -> Self {
        let node = slurm.node;
        let mut stepds = node.daemon(&node.outside(), "stepds");
        stepds.args([SPOOL, node.name(), &FIRST.to_string(), &count.to_string()]);
        stepds.arg(BOB.uid.to_string()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = stepds.spawn().unwrap();
        let mut ready = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        assert_eq!(ready, "ready\n");
        Self(child)
    }

    fn end(mut self, slurm: &Slurm<'_>) {
        drop(self.0.stdin.take());
        self.0.wait().unwrap();
        slurm.node.sh(&format!("rm -f {SPOOL}/*_7????.4294967292")).ok();
    }
}
