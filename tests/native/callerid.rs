//! The origin's end of caller identity, with real connections between two network namespaces. The
//! client runs in a job's cgroup; the service answers the other host.

use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::time::Duration;

use crate::support::{
    ALICE, BOB, HELPER, Mount, Node, Outcome, ROOT, SPOOL, eventually, on_node, on_node_with,
    origin, retry_until_in_time, timeout_factor,
};
use origin::{Client, HOST, NODE, OTHER, Origin, SSH};

const NETWORKS: &str = "callerid_networks = 10.77.0.0/24, fd77::/64\n";

fn on_origin(body: impl FnOnce(&Node, &Origin<'_>)) {
    on_node(|node| {
        let timeout_ms = (300 * timeout_factor()).min(2000);
        node.configure(&format!("{NETWORKS}callerid_timeout = {timeout_ms}\n"));
        body(node, &Origin::on(node));
    });
}

fn ask_about(client: &Client) -> String {
    format!("{} , {SSH}\\r\\n", client.port)
}

/// Asserts that the only line of the answer is this one about that connection.
#[track_caller]
fn assert_answer(outcome: Outcome, client: &Client, answer: &str) {
    let line = format!("{} , {SSH} : {answer}\r\n", client.port);
    assert_eq!(outcome.stdout, line, "{outcome}");
}

#[test]
fn question_about_connection_of_job_gets_job_id() {
    on_origin(|node, origin| {
        let one = node.job(ALICE, "4242").start();
        let two = node.job(ALICE, "4243").start();
        for (at, family) in ["0.0.0.0", "::"].into_iter().enumerate() {
            let service = origin.service(family);
            for job in [&one, &two] {
                let client = origin.client(ALICE, &job.cgroup, HOST[at]);
                let answer = format!("USERID : OTHER : {}", job.id);
                assert_answer(origin.ask(NODE[at], &ask_about(&client)), &client, &answer);
            }
            if family == "::" {
                // A socket for both families sees an IPv4 host as an IPv6 host.
                for to in [HOST[0], "::ffff:10.77.0.12"] {
                    let client = origin.client(ALICE, &one.cgroup, to);
                    let asked = origin.ask(NODE[0], &ask_about(&client));
                    assert_answer(asked, &client, "USERID : OTHER : 4242");
                }
            }
            drop(service);
        }
        assert_no_fault_was_logged(node);
    });
}

/// A silent step daemon hides only its own job, and no answer comes after the asker has given up
/// (300 ms).
#[test]
fn silent_step_daemon_delays_no_answer() {
    on_origin(|node, origin| {
        node.create_dir(SPOOL, 0o755);
        node.configure(&format!("{NETWORKS}slurm_spool = {SPOOL}\n"));
        let _silent = node.step_alone(BOB, &["hang"]);
        let job = node.job(ALICE, "4243").start();
        let client = origin.client(ALICE, &job.cgroup, HOST[0]);
        let _service = origin.service("0.0.0.0");
        let ask = || origin.ask(NODE[0], &ask_about(&client));
        let asked = retry_until_in_time(Duration::from_millis(900), ask);
        assert!(
            asked.took >= Duration::from_millis(150),
            "the daemon was not asked: {asked}"
        );
        assert_answer(asked, &client, "USERID : OTHER : 4243");
    });
}

#[test]
fn connection_from_cgroup_below_job_belongs_to_job() {
    on_origin(|node, origin| {
        let job = node.job(ALICE, "4242").start();
        let below = job.cgroup.child("step").child("task");
        job.cgroup.child("step").create();
        let client = origin.client(ALICE, below.create(), HOST[0]);
        let _service = origin.service("0.0.0.0");
        let asked = origin.ask(NODE[0], &ask_about(&client));
        assert_answer(asked, &client, "USERID : OTHER : 4242");
        client.end();
    });
}

#[test]
fn connection_without_process_belongs_to_no_job() {
    on_origin(|node, origin| {
        let job = node.job(ALICE, "4242").start();
        let his = node.job(BOB, "777").start();
        let _service = origin.service("::");
        let outside = node.outside();
        for (user, place) in [(ALICE, &outside), (ALICE, &his.cgroup), (ROOT, &job.cgroup)] {
            eprintln!("{} in {}", user.name, place.path());
            let client = origin.client(user, place, HOST[0]);
            let outcome = origin.ask(NODE[0], &ask_about(&client));
            assert_answer(outcome, &client, "ERROR : NO-USER");
        }
        let client = origin.client(ALICE, &job.cgroup, HOST[0]);
        let other_port = format!("{} , {}\\r\\n", client.port, SSH + 1);
        origin.ask(NODE[0], &other_port).says("ERROR : NO-USER");
        let own_port = format!("1 , {SSH}\\r\\n");
        origin.ask(NODE[0], &own_port).says("ERROR : NO-USER");
        let port = client.port;
        client.end();
        origin
            .ask(NODE[0], &format!("{port} , {SSH}\\r\\n"))
            .says("ERROR : NO-USER");
        assert_no_fault_was_logged(node);
    });
}

/// Questions with the right ports, but from or to other addresses than those of the connection.
#[test]
fn question_from_third_host_gets_no_job() {
    on_origin(|node, origin| {
        node.configure("callerid_networks = 10.77.0.0/16, fd77::/64, 127.0.0.0/8\n");
        let job = node.job(ALICE, "4242").start();
        let _service = origin.service("::");
        let client = origin.client(ALICE, &job.cgroup, HOST[0]);
        let asked = |outcome: Outcome| assert_answer(outcome, &client, "ERROR : NO-USER");
        let route = format!("ip route add 10.77.0.11/32 dev eth0 src {OTHER}");
        asked(origin.ask_from(&route, NODE[0], &ask_about(&client)));
        origin
            .ask_from("ip route del 10.77.0.11/32", NODE[0], "1,2\\r\\n")
            .says("NO-USER");
        asked(origin.ask(NODE[1], &ask_about(&client)));
        let script = format!(
            "exec 3<>/dev/tcp/127.0.0.1/113; printf '{}' >&3; cat <&3",
            ask_about(&client)
        );
        asked(node.run("bash", &["-c", &script]));
        let own = origin.ask(NODE[0], &ask_about(&client));
        assert_answer(own, &client, "USERID : OTHER : 4242");
    });
}

#[test]
fn question_from_untrusted_network_gets_no_answer() {
    on_origin(|node, origin| {
        let job = node.job(ALICE, "4242").start();
        let _service = origin.service("::");
        let client = origin.client(ALICE, &job.cgroup, HOST[0]);
        for networks in [
            "",
            "callerid_networks = 10.78.0.0/16\n",
            "callerid_networks = ::/0\n",
        ] {
            node.configure(networks);
            let asked = origin.ask(NODE[0], &ask_about(&client));
            assert_answer(asked, &client, "ERROR : HIDDEN-USER");
        }
        assert_no_fault_was_logged(node);
    });
}

#[test]
fn malformed_question_gets_no_job() {
    on_origin(|node, origin| {
        let job = node.job(ALICE, "4242").start();
        let _service = origin.service("::");
        let client = origin.client(ALICE, &job.cgroup, HOST[0]);
        let port = client.port;
        for bytes in [
            "GET / HTTP/1.0\\r\\n",
            "\\r\\n",
            "\\377\\000\\n",
            "0,0\\r\\n",
        ] {
            let outcome = origin.ask(NODE[0], bytes);
            assert_eq!(
                outcome.stdout, "0 , 0 : ERROR : INVALID-PORT\r\n",
                "{bytes}: {outcome}"
            );
        }
        let blanks = " ".repeat(300);
        let long = format!("{port},{blanks}{SSH}\\r\\n");
        let long = retry_until_in_time(Duration::from_secs(2), || origin.ask(NODE[0], &long));
        assert_eq!(long.stdout, "", "{long}");
        for unfinished in ["", &format!("{port} , {SSH}")] {
            let outcome =
                retry_until_in_time(Duration::from_secs(5), || origin.ask(NODE[0], unfinished));
            assert_eq!(outcome.stdout, "", "{outcome}");
            assert!(outcome.took >= Duration::from_secs(2), "{outcome}");
        }
        node.configure("");
        let silent = retry_until_in_time(Duration::from_millis(1500), || origin.ask(NODE[0], ""));
        assert_eq!(silent.stdout, "", "{silent}");
        assert_no_fault_was_logged(node);
    });
}

/// Together with the limit of connections in the socket unit, this limits the starts per second.
#[test]
fn process_answers_at_once_and_stays_for_5_s() {
    on_origin(|node, origin| {
        let serve = "began=$(date +%s%N); job-adopt callerid
                     echo $((($(date +%s%N) - began) / 1000000)) >>/tmp/took";
        let _service = node.serve("::", 113, &["sh", "-c", serve]);
        let ask = || origin.ask(NODE[0], "1,2\\r\\n").says("NO-USER");
        retry_until_in_time(Duration::from_millis(1900), ask);
        eventually("it has ended", || {
            node.exists("/tmp/took") && !node.read("/tmp/took").is_empty()
        });
        for took in node.read("/tmp/took").lines() {
            assert!(took.parse::<u64>().unwrap() >= 5000, "{took} ms");
        }
    });
}

/// Without the permission to answer the service answers nothing, and the log names the remedy.
#[test]
fn failing_service_logs_fault_and_answers_nothing() {
    on_origin(|node, origin| {
        let job = node.job(ALICE, "4242").start();
        let _service = origin.service("::");
        let client = origin.client(ALICE, &node.outside(), HOST[0]);
        node.configure("callerid_networks = 10.77.0.5/24\n");
        assert_answer(
            origin.ask(NODE[0], &ask_about(&client)),
            &client,
            "ERROR : HIDDEN-USER",
        );
        node.log.line("job_adopt.conf:1: entry");
        node.configure(NETWORKS);
        job.record("{");
        assert_answer(
            origin.ask(NODE[0], &ask_about(&client)),
            &client,
            "ERROR : UNKNOWN-ERROR",
        );
        let line = node.log.line("asker=10.77.0.12");
        assert!(
            line.text.contains("4242.json") && line.is_authpriv(),
            "{}",
            line.text
        );
        assert_eq!(line.severity(), 3);
    });
}

/// Started by root, the service answers the same and no more.
#[test]
fn service_as_root_gives_same_answers() {
    on_origin(|node, origin| {
        let job = node.job(ALICE, "4242").start();
        let _service = origin.service_as("::", &["env"]);
        let client = origin.client(ALICE, &job.cgroup, HOST[0]);
        let asked = origin.ask(NODE[0], &ask_about(&client));
        assert_answer(asked, &client, "USERID : OTHER : 4242");
        let root = origin.client(ROOT, &job.cgroup, HOST[0]);
        assert_answer(
            origin.ask(NODE[0], &ask_about(&root)),
            &root,
            "ERROR : NO-USER",
        );
    });
}

#[test]
fn service_without_connection_fails() {
    on_node_with(Mount::Hybrid, |node| {
        for input in ["/dev/null", "/etc/passwd"] {
            let outcome = node.sh(&format!("job-adopt callerid <{input}")).exits(2);
            outcome
                .says("standard input is no TCP connection")
                .says("job-adopt-callerid(8)");
        }
        node.sh("true | job-adopt callerid").exits(2);
        node.job_adopt(&["callerid", "4242"]).exits(2);
        let outcome = node.job_adopt(&["callerid", "--conf", "here"]).exits(2);
        outcome.says("'here' for '--conf <FILE>': not an absolute path");
        node.job_adopt(&["callerid", "--help"])
            .ok()
            .says("RFC 1413");
    });
}

/// An inetd, or a socket unit without `Accept=`, leaves it to the service to accept.
#[test]
fn listening_socket_is_refused_and_logged() {
    on_node_with(Mount::Hybrid, |node| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut command = node.command("job-adopt");
        command.arg("callerid").stdin(OwnedFd::from(listener));
        Outcome::run(&mut command)
            .exits(2)
            .says("Accept=yes")
            .says("nowait");
        assert_eq!(callerid_lines(node), 1, "{}", node.log);
        assert!(
            node.log
                .entries()
                .iter()
                .any(|entry| entry.text.contains("nowait"))
        );
    });
}

