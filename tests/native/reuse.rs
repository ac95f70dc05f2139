//! Schedulers that give a directory with our stamp to another user's job: the current owner counts.

use std::os::unix::fs::chown;

use std::process::{Child, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::support::{
    ALICE, BOB, Cgroup, FLUX, Job, Node, Outcome, Process, ROOT, User, eventually, on_node,
    run_while_held, start_crowd,
};

const STAYS: &str = "exec sleep infinity";
/// A process that goes on as its own child all the time.
const FORKS_AND_EXITS: &str = "exec perl -e 'fork and exit while 1'";

/// Ends the job and its processes; directory, stamp and record stay.
fn end_without_epilog(job: &Job<'_>) {
    job.cgroup.kill();
}

#[track_caller]
fn assert_refused_with(node: &Node, user: User, why: &str) {
    node.log.clear();
    for outcome in [node.account(user), node.session(user)] {
        assert!(outcome.code != 0, "{why}: {outcome}");
    }
    node.account(user).says("[JA07]");
    let line = node.log.decision("JA07");
    assert!(
        line.field("error").is_some_and(|error| error.contains(why)),
        "{why}: {line:?}"
    );
}

#[test]
fn directory_of_next_job_refuses_previous_user() {
    on_node(|node| {
        node.reporting("");
        let job = node.job(ALICE, "4242").start();
        end_without_epilog(&job);
        let next = Process::start_in(node, &job.cgroup, BOB, STAYS);
        assert_refused_with(
            node,
            ALICE,
            &format!("has process {} of uid 1002", next.pid()),
        );
        assert_eq!(job.cgroup.pids().len(), 1, "alice is in bob's job");
        node.job_adopt(&["resolve", "--user", "alice"])
            .exits(1)
            .says("[JA07]")
            .says("uid 1002");
        node.job_adopt(&["list"])
            .exits(1)
            .says("reused")
            .says("uid 1002");
        node.unregister("4242").ok();
        let cgroup = job.cgroup.path();
        let register = [
            "register", "--id", "7", "--user", "bob", "--policy", "closed",
        ];
        node.job_adopt(&[&register[..], &["--cgroup", cgroup]].concat())
            .ok();
        node.pam(BOB).ok().joins_cgroup(&job.cgroup);
        node.account(ALICE).fails().says("[JA03]");
    });
}

#[test]
fn process_below_the_directory_refuses() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        let step = job.cgroup.child("step");
        let _next = Process::start_in(node, step.create(), BOB, STAYS);
        assert_refused_with(node, ALICE, "of uid 1002");
    });
}

/// The directory has no process yet.
#[test]
fn directory_of_another_owner_refuses() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        end_without_epilog(&job);
        chown(job.cgroup.dir(), Some(ALICE.uid), None).unwrap();
        node.pam(ALICE).ok();
        chown(job.cgroup.dir(), Some(BOB.uid), None).unwrap();
        assert_refused_with(node, ALICE, "belongs to uid 1002 now");
    });
}

#[test]
fn directory_returned_to_root_refuses() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").unstamped().unrecorded().start();
        chown(job.cgroup.dir(), Some(ALICE.uid), None).unwrap();
        register(&job, &[]).ok();
        node.pam(ALICE).ok();
        chown(job.cgroup.dir(), Some(0), None).unwrap();
        assert_refused_with(node, ALICE, "belongs to uid 0 now");
    });
}

#[test]
fn next_job_that_starts_before_the_move_moves_the_login_back() {
    on_node(|node| {
        node.session_alone("");
        let job = node.job(ALICE, "4242").start();
        let procs = format!("/sys/fs/cgroup{}/cgroup.procs", job.cgroup.path());
        let held = ["-P", &procs, "-e", "inject=write:delay_enter=60000000"];
        let mut next = None;
        let login = || node.session_under_strace("/tmp/strace", &held, ALICE);
        run_while_held(node, login, || {
            next = Some(Process::start_in(node, &job.cgroup, BOB, STAYS))
        })
        .fails();
        node.log.decision("JA07");
        assert_eq!(job.cgroup.pids().len(), 2, "the login is in bob's job");
    });
}

#[test]
fn cgroup_without_processes_admits_logins() {
    on_node(|node| {
        node.reporting("");
        let job = node.job(ALICE, "4242").start();
        end_without_epilog(&job);
        node.pam(ALICE).ok().joins_cgroup(&job.cgroup);
    });
}

/// A setuid program may have another real uid for a moment, so only a process that stays counts.
#[test]
fn process_that_ends_before_second_look_is_ignored() {
    on_node(|node| {
        node.session_alone("");
        let job = node.job(ALICE, "4242").start();
        let held = [
            "-e",
            "inject=nanosleep,clock_nanosleep:delay_enter=60000000:when=1",
        ];
        for ends in [true, false] {
            let short = Process::start_in(node, &job.cgroup, BOB, STAYS);
            let login = || node.session_under_strace("/tmp/strace", &held, ALICE);
            let outcome = run_while_held(node, login, || {
                if ends {
                    short.end();
                }
            });
            assert_eq!(outcome.code == 0, ends, "{outcome}");
        }
    });
}

