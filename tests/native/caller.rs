//! A login joins the job that its ssh client runs in.

use std::time::Duration;

use crate::support::{ALICE, BOB, Cgroup, Job, Node, Outcome, SPOOL, on_node};

/// How the client is run: the key is for root only.
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
/// Who asks, by the addresses of the loopback interface, and from where.
const CONNECTION: &str = "SSH_CONNECTION=10.1.0.5 5000 10.1.0.6 22";
/// An answer to it.
const ANSWER: &str = "5000 , 22 : USERID : OTHER : ";

/// Of two jobs of ALICE's the older one; the newer one has the smaller id.
fn jobs(node: &Node) -> [Job<'_>; 2] {
    let older = node.job(ALICE, "4250").started(1_795_200_000).start();
    [older, node.job(ALICE, "4242").started(1_795_200_100).start()]
}

/// A login of ALICE's from a process of hers in that cgroup, to the node itself at that address.
fn login_from(node: &Node, cgroup: &Cgroup, port: u16, address: &str) -> Outcome {
    if !node.exists("/home/alice/key") {
        node.sh("install -o alice -g alice -m 0600 /root/key /home/alice/key").ok();
    }
    let mut command = node.daemon(cgroup, "setpriv");
    command.args(["--reuid=alice", "--regid=alice", "--init-groups", "ssh"]).args(SSH);
    command.args([
        "-p",
        &port.to_string(),
        &format!("alice@{address}"),
        "cat /proc/self/cgroup; echo $SSH_CONNECTION",
    ]);
    Outcome::run(&mut command)
}

fn rule(node: &Node) -> Option<String> {
    node.log.decision("JA00");
    let entries = node.log.entries();
    let mut rules: Vec<_> =
        entries.iter().filter_map(|entry| entry.field("rule").map(str::to_owned)).collect();
    node.log.clear();
    rules.dedup();
    assert!(rules.len() < 2, "{rules:?}");
    rules.pop()
}

#[test]
fn a_login_from_inside_a_job_to_its_own_node_joins_it() {
    on_node(|node| {
        let [older, newer] = jobs(node);
        let _sshd = node.sshd();
        for job in [&older, &newer] {
            login_from(node, &job.cgroup, 22, "127.0.0.1").ok().stands_in(&job.cgroup);
            assert_eq!(rule(node).as_deref(), Some("caller"));
        }
        // What a job makes below its own cgroup is the job's as well.
        let below = older.cgroup.child("rank");
        below.create();
        login_from(node, &below, 22, "127.0.0.1").ok().says("/job-4250");
        assert_eq!(rule(node).as_deref(), Some("caller"));
        login_from(node, &node.outside(), 22, "127.0.0.1").ok().stands_in(&newer.cgroup);
        assert_eq!(rule(node).as_deref(), Some("newest"));
    });
}

#[test]
fn so_does_one_by_ipv6_and_one_to_a_socket_of_both() {
    on_node(|node| {
        let [older, newer] = jobs(node);
        let _sshd = node.sshd();
        node.run("ip", &["addr", "add", "fe80::77/64", "dev", "lo"]).ok();
        // One that listens for both has IPv4 with mapped addresses (ipv6(7)); sshd's own does not.
        let dual = ["/usr/sbin/sshd", "-i", "-f", "/etc/ssh/sshd_config"];
        let _sshd_of_both = node.serve("::", 2222, &dual);
        let via = |address: &str| {
            let from = |cgroup: &Cgroup| login_from(node, cgroup, 2222, address).ok();
            from(&node.outside()).stands_in(&newer.cgroup);
            from(&older.cgroup).stands_in(&older.cgroup)
        };
        via("::1").says("::1 ");
        via("127.0.0.1").says("127.0.0.1 ");
        via("fe80::77%lo").says("fe80::77%lo ");
    });
}

