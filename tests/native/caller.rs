//! A login joins the job that its ssh client runs in.

use std::time::Duration;

use crate::support::{ALICE, BOB, Cgroup, Job, Node, Outcome, SPOOL, on_node};

/// Options of the client. Only root can read the key.
const SSH: [&str; 10] = [
    "-F",
    "none",
    "-i",
    "/home/alice/key",
    "-o",
    "BatchMode=yes",
    "-o",
    "StrictHostKeyChecking=no",
    "-o",
    "UserKnownHostsFile=/dev/null",
];
/// Addresses of a login that asks its origin, on the loopback interface.
const CONNECTION: &str = "SSH_CONNECTION=10.1.0.5 5000 10.1.0.6 22";
/// An answer about [`CONNECTION`].
const ANSWER: &str = "5000 , 22 : USERID : OTHER : ";

/// Starts two jobs of ALICE. Returns the older one first; the newer one has the smaller id.
fn start_two_jobs(node: &Node) -> [Job<'_>; 2] {
    let older = node.job(ALICE, "4250").started(1_795_200_000).start();
    [
        older,
        node.job(ALICE, "4242").started(1_795_200_100).start(),
    ]
}

/// Logs ALICE in from a process in that cgroup to the node itself, at that address.
fn login_from(node: &Node, cgroup: &Cgroup, port: u16, address: &str) -> Outcome {
    if !node.exists("/home/alice/key") {
        node.sh("install -o alice -g alice -m 0600 /root/key /home/alice/key")
            .ok();
    }
    let mut command = node.daemon(cgroup, "setpriv");
    command
        .args(["--reuid=alice", "--regid=alice", "--init-groups", "ssh"])
        .args(SSH);
    command.args([
        "-p",
        &port.to_string(),
        &format!("alice@{address}"),
        "cat /proc/self/cgroup; echo $SSH_CONNECTION",
    ]);
    Outcome::run(&mut command)
}

fn logged_rule(node: &Node) -> Option<String> {
    node.log.decision("JA00");
    let entries = node.log.entries();
    let mut rules: Vec<_> = entries
        .iter()
        .filter_map(|entry| entry.field("rule").map(str::to_owned))
        .collect();
    node.log.clear();
    rules.dedup();
    assert!(rules.len() < 2, "{rules:?}");
    rules.pop()
}

#[test]
fn login_from_inside_job_to_same_node_joins_that_job() {
    on_node(|node| {
        let [older, newer] = start_two_jobs(node);
        let _sshd = node.sshd();
        for job in [&older, &newer] {
            login_from(node, &job.cgroup, 22, "127.0.0.1")
                .ok()
                .joins_cgroup(&job.cgroup);
            assert_eq!(logged_rule(node).as_deref(), Some("caller"));
        }
        // A cgroup that the job makes below its own belongs to the job as well.
        let below = older.cgroup.child("rank");
        below.create();
        login_from(node, &below, 22, "127.0.0.1")
            .ok()
            .says("/job-4250");
        assert_eq!(logged_rule(node).as_deref(), Some("caller"));
        login_from(node, &node.outside(), 22, "127.0.0.1")
            .ok()
            .joins_cgroup(&newer.cgroup);
        assert_eq!(logged_rule(node).as_deref(), Some("newest"));
    });
}

#[test]
fn login_over_ipv6_or_dual_stack_socket_joins_job_of_client() {
    on_node(|node| {
        let [older, newer] = start_two_jobs(node);
        let _sshd = node.sshd();
        node.run("ip", &["addr", "add", "fe80::77/64", "dev", "lo"])
            .ok();
        // A socket for both families shows IPv4 peers as mapped addresses (ipv6(7)). The one of
        // sshd does not.
        let dual = ["/usr/sbin/sshd", "-i", "-f", "/etc/ssh/sshd_config"];
        let _sshd_of_both = node.serve("::", 2222, &dual);
        let via = |address: &str| {
            let from = |cgroup: &Cgroup| login_from(node, cgroup, 2222, address).ok();
            from(&node.outside()).joins_cgroup(&newer.cgroup);
            from(&older.cgroup).joins_cgroup(&older.cgroup)
        };
        via("::1").says("::1 ");
        via("127.0.0.1").says("127.0.0.1 ");
        via("fe80::77%lo").says("fe80::77%lo ");
    });
}

