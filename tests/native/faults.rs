//! Whatever fails on the way of a login, the login is refused in time, or it is in its job and
//! confined like every other; and nothing of it is left.
//!
//! A few faults of each kind, and with `JOB_ADOPT_FAULTS=all`, as `make faults` sets it, all of them:
//! every system call of both phases fails once, with one of [`ERRORS`], and the helper's answer is
//! cut behind every byte.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Mutex;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pam_job_adopt::protocol::{Allowlist, Containment, Placement, Verdict};
use serde_json::json;

use crate::helper::admit;
use crate::support::{
    ALICE, Cgroup, DENIED, Fake, Flags, Node, OPENS, Outcome, SPOOL, Tool, eventually, on_flux,
    on_node, timeout_factor,
};

/// What a call fails with: none of the errors that code asks for, those that it may ask for, and
/// one that is no end.
const ERRORS: [Errno; 5] = [Errno::EIO, Errno::ENOENT, Errno::EACCES, Errno::ENOMEM, Errno::EINTR];
/// Without `make faults`, one call of so many.
const STRIDE: usize = 29;
/// `timeout=`, and how much later a phase may end, in milliseconds.
const TIMEOUT: u64 = 5000;
const MARGIN: u64 = 3000;
/// Calls that have no error to tell, or do not come back.
const NEVER: [&str; 4] = ["brk", "exit", "exit_group", "rt_sigreturn"];
/// Whoever has found so many defects mends them first.
const WRONG_MOST: usize = 20;
/// Calls by which sshd's process is made again what it was, and what. As they are made they cannot
/// fail, and nothing else could do it.
const RESTORES: [(&str, &str); 4] = [
    ("prctl", "dumpable"),
    ("rt_sigprocmask", "SigBlk"),
    ("sched_setattr", "scheduling"),
    (KILLED, "children"),
];
/// No call: the helper was killed, and nobody waits until it has ended.
const KILLED: &str = "killed";
const LOG: &str = "/tmp/calls";

fn all() -> bool {
    std::env::var("JOB_ADOPT_FAULTS").as_deref() == Ok("all")
}

/// Nothing but our lines in the stack, since faults in others are theirs.
fn prepare(node: &Node) {
    node.install(&Tool::Inject.path(), "/usr/bin/inject");
    node.install(&Tool::Cycles.path(), "/usr/bin/cycles");
    let ours = format!("required pam_job_adopt.so timeout={}", TIMEOUT / 1000);
    node.stack(&format!("account {ours}\nsession required pam_permit.so\nsession {ours}\n"));
}

/// A job that a login is to join, over and over.
struct Scene<'a> {
    name: &'static str,
    node: &'a Node,
    leaf: Cgroup,
    /// Takes away what a login has made that belongs to the job.
    reset: &'a dyn Fn(),
    /// What a refusal has left of a login.
    left: &'a dyn Fn() -> String,
}

/// What came of faults, by who met them.
#[derive(Default)]
struct Tally {
    refused: BTreeMap<String, usize>,
    /// With the call that failed.
    admitted: BTreeMap<String, BTreeMap<String, usize>>,
    wrong: Vec<String>,
}

impl Tally {
    /// What came of a login ([`Scene::judge`]), which met `call` or the like, in full `what`.
    fn add(&mut self, kind: &str, call: &str, came: Result<bool, String>, what: &str) {
        match came {
            Ok(true) => {
                let calls = self.admitted.entry(kind.into()).or_default();
                *calls.entry(call.into()).or_default() += 1;
            }
            Ok(false) => *self.refused.entry(kind.into()).or_default() += 1,
            Err(why) => {
                let wrong = format!("{kind}, {what}: {why}");
                eprintln!("faults: {wrong}");
                self.wrong.push(wrong);
            }
        }
        assert!(self.wrong.len() < WRONG_MOST, "{}", self.report());
    }

    fn count(&self) -> usize {
        let admitted = self.admitted.values().flat_map(BTreeMap::values);
        self.refused.values().chain(admitted).sum::<usize>() + self.wrong.len()
    }