/// Slurm's daemon says where the job is; the registry's job is newer.
#[test]
fn so_does_one_from_inside_a_job_of_slurms() {
    on_node(|node| {
        node.folder(SPOOL, 0o755);
        node.configure(&format!("slurm_spool = {SPOOL}\n"));
        node.folder("/etc/slurm", 0o755);
        node.write("/etc/slurm/slurm.conf", "ClusterName=site\n");
        let step = node.step_alone(ALICE, &[]);
        let newer = node.job(ALICE, "9999").started(4_000_000_000).start();
        let batch = step.job.child("step_batch");
        batch.create();
        let _sshd = node.sshd();
        login_from(node, &batch, 22, "127.0.0.1").ok().stands_in(&step.leaf());
        assert_eq!(rule(node).as_deref(), Some("caller"));
        login_from(node, &newer.cgroup, 22, "127.0.0.1").ok().stands_in(&newer.cgroup);
        assert_eq!(rule(node).as_deref(), Some("caller"));
        login_from(node, &node.outside(), 22, "127.0.0.1").ok().stands_in(&newer.cgroup);
        assert_eq!(rule(node).as_deref(), Some("newest"));
    });
}

#[test]
fn where_the_site_wants_a_choice_the_client_is_one() {
    on_node(|node| {
        node.arguments("action_unknown=deny");
        let [older, _newer] = jobs(node);
        let _sshd = node.sshd();
        login_from(node, &older.cgroup, 22, "127.0.0.1").ok().stands_in(&older.cgroup);
        assert_eq!(rule(node).as_deref(), Some("caller"));
        login_from(node, &node.outside(), 22, "127.0.0.1").fails().says("[JA05]");
    });
}

#[test]
fn the_job_of_the_client_comes_before_the_one_that_was_chosen() {
    on_node(|node| {
        let [older, newer] = jobs(node);
        let _sshd = node.sshd();
        login_from(node, &node.outside(), 22, "127.0.0.1").ok().stands_in(&newer.cgroup);
        assert_eq!(rule(node).as_deref(), Some("newest"));
        let mut choose = node.daemon(&newer.cgroup, "setpriv");
        choose
            .args(["--reuid=alice", "--regid=alice", "--init-groups", "job-adopt", "use", "4250"]);
        Outcome::run(&mut choose).ok();
        login_from(node, &newer.cgroup, 22, "127.0.0.1").ok().stands_in(&newer.cgroup);
        assert_eq!(rule(node).as_deref(), Some("caller"));
        login_from(node, &node.outside(), 22, "127.0.0.1").ok().stands_in(&older.cgroup);
        assert_eq!(rule(node).as_deref(), Some("chosen"));
    });
}

#[test]
fn a_client_in_another_users_job_is_in_none_of_hers() {
    on_node(|node| {
        let [_older, newer] = jobs(node);
        let his = node.job(BOB, "7").start();
        let _sshd = node.sshd();
        login_from(node, &his.cgroup, 22, "127.0.0.1").ok().stands_in(&newer.cgroup);
        assert_eq!(rule(node).as_deref(), Some("newest"));
    });
}

const ASKING: &str = "callerid_networks = 10.1.0.0/16\n";
/// An answer may take its time on a busy machine.
const PATIENT: &str = "callerid_networks = 10.1.0.0/16\ncallerid_timeout = 2000\n";

