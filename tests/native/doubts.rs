//! Jobs about which nobody answers put their own users in doubt, and cost no other user's epilog.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::support::{
    ALICE, BOB, CAROL, Node, Process, SPOOL, Step, Tool, User, eventually, on_node,
};

const STAYS: &str = "exec sleep infinity";

/// Runs `body` on a node with a job of alice in Slurm, whose daemon has this fault.
fn on_slurm(faults: &[&str], body: impl FnOnce(&Node, &Step)) {
    on_node(|node| {
        node.create_dir(SPOOL, 0o755);
        node.configure(&format!("slurm_spool = {SPOOL}\n"));
        let step = node.step_alone(ALICE, faults);
        body(node, &step);
    });
}

/// Starts a process of alice in the first step of her job.
fn start_task(node: &Node, step: &Step) -> Process {
    let step = step.job.child("step_0");
    Process::start_in(node, step.create(), ALICE, STAYS)
}

/// Ends the strays of a user; asserts that this succeeds, or that the user's job is in doubt.
#[track_caller]
fn end_strays(node: &Node, user: User, is_in_doubt: bool) {
    let stray = Process::new(node, user, STAYS);
    let uid = user.uid.to_string();
    let outcome = node.job_adopt(&["strays", "--kill", "--uid", &uid]);
    if is_in_doubt {
        outcome
            .exits(3)
            .says("tell who has a job")
            .says("did not answer in time");
        assert!(stray.runs());
    } else {
        outcome.ok();
        eventually("the stray has ended", || !stray.runs());
    }
}

#[test]
fn silent_daemon_of_one_user_stops_no_epilog_of_another() {
    on_slurm(&["hang"], |node, step| {
        let task = start_task(node, step);
        end_strays(node, BOB, false);
        end_strays(node, ALICE, true);
        let strays = [ALICE, BOB].map(|user| Process::new(node, user, STAYS));
        node.job_adopt(&["strays", "--kill"])
            .exits(3)
            .says("did not answer in time");
        eventually("bob's has ended", || !strays[1].runs());
        assert!(strays[0].runs() && task.runs(), "alice may have a job");
        let _job = node.job(BOB, "7").start();
        let stray = Process::new(node, BOB, STAYS);
        node.job_adopt(&["unregister", "--strays", "7"]).ok();
        eventually("bob's has ended", || !stray.runs());
        node.job_adopt(&["list", "--user", "bob"])
            .ok()
            .omits("did not answer");
        node.job_adopt(&["list"])
            .exits(3)
            .says("did not answer in time");
    });
}

/// As in an allocation in which nothing runs. Slurm's prolog has written the record.
#[test]
fn silent_daemon_of_job_with_processes_of_root_alone_is_its_recorded_owners() {
    on_slurm(&["hang"], |node, _step| {
        end_strays(node, BOB, true);
        let record = r#"{"version":1,"id":"4242","uid":1001,"via":"slurm","options":{"DevicePolicy":"auto"}}"#;
        node.write_root_file("/run/job-adopt/jobs/1001/4242.json", record);
        end_strays(node, BOB, false);
        end_strays(node, ALICE, true);
    });
}

/// On a node without that prolog, Slurm's controller knows.
#[test]
fn silent_daemon_of_job_with_processes_of_root_alone_is_its_owners_by_the_controller() {
    on_slurm(&["hang"], |node, _step| {
        let answer = |text: &str| {
            node.write("/usr/bin/squeue", &format!("#!/bin/sh\n{text}\n"));
            node.set_mode("/usr/bin/squeue", 0o755);
        };
        answer("echo 4242 1001");
        end_strays(node, BOB, false);
        end_strays(node, ALICE, true);
        for nothing in ["echo 4243 1001", "echo 4242 1001; exit 1", "sleep 60"] {
            answer(nothing);
            end_strays(node, BOB, true);
        }
    });
}

/// Any user can connect to the socket. Then nobody else can, and no connection shows the daemon's process.
#[test]
fn daemon_with_full_queue_stops_no_epilog_of_another() {
    on_slurm(&[], |node, step| {
        let _task = start_task(node, step);
        step.signal(Signal::SIGSTOP);
        node.create_dir("/tmp", 0o1777);
        let fill = format!(
            "exec perl -MSocket=:all -e '
                for (1..1000) {{
                    socket($fd[$_], AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0) or die;
                    connect($fd[$_], pack_sockaddr_un(\"{SPOOL}/gpu017_4242.4294967292\")) or last;
                }}
                open($done, \">/tmp/full\"); close($done); sleep 1000'"
        );
        let _connections = Process::new(node, ALICE, &fill);
        eventually("the queue is full", || node.exists("/tmp/full"));
        end_strays(node, BOB, false);
        end_strays(node, ALICE, true);
    });
}

/// Step daemons that end when this is dropped.
struct Daemons(Child);

impl Drop for Daemons {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start_daemons(node: &Node, arguments: &[&str]) -> Daemons {
    node.install(&Tool::Stepds.path(), "/usr/bin/stepds");
    let mut command = node.daemon(&node.outside(), "stepds");
    command.args([SPOOL, "gpu017"]).args(arguments);
    let mut daemons = Daemons(command.stdout(Stdio::piped()).spawn().unwrap());
    let mut ready = String::new();
    BufReader::new(daemons.0.stdout.take().unwrap())
        .read_line(&mut ready)
        .unwrap();
    assert_eq!(ready, "ready\n");
    daemons
}

/// 1,000 jobs, of which 100 have a daemon that does not answer. It is waited for a second in all, by each call.
#[test]
fn hundred_silent_daemons_cost_an_epilog_of_another_one_second() {
    on_node(|node| {
        node.create_dir(SPOOL, 0o755);
        node.configure(&format!("slurm_spool = {SPOOL}\n"));
        let _answering = start_daemons(node, &["101", "900", &CAROL.uid.to_string()]);
        // It takes more than SIGTERM, so that the processes are searched for many times.
        let deaf = "trap '' TERM; while :; do sleep 1; done";
        let arguments = ["strays", "--kill", "--uid", &BOB.uid.to_string()];
        let ask = || {
            let outcome = node.job_adopt(&arguments);
            (outcome.code == 0).then_some(outcome.took)
        };
        let end = || {
            let stray = Process::new(node, BOB, deaf);
            let took = ask()?;
            assert!(!stray.runs());
            Some(took)
        };
        // Other programs may take the processors during a call: then it is longer, or one of the daemons that answer does so
        // too late.
        let shortest = |call: &dyn Fn() -> Option<Duration>| {
            let answered = (0..12).filter_map(|_| call()).take(3);
            answered.min().expect("no call succeeds")
        };
        let alone = shortest(&end);
        let jobs = node.cgroup().child("jobs");
        let dir = format!("/sys/fs/cgroup{}", jobs.path());
        let silent = start_daemons(node, &["1", "100", &ALICE.uid.to_string(), &dir]);
        let beside = shortest(&end);
        eprintln!("{alone:?}, and {beside:?} beside 100 silent daemons");
        // As long as for a bob without a process outside of jobs, who waits for nobody.
        let nothing = shortest(&ask);
        eprintln!("{nothing:?} without a stray");
        drop(silent);
        jobs.kill();
        for job in jobs.children() {
            job.remove();
        }
        assert!(
            beside < alone + Duration::from_millis(2500),
            "{alone:?}, and {beside:?} beside 100 silent daemons"
        );
        assert!(nothing < Duration::from_millis(1500), "{nothing:?}");
    });
}