/// Slurm's daemon answers about its job; the job of the registry is newer.
#[test]
fn login_from_inside_slurm_job_joins_that_job() {
    on_node(|node| {
        node.create_dir(SPOOL, 0o755);
        node.configure(&format!("slurm_spool = {SPOOL}\n"));
        node.create_dir("/etc/slurm", 0o755);
        node.write("/etc/slurm/slurm.conf", "ClusterName=site\n");
        let step = node.step_alone(ALICE, &[]);
        let newer = node.job(ALICE, "9999").started(4_000_000_000).start();
        let batch = step.job.child("step_batch");
        batch.create();
        let _sshd = node.sshd();
        login_from(node, &batch, 22, "127.0.0.1")
            .ok()
            .joins_cgroup(&step.leaf());
        assert_eq!(logged_rule(node).as_deref(), Some("caller"));
        login_from(node, &newer.cgroup, 22, "127.0.0.1")
            .ok()
            .joins_cgroup(&newer.cgroup);
        assert_eq!(logged_rule(node).as_deref(), Some("caller"));
        login_from(node, &node.outside(), 22, "127.0.0.1")
            .ok()
            .joins_cgroup(&newer.cgroup);
        assert_eq!(logged_rule(node).as_deref(), Some("newest"));
    });
}

#[test]
fn client_in_job_counts_as_choice_where_site_requires_one() {
    on_node(|node| {
        node.arguments("action_unknown=deny");
        let [older, _newer] = start_two_jobs(node);
        let _sshd = node.sshd();
        login_from(node, &older.cgroup, 22, "127.0.0.1")
            .ok()
            .joins_cgroup(&older.cgroup);
        assert_eq!(logged_rule(node).as_deref(), Some("caller"));
        login_from(node, &node.outside(), 22, "127.0.0.1")
            .fails()
            .says("[JA05]");
    });
}

#[test]
fn job_of_client_precedes_chosen_job() {
    on_node(|node| {
        let [older, newer] = start_two_jobs(node);
        let _sshd = node.sshd();
        login_from(node, &node.outside(), 22, "127.0.0.1")
            .ok()
            .joins_cgroup(&newer.cgroup);
        assert_eq!(logged_rule(node).as_deref(), Some("newest"));
        let mut choose = node.daemon(&newer.cgroup, "setpriv");
        choose.args([
            "--reuid=alice",
            "--regid=alice",
            "--init-groups",
            "job-adopt",
            "use",
            "4250",
        ]);
        Outcome::run(&mut choose).ok();
        login_from(node, &newer.cgroup, 22, "127.0.0.1")
            .ok()
            .joins_cgroup(&newer.cgroup);
        assert_eq!(logged_rule(node).as_deref(), Some("caller"));
        login_from(node, &node.outside(), 22, "127.0.0.1")
            .ok()
            .joins_cgroup(&older.cgroup);
        assert_eq!(logged_rule(node).as_deref(), Some("chosen"));
    });
}

#[test]
fn client_in_job_of_another_user_selects_no_job() {
    on_node(|node| {
        let [_older, newer] = start_two_jobs(node);
        let his = node.job(BOB, "7").start();
        let _sshd = node.sshd();
        login_from(node, &his.cgroup, 22, "127.0.0.1")
            .ok()
            .joins_cgroup(&newer.cgroup);
        assert_eq!(logged_rule(node).as_deref(), Some("newest"));
    });
}

const ASKING: &str = "callerid_networks = 10.1.0.0/16\n";
/// A timeout for busy machines.
const PATIENT: &str = "callerid_networks = 10.1.0.0/16\ncallerid_timeout = 2000\n";

