//! Cgroups that `register` refuses, and what a command of `run` inherits from root.

use crate::support::{ALICE, BOB, Cgroup, Job, Node, eventually, on_node};

fn register_path(node: &Node, path: &str) -> crate::support::Outcome {
    node.job_adopt(&[
        "register", "--id", "7", "--user", "alice", "--policy", "closed", "--cgroup", path,
    ])
}

/// Asserts that the cgroup is refused for this reason and left unchanged.
fn assert_register_refused(node: &Node, path: &str, why: &str) {
    register_path(node, path)
        .exits(3)
        .says("process ")
        .says(why);
    assert!(!node.exists("/run/job-adopt/jobs/1001/7.json"));
    node.run(
        "getfattr",
        &["-n", "trusted.job_adopt", &format!("/sys/fs/cgroup{path}")],
    )
    .fails();
}

fn start_unregistered_job<'a>(node: &'a Node, owner: crate::support::User) -> Job<'a> {
    node.job(owner, "7").unstamped().unrecorded().start()
}

#[test]
fn cgroup_of_caller_is_not_registered() {
    on_node(|node| {
        assert_register_refused(node, node.outside().path(), "in it is ");
        let _job = start_unregistered_job(node, ALICE);
        assert_register_refused(node, node.cgroup().path(), "in it is ");
    });
}

#[test]
fn cgroup_of_another_user_is_not_registered() {
    on_node(|node| {
        assert_register_refused(
            node,
            start_unregistered_job(node, BOB).cgroup.path(),
            "belongs to uid 1002",
        )
    });
}

#[test]
fn cgroup_of_sshd_is_not_registered() {
    on_node(|node| {
        let job = start_unregistered_job(node, ALICE);
        let _sshd = node.sshd();
        let move_server = "cat /run/sshd.pid >/sys/fs/cgroup$0/cgroup.procs";
        node.run("sh", &["-c", move_server, job.cgroup.path()]).ok();
        assert_register_refused(node, job.cgroup.path(), "sshd");
    });
}

#[test]
fn running_job_is_registered_again() {
    on_node(|node| {
        let job = start_unregistered_job(node, ALICE);
        register_path(node, job.cgroup.path()).ok();
        let sshd = node.sshd();
        let mut login = sshd.stay(ALICE, "exec sleep infinity");
        eventually("the login has joined", || job.cgroup.pids().len() > 2);
        register_path(node, job.cgroup.path()).ok();
        node.unregister("7").ok();
        let _ = login.wait();
    });
}

#[test]
fn stamp_of_unknown_job_is_replaced() {
    on_node(|node| {
        let job = start_unregistered_job(node, ALICE);
        job.stamp("1002:99");
        register_path(node, job.cgroup.path()).ok();
        node.pam(ALICE).ok().says("Joined job 7");
    });
}

#[test]
fn stamp_of_registered_job_is_kept() {
    on_node(|node| {
        let theirs = node.job(BOB, "99").start();
        register_path(node, theirs.cgroup.path())
            .exits(3)
            .says("the cgroup of job 99");
    });
}

