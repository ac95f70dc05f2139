//! `notify` writes to the terminals of a job's own logins, each notice once, and nowhere else.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::chown;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::json;

use crate::support::{
    ALICE, BOB, Cgroup, HELPER, Job, Node, Outcome, SPOOL, Sshd, User, eventually, on_node,
};

/// A login with a terminal, whose output goes to a file.
struct Terminal {
    client: Child,
    output: PathBuf,
    /// Path of the terminal on the node.
    path: String,
}

impl Terminal {
    /// Logs in and runs a script there.
    fn open(sshd: &Sshd<'_>, user: User, name: &str, script: &str) -> Self {
        let output = File::create(sshd.node().path(&format!("/root/{name}"))).unwrap();
        Self::open_with(sshd, user, name, script, output.into())
    }

    fn open_with(sshd: &Sshd<'_>, user: User, name: &str, script: &str, stdout: Stdio) -> Self {
        let node = sshd.node();
        let target = format!("{}@127.0.0.1", user.name);
        let mark = format!("/tmp/{name}");
        let script = format!("tty >{mark}.new; mv {mark}.new {mark}; {script}");
        let mut client = sshd.client("ssh", &["-o", "BatchMode=yes", "-tt", &target, &script]);
        let client = client
            .stdin(Stdio::piped())
            .stdout(stdout)
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        eventually("the login has its terminal", || node.exists(&mark));
        let path = node.read(&mark).trim().to_owned();
        let output = node.path(&format!("/root/{name}"));
        Self {
            client,
            output,
            path,
        }
    }

    fn idle(sshd: &Sshd<'_>, user: User, name: &str) -> Self {
        Self::open(sshd, user, name, "exec sleep infinity")
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.output).unwrap()).into_owned()
    }

    /// Returns the number of notices that arrived.
    fn notices(&self) -> usize {
        self.text().matches("*** job ").count()
    }

    fn awaits(&self, text: &str) {
        eventually(text, || self.text().contains(text));
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.client.kill();
        let _ = self.client.wait();
    }
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    since.as_secs().try_into().unwrap()
}

/// Starts a job of this user that ends much later. [`move_end`] brings the end near right before it counts: on a busy
/// machine logins can take minutes.
fn start_job<'a>(node: &'a Node, user: User, id: &str) -> Job<'a> {
    node.job(user, id)
        .with("ends", json!(now() + 36_000))
        .start()
}

/// Changes the end in the record of a job.
fn move_end(job: &Job<'_>, left: i64) {
    let text = job.node().read(&job.record_path());
    let mut record: serde_json::Value = serde_json::from_str(&text).unwrap();
    record["ends"] = json!(now() + left);
    job.record(&record.to_string());
}

fn notify(node: &Node) -> Outcome {
    node.job_adopt(&["notify"]).ok()
}

const FIVE: &str = "*** job 4242 ends in 5 minutes (";
const REST: &str = "). Save your work: this login ends with it. ***";

