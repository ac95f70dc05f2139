//! Jobs that resist their end, or whose registry is damaged, end all the same.

use std::os::unix::fs::chown;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::support::{ALICE, Cgroup, Deep, Job, Node, Tool, eventually, on_node};

/// Runs `body` during a login of alice in the job's own cgroup.
fn with_login(node: &Node, job: &Job<'_>, body: impl FnOnce()) {
    with_login_that(node, job, "exec sleep infinity", body);
}

/// Runs `body` during a login with this command, which starts a sleeper.
fn with_login_that(node: &Node, job: &Job<'_>, command: &str, body: impl FnOnce()) {
    let before = job.cgroup.pids().len();
    let sshd = node.sshd();
    let mut login = sshd.stay(ALICE, command);
    eventually("the login has joined", || count_sleepers(&job.cgroup) > 0);
    assert!(job.cgroup.pids().len() > before);
    body();
    eventually("the login has ended", || {
        login.try_wait().unwrap().is_some()
    });
}

/// Counts the sleepers of a login. Their environment names its connection.
fn count_sleepers(cgroup: &Cgroup) -> usize {
    sleepers(cgroup).len()
}

fn sleepers(cgroup: &Cgroup) -> Vec<i32> {
    let read = |pid: &i32, file: &str| {
        std::fs::read(format!("/proc/{pid}/{file}"))
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    };
    let ours = |pid: &i32| {
        read(pid, "comm") == "sleep\n" && read(pid, "environ").contains("SSH_CONNECTION")
    };
    cgroup.pids_or_empty().into_iter().filter(ours).collect()
}

fn list_jobs(node: &Node, prefix: &str, status: i32) -> Value {
    let outcome = node
        .sh(&format!("{prefix} job-adopt list --json"))
        .exits(status);
    serde_json::from_str(&outcome.stdout).unwrap()
}

#[test]
fn login_behind_thousand_processes_ends_with_job() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        let crowd = "for i in $(seq 1200); do sleep infinity & done; wait";
        let mut crowd = node
            .daemon(&job.cgroup, "sh")
            .args(["-c", crowd])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        eventually("the crowd is there", || job.cgroup.pids().len() > 1200);
        with_login(node, &job, || {
            let list = list_jobs(node, "", 0);
            assert!(
                list["jobs"][0]["processes"].as_u64().unwrap() > 1200,
                "{list}"
            );
            assert_eq!(list["jobs"][0]["logins"], 1, "{list}");
            node.unregister("4242").ok();
        });
        assert!(
            job.cgroup.pids().len() > 1200,
            "unregister killed the scheduler's processes"
        );
        job.finish();
        let _ = crowd.wait();
    });
}

/// Root's own tool can raise a soft limit, so the test sets the hard one.
#[test]
fn login_with_more_processes_than_descriptors_ends_with_job() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        let own = job.cgroup.pids().len();
        let crowd = "for i in $(seq 60); do sleep infinity & done; wait";
        with_login_that(node, &job, crowd, || {
            eventually("the crowd is there", || count_sleepers(&job.cgroup) == 60);
            node.sh("ulimit -n 24; exec job-adopt unregister 4242").ok();
        });
        assert_eq!(
            job.cgroup.pids().len(),
            own,
            "only the scheduler's are left"
        );
        job.finish();
    });
}

#[test]
fn job_with_threaded_children_ends() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        job.cgroup
            .child("threads")
            .create()
            .write("cgroup.type", "threaded");
        let list = list_jobs(node, "", 0);
        assert_eq!(list["jobs"][0]["processes"], 1, "{list}");
        node.unregister("4242").ok();
    });
}

#[test]
fn job_with_more_cgroups_than_descriptors_ends() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        for number in 0..100 {
            job.cgroup.child(&format!("step-{number}")).create();
        }
        let list = list_jobs(node, "ulimit -n 40;", 0);
        assert_eq!(list["jobs"][0]["processes"], 1, "{list}");
        list_jobs(node, "ulimit -Sn 8;", 0);
        node.sh("ulimit -n 40; exec job-adopt unregister 4242").ok();
    });
}

