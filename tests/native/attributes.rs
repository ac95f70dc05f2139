//! What a login inherits from sshd, and what it has in its job.
//!
//! The tests with Slurm need the controller `cpuset` on cgroup v1, the ignored ones on cgroup v2.

use serde_json::json;

use crate::namespaces::{make_private_namespace, register};
use crate::support::{
    ALICE, Cgroup, Job, Node, Outcome, Process, ROOT, SlurmJob, User, eventually, on_node, on_slurm,
};

/// Prints what a process has inherited, one attribute a line.
const SHOW: &str = "\
    grep ^Cpus_allowed_list: /proc/self/status
    echo \"nice: $(cut -d ' ' -f 19 /proc/self/stat)\"
    echo \"class: $(cut -d ' ' -f 41 /proc/self/stat)\"
    echo \"io: $(ionice -p $$)\"
    echo \"slack: $(cat /proc/self/timerslack_ns)\"
    echo \"oom: $(cat /proc/self/oom_score_adj)\"
    echo \"memory: $(head -n 1 /proc/self/numa_maps | cut -d ' ' -f 2)\"";

/// Puts this shell before other processes.
const RAISE: &str = "echo 1000 >/proc/self/timerslack_ns; renice -n -7 $$ >/dev/null; \
    ionice -c 2 -n 1 -p $$";
/// Keeps this shell behind other processes.
const LOWER: &str = "echo 70000 >/proc/self/timerslack_ns; renice -n 7 $$ >/dev/null; \
    ionice -c 2 -n 6 -p $$; echo 300 >/proc/self/oom_score_adj";
/// Pins this shell to a core, as systemd's `CPUAffinity=` does.
const PIN: &str = "taskset -cp 0 $$ >/dev/null";

/// Returns a printed attribute.
#[track_caller]
fn attribute<'a>(outcome: &'a Outcome, name: &str) -> &'a str {
    let line = outcome
        .stdout
        .lines()
        .find_map(|line| line.strip_prefix(name));
    line.unwrap_or_else(|| panic!("no {name} in {outcome}"))
        .trim()
}

/// Asserts these printed attributes.
#[track_caller]
fn assert_attributes(outcome: &Outcome, expected: &[(&str, &str)]) {
    for (name, value) in expected {
        assert_eq!(attribute(outcome, name), *value, "{name} {outcome}");
    }
}

/// Runs account and session in a process that has run a script, and prints its attributes in the session.
fn login_after(node: &Node, script: &str) -> Outcome {
    node.write(
        "/usr/bin/in-session",
        &format!("#!/bin/sh\nPATH=/usr/bin:/bin\n{SHOW}\n"),
    );
    node.set_mode("/usr/bin/in-session", 0o755);
    node.sh(&format!(
        "set -e; {script}; exec pamtester sshd alice acct_mgmt open_session close_session"
    ))
}

/// A stack that prints the attributes of a session behind our line.
const SHOWING: &str = "\
    account required pam_job_adopt.so\nsession required pam_job_adopt.so\n\
    session optional pam_exec.so stdout /usr/bin/in-session\n";

/// Binds its memory to node 0, as `numactl --membind=0` does, and logs in.
const BOUND: &str = "\
import ctypes, os, platform
call = ctypes.CDLL(None).syscall
number = 238 if platform.machine() == 'x86_64' else 237
assert call(number, 2, ctypes.byref(ctypes.c_ulong(1)), 64) == 0
os.execvp('pamtester', 'pamtester sshd alice acct_mgmt open_session close_session'.split())
";

const USUAL: [(&str, &str); 4] = [
    ("nice:", "0"),
    ("class:", "0"),
    ("io:", "none: prio 0"),
    ("slack:", "50000"),
];

#[test]
fn login_is_not_before_tasks_of_its_job() {
    on_node(|node| {
        let _job = node.job(ALICE, "4242").start();
        node.arguments("");
        let sshd = node.sshd_after(RAISE, "");
        assert_attributes(&sshd.ssh(ALICE, SHOW).ok(), &USUAL);
        node.write_stack(SHOWING);
        assert_attributes(&login_after(node, "chrt --rr -p 1 $$").ok(), &USUAL);
        assert!(
            !node
                .log
                .entries()
                .iter()
                .any(|entry| entry.text.contains("warning="))
        );
    });
}

#[test]
fn login_that_is_behind_tasks_of_its_job_stays_there() {
    on_node(|node| {
        let _job = node.job(ALICE, "4242").start();
        node.arguments("");
        let sshd = node.sshd_after(LOWER, "");
        let lower = [
            ("nice:", "7"),
            ("io:", "best-effort: prio 6"),
            ("slack:", "70000"),
            ("oom:", "300"),
        ];
        assert_attributes(&sshd.ssh(ALICE, SHOW).ok(), &lower);
    });
}

