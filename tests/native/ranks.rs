//! Two jobs of one user on the same nodes: a rank joins the job of its launcher.

use crate::support::{ALICE, BOB, Cluster, HELPER, Job, Listener, Node, Outcome, User, on_cluster};

const NETWORKS: &str = "callerid_networks = 10.77.0.0/24, fd77::/64\n";
/// A timeout for busy machines.
const PATIENCE: &str = "callerid_timeout = 2000\n";
/// The port on which a node answers questions about its connections.
const PORT: u16 = 113;
/// Maximum milliseconds of a phase whose answer never comes: the timeout of 300, and the delays of
/// a busy machine. Without a timeout of its own the question would take all of the phase's 5000.
const PHASE: u32 = 4000;

/// Two jobs of alice on every node, and a newer one of bob.
struct Jobs<'a> {
    older: Vec<Job<'a>>,
    newer: Vec<Job<'a>>,
    _his: Vec<Job<'a>>,
}

fn start_jobs<'a>(cluster: &Cluster<'a>) -> Jobs<'a> {
    let everywhere = |owner: User, id: &str, gpu: &str, started: i64| -> Vec<Job<'a>> {
        let job = |node: &'a Node| node.job(owner, id).devices(&[gpu]).started(started).start();
        cluster.nodes.iter().map(job).collect()
    };
    let config = format!("{NETWORKS}{PATIENCE}");
    cluster
        .nodes
        .iter()
        .for_each(|node| node.configure(&config));
    // The newer job has the smaller id, so that sorting names cannot find it.
    Jobs {
        older: everywhere(ALICE, "4250", "/dev/nvidia0", 1_795_200_000),
        newer: everywhere(ALICE, "4242", "/dev/nvidia1", 1_795_200_100),
        _his: everywhere(BOB, "4300", "/dev/nvidia2", 1_795_200_200),
    }
}

/// Runs a script inside the job, as its scheduler starts one.
fn run_inside(job: &Job<'_>, script: &str) -> Outcome {
    let id = job.owner.uid.to_string();
    let mut command = job.node().daemon(&job.cgroup, "timeout");
    command.args([
        "-k",
        "2",
        "50",
        "setpriv",
        "--reuid",
        &id,
        "--regid",
        &id,
        "--clear-groups",
    ]);
    command
        .args(["sh", "-c", script])
        .env("HOME", job.owner.home())
        .env("USER", job.owner.name);
    Outcome::run(&mut command)
}

/// Returns the output of a rank in that job.
fn rank_in(job: &Job<'_>, gpu: &str) -> String {
    format!("rank {} {} {gpu}\n", job.node().name(), job.cgroup.path())
}

/// Starts a rank on the other node from inside `job`; returns the rule by which it joined, and the
/// job.
#[track_caller]
fn start_rank(cluster: &Cluster<'_>, job: &Job<'_>, host: &str) -> (String, String) {
    let node = &cluster.nodes[1];
    node.log.clear();
    run_inside(job, &format!("ssh {host} rank"))
        .ok()
        .says("rank gpu018 ");
    let session = node.log.find("the session's decision", |entry| {
        entry.text.contains("decision=adopt") && entry.field("phase") == Some("session")
    });
    for entry in node.log.entries() {
        if let Some(spent) = entry.field("ms") {
            assert!(spent.parse::<u32>().unwrap() < PHASE, "{}", entry.text);
        }
    }
    (
        session.field("rule").unwrap().to_owned(),
        session.field("job").unwrap().to_owned(),
    )
}

/// Starts the service as its own account.
fn start_service(node: &Node) -> Listener {
    let id = HELPER.uid.to_string();
    let account = ["setpriv", "--reuid", &id, "--regid", &id, "--clear-groups"];
    let program = ["--no-new-privs", "job-adopt", "callerid"];
    node.serve("::", PORT, &[&account[..], &program].concat())
}