/// Runs `body` on a node with two jobs of ALICE and one of BOB, where logins seem to come from
/// 10.1.0.5.
fn on_asking_node(body: impl FnOnce(&Node, [Job<'_>; 2])) {
    on_node(|node| {
        node.reporting("");
        node.configure(PATIENT);
        for address in ["10.1.0.5/32", "10.1.0.6/32"] {
            node.run("ip", &["addr", "add", address, "dev", "lo"]).ok();
        }
        let _his = node.job(BOB, "7").started(1_795_300_000).start();
        body(node, start_two_jobs(node));
    });
}

/// Runs account and session of a login by [`CONNECTION`], while the origin treats the question like
/// this.
fn login_with_origin(node: &Node, manner: &str) -> Outcome {
    let _service = node.serve("10.1.0.5", 113, &["sh", "-c", manner]);
    login_from_origin(node)
}

fn login_from_origin(node: &Node) -> Outcome {
    let phases = ["acct_mgmt", "open_session", "close_session"];
    node.run(
        "pamtester",
        &[&["-E", CONNECTION, "sshd", ALICE.name], &phases[..]].concat(),
    )
}

#[test]
fn login_from_trusted_network_joins_job_that_origin_reports() {
    on_asking_node(|node, [older, newer]| {
        let truth =
            format!("read -r line; echo \"$line\" >/tmp/asked; printf '{ANSWER}4250\\r\\n'");
        login_with_origin(node, &truth)
            .ok()
            .joins_cgroup(&older.cgroup);
        assert_eq!(logged_rule(node).as_deref(), Some("caller"));
        assert_eq!(node.read("/tmp/asked"), "5000 , 22\r\n");
        let connection = "10.1.0.5 5000 10.1.0.6 22";
        let _service = node.serve("10.1.0.5", 113, &["sh", "-c", &truth]);
        let resolved =
            |of: &str| node.job_adopt(&["resolve", "--user", ALICE.name, "--connection", of]);
        resolved(connection)
            .ok()
            .says("caller: 10.1.0.5 says job 4250\nrule: caller (4250)\n")
            .omits("action_unknown");
        let other = "10.2.0.5 5000 10.1.0.6 22";
        let each = "callerid_networks lacks it\nchosen: none\nrule: newest (4242)\n";
        resolved(other)
            .ok()
            .says(each)
            .says("action_unknown=deny")
            .says("JA05");
        resolved("10.1.0.5 5000").exits(2).says("in one word");
        let split = [
            "resolve",
            "--user",
            "alice",
            "--connection",
            "10.1.0.5",
            "5000",
        ];
        node.job_adopt(&split).exits(2).says("5000");
        older.finish();
        std::fs::remove_file(node.path("/tmp/asked")).unwrap();
        login_from_origin(node).ok().joins_cgroup(&newer.cgroup);
        assert_eq!(logged_rule(node).as_deref(), Some("only-job"));
        assert!(!node.exists("/tmp/asked"), "asked for nothing");
    });
}

#[test]
fn lying_or_malformed_origin_leads_to_no_job_of_another_user() {
    on_asking_node(|node, [_older, newer]| {
        let job = |id| format!("read -r line; printf '{ANSWER}{id}\\r\\n'");
        let unfinished = format!("read -r line; printf '{ANSWER}4250'");
        for (manner, warning) in [
            (
                &*job("7"),
                "10.1.0.5 says job 7, which the user has not running here",
            ),
            (
                &job("99"),
                "10.1.0.5 says job 99, which the user has not running here",
            ),
            (
                &job("../4250"),
                "10.1.0.5 gave an answer that is none to this question",
            ),
            (&job("4250").replace("22", "23"), "10.1.0.5 gave an answer"),
            ("head -c 4096 /dev/urandom", "10.1.0.5 "),
            ("exec sleep 30", "10.1.0.5 did not answer in time"),
            (
                "while sleep 0.02; do printf 5; done",
                "10.1.0.5 did not answer in time",
            ),
            ("exec yes", "10.1.0.5 said more than one line"),
            // Unread bytes turn the end of the connection into a reset.
            ("sleep 0.05", "10.1.0.5 hung up"),
            (&unfinished, "10.1.0.5 hung up"),
        ] {
            node.configure(if warning.ends_with("in time") {
                ASKING
            } else {
                PATIENT
            });
            let outcome = login_with_origin(node, manner)
                .ok()
                .joins_cgroup(&newer.cgroup);
            let limit = Duration::from_secs(6);
            assert!(outcome.took < limit, "{manner}: {outcome}");
            node.log.line(&format!("caller: {warning}"));
            assert_eq!(logged_rule(node).as_deref(), Some("newest"), "{manner}");
        }
    });
}

#[test]
fn origin_without_service_logs_no_warning() {
    on_asking_node(|node, [_older, newer]| {
        login_from_origin(node).ok().joins_cgroup(&newer.cgroup);
        assert_eq!(logged_rule(node).as_deref(), Some("newest"));
        login_with_origin(
            node,
            "read -r line; printf '5000 , 22 : ERROR : NO-USER\\r\\n'",
        )
        .ok();
        node.log.decision("JA00");
        assert!(!node.log.to_string().contains("caller: "), "{}", node.log);
    });
}