/// A login would be in both jobs.
#[test]
fn cgroup_above_or_below_registered_job_is_refused() {
    on_node(|node| {
        let job = start_unregistered_job(node, ALICE);
        let below = job.cgroup.child("below");
        let theirs = node.job(ALICE, "99").in_cgroup(below.clone()).start();
        register_path(node, job.cgroup.path())
            .exits(3)
            .says("the cgroup of job 99");
        // The stamp of a record that cannot be used counts as long as the record names its cgroup.
        theirs.record(&format!(r#"{{"version":9,"cgroup":"{}"}}"#, below.path()));
        register_path(node, job.cgroup.path())
            .exits(3)
            .says("the cgroup of job 99");
        // Of one that names none, the stamp is searched for.
        theirs.record("{");
        register_path(node, job.cgroup.path())
            .exits(3)
            .says(below.path())
            .says("1001/99.json");
        let elsewhere = node.job(ALICE, "98").unstamped().unrecorded().start();
        register_path(node, elsewhere.cgroup.path()).ok();
        node.unregister("7").ok();
        let many = "mkdir $(seq -f /sys/fs/cgroup$0/%g 1000)";
        node.run("sh", &["-c", many, elsewhere.cgroup.path()]).ok();
        register_path(node, elsewhere.cgroup.path())
            .exits(3)
            .says("too many cgroups");
        node.run(
            "sh",
            &[
                "-c",
                &many.replace("mkdir", "rmdir"),
                elsewhere.cgroup.path(),
            ],
        )
        .ok();
        node.sh(&format!("rm {}", theirs.record_path())).ok();
        register_path(node, job.cgroup.path()).ok();
        let register = [
            "register", "--id", "98", "--user", "alice", "--policy", "closed",
        ];
        node.job_adopt(&[&register[..], &["--cgroup", below.path()]].concat())
            .exits(3)
            .says("the cgroup of job 7");
        node.unregister("7").ok();
    });
}

/// Runs `run` with an id that no other node has at this moment, since all nodes share one
/// hierarchy.
fn run_with_id(node: &Node) -> String {
    let id = node.cgroup().path().trim_start_matches('/');
    format!("job-adopt run --user alice --id {id} --policy closed --")
}

/// Runs a command of alice through `run`, from a shell that has executed `before`.
fn run_after(node: &Node, before: &str, script: &str) -> crate::support::Outcome {
    node.write("/root/script", script);
    node.sh(&format!(
        "{before} {} sh -c \"$(cat /root/script)\"",
        run_with_id(node)
    ))
}

#[test]
fn command_runs_in_own_session() {
    on_node(|node| {
        let script = "read -r _ _ _ _ _ session terminal _ </proc/$$/stat
            echo \"$session\" = $$, terminal $terminal; [ \"$session\" = $$ ]";
        run_after(node, "", script).ok().says("terminal 0");
    });
}

#[test]
fn command_inherits_all_but_descriptors() {
    on_node(|node| {
        let before = "umask 027; ulimit -Sn 100; exec 7</etc/shadow;";
        let script = "umask; ulimit -Sn; [ ! -e /proc/$$/fd/7 ]";
        let outcome = run_after(node, before, script).ok();
        assert_eq!(outcome.stdout, "0027\n100\n");
    });
}

/// Starts `run` under env(1) with these options, and sends it a signal once its command has begun. Then it makes the file
/// `sent` in the command's directory.
fn run_with_signal(node: &Node, env: &str, signal: &str, script: &str) -> crate::support::Outcome {
    let begun = "/home/alice/begun";
    let run = format!(
        "env {env} {} sh -c ': >{begun}; {script}' & run=$!",
        run_with_id(node)
    );
    let wait = format!("until [ -e {begun} ]; do sleep 0.02; done");
    node.sh(&format!(
        "{run}; {wait}; kill -{signal} $run; : >/home/alice/sent; wait $run"
    ))
}

#[test]
fn ignored_signals_stay_ignored() {
    on_node(|node| {
        let env = "--ignore-signal=HUP --ignore-signal=CHLD";
        let script = "until [ -e /home/alice/sent ]; do sleep 0.02; done; exit 5";
        run_with_signal(node, env, "HUP", script).exits(5);
    });
}

#[test]
fn quit_signal_ends_job() {
    on_node(|node| {
        run_with_signal(node, "--default-signal=QUIT", "QUIT", "exec sleep 30").exits(131);
        node.job_adopt(&["list"]).ok().omits("alice");
    });
}

/// Runs the command under strace; returns the calls that could be about the registry's lock or a cgroup.
fn trace_job_adopt(node: &Node, words: &[&str]) -> String {
    let options = [
        "-y",
        "-o",
        "/tmp/strace",
        "-e",
        "trace=fcntl,close,openat,mkdirat,write",
    ];
    node.run("strace", &[&options[..], &["job-adopt"], words].concat());
    node.read("/tmp/strace")
}

/// Asserts that a trace has the registry's lock, a call with each of these texts, and the end of the lock, in this
/// order and each for the first time.
#[track_caller]
fn assert_under_lock(trace: &str, calls: &[[&str; 2]]) {
    const LOCK: &str = "/run/job-adopt/lock>";
    let ends = [&[[LOCK, "F_OFD_SETLK"]], calls, &[["close(", LOCK]]].concat();
    let places = ends.iter().map(|texts| {
        let mut lines = trace.lines();
        lines.position(|line| texts.iter().all(|text| line.contains(text)))
    });
    let places: Vec<_> = places.collect();
    assert!(
        places.iter().all(Option::is_some) && places.is_sorted(),
        "{places:?}\n{trace}"
    );
}

/// Without the lock another run would take the cgroup, while it is empty, for one that a killed run has left.
#[test]
fn run_makes_and_fills_its_cgroup_under_the_registrys_lock() {
    on_node(|node| {
        let id = node.cgroup().path().trim_start_matches('/').to_owned();
        let words = ["run", "--user", "alice", "--id", &id, "--policy", "closed"];
        let trace = trace_job_adopt(node, &[&words[..], &["--", "true"]].concat());
        let made = format!("\"{id}\"");
        assert_under_lock(&trace, &[["mkdirat(", &made], ["write(", "/cgroup.procs>"]]);
        assert!(!Cgroup::new(format!("/job-adopt.jobs/{id}")).exists());
    });
}

/// Before the lock the path may lead to another cgroup than the one that is stamped.
#[test]
fn limits_of_job_are_compared_under_the_registrys_lock() {
    on_node(|node| {
        let job = node.job(ALICE, "7").unstamped().unrecorded().start();
        let path = job.cgroup.path();
        let words = [
            "register", "--id", "7", "--user", "alice", "--policy", "closed", "--cgroup", path,
        ];
        let trace = trace_job_adopt(node, &[&words[..], &["--swap", "0"]].concat());
        assert_under_lock(&trace, &[["openat(", "\"memory.swap.max\""]]);
    });
}

/// The kernel of a node on cgroup v1 has cpuset there; on the machines of tests/kernel a test may enable it.
#[test]
fn limits_that_are_not_in_force_leave_nothing() {
    on_node(|node| {
        let id = node.cgroup().path().trim_start_matches('/').to_owned();
        let run = |limits: &[&str]| {
            let words = ["run", "--user", "alice", "--id", &id, "--policy", "closed"];
            node.job_adopt(&[&words[..], limits, &["--", "true"]].concat())
        };
        run(&["--cores", "8000"])
            .exits(125)
            .says("the node has no core 8000");
        for wrong in [["--cores", "3-0"], ["--memory", "1M"], ["--swap", "1.5G"]] {
            run(&wrong).exits(2);
        }
        // Only cgroup v1 has it there.
        if std::fs::exists("/sys/fs/cgroup/cpuset").unwrap() {
            run(&["--cores", "0"])
                .exits(125)
                .says("controller cpuset is on cgroup v1 here: boot with systemd.unified");
            let job = node.job(ALICE, "7").unstamped().unrecorded().start();
            let words = [
                "register", "--id", "7", "--user", "alice", "--policy", "closed",
            ];
            let more = ["--cores", "0", "--cgroup", job.cgroup.path()];
            node.job_adopt(&[&words[..], &more].concat())
                .exits(3)
                .says("hold job to --cores in ")
                .says("on cgroup v1 here");
            assert!(!node.exists("/run/job-adopt/jobs/1001/7.json"));
        }
        let via = ["register", "--id", "7", "--user", "alice", "--via", "slurm"];
        node.job_adopt(&[&via[..], &["--policy", "closed", "--cores", "0"]].concat())
            .exits(2)
            .says("limits are for records with cgroup: slurm sets its own");
        assert!(!Cgroup::new(format!("/job-adopt.jobs/{id}")).exists());
        assert!(!node.exists(&format!("/run/job-adopt/jobs/1001/{id}.json")));
    });
}

#[test]
fn every_start_failure_has_same_status() {
    on_node(|node| {
        node.job_adopt(&["run", "--user", "nobody-here", "--", "true"])
            .exits(125);
        node.job_adopt(&["run", "--user", "root", "--policy", "closed", "--", "true"])
            .exits(2);
        node.configure("x = 1\n");
        node.job_adopt(&["run", "--user", "alice", "--policy", "closed", "--", "true"])
            .exits(125);
    });
}
