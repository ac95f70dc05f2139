//! Resource limits of the job's own processes, for its logins.

use std::process::{Child, Stdio};

use pam_job_adopt::plan::{Containment, Plan, ProcessId, Reply, Verdict};
use serde_json::json;

use crate::helper::admit;
use crate::nproc::may_raise_limits;
use crate::support::{
    ALICE, BOB, Cgroup, Fake, Node, Outcome, ROOT, SPOOL, User, eventually, on_node, plan,
};

/// Prints some limits, soft and hard.
const TELL: &str = "for limit in n c l s i t f v; do \
                    echo limit -$limit $(ulimit -S$limit) $(ulimit -H$limit); done";
/// What the job's process has, as prlimit(1) sets it and as [`TELL`] tells it, in KiB but for files
/// and signals.
const LOWER: &str = "--nofile=300:400 --core=1048576:2097152 --memlock=65536:131072 \
                     --stack=1048576:2097152 --sigpending=111:222";
const LOWERED: [&str; 5] =
    ["-n 300 400", "-c 1024 2048", "-l 64 128", "-s 1024 2048", "-i 111 222"];

/// Numbers of the processes in that cgroup, as the node counts them.
fn pids(node: &Node, cgroup: &Cgroup) -> Vec<i32> {
    let listed = node.sh(&format!("cat /sys/fs/cgroup{}/cgroup.procs", cgroup.path())).ok();
    listed.stdout.lines().map(|pid| pid.parse().unwrap()).collect()
}

/// Lowers limits of the only process there.
fn prlimit(node: &Node, cgroup: &Cgroup, limits: &str) -> i32 {
    let [pid] = pids(node, cgroup)[..] else { panic!("several processes") };
    lower(node, pid, limits);
    pid
}

/// As Alice, whose process it is: without CAP_SYS_RESOURCE root may not either, prlimit(2).
fn lower(node: &Node, pid: i32, limits: &str) {
    let alice = "setpriv --reuid 1001 --regid 1001 --clear-groups";
    node.sh(&format!("{alice} prlimit --pid {pid} {limits}")).ok();
}

/// One more process.
fn process(node: &Node, owner: User, cgroup: &Cgroup) -> (Child, i32) {
    let id = owner.uid.to_string();
    process_by(node, cgroup, &["--reuid", &id, "--regid", &id])
}

/// The same, by the user ids that setpriv(1) sets.
fn process_by(node: &Node, cgroup: &Cgroup, ids: &[&str]) -> (Child, i32) {
    let before = pids(node, cgroup);
    let mut command = node.daemon(cgroup, "setpriv");
    command.args(ids).args(["--clear-groups", "sleep", "infinity"]);
    let child = command.stdout(Stdio::null()).spawn().unwrap();
    let mut new = None;
    eventually("the process runs", || {
        new = pids(node, cgroup).into_iter().find(|pid| !before.contains(pid));
        new.is_some_and(|pid| node.sh(&format!("cat /proc/{pid}/comm")).stdout == "sleep\n")
    });
    (child, new.unwrap())
}

fn end(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

#[track_caller]
fn has(outcome: &Outcome, limits: &[&str]) {
    for limit in limits {
        let line = format!("limit {limit}");
        assert!(outcome.stdout.lines().any(|told| told.trim_end() == line), "{line}: {outcome}");
    }
}

/// The limits that [`TELL`] told.
fn told(outcome: &Outcome) -> Vec<String> {
    let lines = outcome.stdout.lines().map(|line| line.trim_end().to_owned());
    lines.filter(|line| line.starts_with("limit -")).collect()
}

/// As a helper that names this process says it.
fn naming(job: &str, cgroup: &Cgroup, pid: i32) -> Reply {
    let mut reply = admit(job, cgroup);
    if let Verdict::Admit(plan) = &mut reply.verdict {
        plan.limits_of = ProcessId::new(pid.into());
    }
    reply
}

#[test]
fn a_login_has_the_limits_of_its_job() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        prlimit(node, &job.cgroup, LOWER);
        let sshd = node.sshd();
        let own = sshd.ssh(ALICE, TELL).ok();
        node.configure("limits = none\n");
        assert_eq!(told(&sshd.ssh(ALICE, TELL).ok()), told(&own), "nobody asked for any");
        node.configure("limits = job\n");
        for outcome in
            [sshd.ssh(ALICE, TELL), sshd.ssh_tty(ALICE, TELL), sshd.ssh_password(ALICE, TELL)]
        {
            has(&outcome.ok(), &LOWERED);
        }
        let entry = node.log.find("limits", |entry| entry.field("limits") == Some("job"));
        assert_eq!(entry.field("decision"), Some("adopt"), "{}", entry.text);
        sshd.scp(&[], "/etc/hosts", "alice@127.0.0.1:copy").ok();
    });
}