/// Grid Engine, HTCondor and sites' own prologs lower a job's tasks. Where these differ, the worst counts, and what a
/// process of another user has never does.
#[test]
fn login_is_as_late_as_the_latest_task_of_its_job() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        let job = &job.cgroup;
        node.arguments("");
        let sshd = node.sshd();
        let assert_login = |nice: &str, oom_score: &str| {
            let login = sshd.ssh(ALICE, SHOW).ok();
            assert_attributes(&login, &[("nice:", nice), ("oom:", oom_score)]);
        };
        assert_login("0", "0");
        let start = |user: User, nice: i32, score: u32| {
            let script = format!(
                "renice -n {nice} $$ >/dev/null; echo {score} >/proc/self/oom_score_adj; exec sleep infinity"
            );
            Process::start_in(node, job, user, &script)
        };
        let task = start(ALICE, 10, 500);
        let root = start(ROOT, 19, 900);
        eventually("both have them", || {
            [(&task, "500"), (&root, "900")]
                .iter()
                .all(|(process, score)| {
                    let path = format!("/proc/{}/oom_score_adj", process.host_pid());
                    std::fs::read_to_string(path).is_ok_and(|text| text.trim() == *score)
                })
        });
        assert_login("10", "500");
        let other = start(ALICE, 15, 200);
        eventually("it has them", || {
            let path = format!("/proc/{}/oom_score_adj", other.host_pid());
            std::fs::read_to_string(path).is_ok_and(|text| text.trim() == "200")
        });
        assert_login("15", "500");
        other.end();
        task.end();
        eventually("they have ended", || job.pids().len() == 2);
        node.arguments("");
        assert_login("0", "0");
        root.end();
    });
}

/// What stands behind our line is the admin's own choice for logins.
#[test]
fn nice_value_that_a_later_module_sets_stays() {
    on_node(|node| {
        let _job = node.job(ALICE, "4242").start();
        node.write("/etc/security/limits.conf", "alice - priority -3\n");
        node.write_stack(
            "account required pam_job_adopt.so\nsession required pam_job_adopt.so\n\
             session required pam_limits.so\nsession optional pam_exec.so stdout /usr/bin/in-session\n",
        );
        assert_attributes(&login_after(node, RAISE).ok(), &[("nice:", "-3")]);
    });
}

/// Lowers the processes in a job's cgroup.
fn renice(job: &Cgroup, nice: i32) {
    for pid in job.pids() {
        let words = ["-n".to_owned(), nice.to_string(), pid.to_string()];
        Outcome::run(std::process::Command::new("renice").args(words)).ok();
    }
}

/// Slurm does so by `PropagatePrioProcess`.
#[test]
fn login_to_slurm_job_is_as_late_as_its_tasks() {
    on_slurm(|slurm| {
        let node = slurm.node;
        node.write_stack(SHOWING);
        let _job = slurm.batch(ALICE, 0);
        assert_attributes(
            &login_after(node, ":").ok(),
            &[("nice:", "0"), ("oom:", "0")],
        );
        node.sh("renice -n 10 -u alice").ok();
        assert_attributes(
            &login_after(node, ":").ok(),
            &[("nice:", "10"), ("oom:", "0")],
        );
        node.job_adopt(&["resolve", "--user", "alice"])
            .ok()
            .says("nice: 10, or what sshd");
    });
}

/// A refused login, also one that an argument lets in, has what sshd gave it.
#[test]
fn refused_login_gets_its_attributes_back() {
    on_node(|node| {
        let job = start_refusing_job(node);
        renice(&job.cgroup, 10);
        let refused = login_after(node, ":").says("[JA09]");
        assert_attributes(&refused, &[("nice:", "0"), ("oom:", "0")]);
        let outcome = login_after(node, RAISE).says("[JA09]");
        let raised = [
            ("nice:", "-7"),
            ("io:", "best-effort: prio 1"),
            ("slack:", "1000"),
        ];
        assert_attributes(&outcome, &raised);
    });
}

/// Nobody has promised cores to the job, and the mask is all that keeps logins from those of others.
#[test]
fn login_to_job_without_cpuset_keeps_its_cores() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        node.arguments("");
        let sshd = node.sshd_after(PIN, "");
        assert_attributes(&sshd.ssh(ALICE, SHOW).ok(), &[("Cpus_allowed_list:", "0")]);
        job.resolved()
            .says("cores: those of sshd: the job has no cpuset of its own");
    });
}