    /// The closing lines.
    fn report(&self) -> String {
        let mut out = String::new();
        for (kind, count) in &self.refused {
            writeln!(out, "faults: {kind}: {count} refused").unwrap();
        }
        for (kind, calls) in &self.admitted {
            let total: usize = calls.values().sum();
            let calls: Vec<String> = calls.iter().map(|(call, n)| format!("{call} {n}")).collect();
            let calls = calls.join(", ");
            writeln!(out, "faults: {kind}: {total} admitted and confined: {calls}").unwrap();
        }
        self.wrong.iter().for_each(|wrong| writeln!(out, "faults: wrong: {wrong}").unwrap());
        out
    }
}

impl Scene<'_> {
    /// One login, with this call of `who` failing; of nobody, all calls are made.
    fn login(&self, who: &str, number: usize, error: Errno) -> Outcome {
        let (number, error) = (number.to_string(), (error as i32).to_string());
        let cycles = ["cycles", ALICE.name, "1", "/dev/nvidia0", "/dev/nvidia1"];
        // Without close_range(2) descriptors are closed one by one, and each call is a stop here.
        let limited = ["--nofile=256", "inject", who, &number, &error, LOG];
        self.node.run("prlimit", &[&limited[..], &cycles].concat())
    }

    /// Judges a login: the error says what is wrong with it; else whether it was admitted.
    fn judge(&self, outcome: &Outcome, before: &[i32], call: &str) -> Result<bool, String> {
        let told = |phase: &str| {
            let line = outcome.stdout.lines().find_map(|line| line.strip_prefix(phase))?;
            let (code, took) = line.strip_suffix(" ms")?.split_once(" after ")?;
            Some((code.parse::<i32>().ok()?, took.parse::<u64>().ok()?))
        };
        let (account, session) = (told("account "), told("session "));
        let Some((code, _)) = session.or(account) else { return Err("no phase ended".into()) };
        let late =
            |(_, took): &(i32, u64)| *took > (TIMEOUT + MARGIN) * u64::from(timeout_factor());
        if let Some((_, took)) = account.iter().chain(&session).find(|phase| late(phase)) {
            return Err(format!("it took {took} ms"));
        }
        let admitted = session.is_some() && code == 0;
        if let Some((_, told)) = outcome.stdout.split_once("--- before\n") {
            let (told, _) = told.split_once("--- end\n").unwrap_or((told, ""));
            let (before, after) = told.split_once("--- after\n").unwrap_or((told, ""));
            let of = |text: &str| text.lines().map(str::to_owned).collect::<BTreeSet<_>>();
            let mut changed = of(before);
            changed = changed.symmetric_difference(&of(after)).cloned().collect();
            let restored = RESTORES.iter().find(|(restores, _)| *restores == call);
            changed.retain(|line| restored.is_none_or(|(_, what)| !line.starts_with(what)));
            if !changed.is_empty() {
                return Err(format!("sshd's process is not as it was: {changed:?}"));
            }
        }
        let cgroup = outcome.stdout.lines().find_map(|line| line.strip_prefix("0::"));
        let leaf = if admitted { self.leaf.clone() } else { self.node.outside() };
        if cgroup != Some(leaf.path()) {
            return Err(format!("admitted {admitted}, in {cgroup:?}"));
        }
        let devices = ["/dev/nvidia0", "/dev/nvidia1"].map(|device| outcome.device(device));
        // A device that the helper cannot look at is left out, which only tightens.
        if admitted && devices != [OPENS, DENIED] && devices != [DENIED, DENIED] {
            return Err(format!("admitted, and opens {devices:?}"));
        }
        if !self.gone(before, admitted) {
            return Err("processes are left".into());
        }
        let left = if admitted { String::new() } else { (self.left)() };
        if left.is_empty() { Ok(admitted) } else { Err(format!("left: {left}")) }
    }

    /// Waits until no process is left that was not there `before`; one that was killed takes a
    /// moment. A keeper is one of a login that was admitted.
    fn gone(&self, before: &[i32], admitted: bool) -> bool {
        let end = std::time::Instant::now() + Duration::from_secs(60) * timeout_factor();
        loop {
            let keepers = if admitted { self.node.keepers() } else { Vec::new() };
            let is_new = |pid: &i32| !before.contains(pid) && !keepers.contains(pid);
            if !self.node.processes().iter().any(is_new) {
                return true;
            }
            if std::time::Instant::now() > end {
                return false;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Has calls fail, one in a login.
    fn calls(&self) -> Tally {
        let mut tally = Tally::default();
        let before = self.node.processes();
        (self.reset)();
        let sound = self.login("nobody", 0, Errno::EIO);
        let admitted = self.judge(&sound, &before, "");
        assert_eq!(admitted, Ok(true), "{}: without a fault: {sound}", self.name);
        let log = self.node.read(LOG);
        for who in ["sshd", "helper", "keeper"] {
            let calls = log.lines().filter_map(|line| line.strip_prefix(who)?.strip_prefix(' '));
            for at in 0..calls.count() {
                if !all() && at % STRIDE != 0 {
                    continue;
                }
                let error = ERRORS[(at + self.name.len()) % ERRORS.len()];
                (self.reset)();
                let outcome = self.login(who, at + 1, error);
                // Not always the same one: how often a process looks again depends on the moment.
                let log = self.node.read(LOG);
                let failed = log.lines().find_map(|line| line.strip_suffix(" failed"));
                let Some((_, call)) = failed.and_then(|line| line.split_once(' ')) else {
                    continue;
                };
                if NEVER.contains(&call) {
                    continue;
                }
                let kind = format!("{}: a call of {who}'s", self.name);
                let what = format!("the {}th, {call}: {error}", at + 1);
                tally.add(&kind, call, self.judge(&outcome, &before, call), &what);
            }
        }
        (self.reset)();
        tally
    }
}

/// A job of a record, to whose logins `faults` happen; they make its leaf and its filter, unless
/// both are to stay.
fn registered(name: &'static str, stays: bool, faults: impl FnOnce(&Scene<'_>) -> Tally) -> Tally {
    let mut tally = Tally::default();
    on_node(|node| {
        prepare(node);
        let job = node.job(ALICE, "4242").devices(&["/dev/nvidia0"]);
        let job = job.with("leaf", json!("logins")).start();
        let leaf = job.cgroup.child("logins");
        let reset = || {
            if !stays {
                leaf.remove();
                job.cgroup.our_filters().iter().for_each(|filter| job.cgroup.detach(filter));
            }
        };
        let left = || {
            let filters = job.cgroup.our_filters().len();
            let leaf = !stays && leaf.exists();
            let inside = job.cgroup.pids().len() - 1;
            if (filters < 2, leaf, inside) == (true, false, 0) {
                return String::new();
            }
            format!("{filters} filters, {inside} processes, a leaf: {leaf}")
        };
        let scene = Scene { name, node, leaf: leaf.clone(), reset: &reset, left: &left };
        if stays {
            scene.login("nobody", 0, Errno::EIO).ok();
        }
        tally = faults(&scene);
    });
    tally
}

/// What a helper does when it has written a part of its answer, and how often it does so.
const ENDS: [(&str, Verbs, usize); 5] = [
    ("ends well", &[], 1),
    ("fails", &[("exit", 1)], 2),
    ("is killed", &[("raise", 9)], 2),
    ("closes it and stays", &[("close", 0), ("sleep", 3600)], 16),
    ("stays", &[("sleep", 3600)], 16),
];
/// As [`Fake::verb`] takes them.
type Verbs = &'static [(&'static str, u64)];