/// They would end sshd itself, or have it fail halfway.
#[test]
fn limits_that_end_a_process_are_left_as_they_are() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        prlimit(
            node,
            &job.cgroup,
            "--cpu=1:2 --fsize=1:2 --as=4096:8192 --data=1:2 --nofile=99:99",
        );
        node.configure("limits = job\n");
        let outcome = node.sshd().ssh(ALICE, TELL).ok();
        let left = ["-n 99 99", "-t unlimited unlimited", "-f unlimited unlimited"];
        has(&outcome, &[&left[..], &["-v unlimited unlimited"]].concat());
    });
}

/// The oldest, and of the job's own: neither root's, nor another job's, nor one of a login.
#[test]
fn the_oldest_process_of_the_users_own_counts() {
    on_node(|node| {
        node.configure("limits = job\n");
        let job = node.job(ALICE, "4242").start();
        let _other = node.job(ALICE, "4241").started(5).start();
        let oldest = prlimit(node, &job.cgroup, "--nofile=301:301");
        let (younger, number) = process(node, ALICE, &job.cgroup);
        lower(node, number, "--nofile=302:302");
        let sshd = node.sshd();
        let files = || sshd.ssh(ALICE, "ulimit -n").ok().stdout.trim().to_owned();
        assert_eq!(files(), "301");
        node.sh(&format!("kill -KILL {oldest}")).ok();
        eventually("the oldest is gone", || !pids(node, &job.cgroup).contains(&oldest));
        assert_eq!(files(), "302");
        end(younger);
    });
}

#[test]
fn where_there_is_none_the_login_keeps_its_own_and_the_log_says_so() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        let sshd = node.sshd();
        let own = told(&sshd.ssh(ALICE, TELL).ok());
        node.configure("limits = job\n");
        let mut login = sshd.stay(ALICE, "ulimit -n 303; cat");
        eventually("the login is in the job", || job.cgroup.pids().len() > 3);
        let (roots, _) = process(node, ROOT, &job.cgroup);
        let (his, _) = process(node, BOB, &job.cgroup);
        node.sh(&format!("kill -KILL {}", pids(node, &job.cgroup)[0])).ok();
        let outcome = sshd.ssh(ALICE, TELL).ok();
        assert_eq!(told(&outcome), own, "{outcome}");
        assert_eq!(outcome.stderr, "");
        node.log.line("limits: job 4242: has no process to take limits from");
        drop(login.stdin.take());
        login.wait().unwrap();
        end(roots);
        end(his);
    });
}

/// Neither names of processes nor those of cgroups need be text.
#[test]
fn a_process_counts_whatever_it_and_its_cgroup_are_called() {
    on_node(|node| {
        node.configure("limits = job\n");
        let job = node.job(ALICE, "4242").with("leaf", json!("logins")).start();
        let first = pids(node, &job.cgroup)[0];
        let odd = "n=/tmp/$(printf '\\377'); cp /bin/sleep $n; \
                   exec prlimit --nofile=305:305 $n infinity";
        let mut command = node.daemon(&job.cgroup, "setpriv");
        command.args(["--reuid", "1001", "--regid", "1001", "--clear-groups", "sh", "-c", odd]);
        let child = command.stdout(Stdio::null()).spawn().unwrap();
        let named = |pid: &i32| {
            let name = node.sh(&format!("od -An -tx1 /proc/{pid}/comm"));
            name.stdout.trim() == "ff 0a"
        };
        let mut number = None;
        eventually("it runs", || {
            number = pids(node, &job.cgroup).into_iter().find(named);
            number.is_some()
        });
        node.sh(&format!("kill -KILL {first}")).ok();
        let sshd = node.sshd();
        let files = || sshd.ssh(ALICE, "ulimit -n").ok().stdout.trim().to_owned();
        assert_eq!(files(), "305", "{}", node.log);
        let cgroup = format!("/sys/fs/cgroup{}/$(printf '\\377')", job.cgroup.path());
        let number = number.unwrap();
        node.sh(&format!("mkdir {cgroup} && echo {number} >{cgroup}/cgroup.procs")).ok();
        assert_eq!(files(), "305", "{}", node.log);
        node.sh(&format!("kill -KILL {number}")).ok();
        end(child);
        eventually("its cgroup is gone", || node.sh(&format!("rmdir {cgroup}")).code == 0);
    });
}

