//! What one login costs, and what that means for a launcher that logs in to many nodes: the model of `docs/mpi.md`,
//! checked with sixteen nodes that share this machine.

use std::time::{Duration, Instant};

use super::support::{ALICE, Cluster, HELPER, Job, Listener, Node, Outcome, on_cluster};
use super::{Goal, median, print_heading, print_row};

/// Number of nodes of the run.
const NODES: usize = 16;
/// Number of nodes that one node logs in to in the run with a tree, so that the tree has two levels.
const RADIX: usize = 4;
const ROUNDS: usize = 5;
/// The port of the service that tells the job of a connection.
const PORT: u16 = 113;
/// One line for each question that the node was asked.
const QUESTIONS: &str = "/tmp/questions";
const CONFIG: &str = "callerid_networks = 10.77.0.0/24\ncallerid_timeout = 2000\n";

/// A cluster on paper. All times are in seconds.
struct Model {
    nodes: f64,
    /// Maximum number of nodes that one node logs in to.
    fan_out: f64,
    /// Number of logins to each node: one for a launcher with a daemon of its own, one for each rank for a
    /// launcher that starts ranks by ssh.
    logins_per_node: f64,
    cores_per_node: f64,
    /// Time of one login on idle nodes.
    latency: f64,
    /// Processor time of one login, client and server together.
    cost: f64,
}

impl Model {
    /// The number of levels of the tree below the first node, which fills each level before the next.
    fn count_levels(&self) -> i32 {
        let mut reached = 1.0;
        let mut level = 1.0;
        let mut levels = 0;
        while reached < self.nodes {
            level *= self.fan_out;
            reached += level;
            levels += 1;
        }
        levels
    }

    /// The time until the last node has all of its logins: on each level a login, or as long as the processors of
    /// the asking node need for all of its clients, or those of the asked node for its servers.
    fn predict_time(&self) -> f64 {
        let children = self.fan_out.min(self.nodes - 1.0);
        let clients = children * self.logins_per_node * self.cost / 2.0 / self.cores_per_node;
        let servers = self.logins_per_node * self.cost / 2.0 / self.cores_per_node;
        f64::from(self.count_levels()) * (self.latency + clients.max(servers))
    }

    /// The number of questions to the node that starts most logins: one for each login.
    fn count_questions(&self) -> f64 {
        self.fan_out.min(self.nodes - 1.0) * self.logins_per_node
    }
}

pub(super) fn measure() {
    on_cluster(NODES, |cluster| {
        let jobs = start_jobs(cluster);
        let first = &jobs[0];
        let _services: Vec<Listener> = cluster.nodes.iter().map(start_service).collect();
        let names: Vec<&str> = cluster.nodes.iter().map(|node| node.name()).collect();
        let others = names[1..].join(",");
        let all = names.join(",");
        let one = time_median(first, "ssh gpu018 true");
        // The machine does all logins, whichever node each belongs to: what one login takes of it shows at one server.
        let clients = NODES - 1;
        let burst = format!("for login in $(seq {clients}); do ssh gpu018 true & done; wait");
        let burst = time_median(first, &burst);
        print_heading(
            &format!("{NODES} nodes on this machine, until the launcher's end"),
            &format!("{clients} logins to one node"),
        );
        print_row("one login", one, "ms", one / burst, Goal::None);
        print_row(
            &format!("{clients} logins to one node"),
            burst,
            "ms",
            1.0,
            Goal::None,
        );
        let launchers = [
            (
                "pdsh",
                format!("pdsh -R ssh -N -f {NODES} -w {others} true"),
                NODES - 1,
            ),
            (
                "Hydra",
                format!("mpiexec.hydra -launcher ssh -hosts {all} -ppn 1 -n {NODES} true"),
                NODES - 1,
            ),
            (
                "Open MPI, a tree of 4",
                format!(
                    "mpirun --mca routed radix --mca routed_radix {RADIX} --host {all} -n {NODES} true"
                ),
                RADIX,
            ),
        ];
        for (title, launcher, asked) in launchers {
            clear_questions(cluster);
            let took = time_median(first, &launcher);
            print_row(title, took, "ms", took / burst, Goal::None);
            let questions = count_questions(cluster);
            let most = questions.iter().max().copied().unwrap_or_default() / ROUNDS;
            let total: usize = questions.iter().sum();
            println!(
                "  questions: {} in all, {most} to one node (predicted: {clients} and {asked})",
                total / ROUNDS
            );
        }
        print_model(one / 1e3, burst / 1e3);
    });
}

