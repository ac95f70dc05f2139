//! The cost of a login to a job of a real Slurm, through ours and through `pam_slurm_adopt`, by the
//! number of jobs on the node and by the load of its processors. The other jobs are stand-ins of
//! another user.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use super::driver::{compile, install, run};
use super::support::{ALICE, BOB, SPOOL, Slurm, on_slurm};
use super::{Goal, median, print_heading, print_row};

const STEPDS: &str = include_str!("stepds.c");
const JOBS: [usize; 2] = [1, 100];
/// A number far from those that Slurm assigns.
const FIRST: usize = 70_000;
const ROUNDS: usize = 6;
pub(super) const OURS: &str = "account required pam_job_adopt.so log_level=quiet\n\
                    session required pam_permit.so\n\
                    session required pam_job_adopt.so log_level=quiet\n";
/// Arguments that its documentation gives to sites that want it to fail closed.
pub(super) const THEIRS: &str = "account required pam_slurm_adopt.so action_adopt_failure=deny \
                      action_generic_failure=deny log_level=quiet service=*\n\
                      session required pam_permit.so\n";
/// Services and phases. The first is subtracted from the others.
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

const BACK_TO_BACK: Pace = Pace {
    title: "back to back",
    per_round: "30",
    pause_us: "0",
};
/// Long enough for the kernel to wait for a grace period at every move.
const APART: Pace = Pace {
    title: "50 ms apart",
    per_round: "8",
    pause_us: "50000",
};

const ONE_JOB: Goal = Goal::AtMost(
    1.3,
    "both wait for the daemon's move; ours starts one process besides",
);
const MANY_JOBS: Goal = Goal::AtMost(
    0.7,
    "each daemon is asked for its job's owner, ours asks them side by side",
);
const APART_GOAL: Goal = Goal::AtMost(1.0, "both wait for one grace period of the kernel's");
const BUSY: Goal = Goal::AtMost(1.5, "ours has one more process that waits for a core");

pub(super) fn measure() {
    on_job(|slurm| {
        for jobs in JOBS {
            let others = Others::start(slurm, jobs - 1);
            let (title, goal) = if jobs == 1 {
                ("1 job".to_owned(), ONE_JOB)
            } else {
                (format!("{jobs} jobs"), MANY_JOBS)
            };
            compare(slurm, &title, &BACK_TO_BACK, goal);
            compare(slurm, &title, &APART, APART_GOAL);
            others.end(slurm);
        }
    });
}

/// Measures while each processor computes.
pub(super) fn measure_busy() {
    on_job(|slurm| {
        let _busy = Busy::start();
        let title = "every core busy";
        compare(slurm, title, &BACK_TO_BACK, BUSY);
        compare(slurm, title, &APART, BUSY);
    });
}

/// Runs `body` with a job of the user on the node.
pub(super) fn on_job(body: impl FnOnce(&Slurm<'_>)) {
    on_slurm(|slurm| {
        let node = slurm.node;
        install(node);
        compile(node, "stepds", STEPDS, "-lc");
        node.write("/etc/pam.d/sshd", OURS);
        node.write("/etc/pam.d/theirs", THEIRS);
        let job = slurm.batch(ALICE, 1);
        body(slurm);
        job.cancel();
    });
}

/// Compares with theirs. The goal is that of both phases together.
fn compare(slurm: &Slurm<'_>, title: &str, pace: &Pace, goal: Goal) {
    // Rounds of each in turn, so that other load affects all of them, and in every order: an
    // adopted login leaves the step's daemon with work for a second.
    let mut costs = [const { Vec::new() }; KINDS.len()];
    for round in 0..ROUNDS {
        for turn in 0..KINDS.len() {
            let kind = (round + turn) % KINDS.len();
            let [service, phases] = KINDS[kind];
            let measured = run(
                slurm.node,
                &[service, phases, pace.per_round, pace.pause_us],
            );
            costs[kind].extend(measured.iter().map(|cost| cost.whole));
        }
    }
    let [permit, theirs, account, session, both] = costs.map(median);
    print_heading(
        &format!("Slurm, {title}, {}", pace.title),
        "pam_slurm_adopt",
    );
    let above = |what: &str, cost: f64, row_goal: Goal| {
        let cost = cost - permit;
        print_row(what, cost, "us", cost / (theirs - permit), row_goal);
    };
    above("pam_slurm_adopt (account)", theirs, Goal::None);
    above("account", account, Goal::None);
    above("session", session, Goal::None);
    above("account and session", both, goal);
}

/// A loop on each processor, in place of computing jobs.
#[derive(Debug)]
struct Busy(Vec<Child>);

impl Busy {
    fn start() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let on = |processor: usize| {
            let mut taskset = Command::new("taskset");
            taskset.args([
                "--cpu-list",
                &processor.to_string(),
                "sh",
                "-c",
                "while :; do :; done",
            ]);
            taskset.spawn().unwrap()
        };
        Self((0..processors).map(on).collect())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Jobs of another user, as far as a login can see: they listen at their sockets.
#[derive(Debug)]
struct Others(Child);

impl Others {
    fn start(slurm: &Slurm<'_>, count: usize) -> Self {
        let node = slurm.node;
        let mut stepds = node.daemon(&node.outside(), "stepds");
        stepds.args([SPOOL, node.name(), &FIRST.to_string(), &count.to_string()]);
        stepds
            .arg(BOB.uid.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = stepds.spawn().unwrap();
        let mut ready = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut ready)
            .unwrap();
        assert_eq!(ready, "ready\n");
        Self(child)
    }

    fn end(mut self, slurm: &Slurm<'_>) {
        drop(self.0.stdin.take());
        self.0.wait().unwrap();
        slurm
            .node
            .sh(&format!("rm -f {SPOOL}/*_7????.4294967292"))
            .ok();
    }
}
