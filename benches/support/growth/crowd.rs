//! What grows in the kernel: cgroups, mounts, sessions and processes.

use std::fs;
use std::os::unix::fs::chown;
use std::process::Child;

use super::figures::Figures;
use super::{
    CHECK, Call, GROW, Growth, LIST, LOGIN, LOGIN_ROW, STRAYS, on_field, print_heading, print_row,
    probe,
};
use crate::driver::compile;
use crate::slurm::on_job;
use crate::support::{ALICE, BOB, Cgroup, Job, Node, User, start_crowd};

/// Number of cgroups in one directory.
const CGROUPS_OF_DIRECTORY: usize = 1_000;
/// What the kernel keeps for a cgroup without controllers, in KiB, rounded up.
const CGROUP_KIB: usize = 16;
/// Process numbers that are left to the machine.
const SPARE_PIDS: usize = 4_000;

/// Empty cgroups that a user has made in a job. Dropping it removes them.
struct Crowd {
    groups: Vec<Cgroup>,
    count: usize,
}

impl Crowd {
    /// Makes the cgroups in directories of [`CGROUPS_OF_DIRECTORY`].
    fn create(job: &Cgroup, owner: User, count: usize) -> Self {
        for file in ["", "cgroup.procs", "cgroup.subtree_control"] {
            chown(job.dir().join(file), Some(owner.uid), None).unwrap();
        }
        let mut crowd = Self {
            groups: Vec::new(),
            count,
        };
        for number in 0..count.div_ceil(CGROUPS_OF_DIRECTORY) {
            let group = job.child(&format!("group-{number}"));
            group.create();
            crowd.groups.push(group.clone());
            let dir = group.dir();
            for member in 1..CGROUPS_OF_DIRECTORY.min(count - number * CGROUPS_OF_DIRECTORY) {
                fs::create_dir(dir.join(member.to_string())).unwrap();
            }
        }
        crowd
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        for group in &self.groups {
            let dir = group.dir();
            for member in 1..CGROUPS_OF_DIRECTORY.min(self.count) {
                let _ = fs::remove_dir(dir.join(member.to_string()));
            }
            let _ = fs::remove_dir(dir);
        }
    }
}

/// Returns the number of KiB that the machine could still give.
fn available_kib() -> usize {
    let memory = fs::read_to_string("/proc/meminfo").unwrap();
    let line = memory
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"));
    line.unwrap().trim_end_matches("kB").trim().parse().unwrap()
}

/// Fills a job of bob with empty cgroups: as many as half of the free memory holds, and 400,000 at most.
pub(super) fn cgroups() {
    const CGROUPS: usize = 400_000;
    let count = CGROUPS.min(available_kib() / 2 / CGROUP_KIB);
    let floor = "none of them is visited";
    let table = "the process table shows who is in a job of many cgroups";
    let probes = [
        probe(LOGIN, Growth::Flat(floor)),
        probe(Call::Registration, Growth::Flat(floor)),
        probe(LIST, Growth::Each(0.001, table)),
        probe(STRAYS, Growth::Flat(floor)),
        probe(CHECK, Growth::Flat(floor)),
    ];
    on_field(|field| {
        let mut crowd = None;
        let crowded = field.node.job(BOB, "8").start();
        field.compare("cgroups of another user", [1, count], &probes, || {
            crowd = Some(Crowd::create(&crowded.cgroup, BOB, count));
        });
        drop(crowd);
        crowded.finish();
    });
}

const MOUNTS: usize = 5_000;

fn grow_mounts(node: &Node) {
    let end = MOUNTS.to_string();
    node.run("grow", &["mounts", "/mnt/growth", "0", &end]).ok();
}

pub(super) fn mounts() {
    let floor = "a mount is asked for by its place";
    let calls = [LOGIN, Call::Registration, LIST, STRAYS, CHECK];
    let probes = calls.map(|call| probe(call, Growth::Flat(floor)));
    on_field(|field| {
        field.compare("mounts", [20, MOUNTS], &probes, || grow_mounts(field.node));
    });
}

/// With a job of Slurm, which has its cgroups in hierarchies of version 1 here: the list of mounts shows where these are.
pub(super) fn mounts_beside_slurm() {
    on_job(|slurm| {
        let node = slurm.node;
        compile(node, "grow", GROW, "-lc");
        let small = Figures::of_login(node);
        grow_mounts(node);
        let large = Figures::of_login(node);
        let title = "mounts, Slurm job on cgroup v1, 20 to 5,000";
        print_heading(title);
        let growth = Growth::Flat("the list is read up to the hierarchies, mounted at boot");
        print_row(title, LOGIN_ROW, [small, large], MOUNTS, growth);
    });
}

/// Ends a job and the processes of a crowd in it.
fn finish(job: &Job<'_>, mut crowd: Child) {
    job.cgroup.kill();
    crowd.wait().unwrap();
}

/// Fills the leaf of alice's job with processes, as 2,000 open logins would.
pub(super) fn sessions() {
    const SESSIONS: usize = 2_000;
    let own = "logins in the leaf are no evidence, and are not looked at";
    let counted = "each process is looked at";
    on_field(|field| {
        // A job with a child takes logins into a leaf of their own.
        field.job.cgroup.child("step").create();
        let leaf = field.job.cgroup.child("job-adopt");
        let probes = [
            probe(LOGIN, Growth::Flat(own)),
            probe(Call::Registration, Growth::Flat("of another job")),
            probe(LIST, Growth::Each(13.0, counted)),
            probe(STRAYS, Growth::Each(19.0, counted)),
            probe(CHECK, Growth::Each(32.0, counted)),
        ];
        let mut crowd = None;
        field.compare("open logins in the job", [1, SESSIONS], &probes, || {
            crowd = Some(start_crowd(field.node, &leaf, ALICE, SESSIONS));
        });
        finish(&field.job, crowd.unwrap());
    });
}

/// Fills bob's registered job with processes: 30,000, or as many as the machine has numbers for.
pub(super) fn processes() {
    const PROCESSES: usize = 30_000;
    let max: usize = fs::read_to_string("/proc/sys/kernel/pid_max")
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    let loads = fs::read_to_string("/proc/loadavg").unwrap();
    let threads = loads.split(['/', ' ']).nth(4).unwrap();
    let used: usize = threads.parse().unwrap();
    let count = PROCESSES.min(max.saturating_sub(used + SPARE_PIDS));
    let counted = "each process is looked at";
    on_field(|field| {
        let crowded = field.node.job(BOB, "8").start();
        let probes = [
            probe(LOGIN, Growth::Flat("of another job")),
            probe(Call::Registration, Growth::Flat("of another job")),
            probe(LIST, Growth::Each(13.0, counted)),
            probe(STRAYS, Growth::Each(19.0, counted)),
            probe(CHECK, Growth::Each(32.0, counted)),
        ];
        let mut crowd = None;
        field.compare("processes of the node", [1, count], &probes, || {
            crowd = Some(start_crowd(field.node, &crowded.cgroup, BOB, count));
        });
        finish(&crowded, crowd.unwrap());
    });
}
