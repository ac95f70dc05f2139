//! The cost of a lookup while other users have many jobs on the node.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use helper::answer;
use protocol::{Phase, Request, SeveralJobsPolicy, Verdict};

use super::{Goal, median, print_heading, print_row};

const OTHERS: [usize; 3] = [1, 100, 10_000];
const ROUNDS: usize = 400;
/// Rounds of one row end after this time, but not before this number.
const LONGEST: Duration = Duration::from_secs(2);
const FEWEST: usize = 20;
const UID: u32 = 60_001;
/// No ratio above 1 that a measurement could tell from its noise.
const FLAT: Goal = Goal::AtMost(
    1.2,
    "flat: each user's records have a directory of their own",
);
const DEVICES: &str = r#""options": {"DevicePolicy": "closed"}"#;

pub(super) fn measure() {
    let scratch = Scratch::new();
    print_heading("look-up, by jobs of other users", "one other job");
    let mut first = f64::NAN;
    let mut there = 0;
    for others in OTHERS {
        for index in there..others {
            scratch.record(70_000 + index as u32 / 4, &format!("other-{index}"));
        }
        there = others;
        let cost = scratch.cost();
        if first.is_nan() {
            first = cost;
        }
        print_row(&format!("{others} jobs"), cost, "us", cost / first, FLAT);
    }
}

fn measure_lookup(scratch: &Scratch) -> f64 {
    let request = Request {
        phase: Phase::Session,
        user: "bench".into(),
        uid: UID,
        service: "sshd".into(),
        node: "bench".into(),
        rhost: String::new(),
        ssh_connection: String::new(),
        conf: scratch.dir.join("job_adopt.conf").display().to_string(),
        several: SeveralJobsPolicy::Newest,
        budget_ms: 5000,
        wait_ms: 0,
        unit: String::new(),
    };
    let start = Instant::now();
    let reply = answer(&request);
    let cost = start.elapsed().as_secs_f64() * 1e6;
    assert!(matches!(reply.verdict, Verdict::Admit(_)), "{reply:?}");
    cost
}

/// A registry of its own, and the cgroup of the requested job.
pub(super) struct Scratch {
    pub(super) dir: PathBuf,
    cgroup: super::support::Cgroup,
}

impl Scratch {
    pub(super) fn new() -> Self {
        let name = format!("ja-bench-{}", std::process::id());
        let dir = Path::new("/run").join(&name);
        fs::create_dir(&dir).unwrap();
        let cgroup = super::support::Cgroup::new(format!("/{name}"));
        cgroup.create();
        let scratch = Self { dir, cgroup };
        let jobs = scratch.dir.join("jobs");
        let cdi = scratch.dir.join("cdi");
        fs::create_dir(&cdi).unwrap();
        let conf = format!(
            "registry = {}\ncdi_dirs = {}\n",
            jobs.display(),
            cdi.display()
        );
        fs::write(scratch.dir.join("job_adopt.conf"), conf).unwrap();
        scratch.own(DEVICES);
        scratch
    }

    /// Writes the record of the requested job, with these device options.
    pub(super) fn own(&self, devices: &str) {
        self.write(UID, "4242", devices);
    }

    /// Measures one lookup, in microseconds.
    pub(super) fn cost(&self) -> f64 {
        let began = Instant::now();
        let more = |round: &usize| *round < FEWEST || began.elapsed() < LONGEST;
        median(
            (0..ROUNDS)
                .take_while(more)
                .map(|_| measure_lookup(self))
                .collect(),
        )
    }

    fn record(&self, uid: u32, id: &str) {
        self.write(uid, id, DEVICES);
    }

    fn write(&self, uid: u32, id: &str, devices: &str) {
        let folder = self.dir.join("jobs").join(uid.to_string());
        fs::create_dir_all(&folder).unwrap();
        let text = format!(
            r#"{{"version": 1, "id": "{id}", "uid": {uid}, "cgroup": "{}",
                {devices}}}"#,
            self.cgroup.path()
        );
        fs::write(folder.join(format!("{id}.json")), text).unwrap();
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        self.cgroup.remove();
        let _ = fs::remove_dir_all(&self.dir);
    }
}