/// Nothing of a login counts where logins have a cgroup of their own.
#[test]
fn what_a_login_left_running_is_none() {
    on_node(|node| {
        node.configure("limits = job\n");
        let job = node.job(ALICE, "4242").with("leaf", json!("logins")).start();
        let sshd = node.sshd();
        sshd.ssh(ALICE, "ulimit -n 304; setsid sleep 60 >/dev/null 2>&1 </dev/null &").ok();
        let logins = job.cgroup.child("logins");
        eventually("it is left", || logins.pids().len() == 1);
        node.sh(&format!("kill -KILL {}", pids(node, &job.cgroup)[0])).ok();
        sshd.ssh(ALICE, "ulimit -n").ok().keeps_quiet_about("304");
        node.log.line("limits: job 4242: has no process to take limits from");
    });
}

/// What a subverted helper might try.
#[test]
fn a_process_that_is_not_the_users_or_not_in_the_job_refuses() {
    on_node(|node| {
        node.session_reporting("");
        let job = node.job(ALICE, "4242").start();
        let other = node.job(ALICE, "4243").start();
        let (his, in_hers) = process(node, BOB, &job.cgroup);
        let (roots, of_root) = process(node, ROOT, &job.cgroup);
        let (outside, out) = process(node, ALICE, &node.outside());
        let (mixed, both) = process_by(node, &job.cgroup, &["--euid", "1001"]);
        // As sudo(8) is: what its limits are is not the user's to choose.
        let (by_her, hers) = process_by(node, &job.cgroup, &["--ruid", "1001"]);
        let elsewhere = pids(node, &other.cgroup)[0];
        for (what, pid, why) in [
            ("another user's", in_hers, "is not the user's alone"),
            ("root's", of_root, "is not the user's alone"),
            ("one of two users", both, "is not the user's alone"),
            ("root's, started by the user", hers, "is not the user's alone"),
            ("outside", out, "is not in the job"),
            ("in another job", elsewhere, "is not in the job"),
        ] {
            node.log.clear();
            Fake::new().answers(&naming("4242", &job.cgroup, pid)).install(node);
            let outcome = node.phases("sshd", ALICE, &["open_session"]);
            let entry = node.log.decision("JA07");
            assert!(entry.text.contains(&format!("process {pid} {why}")), "{what}: {}", entry.text);
            outcome.stands_in(&node.outside());
        }
        for child in [his, roots, outside, mixed, by_her] {
            end(child);
        }
    });
}

/// Between the helper's look and ours.
#[test]
fn a_process_that_has_ended_is_as_none() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        Fake::new().answers(&naming("4242", &job.cgroup, 4_194_303)).install(node);
        node.sshd().ssh(ALICE, "true").ok();
        node.log.line("limits: process 4194303 of the job has ended, none were taken");
    });
}

#[test]
fn what_sshd_cannot_do_with_refuses() {
    on_node(|node| {
        node.configure("limits = job\n");
        let job = node.job(ALICE, "4242").start();
        let sshd = node.sshd();
        for (limit, named) in
            [("--nofile=3:20000", "nofile of 3:20000"), ("--stack=4096:8388608", "stack of 4096:")]
        {
            node.log.clear();
            prlimit(node, &job.cgroup, limit);
            sshd.ssh(ALICE, "true").failed();
            assert!(node.log.decision("JA07").text.contains(named), "{named}: {}", node.log);
            prlimit(node, &job.cgroup, "--nofile=1024:20000 --stack=8388608:8388608");
        }
        sshd.ssh(ALICE, "true").ok();
    });
}

/// A hard limit of the job's that is above that of the login's own process.
#[test]
fn a_limit_that_cannot_be_raised_refuses_and_is_named() {
    on_node(|node| {
        node.configure("limits = job\n");
        node.session_alone("");
        let job = node.job(ALICE, "4242").start();
        prlimit(node, &job.cgroup, "--nofile=600:700");
        let phases = "pamtester sshd alice open_session";
        let under = |privileges: &str| {
            node.sh(&format!("exec prlimit --nofile=500:500 setpriv {privileges} {phases}"))
        };
        if may_raise_limits() {
            under("--inh-caps=-chown").ok();
        }
        under("--bounding-set=-sys_resource").failed();
        let entry = node.log.decision("JA07");
        assert!(entry.text.contains("set nofile to 600:700"), "{}", entry.text);
        assert!(entry.text.contains("CAP_SYS_RESOURCE"), "{}", entry.text);
        assert_eq!(entry.severity(), 3, "{}", entry.text);
        eventually("nobody has joined", || job.cgroup.pids().len() == 1);
    });
}