/// Prints what the measured login means for clusters that each of their nodes has its own processors.
fn print_model(latency: f64, burst: f64) {
    let processors = std::thread::available_parallelism().unwrap().get();
    let cost = burst / (NODES - 1) as f64 * processors as f64;
    println!(
        "\n1,000 nodes of 64 cores on paper: a login of {:.0} ms and {:.0} ms of processors\n\
         {:<46} {:>12} {:>12} {:>12}",
        latency * 1e3,
        cost * 1e3,
        "",
        "logins/node",
        "questions",
        "last login"
    );
    for (title, fan_out, logins_per_node) in [
        ("flat", 1000.0, 1.0),
        ("a tree of 64", 64.0, 1.0),
        ("a tree of 64, each of 128 ranks by ssh", 64.0, 128.0),
        ("flat, each of 128 ranks by ssh", 1000.0, 128.0),
    ] {
        let model = Model {
            nodes: 1000.0,
            fan_out,
            logins_per_node,
            cores_per_node: 64.0,
            latency,
            cost,
        };
        println!(
            "{title:<46} {logins_per_node:>12} {:>12} {:>10.1} s",
            model.count_questions(),
            model.predict_time()
        );
    }
}

/// Two jobs of alice on each node, so that each login asks for its caller.
fn start_jobs<'a>(cluster: &Cluster<'a>) -> Vec<Job<'a>> {
    let mut jobs = Vec::new();
    for node in cluster.nodes {
        node.configure(CONFIG);
        node.arguments("log_level=quiet");
        for (id, started) in [("4242", 1_795_200_000), ("4250", 1_795_200_100)] {
            jobs.push(node.job(ALICE, id).started(started).start());
        }
    }
    jobs
}

/// Starts the service that tells the job of a connection, and counts its questions.
fn start_service(node: &Node) -> Listener {
    node.write(QUESTIONS, "");
    let id = HELPER.uid.to_string();
    let service = format!(
        "echo >>{QUESTIONS}
         exec setpriv --reuid {id} --regid {id} --clear-groups --no-new-privs job-adopt callerid"
    );
    node.serve("::", PORT, &["sh", "-c", &service])
}

fn clear_questions(cluster: &Cluster<'_>) {
    for node in cluster.nodes {
        node.write(QUESTIONS, "");
    }
}

/// Counts the questions to each node.
fn count_questions(cluster: &Cluster<'_>) -> Vec<usize> {
    cluster
        .nodes
        .iter()
        .map(|node| node.read(QUESTIONS).lines().count())
        .collect()
}

/// Runs a script of the job's owner in the job; returns the median of its times, in milliseconds.
fn time_median(job: &Job<'_>, script: &str) -> f64 {
    let times = (0..ROUNDS).map(|_| {
        let began = Instant::now();
        run_in_job(job, script);
        began.elapsed()
    });
    median(
        times
            .map(|time: Duration| time.as_secs_f64() * 1e3)
            .collect(),
    )
}

fn run_in_job(job: &Job<'_>, script: &str) {
    let id = ALICE.uid.to_string();
    let mut command = job.node().daemon(&job.cgroup, "timeout");
    command.args(["-k", "2", "120", "setpriv", "--reuid", &id, "--regid", &id]);
    command
        .args(["--clear-groups", "bash", "-c", script])
        .env("HOME", ALICE.home())
        .env("USER", ALICE.name);
    Outcome::run(&mut command).ok();
}