/// A process can end others of its account.
#[test]
fn service_has_another_account_than_helpers() {
    let packaging = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging");
    let read = |file: &str| std::fs::read_to_string(packaging.join(file)).unwrap();
    let unit = read("systemd/job-adopt-callerid@.service");
    let account = unit
        .lines()
        .find_map(|line| line.strip_prefix("User="))
        .unwrap();
    assert_ne!(account, HELPER.name);
    assert!(read("sysusers.d/job-adopt.conf").contains(&format!("\nu {account} - ")));
    assert!(read("account").contains(&format!("\nmake_account {account} ")));
    assert!(read("dbus/job-adopt.conf").contains(&format!("<deny user=\"{account}\"/>")));
}

/// The journal gets two lines for each failed unit, and any host could produce them without end.
#[test]
fn disconnected_caller_is_no_failure() {
    on_origin(|node, _| {
        let serve = "until [ -e /tmp/reset ]; do sleep 0.02; done; job-adopt callerid 2>/tmp/said; echo $? >>/tmp/said";
        let _service = node.serve("127.0.0.1", 113, &["sh", "-c", serve]);
        let reset = "my $s = IO::Socket::INET->new('127.0.0.1:113') or die; \
                     setsockopt($s, SOL_SOCKET, SO_LINGER, pack('ii', 1, 0)); close $s";
        node.run("perl", &["-MIO::Socket::INET", "-e", reset]).ok();
        node.write("/tmp/reset", "");
        eventually("it has ended", || {
            node.exists("/tmp/said") && !node.read("/tmp/said").is_empty()
        });
        assert_eq!(node.read("/tmp/said"), "0\n");
        assert_no_fault_was_logged(node);
    });
}

/// An emulated processor can exceed the service's time, which is logged.
fn assert_no_fault_was_logged(node: &Node) {
    assert!(
        timeout_factor() > 1 || callerid_lines(node) == 0,
        "{}",
        node.log
    );
}

fn callerid_lines(node: &Node) -> usize {
    node.log
        .entries()
        .iter()
        .filter(|entry| entry.text.contains("callerid"))
        .count()
}
