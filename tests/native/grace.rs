//! The end of a job lets programs of its logins save.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::support::{
    ALICE, Cgroup, FluxJob, Job, Node, Sshd, Tool, eventually, on_flux, on_node, skip,
    timeout_factor,
};

/// Time to end that a call must stay below if it does not wait for the whole grace of [`LONG`].
const EARLY: Duration = Duration::from_secs(15);
/// A grace that no test waits for.
const LONG: &str = "end_grace = 60\n";

/// Asserts that `unregister` succeeds without a time limit of its own, and returns how long it took.
#[track_caller]
fn end_job(node: &Node) -> Duration {
    node.job_adopt(&["unregister", "4242"]).ok().took
}

/// Starts a login that runs a script of bash, and waits until it says so by its file `ready`.
fn start_login(node: &Node, sshd: &Sshd<'_>, name: &str, script: &str) -> Child {
    let login = sshd.stay(ALICE, &format!("exec bash -c '{script}'"));
    eventually("the login is ready", || node.exists(&ready(name)));
    login
}

fn ready(name: &str) -> String {
    format!("/tmp/{name}.ready")
}

/// A script that writes the names of signals which it gets, and lives on.
fn note_signals(name: &str, signals: &str) -> String {
    let traps: Vec<String> = signals
        .split(' ')
        .map(|signal| format!("trap \"echo {signal} >>/tmp/{name}\" {signal};"))
        .collect();
    format!(
        "{} touch {}; while :; do sleep 0.02; done",
        traps.join(" "),
        ready(name)
    )
}

fn assert_only_payload(job: &Job<'_>) {
    assert_eq!(job.cgroup.pids().len(), 1, "a login is left");
}

fn await_end(mut login: Child) {
    eventually("the login has ended", || {
        login.try_wait().unwrap().is_some()
    });
}

/// An editor that a login runs on its terminal.
struct Editor {
    client: Child,
    output: PathBuf,
    text: String,
}

impl Editor {
    /// Starts it with a file that does not exist, and writes a word there that it does not save.
    fn open(sshd: &Sshd<'_>, name: &str, command: &str, is_modal: bool) -> Self {
        let node = sshd.node();
        let output = node.path(&format!("/root/{name}"));
        let target = format!("{}@127.0.0.1", ALICE.name);
        let script = format!("stty rows 24 cols 80; TERM=xterm exec {command} {name}.txt");
        let client = sshd
            .client("ssh", &["-o", "BatchMode=yes", "-tt", &target, &script])
            .stdin(Stdio::piped())
            .stdout(File::create(&output).unwrap())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let shows =
            |text: &str| String::from_utf8_lossy(&fs::read(&output).unwrap()).contains(text);
        eventually("the editor shows its file", || shows(name));
        let text = format!("unsaved{name}words");
        let typed = if is_modal {
            format!("i{text}")
        } else {
            text.clone()
        };
        let mut stdin = client.stdin.as_ref().unwrap();
        stdin.write_all(typed.as_bytes()).unwrap();
        eventually("the editor shows the text", || shows("words"));
        Self {
            client,
            output,
            text,
        }
    }

    /// Asserts that the text is in a file of the user.
    fn assert_saved(self, node: &Node) {
        let Self {
            client,
            output,
            text,
        } = self;
        await_end(client);
        let found = node.sh(&format!("grep -rlF {text} /home/alice"));
        let shown = fs::read(output).unwrap();
        assert!(
            found.code == 0,
            "{text} is lost: {}",
            String::from_utf8_lossy(&shown)
        );
    }
}

/// Editors of each kind, at once. Both signals at the same moment would lose every third text of vim.
const EDITORS: usize = 4;

#[test]
fn editors_save_what_is_unsaved_at_end_of_job() {
    let is_missing = |name: &str| !Path::new("/usr/bin").join(name).exists();
    if ["vim", "nano", "emacs"].into_iter().any(is_missing) {
        return skip("needs vim, nano and emacs-nox");
    }
    on_node(|node| {
        let _job = node.job(ALICE, "4242").start();
        node.configure("end_grace = 20\n");
        let sshd = node.sshd();
        let mut editors = Vec::new();
        for number in 0..EDITORS {
            let name = |kind: &str| format!("{kind}{number}");
            let vim = "vim -u NONE -c \"set swapfile\"";
            editors.push(Editor::open(&sshd, &name("vim"), vim, true));
            editors.push(Editor::open(&sshd, &name("nano"), "nano", false));
            editors.push(Editor::open(&sshd, &name("emacs"), "emacs -nw -Q", false));
        }
        assert!(end_job(node) < EARLY, "they were waited for");
        for editor in editors {
            editor.assert_saved(node);
        }
    });
}