/// Returns the cores that Slurm gave the job.
fn cores_of(job: &SlurmJob<'_>) -> String {
    let path = job.dir("cpuset").join("cpuset.effective_cpus");
    std::fs::read_to_string(path).unwrap().trim_end().to_owned()
}

#[test]
fn login_to_slurm_job_has_the_cores_of_its_job() {
    on_slurm(|slurm| {
        let node = slurm.node;
        node.write_stack(SHOWING);
        for (count, script) in [("2", ":"), ("2", PIN), ("1", ":"), ("1", PIN)] {
            let options = [&*format!("--cpus-per-task={count}")];
            let job = slurm.alloc_as(ALICE, 0, &options, node.name());
            let outcome = login_after(node, script).ok();
            let cores = cores_of(&job);
            assert_eq!(cores.contains(['-', ',']), count == "2", "{cores}");
            assert_attributes(&outcome, &[("Cpus_allowed_list:", &cores)]);
            let resolved = node.job_adopt(&["resolve", "--user", "alice"]).ok();
            let memory = std::fs::read_to_string(job.dir("memory").join("memory.limit_in_bytes"));
            resolved
                .says(&format!("cores: {cores}, the job's"))
                .says("memory nodes: 0")
                .says(&format!(
                    "memory: {}, as the job's processes",
                    memory.unwrap().trim()
                ))
                .says("devices: the job's, as the job's processes")
                .omits("differs");
            assert!(
                !node
                    .log
                    .entries()
                    .iter()
                    .any(|entry| entry.text.contains("cores are"))
            );
            job.cancel();
        }
        let job = slurm.alloc_as(ALICE, 0, &["--cpus-per-task=2"], node.name());
        let sshd = node.sshd_after(PIN, "");
        assert_attributes(
            &sshd.ssh(ALICE, SHOW).ok(),
            &[("Cpus_allowed_list:", &cores_of(&job))],
        );
    });
}

/// As with `task/affinity` alone, which gives each task a mask and the job no cpuset.
#[test]
fn login_to_slurm_job_without_cpuset_keeps_its_cores() {
    on_slurm(|slurm| {
        slurm.constrain("ConstrainDevices=yes\nConstrainRAMSpace=yes\n");
        slurm.restart_slurmd();
        let _job = slurm.alloc_as(ALICE, 0, &["--cpus-per-task=2"], slurm.node.name());
        slurm.node.write_stack(SHOWING);
        let outcome = login_after(slurm.node, PIN).ok();
        assert_attributes(&outcome, &[("Cpus_allowed_list:", "0")]);
    });
}

#[test]
fn login_to_job_with_cpuset_takes_memory_by_the_default_policy() {
    // A kernel without NUMA has no policies.
    if !std::path::Path::new("/proc/self/numa_maps").exists() {
        return;
    }
    on_slurm(|slurm| {
        let job = slurm.alloc_as(ALICE, 0, &[], slurm.node.name());
        slurm.node.write_stack(SHOWING);
        slurm.node.write("/usr/bin/bound", BOUND);
        let bound = "exec python3 /usr/bin/bound";
        assert_attributes(
            &login_after(slurm.node, bound).ok(),
            &[("memory:", "default")],
        );
        job.cancel();
        let _other = slurm.node.job(ALICE, "4242").start();
        assert_attributes(
            &login_after(slurm.node, bound).ok(),
            &[("memory:", "bind:0")],
        );
    });
}

/// Enables the controller `cpuset` in a cgroup, as far up as it has to be.
fn enable_cpuset(cgroup: &Cgroup) {
    let mount = std::path::Path::new("/sys/fs/cgroup");
    let dir = cgroup.dir();
    let above: Vec<_> = dir
        .ancestors()
        .skip(1)
        .take_while(|dir| dir.starts_with(mount))
        .collect();
    for parent in above.into_iter().rev() {
        std::fs::write(parent.join("cgroup.subtree_control"), "+cpuset").unwrap();
    }
}

/// Logs in with sshd on core 0, and without a mask of its own; asserts the cores of both.
#[track_caller]
fn assert_cores(node: &Node, [pinned, free]: [&str; 2]) {
    node.write_stack(SHOWING);
    for (script, cores) in [(PIN, pinned), (":", free)] {
        let outcome = login_after(node, script).ok();
        assert_eq!(
            attribute(&outcome, "Cpus_allowed_list:"),
            cores,
            "{script} {outcome}"
        );
    }
    assert!(
        !node
            .log
            .entries()
            .iter()
            .any(|entry| entry.text.contains("cores are"))
    );
}