/// An answer that is cut behind a byte.
fn cut(scene: &Scene<'_>) -> Tally {
    let mut tally = Tally::default();
    let before = scene.node.processes();
    let mut reply = admit("4242", &scene.leaf);
    if let Verdict::Admit(plan) = &mut reply.verdict {
        let job = scene.leaf.path().strip_suffix("/logins").unwrap().parse().unwrap();
        plan.placement = Placement::Cgroup { path: job, leaf: Some("logins".parse().unwrap()) };
        let mut list = Allowlist::new();
        for rule in ["c:1:-1:rw", "c:195:0:rw"] {
            list.push(rule.parse().unwrap()).unwrap();
        }
        plan.containment = Containment::Enforce(list);
    }
    let whole = reply.encode();
    for (then, verbs, every) in ENDS {
        let every = if all() { every } else { every * STRIDE };
        for length in (0..whole.len()).step_by(every).chain([whole.len()]) {
            let fake = Fake::new().says(&whole[..length]);
            let fake = verbs.iter().fold(fake, |fake, (verb, number)| fake.verb(verb, *number));
            fake.install(scene.node);
            (scene.reset)();
            let outcome = scene.login("nobody", 0, Errno::EIO);
            let mut came = scene.judge(&outcome, &before, KILLED);
            if came == Ok(true) && (length, then) != (whole.len(), "ends well") {
                came = Err("it was believed".into());
            }
            let kind = format!("{}: a helper that {then}", scene.name);
            tally.add(&kind, "the whole answer", came, &format!("behind byte {length}"));
        }
    }
    // Byte by byte: in time, unless the machine is busy, and past it.
    for (pause, in_time) in [(100, true), (1_000_000, false)] {
        let fake = Fake::new().pauses(&whole, pause);
        fake.install(scene.node);
        (scene.reset)();
        let outcome = scene.login("nobody", 0, Errno::EIO);
        let mut came = scene.judge(&outcome, &before, KILLED);
        if came == Ok(true) && !in_time {
            came = Err("it was believed".into());
        }
        let kind = format!("{}: a slow helper", scene.name);
        tally.add(&kind, "the whole answer", came, &format!("{pause} us for a byte"));
    }
    tally
}