#[test]
fn setuid_program_of_user_keeps_job_with_its_owner() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        let setuid = Process::start_in(
            node,
            &job.cgroup,
            ROOT,
            "exec setpriv --ruid 1001 --euid 1003 sleep infinity",
        );
        eventually("it has both uids", || {
            setuid.uids().starts_with("1001\t1003\t")
        });
        node.pam(ALICE).ok();
    });
}

/// Starts a process as a set-uid program of root's that bob runs: it has his real uid, and root's effective one.
fn start_setuid_program_of_bob(node: &Node, cgroup: &Cgroup) -> Process {
    let script = "exec setpriv --ruid 1002 sleep infinity";
    let program = Process::start_in(node, cgroup, ROOT, script);
    eventually("it has both uids", || {
        program.uids().starts_with("1002\t0\t")
    });
    program
}

#[test]
fn setuid_program_of_next_job_refuses_previous_user() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        end_without_epilog(&job);
        let setuid = start_setuid_program_of_bob(node, &job.cgroup);
        assert_refused_with(
            node,
            ALICE,
            &format!("has process {} of uid 1002", setuid.pid()),
        );
    });
}

/// A login ends its search at 64 processes of its user, and looks last at those that run as root.
#[test]
fn list_finds_setuid_program_of_next_job_among_many_of_previous_user() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        let mut left = start_crowd(node, &job.cgroup, ALICE, 70);
        let setuid = start_setuid_program_of_bob(node, &job.cgroup);
        node.job_adopt(&["list"])
            .exits(1)
            .says("reused")
            .says("uid 1002");
        setuid.end();
        node.job_adopt(&["list"]).ok();
        job.cgroup.kill();
        left.wait().unwrap();
    });
}

#[test]
fn root_and_accounts_of_record_are_ignored() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").unstamped().unrecorded().start();
        let daemon = Process::start_in(node, &job.cgroup, FLUX, STAYS);
        let _root = Process::start_in(node, &job.cgroup, ROOT, STAYS);
        let why = format!("process {} in it belongs to uid 992", daemon.pid());
        register(&job, &[]).exits(3).says(&why);
        register(&job, &["--account", "flux"]).ok();
        node.pam(ALICE).ok();
        let record: Value = serde_json::from_str(&node.read(&job.record_path())).unwrap();
        assert_eq!(record["accounts"], json!(["flux"]));
        // Registering the same job again replaces the record.
        register(&job, &["--account", "slurm"])
            .exits(3)
            .says("of uid 992");
        node.pam(ALICE).ok();
        daemon.end();
        register(&job, &["--account", "slurm"]).ok();
        let _daemon = Process::start_in(node, &job.cgroup, FLUX, STAYS);
        assert_refused_with(node, ALICE, "of uid 992");
        register(&job, &["--account", "nonesuch"])
            .exits(3)
            .says("no such user");
    });
}

/// Starts a shell script of that user, whose first process may end, in a cgroup.
fn start_script(node: &Node, cgroup: &Cgroup, user: User, script: &str) -> Child {
    let id = user.uid.to_string();
    let mut command = node.daemon(cgroup, "setpriv");
    let ids = ["--reuid", &id, "--regid", &id, "--clear-groups"];
    command.args(ids).args(["sh", "-c", script]);
    command.stdout(Stdio::null()).spawn().unwrap()
}

/// Its process has another number at each moment, and has mostly ended when it is looked at.
#[test]
fn next_job_that_forks_and_exits_all_the_time_refuses_previous_user() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        end_without_epilog(&job);
        let mut first = start_script(node, &job.cgroup, BOB, FORKS_AND_EXITS);
        first.wait().unwrap();
        assert_refused_with(node, ALICE, "of uid 1002");
        // So slowly that hardly any is still there.
        node.session_reporting("");
        node.log.clear();
        let slow = ["-e", "inject=statx:delay_enter=30000"];
        let outcome = node.session_delayed_by_strace("/tmp/strace", &slow, ALICE);
        assert!(!outcome.stdout.contains(job.cgroup.path()), "{outcome}");
        node.log.decision("JA07");
    });
}

#[test]
fn job_whose_processes_fork_and_exit_admits_its_user() {
    on_node(|node| {
        node.reporting("");
        let job = node.job(ALICE, "4242").start();
        end_without_epilog(&job);
        let mut first = start_script(node, &job.cgroup, ALICE, FORKS_AND_EXITS);
        first.wait().unwrap();
        node.pam(ALICE).ok().joins_cgroup(&job.cgroup);
    });
}

/// As many as may be left before the next job's processes are no longer looked for.
#[test]
fn process_of_next_job_among_some_left_by_previous_user_refuses() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        let mut left = start_crowd(node, &job.cgroup, ALICE, 62);
        node.pam(ALICE).ok();
        let next = Process::start_in(node, &job.cgroup, BOB, STAYS);
        assert_refused_with(
            node,
            ALICE,
            &format!("has process {} of uid 1002", next.pid()),
        );
        job.cgroup.kill();
        left.wait().unwrap();
    });
}