#[test]
fn only_terminals_of_job_get_notice() {
    on_node(|node| {
        let _his = node.job(BOB, "7").start();
        let job = start_job(node, ALICE, "4242");
        let sshd = node.sshd();
        let hers = Terminal::idle(&sshd, ALICE, "hers");
        let foreign = Terminal::idle(&sshd, BOB, "foreign");
        // As mesg(1) does, which a small system lacks.
        let quiet = Terminal::open(
            &sshd,
            ALICE,
            "quiet",
            "chmod g-w $(tty); exec sleep infinity",
        );
        eventually("the terminal is closed to messages", || {
            node.sh(&format!("stat -c %a {}", quiet.path)).stdout == "600\n"
        });
        let given = Terminal::idle(&sshd, ALICE, "given");
        chown(node.path(&given.path), Some(BOB.uid), None).unwrap();
        // A terminal in the job's cgroup, but of no login.
        let payload = node.path("/root/payload");
        let id = ALICE.uid.to_string();
        let mut script = node.daemon(&job.cgroup, "setpriv");
        script.args([
            "--reuid",
            &id,
            "--regid",
            &id,
            "--clear-groups",
            "script",
            "-qc",
        ]);
        script.args(["tty >/tmp/payload; exec sleep infinity", "/dev/null"]);
        script
            .stdout(File::create(&payload).unwrap())
            .stdin(Stdio::piped());
        let mut script = script.spawn().unwrap();
        eventually("it has its terminal", || node.exists("/tmp/payload"));
        let mut without = sshd.stay(ALICE, "echo in; exec sleep infinity");
        let mut output = BufReader::new(without.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert_eq!(line, "in\n");
        move_end(&job, 290);
        let outcome = notify(node)
            .says("job 4242 ends in 5 minutes")
            .says(" 1 of 1 terminals\n");
        assert_eq!(outcome.stdout.lines().count(), 1, "{outcome}");
        hers.awaits(FIVE);
        hers.awaits(REST);
        node.unregister("4242").ok();
        output.read_line(&mut line).unwrap();
        assert_eq!(line, "in\n", "the command got a notice");
        without.wait().unwrap();
        hers.awaits("*** job 4242 has ended; closing this login ***");
        assert_eq!(hers.notices(), 2, "{}", hers.text());
        for other in [foreign, quiet, given] {
            assert_eq!(other.notices(), 0, "{}", other.text());
        }
        assert_eq!(fs::read_to_string(payload).unwrap(), "");
        script.kill().unwrap();
        script.wait().unwrap();
    });
}

/// A process of the job may have the terminal of a login that is elsewhere.
#[test]
fn terminal_of_session_in_other_job_gets_no_notice() {
    on_node(|node| {
        let ends = json!(now() + 36_000);
        let job = node
            .job(ALICE, "4242")
            .with("ends", ends)
            .with("started", json!(1))
            .start();
        job.cgroup.child("step").create();
        let sshd = node.sshd();
        let mut first = sshd.stay(ALICE, "exec sleep infinity");
        let leaf = job.cgroup.child("job-adopt");
        eventually("the login has joined", || {
            leaf.exists() && !leaf.pids().is_empty()
        });
        let _newer = node.job(ALICE, "4243").start();
        let script = "sleep 1000 & echo $! >/tmp/child; exec sleep infinity";
        let login = Terminal::open(&sshd, ALICE, "login", script);
        eventually("its child", || {
            node.exists("/tmp/child") && !node.read("/tmp/child").is_empty()
        });
        node.sh(&format!(
            "cat /tmp/child >/sys/fs/cgroup{}/cgroup.procs",
            leaf.path()
        ))
        .ok();
        move_end(&job, 290);
        let outcome = notify(node);
        assert_eq!(outcome.stdout, "", "{outcome}");
        assert_eq!(login.notices(), 0, "{}", login.text());
        let own = Terminal::idle(&sshd, ALICE, "own");
        move_session(node, &own, &leaf);
        move_end(&job, 290);
        notify(node).says(" 1 of 1 terminals");
        own.awaits(FIVE);
        node.unregister("4242").ok();
        eventually("the login has ended", || {
            first.try_wait().unwrap().is_some()
        });
    });
}

/// Moves every process with this terminal into a cgroup. A process of the login's first commands may end meanwhile.
fn move_session(node: &Node, terminal: &Terminal, cgroup: &Cgroup) {
    let procs = cgroup.dir().join("cgroup.procs");
    eventually("the session has moved", || {
        let session = own_session(node, terminal);
        !session.is_empty()
            && session
                .iter()
                .all(|pid| fs::write(&procs, pid.to_string()).is_ok())
    });
}

/// Returns the processes with this terminal, in this process's PID namespace.
fn own_session(node: &Node, terminal: &Terminal) -> Vec<i32> {
    let number: u64 = terminal
        .path
        .strip_prefix("/dev/pts/")
        .unwrap()
        .parse()
        .unwrap();
    let has_terminal = |pid: &i32| stat_field(*pid, 6) == Some((136 << 8) + number);
    node.processes().into_iter().filter(has_terminal).collect()
}

/// The link leads to the login's very terminal: only the link itself can be refused.
#[test]
fn link_in_place_of_terminal_is_not_followed() {
    on_node(|node| {
        let job = start_job(node, ALICE, "4242");
        let sshd = node.sshd();
        let login = Terminal::idle(&sshd, ALICE, "login");
        let number = login.path.strip_prefix("/dev/pts/").unwrap();
        node.sh(&format!(
            "mkdir /dev/real && mount --bind /dev/pts /dev/real && mount -t tmpfs none /dev/pts &&
             ln -s ../real/{number} /dev/pts/{number} && test -c /dev/pts/{number}"
        ))
        .ok();
        move_end(&job, 290);
        assert_eq!(notify(node).stdout, "");
        assert_eq!(login.notices(), 0, "{}", login.text());
        node.sh("umount /dev/pts").ok();
        move_end(&job, 290);
        notify(node).says(" 1 of 1 terminals");
        login.awaits(FIVE);
    });
}

#[test]
fn terminal_that_hangs_delays_no_other() {
    on_node(|node| {
        let job = start_job(node, ALICE, "4242");
        let sshd = node.sshd();
        // No process reads the output of its client.
        let hung = Terminal::open_with(&sshd, ALICE, "hung", "exec yes", Stdio::piped());
        let fine = Terminal::idle(&sshd, ALICE, "fine");
        let mut last = 0;
        // The writer's time stands still once the terminal is full.
        eventually("the terminal is full", || {
            let pids = own_session(node, &hung);
            let time = pids.iter().map(|pid| cpu_ticks(*pid)).sum();
            // No event shows that nothing is written any more.
            std::thread::sleep(Duration::from_millis(300));
            let is_full = !pids.is_empty() && time == last;
            last = time;
            is_full
        });
        move_end(&job, 290);
        let began = Instant::now();
        notify(node).says(" 1 of 2 terminals");
        assert!(
            began.elapsed() < Duration::from_secs(10),
            "{:?}",
            began.elapsed()
        );
        fine.awaits(FIVE);
    });
}

/// Returns a field of a process's stat, from 0, whose name has no blank.
fn stat_field(pid: i32, number: usize) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.split_ascii_whitespace().nth(number)?.parse().ok()
}

