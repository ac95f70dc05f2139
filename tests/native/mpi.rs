//! Programs of several nodes, whose ranks a launcher starts by ssh: every one of them is in its job.

use crate::support::{ALICE, BOB, Cluster, Job, Outcome, on_cluster};

/// A job of alice's on each node, with one GPU, from node to node another.
fn everywhere<'a>(cluster: &Cluster<'a>, id: &str, first: usize) -> Vec<Job<'a>> {
    let on = |(number, node): (usize, &'a crate::support::Node)| {
        node.job(ALICE, id).devices(&[&gpu(first + number)]).start()
    };
    cluster.nodes.iter().enumerate().map(on).collect()
}

fn gpu(number: usize) -> String {
    format!("/dev/nvidia{}", number % 4)
}

/// `ssh`, and how to start `per_node` ranks on each node of the cluster by it.
fn launchers(cluster: &Cluster<'_>) -> [(String, usize); 3] {
    let names: Vec<&str> = cluster.nodes.iter().map(|node| node.name()).collect();
    let slots: Vec<String> = names.iter().map(|name| format!("{name}:2")).collect();
    let (hosts, slots, ranks) = (names.join(","), slots.join(","), 2 * names.len());
    let bounded = "timeout -k 2 40";
    [
        (format!("{bounded} mpirun --host {slots} -n {ranks} rank"), 2),
        (format!("{bounded} mpiexec.hydra -launcher ssh -hosts {hosts} -ppn 2 -n {ranks} rank"), 2),
        (format!("{bounded} pdsh -R ssh -N -w {hosts} rank"), 1),
    ]
}

/// What [`everywhere`] has started is where so many ranks of each node are, with its GPU alone.
#[track_caller]
fn ranks_are_in(jobs: &[Job<'_>], first: usize, per_node: usize, launched: &Outcome) {
    let lines: Vec<&str> =
        launched.stdout.lines().filter(|line| line.starts_with("rank ")).collect();
    assert_eq!(lines.len(), jobs.len() * per_node, "{launched}");
    for (number, job) in jobs.iter().enumerate() {
        let expected =
            format!("rank {} {} {}", job.node().name(), job.cgroup.path(), gpu(first + number));
        let found = lines.iter().filter(|line| **line == expected).count();
        assert_eq!(found, per_node, "{expected}: {launched}");
    }
}

fn every_launcher_on(nodes: usize) {
    on_cluster(nodes, |cluster| {
        let jobs = everywhere(cluster, "4242", 1);
        let _his: Vec<Job<'_>> = cluster
            .nodes
            .iter()
            .map(|node| node.job(BOB, "4243").started(1_795_300_000).start())
            .collect();
        for (launcher, per_node) in launchers(cluster) {
            // The launcher itself is in the job by a login; its own node's ranks need no other.
            let launched = cluster.sshds[0].ssh(ALICE, &launcher).ok();
            ranks_are_in(&jobs, 1, per_node, &launched);
        }
    });
}

#[test]
fn every_rank_on_two_nodes_is_in_the_job_with_its_gpus() {
    every_launcher_on(2);
}

#[test]
fn every_rank_on_four_nodes_is_in_the_job_with_its_gpus() {
    every_launcher_on(4);
}