#[test]
fn unreadable_job_hides_no_other() {
    on_node(|node| {
        let _seen = node.job(ALICE, "1").start();
        let mut cgroup = node.cgroup().child("jobs");
        for _ in 0..60 {
            cgroup = cgroup.child("d");
            cgroup.create();
        }
        let _deep = node.job(ALICE, "2").in_cgroup(cgroup.child("job")).start();
        let list = list_jobs(node, "ulimit -n 40;", 3);
        let states = |number: usize| list["jobs"][number]["state"].as_str();
        assert_eq!(
            (states(0), states(1)),
            (Some("running"), Some("unknown")),
            "{list}"
        );
        node.sh("ulimit -n 40; exec job-adopt list")
            .exits(3)
            .says("job 2: ");
        node.sh("ulimit -n 40; exec job-adopt unregister 2")
            .exits(3);
        node.unregister("2").ok();
    });
}

#[test]
fn no_process_is_left_stopped_at_deadline() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        with_login(node, &job, || {
            node.job_adopt(&["unregister", "--timeout", "3601", "4242"])
                .exits(2);
            node.job_adopt(&["unregister", "--timeout", "18446744073709551615", "4242"])
                .exits(2);
            assert!(
                node.exists(&job.record_path()),
                "it was withdrawn all the same"
            );
            // The second attempt finds no login if all have died by then.
            let outcome = node.job_adopt(&["unregister", "--timeout", "0", "4242"]);
            assert!([0, 3].contains(&outcome.code), "{outcome}");
            eventually("only the payload is left", || job.cgroup.pids().len() == 1);
        });
    });
}

/// A walk that is late finds no login of such a job.
#[test]
fn login_in_leaf_ends_however_many_cgroups_its_job_has() {
    on_node(|node| {
        let job = node
            .job(ALICE, "4242")
            .with("leaf", json!("logins"))
            .start();
        job.cgroup.child("step").create();
        let leaf = job.cgroup.child("logins");
        let sshd = node.sshd();
        let mut login = sshd.stay(ALICE, "exec sleep infinity");
        eventually("the login has joined", || {
            leaf.exists() && count_sleepers(&leaf) > 0
        });
        node.job_adopt(&["unregister", "--timeout", "0", "4242"])
            .exits(3);
        eventually("the login has ended", || {
            login.try_wait().unwrap().is_some()
        });
        assert!(!leaf.exists(), "its leaf is left");
        node.unregister("4242").ok();
    });
}

#[test]
fn sshd_in_cgroup_of_job_is_no_login() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        with_login(node, &job, || {
            let move_server = "cat /run/sshd.pid >/sys/fs/cgroup$0/cgroup.procs";
            node.run("sh", &["-c", move_server, job.cgroup.path()]).ok();
            node.unregister("4242").ok();
            node.sh("kill -0 $(cat /run/sshd.pid)").ok();
        });
        assert_eq!(job.cgroup.pids().len(), 2);
    });
}

#[test]
fn full_file_system_keeps_no_login_alive() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        with_login(node, &job, || {
            let used = "$(df --output=used -k /run | tail -1)";
            node.sh(&format!("mount -o remount,size=$(({used} + 64))k /run"))
                .ok();
            node.sh("cat /dev/zero >/run/full").fails();
            node.job_adopt(&["unregister", "4242"])
                .exits(3)
                .says("4242.ended");
            assert!(!node.exists(&job.record_path()));
            node.unregister("4242").ok().says("no job 4242");
        });
        assert_eq!(job.cgroup.pids().len(), 1);
    });
}

#[test]
fn logins_of_broken_record_are_found_and_end() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        with_login(node, &job, || {
            let broken = json!({ "version": 9, "cgroup": job.cgroup.path() });
            job.record(&broken.to_string());
            node.job_adopt(&["list"]).exits(1).says(&job.record_path());
            let list = list_jobs(node, "", 1);
            assert!(
                list["broken"][0].as_str().unwrap().contains("4242.json"),
                "{list}"
            );
            node.job_adopt(&["unregister", "4242"])
                .exits(3)
                .says("read record of job 4242");
        });
        assert_eq!(job.cgroup.pids().len(), 1);
        job.stamp("1001:4242");
    });
}

#[test]
fn broken_record_ends_no_login_of_another_user() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        with_login(node, &job, || {
            let broken = json!({ "version": 9, "cgroup": job.cgroup.path() }).to_string();
            node.write("/run/job-adopt/jobs/1001/7.json", &broken);
            node.job_adopt(&["unregister", "7"]).exits(3);
            assert_eq!(
                count_sleepers(&job.cgroup),
                1,
                "another job's login was ended"
            );
            node.unregister("4242").ok();
        });
    });
}

#[test]
fn configuration_error_stops_no_epilog() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        node.configure("enforce = sometimes\n");
        node.job_adopt(&["list"]).exits(3);
        node.unregister("4242").ok().says("warning").says("enforce");
        assert!(!node.exists(&job.record_path()));
    });
}