/// The session under these limits with these options of strace(1), the refusal passed over; then
/// the limits that its process has.
fn session(node: &Node, options: &str) -> Outcome {
    node.sh(&format!(
        "exec prlimit --nofile=500:20000 --core=4096:16384 --sigpending=900:2000 strace -qq -o /tmp/strace \
         -e trace=prlimit64 {options} pamtester sshd alice open_session"
    ))
}

/// The system calls that set a limit of its own process, counted among all of that kind from 1.
fn calls_that_set(node: &Node) -> Vec<usize> {
    let trace = node.read("/tmp/strace");
    let sets = |line: &str| line.contains("{rlim_cur=") && line.contains(", NULL)");
    let numbered = trace.lines().enumerate().filter(|(_, line)| sets(line));
    numbered.map(|(index, _)| index + 1).collect()
}

#[test]
fn one_that_fails_takes_all_of_them_back() {
    on_node(|node| {
        node.configure("limits = job\n");
        node.stack(
            "session required pam_permit.so\nsession [default=ignore] pam_job_adopt.so\n\
             session optional pam_exec.so stdout /usr/bin/cat /proc/self/limits /proc/self/cgroup\n",
        );
        let job = node.job(ALICE, "4242").start();
        prlimit(node, &job.cgroup, "--nofile=600:600 --core=8192:16384 --sigpending=1000:2000");
        let row = |outcome: &Outcome, title: &str| {
            let line = outcome.stdout.lines().find_map(|line| line.strip_prefix(title));
            let fields = line.unwrap_or_else(|| panic!("no {title}: {outcome}")).split_whitespace();
            fields.take(2).map(str::to_owned).collect::<Vec<_>>().join(":")
        };
        let limits = |outcome: &Outcome| {
            let soft = |title| row(outcome, title).split(':').next().unwrap().to_owned();
            let files = row(outcome, "Max open files");
            [files, soft("Max core file size"), soft("Max pending signals")]
        };
        let outcome = session(node, "").stands_in(&job.cgroup);
        assert_eq!(limits(&outcome), ["600:600", "8192", "1000"]);
        // The hard limit that goes down comes last: it could not be taken back.
        let sets = calls_that_set(node);
        assert_eq!(sets.len(), 3, "{}", node.read("/tmp/strace"));
        for (done, call) in sets.into_iter().enumerate() {
            node.log.clear();
            let outcome = session(node, &format!("-e inject=prlimit64:error=EPERM:when={call}"));
            let outcome = outcome.stands_in(&node.outside());
            assert_eq!(limits(&outcome), ["500:20000", "4096", "900"], "after {done}");
            node.log.decision("JA07");
            assert_eq!(pids(node, &job.cgroup).len(), 1);
        }
    });
}

/// By the daemon of the extern step, on cgroup v2; on v1 see `slurm::limits`.
#[test]
fn a_step_of_slurms_has_them_and_its_logins_do_not() {
    on_node(|node| {
        let resolve = "/usr/libexec/job-adopt/resolve";
        node.sh(&format!("cp -p {resolve} /run/kept")).ok();
        let step = node.step(ALICE, &[]);
        node.sh(&format!("cp -p /run/kept {resolve}")).ok();
        node.folder("/etc/slurm", 0o755);
        node.write("/etc/slurm/slurm.conf", &format!("SlurmdSpoolDir={SPOOL}\n"));
        node.write("/etc/slurm/cgroup.conf", "ConstrainDevices=no\n");
        node.configure("limits = job\n");
        let sshd = node.sshd();
        sshd.ssh(ALICE, "ulimit -n 306; setsid sleep 60 >/dev/null 2>&1 </dev/null &").ok();
        sshd.ssh(ALICE, "ulimit -n").ok().keeps_quiet_about("306");
        node.log.line("limits: job 4242: has no process to take limits from");
        let batch = step.job.child("step_batch");
        let task = batch.child("user").child("task_0");
        batch.create();
        batch.child("user").create();
        task.create();
        let (child, pid) = process(node, ALICE, &task);
        lower(node, pid, "--nofile=307:307");
        sshd.ssh(ALICE, "ulimit -n").ok().says("307");
        let (outside, out) = process(node, ALICE, &node.outside());
        node.answers(&Plan { limits_of: ProcessId::new(out.into()), ..plan(Containment::None) });
        sshd.ssh(ALICE, "true").failed();
        node.log.decision("JA07");
        end(child);
        end(outside);
    });
}
