//! Choice of the cgroup that a job's logins join.

use serde_json::Value;

use crate::support::{ALICE, Cgroup, DENIED, Job, OPENS, eventually, on_node};

#[test]
fn job_with_children_gets_leaf_beside_children() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").devices(&["/dev/nvidia0"]).start();
        job.cgroup.child("step").create();
        let outcome = node.look(ALICE).ok();
        let outcome = outcome.joins_cgroup(&job.cgroup.child("job-adopt"));
        outcome.devices(&[("/dev/nvidia0", OPENS), ("/dev/nvidia1", DENIED)]);
    });
}

#[test]
fn job_that_enables_controllers_gets_leaf() {
    on_node(|node| {
        let cgroup = node.cgroup().child("jobs").child("parent");
        cgroup.create();
        let inner = cgroup.child("inner");
        let job = node.job(ALICE, "4242").in_cgroup(inner).start();
        // The process of the job moves down, so that the job can enable controllers for its
        // children.
        job.cgroup
            .child("step")
            .create()
            .write("cgroup.procs", &job.cgroup.pids()[0].to_string());
        let available = job.cgroup.read("cgroup.controllers");
        if let Some(controller) = available.split_whitespace().next() {
            job.cgroup
                .write("cgroup.subtree_control", &format!("+{controller}"));
        }
        node.look(ALICE)
            .ok()
            .joins_cgroup(&job.cgroup.child("job-adopt"));
    });
}

#[test]
fn record_names_leaf() {
    on_node(|node| {
        let job = node
            .job(ALICE, "4242")
            .with("leaf", "logins".into())
            .start();
        node.look(ALICE)
            .ok()
            .joins_cgroup(&job.cgroup.child("logins"));
    });
}

#[test]
fn refused_login_leaves_no_leaf() {
    on_node(|node| {
        let job = node
            .job(ALICE, "4242")
            .with("leaf", "logins".into())
            .start();
        job.cgroup.freeze(true);
        node.pam(ALICE).fails();
        let left: Vec<Cgroup> = job.cgroup.children();
        assert!(left.is_empty(), "{left:?}");
        job.cgroup.freeze(false);
        node.pam(ALICE).ok();
        assert_eq!(job.cgroup.children().len(), 1);
    });
}

/// A limit on the job's own cgroup, or on one that the scheduler has made, would be one for the job.
#[test]
fn limit_of_logins_stands_on_no_cgroup_but_their_own() {
    on_node(|node| {
        node.configure(
            "login_memory = 64M\nlogin_tasks = 100\nlogin_cpu_weight = 50\n\
             login_memory_high = 64M\nlogin_io_weight = 50\n",
        );
        let resolved = |job: &Job<'_>, why: &str| {
            let outcome = job.resolved().ok();
            for key in [
                "login_memory",
                "login_memory_high",
                "login_tasks",
                "login_cpu_weight",
                "login_io_weight",
            ] {
                assert!(
                    outcome
                        .output()
                        .contains(&format!("{key}: does not apply: {why}")),
                    "{outcome}"
                );
            }
        };
        let job = node.job(ALICE, "4242").start();
        node.look(ALICE).ok().joins_cgroup(&job.cgroup);
        resolved(&job, "logins go into the job's own cgroup");
        drop(job);
        let with_leaf = node
            .job(ALICE, "4243")
            .with("leaf", "logins".into())
            .start();
        with_leaf.cgroup.child("logins").create();
        node.look(ALICE)
            .ok()
            .joins_cgroup(&with_leaf.cgroup.child("logins"));
        resolved(&with_leaf, "the cgroup of the logins is not one that");
        drop(with_leaf);
        let with_step = node.job(ALICE, "4244").start();
        with_step.cgroup.child("step").create();
        let controllers = |of: &Job<'_>| of.cgroup.read("cgroup.subtree_control");
        resolved(&with_step, "the cgroup above has not enabled");
        node.look(ALICE)
            .ok()
            .joins_cgroup(&with_step.cgroup.child("job-adopt"));
        resolved(&with_step, "the cgroup above has not enabled");
        assert_eq!(
            controllers(&with_step).trim(),
            "",
            "a controller was enabled in the job's cgroup"
        );
    });
}

/// A login that computes in a cgroup of its own. A job without logins reports no usage.
#[test]
fn usage_of_logins_is_that_of_their_own_cgroup() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").started(2).start();
        job.cgroup.child("step").create();
        let _shared = node.job(ALICE, "4243").started(1).start();
        let sshd = node.sshd();
        // A second of processor time, however long that takes on a busy machine.
        let script = "(ulimit -t 1; exec yes >/dev/null); exec sleep infinity";
        let mut login = sshd.stay(ALICE, script);
        let leaf = job.cgroup.child("job-adopt");
        let counted = || -> u64 {
            let text = leaf.read("cpu.stat");
            text.lines()
                .next()
                .unwrap()
                .strip_prefix("usage_usec ")
                .unwrap()
                .parse()
                .unwrap()
        };
        eventually("the login has computed", || {
            leaf.exists() && counted() > 500_000
        });
        let before = counted();
        let list: Value =
            serde_json::from_str(&node.job_adopt(&["list", "--json"]).ok().stdout).unwrap();
        let after = counted();
        let usage = |id: &str| {
            let jobs = list["jobs"].as_array().unwrap();
            jobs.iter().find(|entry| entry["id"] == id).unwrap()["login_usage"].clone()
        };
        let cpu = usage("4242")["cpu_usec"].as_u64().unwrap();
        assert!((before..=after).contains(&cpu), "{before} {cpu} {after}");
        assert!(usage("4243")["cpu_usec"].is_null(), "{list}");
        node.job_adopt(&["list"]).ok().says("LOGIN-CPU");
        let id = ALICE.uid.to_string();
        let hers = [
            "--reuid",
            &id,
            "--regid",
            &id,
            "--clear-groups",
            "job-adopt",
            "list",
        ];
        node.run("setpriv", &hers).ok().says("LOGIN-CPU");
        eventually("it has ended", || {
            leaf.pids().iter().all(|pid| {
                std::fs::read_to_string(format!("/proc/{pid}/comm"))
                    .is_ok_and(|comm| comm != "yes\n")
            })
        });
        let total = counted() / 1000;
        node.unregister("4242").ok();
        let logged = node.log.line("action=unregister");
        let logged: u64 = logged.field("login_cpu_ms").unwrap().parse().unwrap();
        assert!((total..total + 500).contains(&logged), "{total} {logged}");
        node.unregister("4243").ok();
        eventually("it has ended", || login.try_wait().unwrap().is_some());
    });
}