#[test]
fn program_gets_hangup_before_termination() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        let sshd = node.sshd();
        let login = start_login(node, &sshd, "signals", &note_signals("signals", "HUP TERM"));
        let took = end_job(node);
        assert_eq!(node.read("/tmp/signals"), "HUP\nTERM\n");
        assert!(took >= Duration::from_secs(2), "{took:?}");
        assert!(
            took < Duration::from_secs(3) * timeout_factor() + Duration::from_secs(1),
            "{took:?}"
        );
        assert_only_payload(&job);
        await_end(login);
    });
}

/// `nohup` leaves a program that only `SIGTERM` asks to end.
#[test]
fn program_that_ignores_hangup_gets_termination_at_once() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        node.configure(LONG);
        let sshd = node.sshd();
        let script = format!("touch {}; exec nohup sleep infinity", ready("nohup"));
        let login = start_login(node, &sshd, "nohup", &script);
        assert!(end_job(node) < EARLY);
        assert_only_payload(&job);
        await_end(login);
    });
}

#[test]
fn stopped_program_is_continued_and_saves() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        node.configure(LONG);
        let sshd = node.sshd();
        let script = format!(
            "trap \"echo saved >/tmp/saved; exit\" HUP; touch {}; kill -STOP $$; sleep 1",
            ready("stopped")
        );
        let login = start_login(node, &sshd, "stopped", &script);
        eventually("it is stopped", || {
            let is_stopped = |pid: &i32| {
                fs::read_to_string(format!("/proc/{pid}/stat"))
                    .is_ok_and(|stat| stat.contains("(bash) T "))
            };
            job.cgroup.pids().iter().any(is_stopped)
        });
        assert!(end_job(node) < EARLY);
        assert_eq!(node.read("/tmp/saved"), "saved\n");
        await_end(login);
    });
}

/// Without `pam_loginuid` its session alone shows where such a process comes from.
#[test]
fn process_that_program_starts_at_hangup_ends_with_job() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        let sshd = node.sshd();
        let script = format!(
            "trap \"(trap \\\"\\\" HUP TERM; exec sleep infinity) & exit\" HUP; touch {}; \
             while :; do sleep 0.02; done",
            ready("fork")
        );
        let login = start_login(node, &sshd, "fork", &script);
        end_job(node);
        assert_only_payload(&job);
        await_end(login);
    });
}

#[test]
fn login_that_forks_without_end_is_killed_after_grace() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        node.configure("end_grace = 1\n");
        let sshd = node.sshd();
        let script = format!(
            "trap \"\" HUP TERM; touch {}; fork() {{ sleep 0.1; fork & }}; for i in 1 2 3; do fork & done; \
             while :; do wait; sleep 1; done",
            ready("bomb")
        );
        let login = start_login(node, &sshd, "bomb", &script);
        let took = end_job(node);
        assert!(took < Duration::from_secs(2) * timeout_factor(), "{took:?}");
        assert_only_payload(&job);
        await_end(login);
    });
}

#[test]
fn frozen_login_is_killed_after_grace() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        job.cgroup.child("step").create();
        node.configure("end_grace = 1\n");
        let sshd = node.sshd();
        let script = format!("touch {}; exec sleep infinity", ready("frozen"));
        let login = start_login(node, &sshd, "frozen", &script);
        let leaf = job.cgroup.child("job-adopt");
        leaf.freeze(true);
        let took = end_job(node);
        assert!(took >= Duration::from_secs(1), "{took:?}");
        assert!(took < Duration::from_secs(2) * timeout_factor(), "{took:?}");
        assert!(!leaf.exists());
        await_end(login);
    });
}