/// However many of these there are, the next job is found, in whatever order its cgroups are looked at.
#[test]
fn logins_that_outlived_their_job_do_not_admit_another() {
    on_node(|node| {
        for step in ["a", "b", "c", "d"] {
            let job = node
                .job(ALICE, "4242")
                .with("leaf", "logins".into())
                .start();
            node.session(ALICE).ok();
            let leaf = job.cgroup.child("logins");
            let mut left = start_crowd(node, &leaf, ALICE, 70);
            job.cgroup
                .pids()
                .into_iter()
                .for_each(|pid| kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap());
            node.pam(ALICE).ok();
            let _next = Process::start_in(node, job.cgroup.child(step).create(), BOB, STAYS);
            assert_refused_with(node, ALICE, "of uid 1002");
            leaf.kill();
            left.wait().unwrap();
        }
    });
}

/// The filter of a job stays after a refusal.
#[test]
fn next_job_gets_no_filter_of_previous_user() {
    on_node(|node| {
        node.session_alone("");
        let job = node.job(ALICE, "4242").devices(&["/dev/nvidia0"]).start();
        end_without_epilog(&job);
        let _next = Process::start_in(node, &job.cgroup, BOB, STAYS);
        node.session(ALICE).fails();
        assert_eq!(job.cgroup.filters(), []);
    });
}

/// One process that was left can fork as many as end a login's search.
#[test]
fn next_job_among_many_left_by_previous_user_gets_no_filter() {
    on_node(|node| {
        node.session_alone("");
        let job = node.job(ALICE, "4242").devices(&["/dev/nvidia0"]).start();
        let mut left = start_crowd(node, &job.cgroup, ALICE, 70);
        let next = Process::start_in(node, &job.cgroup, BOB, STAYS);
        node.session(ALICE).fails();
        assert_eq!(job.cgroup.filters(), []);
        next.end();
        node.session(ALICE).ok();
        assert_ne!(job.cgroup.filters(), []);
        job.cgroup.kill();
        left.wait().unwrap();
    });
}

/// A process that nothing is known of may belong to anybody.
#[test]
fn hidden_process_refuses() {
    on_node(|node| {
        node.session_alone("");
        let job = node.job(ALICE, "4242").start();
        let login = |bounding: &str| {
            node.sh(&format!(
                "unshare --mount sh -c 'mount -t proc -o hidepid=2 proc /proc && \
                 exec setpriv {bounding} pamtester sshd alice open_session'"
            ))
        };
        login("--nnp").ok();
        end_without_epilog(&job);
        let next = Process::start_in(node, &job.cgroup, BOB, STAYS);
        for bounding in ["--nnp", "--bounding-set=-sys_ptrace --inh-caps=-sys_ptrace"] {
            node.log.clear();
            login(bounding).fails();
            let line = node.log.decision("JA07");
            let process = format!("process {}", next.pid());
            assert!(
                line.field("error")
                    .is_some_and(|error| error.contains(&process)),
                "{line:?}"
            );
        }
    });
}

/// In a rootless container, processes have their own uids, and the user's namespace.
#[test]
fn process_in_user_namespace_belongs_to_namespace_owner() {
    for (owner, admitted) in [(ALICE, true), (BOB, false)] {
        on_node(|node| {
            let job = node.job(ALICE, "4242").start();
            let container = Process::start_container(node, owner, "true");
            job.cgroup
                .write("cgroup.procs", &container.host_pid().to_string());
            if admitted {
                node.pam(ALICE).ok();
            } else {
                assert_refused_with(node, ALICE, "of uid 100004");
            }
        });
    }
}

/// Processes of the previous user are strays. A job with a process of another account is not over.
#[test]
fn previous_user_of_directory_has_strays() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        let outside = Process::new(node, ALICE, STAYS);
        let theirs = Process::start_in(node, &job.cgroup, BOB, STAYS);
        node.job_adopt(&["strays", "--kill"]).ok();
        assert!(outside.runs() && theirs.runs());
        assert_eq!(job.cgroup.pids().len(), 2, "a running job was ended");
        theirs.end();
        end_without_epilog(&job);
        let next = Process::start_in(node, &job.cgroup, BOB, STAYS);
        node.job_adopt(&["strays", "--kill"]).ok();
        eventually("what she has left has ended", || !outside.runs());
        assert!(next.runs(), "the next job was ended");
    });
}

fn register(job: &Job<'_>, more: &[&str]) -> Outcome {
    let known = [
        "register",
        "--id",
        &job.id,
        "--user",
        job.owner.name,
        "--policy",
        "closed",
    ];
    let place = ["--cgroup", job.cgroup.path()];
    job.node().job_adopt(&[&known[..], &place, more].concat())
}