/// Returns a script that answers every question with this job, whoever owns it.
fn answer_script(job: &str) -> String {
    format!(r#"read -r ports; printf '%s : USERID : OTHER : {job}\r\n' "${{ports%?}}""#)
}

/// Both jobs start ranks everywhere at once, from the first node. Asserts that all ranks are in
/// their launcher's job.
#[track_caller]
fn launch_from_both(cluster: &Cluster<'_>, jobs: &Jobs<'_>) {
    for launcher in [
        "timeout -k 2 120 mpirun --host gpu017:2,gpu018:2 -n 4 rank",
        "timeout -k 2 120 mpiexec.hydra -launcher ssh -hosts gpu017,gpu018 -ppn 2 -n 4 rank",
        "timeout -k 2 120 pdsh -R ssh -N -w gpu017,gpu018,gpu017-v6,gpu018-v6 rank",
    ] {
        let (older, newer) = std::thread::scope(|scope| {
            let newer = scope.spawn(|| run_inside(&jobs.newer[0], launcher).ok());
            (
                run_inside(&jobs.older[0], launcher).ok(),
                newer.join().unwrap(),
            )
        });
        for (launched, pair, gpu) in [
            (older, &jobs.older, "/dev/nvidia0"),
            (newer, &jobs.newer, "/dev/nvidia1"),
        ] {
            for job in pair {
                let ranks = launched.stdout.matches(&rank_in(job, gpu)).count();
                assert_eq!(ranks, 2, "on {}: {launched}", job.node().name());
            }
        }
    }
    let rules = cluster.nodes[1].log.entries();
    let rules: Vec<&str> = rules
        .iter()
        .filter_map(|entry| entry.field("rule"))
        .collect();
    assert!(
        !rules.is_empty() && rules.iter().all(|rule| *rule == "caller"),
        "{rules:?}"
    );
}

#[test]
fn ranks_of_two_jobs_join_job_of_their_launcher() {
    on_cluster(2, |cluster| {
        let jobs = start_jobs(cluster);
        let _services: Vec<Listener> = cluster.nodes.iter().map(start_service).collect();
        for job in [&jobs.older[0], &jobs.newer[0]] {
            // The first login attaches the filter, as register would do for a real job.
            run_inside(job, "ssh gpu017 true").ok();
        }
        launch_from_both(cluster, &jobs);
    });
}

/// Hundreds of nodes ask the launching one, so that a second question for each login would halve what its
/// service can take.
#[test]
fn login_asks_host_of_its_client_once() {
    on_cluster(2, |cluster| {
        let jobs = start_jobs(cluster);
        let questions = "/tmp/questions";
        let script = format!("echo >>{questions}; {}", answer_script(&jobs.older[0].id));
        let _service = cluster.nodes[0].serve("::", PORT, &["sh", "-c", &script]);
        let expected = ("caller".to_owned(), jobs.older[0].id.clone());
        assert_eq!(start_rank(cluster, &jobs.older[0], "gpu018"), expected);
        assert_eq!(cluster.nodes[0].read(questions).lines().count(), 1);
    });
}

#[test]
fn login_of_node_to_itself_needs_no_service() {
    on_cluster(2, |cluster| {
        let jobs = start_jobs(cluster);
        for job in [&jobs.older[1], &jobs.newer[1]] {
            for host in ["gpu018", "gpu018-v6", "127.0.0.1", "::1"] {
                assert_eq!(
                    start_rank(cluster, job, host),
                    ("caller".into(), job.id.clone()),
                    "{host}"
                );
            }
        }
    });
}

#[test]
fn connection_belongs_to_job_of_its_client() {
    on_cluster(3, |cluster| {
        let jobs = start_jobs(cluster);
        let _services: Vec<Listener> = cluster.nodes.iter().map(start_service).collect();
        // Through a node, by the login to the job there.
        let jump = run_inside(&jobs.older[0], "ssh -J gpu018 gpu019 rank").ok();
        jump.says(&rank_in(&jobs.older[2], "/dev/nvidia0"));
        // Through a connection that another job has left open.
        let share = "ssh -M -S /home/alice/mux -o ControlPersist=20 gpu018 rank";
        run_inside(&jobs.older[0], share)
            .ok()
            .says(&rank_in(&jobs.older[1], "/dev/nvidia0"));
        let shared = run_inside(&jobs.newer[0], "ssh -S /home/alice/mux gpu018 rank").ok();
        shared.says(&rank_in(&jobs.older[1], "/dev/nvidia0"));
        let own = "ssh -o ControlPath=none gpu018 rank";
        run_inside(&jobs.newer[0], own)
            .ok()
            .says(&rank_in(&jobs.newer[1], "/dev/nvidia1"));
    });
}

#[test]
fn ranks_without_service_join_newest_job() {
    on_cluster(2, |cluster| {
        let jobs = start_jobs(cluster);
        assert_eq!(
            start_rank(cluster, &jobs.older[0], "gpu018"),
            ("newest".into(), "4242".into())
        );
    });
}

#[test]
fn lying_service_leads_to_no_job_of_another_user() {
    on_cluster(2, |cluster| {
        let jobs = start_jobs(cluster);
        let newest = ("newest".to_owned(), "4242".to_owned());
        let node = &cluster.nodes[0];
        let slowly = format!(
            r#"line=$({}); while [ "$line" ]; do
                rest=${{line#?}}; printf %s "${{line%"$rest"}}"; line=$rest; sleep 0.1
            done; echo"#,
            answer_script("4250")
        );
        for (manner, warning) in [
            (
                &*answer_script("4300"),
                "says job 4300, which the user has not running here",
            ),
            (
                &answer_script("no-such-job"),
                "says job no-such-job, which the user has not running here",
            ),
            ("head -c 4096 /dev/urandom", ""),
            ("exec sleep 60", "did not answer in time"),
            ("exec yes", "said more than one line"),
            (&slowly, "did not answer in time"),
        ] {
            let timeout_factor = if warning.ends_with("in time") {
                ""
            } else {
                PATIENCE
            };
            cluster.nodes[1].configure(&format!("{NETWORKS}{timeout_factor}"));
            let _service = node.serve("::", PORT, &["sh", "-c", manner]);
            assert_eq!(
                start_rank(cluster, &jobs.older[0], "gpu018"),
                newest,
                "{manner}"
            );
            cluster.nodes[1]
                .log
                .line(&format!("caller: 10.77.0.17 {warning}"));
        }
    });
}

#[test]
fn process_of_user_on_service_port_leads_only_to_own_jobs() {
    on_cluster(2, |cluster| {
        let jobs = start_jobs(cluster);
        let node = &cluster.nodes[0];
        node.sh("echo 0 >/proc/sys/net/ipv4/ip_unprivileged_port_start")
            .ok();
        for (user, id, expected) in [
            (ALICE, "4250", ("caller", "4250")),
            (ALICE, "4242", ("caller", "4242")),
            (ALICE, "4300", ("newest", "4242")),
            (BOB, "4300", ("newest", "4242")),
        ] {
            let _service = node.serve_as(user, "::", PORT, &["sh", "-c", &answer_script(id)]);
            let (rule, job) = start_rank(cluster, &jobs.older[0], "gpu018");
            assert_eq!(
                (rule.as_str(), job.as_str()),
                expected,
                "{} says {id}",
                user.name
            );
        }
    });
}