/// Returns the processor time of a process.
fn cpu_ticks(pid: i32) -> u64 {
    [13, 14]
        .into_iter()
        .filter_map(|number| stat_field(pid, number))
        .sum()
}

#[test]
fn each_notice_comes_once_and_again_after_extension() {
    on_node(|node| {
        let job = start_job(node, ALICE, "4242");
        let sshd = node.sshd();
        let login = Terminal::idle(&sshd, ALICE, "login");
        assert_eq!(notify(node).stdout, "");
        // The first run is late: it missed the notice of 15 minutes, and says what is left.
        move_end(&job, 290);
        let runs: Vec<_> = (0..3)
            .map(|_| {
                node.command("job-adopt")
                    .arg("notify")
                    .stdout(Stdio::piped())
                    .spawn()
                    .unwrap()
            })
            .collect();
        for run in runs {
            assert!(run.wait_with_output().unwrap().status.success());
        }
        login.awaits(FIVE);
        notify(node);
        assert_eq!(login.notices(), 1, "{}", login.text());
        move_end(&job, 600);
        notify(node).says("ends in 10 minutes");
        assert_eq!(notify(node).stdout, "");
        move_end(&job, 3600);
        assert_eq!(notify(node).stdout, "");
        move_end(&job, 50);
        notify(node).says("ends in 1 minute (");
        login.awaits("ends in 1 minute (");
        assert_eq!(login.notices(), 3, "{}", login.text());
    });
}

#[test]
fn run_with_time_gives_notice_at_its_minute() {
    on_node(|node| {
        let job = start_job(node, ALICE, "4242");
        let sshd = node.sshd();
        let login = Terminal::idle(&sshd, ALICE, "login");
        move_end(&job, 70);
        let outcome = node.job_adopt(&["notify", "--for", "20"]).ok();
        let lines: Vec<_> = outcome.stdout.lines().collect();
        assert!(lines[0].contains("ends in 2 minutes"), "{outcome}");
        assert!(lines[1].contains("ends in 1 minute ("), "{outcome}");
        assert_eq!(lines.len(), 2, "{outcome}");
        login.awaits("ends in 1 minute (");
    });
}

#[test]
fn configuration_decides_about_notices() {
    on_node(|node| {
        let job = start_job(node, ALICE, "4242");
        let sshd = node.sshd();
        let login = Terminal::idle(&sshd, ALICE, "login");
        for quiet in ["notice = none\n", "notice = 4, 2\n"] {
            node.configure(quiet);
            move_end(&job, 290);
            assert_eq!(notify(node).stdout, "");
        }
        node.configure("notice = 30\n");
        move_end(&job, 290);
        notify(node).says("ends in 5 minutes");
        login.awaits(FIVE);
        assert_eq!(login.notices(), 1, "{}", login.text());
    });
}

/// A user can make any number of processes.
#[test]
fn user_whose_processes_take_long_delays_no_notice_of_others() {
    on_node(|node| {
        let slow = start_job(node, ALICE, "4242");
        let job = start_job(node, BOB, "4243");
        job.cgroup.child("step").create();
        let sshd = node.sshd();
        let login = Terminal::idle(&sshd, BOB, "login");
        eventually("the login has a leaf", || {
            !job.cgroup.child("job-adopt").is_empty()
        });
        let delay = "-o /dev/null -e inject=read:delay_enter=1500000";
        let list = format!("/sys/fs/cgroup{}/cgroup.procs", slow.cgroup.path());
        move_end(&slow, 290);
        move_end(&job, 290);
        let began = Instant::now();
        node.sh(&format!("strace {delay} -P {list} job-adopt notify"))
            .ok();
        assert!(
            began.elapsed() > Duration::from_secs(3),
            "{:?}",
            began.elapsed()
        );
        login.awaits("*** job 4243 ends in 5 minutes (");
    });
}