/// A connection without a program, as for a forward, has nothing to save.
#[test]
fn connection_without_program_is_not_waited_for() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        node.configure(LONG);
        let sshd = node.sshd();
        let target = format!("{}@127.0.0.1", ALICE.name);
        let mut client = sshd.client("ssh", &["-o", "BatchMode=yes", "-N", &target]);
        let client = client.stderr(Stdio::null()).spawn().unwrap();
        eventually("it is in the job", || job.cgroup.pids().len() == 3);
        assert!(end_job(node) < EARLY);
        assert_only_payload(&job);
        await_end(client);
    });
}

#[test]
fn time_limit_of_call_shortens_grace() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        node.configure(LONG);
        let sshd = node.sshd();
        let script = note_signals("limit", "HUP TERM");
        let login = start_login(node, &sshd, "limit", &script);
        let began = Instant::now();
        node.job_adopt(&["unregister", "--timeout", "1", "4242"])
            .ok();
        assert!(began.elapsed() < EARLY);
        assert_only_payload(&job);
        await_end(login);
    });
}

#[test]
fn no_grace_kills_at_once() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        node.configure("end_grace = 0\n");
        let sshd = node.sshd();
        let login = start_login(node, &sshd, "none", &note_signals("none", "HUP TERM"));
        end_job(node);
        assert!(!node.exists("/tmp/none"), "it got a signal first");
        assert_only_payload(&job);
        await_end(login);
    });
}

/// A scheduler may give the cgroup to the next job while programs of the last one save.
#[test]
fn end_in_its_grace_leaves_logins_of_next_job() {
    on_node(|node| {
        let job = node.job(ALICE, "4242").start();
        node.configure("end_grace = 8\n");
        let sshd = node.sshd();
        let first = start_login(node, &sshd, "first", &note_signals("first", "HUP TERM"));
        let mut ending = node
            .daemon(&node.outside(), "job-adopt")
            .args(["unregister", "4242"])
            .spawn()
            .unwrap();
        eventually("the login is asked to end", || node.exists("/tmp/first"));
        let _next = node
            .job(ALICE, "4243")
            .in_cgroup(job.cgroup.clone())
            .start();
        let mut second = start_login(node, &sshd, "second", &note_signals("second", "HUP TERM"));
        eventually("the call has ended", || {
            ending.try_wait().unwrap().is_some()
        });
        await_end(first);
        assert!(
            !node.exists("/tmp/second"),
            "the login of the next job was asked to end"
        );
        assert!(
            second.try_wait().unwrap().is_none(),
            "the login of the next job was killed"
        );
        node.unregister("4243").ok();
        await_end(second);
    });
}

/// What a command of `run` leaves is the job's, and nothing else ends it.
#[test]
fn process_left_by_job_of_run_saves_at_its_end() {
    on_node(|node| {
        node.configure(LONG);
        let left = format!(
            "trap \"echo saved >/tmp/saved; exit\" HUP; touch {}; while :; do sleep 0.02; done",
            ready("left")
        );
        let script = format!(
            "setsid bash -c '{left}' & while ! test -e {}; do sleep 0.02; done",
            ready("left")
        );
        let words = ["run", "--user", "alice", "--policy", "closed", "--"];
        let began = Instant::now();
        node.job_adopt(&[&words[..], &["bash", "-c", &script]].concat())
            .ok();
        assert!(began.elapsed() < EARLY);
        assert_eq!(node.read("/tmp/saved"), "saved\n");
    });
}

/// Mounts a file system that never answers at `/mnt/stuck`.
fn mount_stuck(node: &Node) -> Child {
    node.install(&Tool::StuckFs.path(), "/usr/bin/stuckfs");
    node.create_dir("/mnt/stuck", 0o755);
    let mut stuckfs = node.daemon(&node.outside(), "stuckfs");
    let stuckfs = stuckfs.arg("/mnt/stuck").spawn().unwrap();
    eventually("it is mounted", || {
        node.read("/proc/1/mounts").contains(" /mnt/stuck fuse ")
    });
    stuckfs
}

/// Frees everything that waits for the file system.
fn end_stuck(node: &Node, mut stuckfs: Child) {
    node.sh("umount --force --lazy /mnt/stuck").ok();
    eventually("the server has ended", || {
        stuckfs.try_wait().unwrap().is_some()
    });
}