/// Asserts that logins have the cores of sshd. Before Linux 6.2 a move into a cgroup with the controller, whether it was
/// given cores or not, replaces the mask.
#[track_caller]
fn assert_cores_of_sshd(node: &Node) {
    let release = node.sh("uname -r").ok().stdout;
    let mut numbers = release
        .split(['.', '-'])
        .map(|number| number.parse().unwrap_or(0));
    let version: [u32; 2] = [numbers.next().unwrap(), numbers.next().unwrap()];
    assert_cores(node, [if version >= [6, 2] { "0" } else { "0-1" }, "0-1"]);
}

#[test]
#[ignore = "needs controllers in cgroup v2, as on the machines of tests/kernel"]
fn login_has_the_cores_of_its_jobs_own_cpuset() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        enable_cpuset(&job.cgroup);
        assert_cores_of_sshd(node);
        // A slice's cores are those of other jobs too.
        node.cgroup().child("jobs").write("cpuset.cpus", "0-1");
        assert_cores_of_sshd(node);
        job.cgroup.write("cpuset.cpus", "0-1");
        assert_cores(node, ["0-1", "0-1"]);
        job.cgroup.write("cpuset.cpus", "1");
        assert_cores(node, ["1", "1"]);
        job.resolved()
            .says("cores: 1, the job's")
            .says("memory nodes: 0");
    });
}

#[test]
#[ignore = "needs controllers in cgroup v2, as on the machines of tests/kernel"]
fn login_in_leaf_has_the_cores_of_the_leaf_or_of_its_job() {
    on_node(|node| {
        let job = node
            .job(ALICE, "4242")
            .with("leaf", json!("logins"))
            .start();
        enable_cpuset(&job.cgroup);
        job.cgroup.write("cpuset.cpus", "0-1");
        assert_cores(node, ["0-1", "0-1"]);
        let step = job.cgroup.child("step");
        let leaf = job.cgroup.child("logins");
        step.create()
            .write("cgroup.procs", &job.cgroup.pids()[0].to_string());
        enable_cpuset(&leaf);
        assert_cores(node, ["0-1", "0-1"]);
        leaf.write("cpuset.cpus", "1");
        assert_cores(node, ["1", "1"]);
    });
}

#[test]
#[ignore = "needs controllers in cgroup v2, as on the machines of tests/kernel"]
fn login_to_extern_step_has_the_cores_of_its_job() {
    on_node(|node| {
        let step = node.step(ALICE, &[]);
        enable_cpuset(&step.job);
        assert_cores_of_sshd(node);
        step.job.write("cpuset.cpus", "0-1");
        assert_cores(node, ["0-1", "0-1"]);
    });
}

/// sshd raises its own score, and gives its children the one that it was started with.
#[test]
#[ignore = "needs controllers in cgroup v2, as on the machines of tests/kernel"]
fn login_is_not_killed_after_tasks_of_its_job() {
    on_node(|node| {
        let _job = node.job(ALICE, "4242").start();
        let sshd = node.sshd_after("echo -500 >/proc/self/oom_score_adj", "");
        let score = || attribute(&sshd.ssh(ALICE, SHOW).ok(), "oom:").to_owned();
        node.write_stack("account required pam_permit.so\nsession required pam_permit.so\n");
        assert_eq!(score(), "-500");
        node.arguments("");
        assert_eq!(score(), "0");
        // The user cannot lower it again.
        let lower = "echo -1 >/proc/self/oom_score_adj || echo kept";
        sshd.ssh(ALICE, lower).ok().says("kept");
    });
}

/// Registers a job with private files, and a stack that refuses it after the move.
fn start_refusing_job(node: &Node) -> Job<'_> {
    let path = make_private_namespace(node);
    let job = node.job(ALICE, "4242").unstamped().unrecorded().start();
    register(node, &job.cgroup, &["--namespaces", &path]).ok();
    node.write_stack(
        "account required pam_permit.so\nsession required pam_permit.so\n\
         session [default=ignore] pam_job_adopt.so\n\
         session optional pam_exec.so stdout /usr/bin/in-session\n",
    );
    job
}

#[test]
#[ignore = "needs controllers in cgroup v2, as on the machines of tests/kernel"]
fn refused_login_gets_cores_and_oom_score_back() {
    on_node(|node| {
        let job = start_refusing_job(node);
        enable_cpuset(&job.cgroup);
        for cores in ["0-1", "1"] {
            job.cgroup.write("cpuset.cpus", cores);
            let script = format!("{PIN}; echo -500 >/proc/self/oom_score_adj");
            let outcome = login_after(node, &script).says("[JA09]");
            assert_attributes(&outcome, &[("Cpus_allowed_list:", "0"), ("oom:", "-500")]);
        }
        let outcome = login_after(node, ":").says("[JA09]");
        assert_attributes(&outcome, &[("Cpus_allowed_list:", "0-1")]);
    });
}