/// Otherwise it would come each minute.
#[test]
fn notice_that_cannot_be_stored_is_not_written() {
    on_node(|node| {
        let job = start_job(node, ALICE, "4242");
        let sshd = node.sshd();
        let login = Terminal::idle(&sshd, ALICE, "login");
        let blocked = "/run/job-adopt/.notices.json.job-adopt";
        node.create_dir(&format!("{blocked}/x"), 0o755);
        move_end(&job, 290);
        node.job_adopt(&["notify"]).exits(3).says("notices.json");
        node.sh(&format!("rm -r {blocked}")).ok();
        assert_eq!(login.notices(), 0, "{}", login.text());
        move_end(&job, 290);
        notify(node).says(" 1 of 1 terminals");
        login.awaits(FIVE);
    });
}

#[test]
fn only_root_gives_notices() {
    on_node(|node| {
        let id = ALICE.uid.to_string();
        let arguments = [
            "--reuid",
            &id,
            "--regid",
            &id,
            "--clear-groups",
            "job-adopt",
            "notify",
        ];
        node.run("setpriv", &arguments)
            .exits(3)
            .says("must be run as root");
    });
}

fn run_twice_at_once(node: &Node) {
    let start = || {
        node.command("job-adopt")
            .arg("notify")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    };
    for mut run in [start(), start()] {
        assert!(run.wait().unwrap().success());
    }
}

/// Installs a `squeue` that notes its rights and its arguments, and runs `script`.
fn answer(node: &Node, script: &str) {
    if !node.exists("/run/asked") {
        node.write("/run/asked", "");
        node.set_mode("/run/asked", 0o666);
    }
    let note = "echo \"$(id -ru) $(id -u) $(id -G): $*\" >>/run/asked";
    node.write("/usr/bin/squeue", &format!("#!/bin/sh\n{note}\n{script}\n"));
    node.set_mode("/usr/bin/squeue", 0o755);
}

/// Lets `squeue` answer that job 4242 ends in `left` seconds.
fn answer_end(node: &Node, left: i64) {
    let end = now() + left;
    answer(
        node,
        &format!("sleep 1; test \"$SLURM_TIME_FORMAT\" = %s && echo '4242 {end}'"),
    );
}

fn count_questions(node: &Node) -> usize {
    let questions = node.read("/run/asked");
    let helper = format!("{0} {0} {0}: ", HELPER.uid);
    assert!(
        questions.lines().all(|line| line.starts_with(&helper)),
        "{questions}"
    );
    questions.lines().count()
}

#[test]
fn slurm_is_asked_before_each_notice() {
    on_node(|node| {
        let step = node.step(ALICE, &[]);
        node.configure(&format!("slurm_spool = {SPOOL}\n"));
        let record = |left: i64| {
            let record = json!({
                "version": 1, "id": "4242", "uid": ALICE.uid, "via": "slurm",
                "ends": now() + left, "options": { "DevicePolicy": "auto" },
            });
            let folder = format!("/run/job-adopt/jobs/{}", ALICE.uid);
            node.create_dir(&folder, 0o755);
            node.write(&format!("{folder}/4242.json"), &record.to_string());
            node.set_mode(&format!("{folder}/4242.json"), 0o644);
        };
        answer_end(node, 3600);
        notify(node);
        assert_eq!(count_questions(node), 0, "no login has a terminal");
        let sshd = node.sshd();
        let login = Terminal::idle(&sshd, ALICE, "login");
        eventually("it has joined", || !step.leaf().is_empty());
        // Without an end in a record Slurm is asked once.
        for _ in 0..2 {
            assert_eq!(notify(node).stdout, "");
            assert_eq!(count_questions(node), 1);
        }
        // The record has an end that was extended meanwhile.
        record(290);
        for _ in 0..2 {
            assert_eq!(notify(node).stdout, "");
            assert_eq!(count_questions(node), 2);
        }
        record(280);
        answer_end(node, 290);
        // The second run waits until the first has asked and has stored the notice.
        run_twice_at_once(node);
        login.awaits(FIVE);
        assert_eq!(
            (login.notices(), count_questions(node)),
            (1, 3),
            "{}",
            login.text()
        );
        // Slurm does not answer: the record's end counts.
        record(50);
        answer(node, "exec sleep infinity");
        let began = Instant::now();
        node.job_adopt(&["notify"])
            .exits(3)
            .says("ends in 1 minute (")
            .says("no answer in 5 s");
        assert!(
            began.elapsed() < Duration::from_secs(20),
            "{:?}",
            began.elapsed()
        );
        record(-1);
        answer(
            node,
            "echo 'slurm_load_jobs error: Invalid job id specified'; exit 1",
        );
        node.job_adopt(&["notify"])
            .exits(3)
            .says("Invalid job id specified");
        login.awaits("*** job 4242 has reached its end (");
        login.awaits("). This login ends with it. ***");
        notify(node);
        assert_eq!(
            (login.notices(), count_questions(node)),
            (3, 5),
            "{}",
            login.text()
        );
    });
}