/// A node with jobs of ALICE's and one of BOB's, on which logins seem to come from 10.1.0.5.
fn on_asking_node(body: impl FnOnce(&Node, [Job<'_>; 2])) {
    on_node(|node| {
        node.reporting("");
        node.configure(PATIENT);
        for address in ["10.1.0.5/32", "10.1.0.6/32"] {
            node.run("ip", &["addr", "add", address, "dev", "lo"]).ok();
        }
        let _his = node.job(BOB, "7").started(1_795_300_000).start();
        body(node, jobs(node));
    });
}

/// Account and session of a login by [`CONNECTION`], while the origin does this to who asks.
fn answered(node: &Node, manner: &str) -> Outcome {
    let _service = node.serve("10.1.0.5", 113, &["sh", "-c", manner]);
    from_origin(node)
}

fn from_origin(node: &Node) -> Outcome {
    let phases = ["acct_mgmt", "open_session", "close_session"];
    node.run("pamtester", &[&["-E", CONNECTION, "sshd", ALICE.name], &phases[..]].concat())
}

#[test]
fn the_origin_is_asked() {
    on_asking_node(|node, [older, newer]| {
        let truth =
            format!("read -r line; echo \"$line\" >/tmp/asked; printf '{ANSWER}4250\\r\\n'");
        answered(node, &truth).ok().stands_in(&older.cgroup);
        assert_eq!(rule(node).as_deref(), Some("caller"));
        assert_eq!(node.read("/tmp/asked"), "5000 , 22\r\n");
        let connection = "10.1.0.5 5000 10.1.0.6 22";
        let _service = node.serve("10.1.0.5", 113, &["sh", "-c", &truth]);
        let resolved = |connection| {
            node.job_adopt(&["resolve", "--user", ALICE.name, "--connection", connection])
        };
        resolved(connection)
            .ok()
            .says("caller: 10.1.0.5 says job 4250\nrule: caller (4250)\n")
            .omits("action_unknown");
        let other = "10.2.0.5 5000 10.1.0.6 22";
        let each = "callerid_networks lacks it\nchosen: none\nrule: newest (4242)\n";
        resolved(other).ok().says(each).says("action_unknown=deny").says("JA05");
        resolved("10.1.0.5 5000").exits(2).says("in one word");
        let split = ["resolve", "--user", "alice", "--connection", "10.1.0.5", "5000"];
        node.job_adopt(&split).exits(2).says("5000");
        older.finish();
        std::fs::remove_file(node.path("/tmp/asked")).unwrap();
        from_origin(node).ok().stands_in(&newer.cgroup);
        assert_eq!(rule(node).as_deref(), Some("only-job"));
        assert!(!node.exists("/tmp/asked"), "asked for nothing");
    });
}

#[test]
fn an_origin_that_lies_or_babbles_gets_nobody_into_another_users_job() {
    on_asking_node(|node, [_older, newer]| {
        let job = |id| format!("read -r line; printf '{ANSWER}{id}\\r\\n'");
        let unfinished = format!("read -r line; printf '{ANSWER}4250'");
        for (manner, warning) in [
            (&*job("7"), "10.1.0.5 says job 7, which the user has not running here"),
            (&job("99"), "10.1.0.5 says job 99, which the user has not running here"),
            (&job("../4250"), "10.1.0.5 gave an answer that is none to this question"),
            (&job("4250").replace("22", "23"), "10.1.0.5 gave an answer"),
            ("head -c 4096 /dev/urandom", "10.1.0.5 "),
            ("exec sleep 30", "10.1.0.5 did not answer in time"),
            ("while sleep 0.02; do printf 5; done", "10.1.0.5 did not answer in time"),
            ("exec yes", "10.1.0.5 said more than one line"),
            // What was not read makes the end of the connection a reset.
            ("sleep 0.05", "10.1.0.5 hung up"),
            (&unfinished, "10.1.0.5 hung up"),
        ] {
            node.configure(if warning.ends_with("in time") { ASKING } else { PATIENT });
            let outcome = answered(node, manner).ok().stands_in(&newer.cgroup);
            let limit = Duration::from_secs(6);
            assert!(outcome.took < limit, "{manner}: {outcome}");
            node.log.line(&format!("caller: {warning}"));
            assert_eq!(rule(node).as_deref(), Some("newest"), "{manner}");
        }
    });
}

#[test]
fn an_origin_without_the_service_is_nothing_to_warn_of() {
    on_asking_node(|node, [_older, newer]| {
        from_origin(node).ok().stands_in(&newer.cgroup);
        assert_eq!(rule(node).as_deref(), Some("newest"));
        answered(node, "read -r line; printf '5000 , 22 : ERROR : NO-USER\\r\\n'").ok();
        node.log.decision("JA00");
        assert!(!node.log.to_string().contains("caller: "), "{}", node.log);
    });
}
