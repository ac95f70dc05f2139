//! MPI programs on several nodes whose launcher starts its ranks by ssh: every rank is in its job.

use std::fs;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::{ALICE, BOB, Cluster, Job, Node, Outcome, Tool, eventually, on_cluster};

/// Starts a job of alice with one GPU on each node: `first` on the first, the next one on the next.
fn start_jobs_everywhere<'a>(cluster: &Cluster<'a>, id: &str, first: usize) -> Vec<Job<'a>> {
    let on = |(number, node): (usize, &'a Node)| {
        node.job(ALICE, id)
            .devices(&[&gpu_path(first + number)])
            .start()
    };
    cluster.nodes.iter().enumerate().map(on).collect()
}

fn gpu_path(number: usize) -> String {
    format!("/dev/nvidia{}", number % 4)
}

/// Lists launchers that use `ssh` to start `per_node` ranks on each node of the cluster, with that
/// number.
fn launcher_commands(cluster: &Cluster<'_>) -> [(String, usize); 4] {
    let names: Vec<&str> = cluster.nodes.iter().map(|node| node.name()).collect();
    let slots: Vec<String> = names.iter().map(|name| format!("{name}:2")).collect();
    let hosts = names.join(",");
    let slots = slots.join(",");
    let ranks = 2 * names.len();
    let v6: Vec<String> = names.iter().map(|name| format!("{name}-v6")).collect();
    let bounded = "timeout -k 2 120";
    [
        (
            format!("{bounded} mpirun --host {slots} -n {ranks} rank"),
            2,
        ),
        (
            format!("{bounded} mpiexec.hydra -launcher ssh -hosts {hosts} -ppn 2 -n {ranks} rank"),
            2,
        ),
        (format!("{bounded} pdsh -R ssh -N -w {hosts} rank"), 1),
        (
            format!("{bounded} pdsh -R ssh -N -w {} rank", v6.join(",")),
            1,
        ),
    ]
}

/// Asserts that each job of [`everywhere`] has that many ranks, with its GPU alone.
#[track_caller]
fn assert_ranks_in(jobs: &[Job<'_>], first: usize, per_node: usize, launched: &Outcome) {
    let lines: Vec<&str> = launched
        .stdout
        .lines()
        .filter(|line| line.starts_with("rank "))
        .collect();
    assert_eq!(lines.len(), jobs.len() * per_node, "{launched}");
    for (number, job) in jobs.iter().enumerate() {
        let expected = format!(
            "rank {} {} {}",
            job.node().name(),
            job.cgroup.path(),
            gpu_path(first + number)
        );
        let found = lines.iter().filter(|line| **line == expected).count();
        assert_eq!(found, per_node, "{expected}: {launched}");
    }
}

fn run_every_launcher(nodes: usize) {
    on_cluster(nodes, |cluster| {
        let jobs = start_jobs_everywhere(cluster, "4242", 1);
        let _his: Vec<Job<'_>> = cluster
            .nodes
            .iter()
            .map(|node| node.job(BOB, "4243").started(1_795_300_000).start())
            .collect();
        for (launcher, per_node) in launcher_commands(cluster) {
            // The launcher itself is in the job by a login; the ranks of its own node need no
            // other.
            let launched = cluster.sshds[0].ssh(ALICE, &launcher).ok();
            assert_ranks_in(&jobs, 1, per_node, &launched);
        }
    });
}

#[test]
fn ranks_on_two_nodes_are_in_job_with_its_gpus() {
    run_every_launcher(2);
}

#[test]
fn ranks_on_four_nodes_are_in_job_with_its_gpus() {
    run_every_launcher(4);
}

#[test]
fn mpi_program_reaches_ranks_on_both_nodes() {
    on_cluster(2, |cluster| {
        let _jobs = start_jobs_everywhere(cluster, "4242", 1);
        for node in cluster.nodes {
            node.install(&Tool::Sum.path(), "/usr/bin/sum4");
        }
        let program = "timeout -k 2 120 mpirun --host gpu017:2,gpu018:2 -n 4 sum4";
        let launched = cluster.sshds[0].ssh(ALICE, program).ok();
        assert_eq!(launched.stdout.matches("sum 4\n").count(), 4, "{launched}");
    });
}

/// Leaves a process behind that survives every signal of a launcher and a hang-up.
const OUTLIVE: &str = r#"trap "" HUP INT TERM; setsid nohup survivor infinity >/dev/null 2>&1 &"#;

/// Lists alice's processes on that node whose name begins like this.
fn processes_of_alice(node: &Node, name: &str) -> Vec<i32> {
    let hers = |pid: &i32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        status.starts_with(&format!("Name:\t{name}"))
            && status.contains(&format!("\nUid:\t{}\t", ALICE.uid))
    };
    node.processes().into_iter().filter(hers).collect()
}

#[test]
fn rank_that_outlives_its_launcher_ends_with_job() {
    on_cluster(2, |cluster| {
        let jobs = start_jobs_everywhere(cluster, "4242", 1);
        for node in cluster.nodes {
            node.sh("cp /usr/bin/sleep /usr/bin/survivor").ok();
            node.write("/usr/bin/outlive", &format!("#!/bin/sh\n{OUTLIVE}\n"));
            node.set_mode("/usr/bin/outlive", 0o755);
        }
        let launcher = "timeout -k 2 120 mpirun --host gpu017:2,gpu018:2 -n 4 outlive";
        cluster.sshds[0].ssh(ALICE, launcher).ok();
        for (node, job) in cluster.nodes.iter().zip(&jobs) {
            eventually("both survive", || {
                processes_of_alice(node, "survivor").len() == 2
            });
            let survivors = processes_of_alice(node, "survivor");
            survivors
                .iter()
                .for_each(|pid| kill(Pid::from_raw(*pid), Signal::SIGTERM).unwrap());
            assert_eq!(processes_of_alice(node, "survivor"), survivors);
            node.unregister("4242").ok();
            job.finish();
            eventually("nothing of alice's is left", || {
                processes_of_alice(node, "").is_empty()
            });
        }
    });
}