/// A job of Slurm's whose filter is pinned, with a stand-in for its step daemon.
fn slurm() -> Tally {
    let mut tally = Tally::default();
    on_node(|node| {
        prepare(node);
        node.folder(SPOOL, 0o755);
        node.configure(&format!("slurm_spool = {SPOOL}\n"));
        node.folder("/etc/slurm", 0o755);
        node.write("/etc/slurm/slurm.conf", "ClusterName=site\n");
        let step = node.step_alone(ALICE, &[]);
        step.job.attach(Flags::Override, "Slurm_Cgroup_v2", &["195:1"]);
        let reset = || step.leaf().remove();
        // The daemon makes the leaf, and leaves it.
        let left = || if step.leaf().pids_or_empty().is_empty() { "" } else { "somebody" }.into();
        let scene = Scene { name: "slurm", node, leaf: step.leaf(), reset: &reset, left: &left };
        tally = scene.calls();
    });
    tally
}

/// A job of Flux's, for which a filter is made and a keeper is started.
fn flux() -> Tally {
    let mut tally = Tally::default();
    on_flux(|node| {
        prepare(node);
        let job = node.start_flux_job(ALICE, "fxyzzy", &[]);
        let file = format!("{}/imp-shell-0-fxyzzy.service", node.transient());
        let policy = "DevicePolicy=closed\nDeviceAllow=/dev/nvidia0 rw\n";
        node.write(&file, &format!("[Service]\nType=notify\n{policy}"));
        let reset = || {
            // It would wait for the end of the job.
            for keeper in node.keepers() {
                let _ = kill(Pid::from_raw(keeper), Signal::SIGKILL);
            }
            eventually("no keeper is left", || node.keepers().is_empty());
            job.leaf().remove();
            job.unit.our_filters().iter().for_each(|filter| job.unit.detach(filter));
        };
        let left = || match (job.leaf().exists(), node.keepers().is_empty()) {
            (false, true) => String::new(),
            left => format!("a leaf, no keeper: {left:?}"),
        };
        let scene = Scene { name: "flux", node, leaf: job.leaf(), reset: &reset, left: &left };
        tally = scene.calls();
    });
    tally
}

/// Says what came of them, and how many there were in all tests so far.
fn close(tally: Tally) {
    static ALL: Mutex<(usize, usize)> = Mutex::new((0, 0));
    let report = tally.report();
    let (count, wrong) = {
        let mut all = ALL.lock().unwrap();
        *all = (all.0 + tally.count(), all.1 + tally.wrong.len());
        *all
    };
    eprintln!("{report}faults: {count} so far, {wrong} wrong");
    assert!(tally.wrong.is_empty(), "{report}");
    assert!(!all() || tally.count() >= 400, "{report}");
}

#[test]
fn a_call_that_fails_at_the_first_login_to_a_job() {
    close(registered("first login", false, |scene| scene.calls()));
}

#[test]
fn a_call_that_fails_at_a_later_login() {
    close(registered("later login", true, |scene| scene.calls()));
}

#[test]
fn a_call_that_fails_at_a_login_to_a_job_of_slurm() {
    close(slurm());
}

#[test]
fn a_call_that_fails_at_a_login_to_a_job_of_flux() {
    close(flux());
}

#[test]
fn an_answer_that_is_cut() {
    close(registered("an answer", false, cut));
}