/// Waits until a process of the cgroup waits for the file system to read from its file, which it never does. Before, it
/// waits for answers that come.
fn await_stuck(cgroup: &Cgroup) {
    let has_opened =
        |pid: &i32| {
            let descriptors = fs::read_dir(format!("/proc/{pid}/fd"));
            descriptors.into_iter().flatten().flatten().any(|entry| {
                fs::read_link(entry.path()).is_ok_and(|file| file.ends_with("stuck/data"))
            })
        };
    let waits = |pid: &i32| {
        fs::read_to_string(format!("/proc/{pid}/wchan"))
            .is_ok_and(|function| function.contains("request_wait_answer"))
    };
    eventually("it waits", || {
        let pids = cgroup.pids_or_empty();
        pids.iter().any(|pid| has_opened(pid) && waits(pid))
    });
}

/// A process that waits for a file system which does not answer takes no signal.
#[test]
fn process_that_no_signal_ends_is_named_with_its_file() {
    for has_leaf in [false, true] {
        on_node(|node| {
            let stuckfs = mount_stuck(node);
            let job = node.job(ALICE, "4242").start();
            let mut cgroup = job.cgroup.clone();
            if has_leaf {
                job.cgroup.child("step").create();
                cgroup = job.cgroup.child("job-adopt");
            }
            let login = node.sshd().stay(ALICE, "exec cat /mnt/stuck/data");
            await_stuck(&cgroup);
            let first = node.job_adopt(&["unregister", "--timeout", "3", "4242"]);
            let second = node.job_adopt(&["unregister", "--timeout", "1", "4242"]);
            end_stuck(node, stuckfs);
            first
                .exits(4)
                .says("cannot be killed: ")
                .says(" (cat, in request_wait_answer, /mnt/stuck/data on fuse of stuck)");
            let logged = node.log.to_string();
            assert!(
                logged.contains("error=") && logged.contains("/mnt/stuck/data on fuse"),
                "{logged}"
            );
            // In the job's own cgroup only the first call can tell that it comes from a login.
            second.exits(if has_leaf { 4 } else { 0 });
            await_end(login);
            node.unregister("4242").ok();
            // Without a leaf, nothing waits for the end of what was killed.
            eventually("only the payload is left", || job.cgroup.pids().len() == 1);
        });
    }
}

/// Runs `body` in a Flux job with this grace, during a login of this script.
fn with_flux_login(grace: &str, name: &str, script: &str, body: impl FnOnce(&Node, &mut FluxJob)) {
    on_flux(|node| {
        node.configure(grace);
        let rules = ["--rule", "c:195:0:rw", "--rule", "c:1:*:rwm"];
        let mut job = node.start_flux_job(ALICE, "fxyzzy", &rules);
        let sshd = node.sshd();
        let login = start_login(node, &sshd, name, script);
        body(node, &mut job);
        await_end(login);
        eventually("the keeper is gone", || node.keepers().is_empty());
    });
}

#[test]
fn program_of_flux_login_saves_and_is_not_waited_for() {
    let script = format!(
        "trap \"echo saved >/tmp/saved; exit\" HUP; touch {}; while :; do sleep 0.02; done",
        ready("flux")
    );
    with_flux_login(LONG, "flux", &script, |node, job| {
        let began = Instant::now();
        job.finish();
        eventually("the leaf is gone", || !job.leaf().exists());
        assert!(began.elapsed() < EARLY);
        assert_eq!(node.read("/tmp/saved"), "saved\n");
    });
}

#[test]
fn program_of_flux_login_that_goes_on_is_killed_after_grace() {
    let script = note_signals("flux", "HUP TERM");
    with_flux_login("end_grace = 1\n", "flux", &script, |node, job| {
        let began = Instant::now();
        job.finish();
        eventually("the leaf is gone", || !job.leaf().exists());
        let took = began.elapsed();
        assert_eq!(node.read("/tmp/flux"), "HUP\nTERM\n");
        assert!(took >= Duration::from_secs(1), "{took:?}");
        assert!(took < Duration::from_secs(2) * timeout_factor(), "{took:?}");
    });
}