/// The job may be in a registry of which a mistyped key says nothing.
#[test]
fn mistyped_registry_key_fails_call_without_job() {
    on_node(|node| {
        node.configure("registri = /run/jobs\n");
        node.job_adopt(&["unregister", "4242"])
            .exits(3)
            .says("registri");
        node.configure("");
        node.unregister("4242").ok();
    });
}

#[test]
fn missing_requested_configuration_is_error() {
    on_node(|node| {
        let conf = ["--conf", "/no/such"];
        node.job_adopt(&[&["list"], &conf[..]].concat())
            .exits(3)
            .says("/no/such");
        node.job_adopt(&[&["unregister", "1"], &conf[..]].concat())
            .exits(3)
            .says("/no/such");
        let resolve = ["resolve", "--user", "alice"];
        node.job_adopt(&[&resolve, &conf[..]].concat())
            .exits(3)
            .says("/no/such");
        let register = [
            "register", "--id", "1", "--uid", "5", "--policy", "closed", "--cgroup", "/a",
        ];
        node.job_adopt(&[&register, &conf[..]].concat())
            .exits(3)
            .says("/no/such");
        let run = [
            "run", "--user", "alice", "--policy", "closed", "--conf", "/no/such", "--", "true",
        ];
        node.job_adopt(&run).exits(125).says("/no/such");
    });
}

/// systemd reads that the scope is empty. If we removed it, it would stay active forever.
#[test]
fn scope_is_emptied_and_left_to_systemd() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        let dir = format!("/sys/fs/cgroup{}", job.cgroup.path());
        node.run(
            "setfattr",
            &["-n", "trusted.job_adopt_scope", "-v", "1", &dir],
        )
        .ok();
        node.job_adopt(&["unregister", "--timeout", "1", "4242"])
            .ok();
        assert!(job.cgroup.exists());
        assert!(job.cgroup.pids().is_empty());
        assert!(!node.exists(&job.record_path()));
    });
}

/// The name of a process is any 15 bytes that its user chooses.
#[test]
fn process_with_non_utf8_name_ends_with_its_login() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        let sshd = node.sshd();
        let odd = "n=/tmp/$(printf '\\377\\303'); cp /bin/sleep $n; exec $n infinity";
        let mut login = sshd.stay(ALICE, odd);
        let named = |pid: &i32| {
            std::fs::read(format!("/proc/{pid}/comm")).is_ok_and(|name| name == b"\xff\xc3\n")
        };
        eventually("it runs", || job.cgroup.pids().iter().any(named));
        let list = list_jobs(node, "", 0);
        assert_eq!(list["jobs"][0]["logins"], 1, "{list}");
        node.unregister("4242").ok();
        assert_eq!(job.cgroup.pids().len(), 1, "what the login started is left");
        eventually("the login has ended", || {
            login.try_wait().unwrap().is_some()
        });
    });
}

/// `cgroup.kill` skips such a process.
#[test]
fn process_without_its_first_thread_ends_with_job() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        node.install(&Tool::Threads.path(), "/usr/bin/threads");
        // Another child exists already, so the test makes this one.
        job.cgroup.child("step").create();
        node.pam(ALICE).ok();
        let leaf = job.cgroup.child("job-adopt");
        let mut held = node.daemon(&leaf, "threads").arg("alone").spawn().unwrap();
        eventually("the first thread has ended", || {
            let stat = |pid: &i32| std::fs::read_to_string(format!("/proc/{pid}/stat"));
            let ended = |pid: &i32| stat(pid).is_ok_and(|stat| stat.contains("(threads) Z"));
            leaf.pids().iter().any(ended)
        });
        node.unregister("4242").ok();
        assert!(!leaf.exists());
        // If nsenter(1) saw its child stopped before the kill, it has stopped itself.
        held.kill().unwrap();
        held.wait().unwrap();
    });
}

/// Asserts that the end of the job ends a login in `inside`; only the scheduler's process remains.
fn assert_end_reaches_login(
    node: &Node,
    job: &Job<'_>,
    script: &str,
    inside: &Cgroup,
    before: impl FnOnce(i32),
) {
    let sshd = node.sshd();
    let mut login = sshd.stay(ALICE, script);
    eventually("it runs", || count_sleepers(inside) == 1);
    let pid = sleepers(inside).remove(0);
    before(pid);
    node.unregister("4242").ok();
    // A call without time does not see the end of what it has killed. A killed process stays a zombie until the
    // node's first process reaps it.
    eventually("the login is gone", || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
        stat.map_or(true, |stat| stat.contains(") Z "))
    });
    assert_eq!(job.cgroup.pids().len(), 1, "the scheduler's process is not");
    eventually("the login has ended", || {
        login.try_wait().unwrap().is_some()
    });
}

/// Gives the cgroup to the user, as a scheduler does that lets jobs make cgroups.
fn delegate_to_user(cgroup: &Cgroup) {
    for file in ["", "cgroup.procs", "cgroup.subtree_control"] {
        chown(cgroup.dir().join(file), Some(ALICE.uid), None).unwrap();
    }
}

#[test]
fn login_ends_in_any_cgroup_of_job() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        delegate_to_user(&job.cgroup);
        job.cgroup.child("step").create();
        let mine = job.cgroup.child("mine");
        let dir = format!("/sys/fs/cgroup{}", mine.path());
        let script = format!("mkdir {dir}; echo 0 >{dir}/cgroup.procs; exec sleep infinity");
        assert_end_reaches_login(node, &job, &script, &mine, |_| {
            assert!(job.cgroup.child("job-adopt").exists());
        });
        assert!(!job.cgroup.child("job-adopt").exists());
    });
}

/// The connection of such a process is gone, and so is the sshd that started it.
#[test]
fn process_left_by_login_ends_with_job() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        let stack = node.read("/etc/pam.d/sshd");
        node.write_stack(&format!("{stack}session required pam_loginuid.so\n"));
        let sshd = node.sshd();
        sshd.ssh(ALICE, "setsid -f sleep infinity </dev/null >/dev/null 2>&1")
            .ok();
        eventually("the login is over", || job.cgroup.pids().len() == 2);
        node.unregister("4242").ok();
        assert_eq!(job.cgroup.pids().len(), 1);
    });
}

#[test]
fn login_ends_in_cgroup_with_overlong_path() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        let deep = Deep::create_below(job.cgroup.child("mine").create());
        let leaf = job.cgroup.child("job-adopt");
        assert_end_reaches_login(node, &job, "exec sleep infinity", &leaf, |pid| {
            deep.move_in(pid)
        });
    });
}

/// Withdraws a job with so little time that no cgroup below the job's is visited.
fn withdraw_too_late(node: &Node) {
    node.job_adopt(&["unregister", "--timeout", "0", "4242"])
        .exits(3);
}

/// The first call ends the sshd that shows where the process in the deep cgroup comes from.
#[test]
fn login_in_unvisited_overlong_cgroup_ends() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        let deep = Deep::create_below(job.cgroup.child("mine").create());
        let leaf = job.cgroup.child("job-adopt");
        assert_end_reaches_login(node, &job, "exec sleep infinity", &leaf, |pid| {
            deep.move_in(pid);
            withdraw_too_late(node);
        });
    });
}

#[test]
fn login_in_unvisited_cgroup_ends_without_leaf() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        let inside = job.cgroup.clone();
        assert_end_reaches_login(node, &job, "exec sleep infinity", &inside, |pid| {
            job.cgroup
                .child("mine")
                .create()
                .write("cgroup.procs", &pid.to_string());
            withdraw_too_late(node);
        });
    });
}

/// The admin, for example, has moved it away.
#[test]
fn descendant_outside_job_outlives_late_search() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        job.cgroup.child("step").create();
        let leaf = job.cgroup.child("job-adopt");
        let outside = node.cgroup().child("outside");
        outside.create();
        let sshd = node.sshd();
        let mut login = sshd.stay(ALICE, "exec sleep infinity");
        eventually("it runs", || count_sleepers(&leaf) == 1);
        outside.write("cgroup.procs", &sleepers(&leaf)[0].to_string());
        withdraw_too_late(node);
        node.unregister("4242").ok();
        assert_eq!(count_sleepers(&outside), 1);
        outside.write("cgroup.kill", "1");
        eventually("the login has ended", || {
            login.try_wait().unwrap().is_some()
        });
    });
}

#[test]
fn leaf_with_any_name_ends() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").with("leaf", json!("old")).start();
        let leaf = job.cgroup.child("old");
        assert_end_reaches_login(node, &job, "exec sleep infinity", &leaf, |_| {
            let record = node.read(&job.record_path()).replace("old", "new");
            job.record(&record);
        });
        assert!(!leaf.exists());
    });
}
