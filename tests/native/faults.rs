//! A login of which any part fails is refused in time, or it is in its job and confined as every
//! other; and it leaves nothing. Whatever fails, sshd's own process is outside of the job's namespaces
//! afterwards.
//!
//! These tests inject a few faults of each kind. With `JOB_ADOPT_FAULTS=all`, which `make faults`
//! sets, they inject all: every system call of both phases and of the end fails once, with one of [`ERRORS`], and
//! the helper's reply is cut after every byte.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Mutex;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use protocol::{Allowlist, Containment, Placement, Verdict};
use serde_json::json;

use crate::helper::admitting_reply;
use crate::namespaces::{AUTH_LINES, OLD as SLURM_24_11, make_private_namespace};
use crate::support::{
    ALICE, Cgroup, DENIED, Fake, Flags, Node, OPENS, Outcome, SPOOL, Tool, eventually, on_flux,
    on_node, timeout_factor,
};

/// Errors of the failing calls: one that the code never checks for, those that it may check for,
/// and one that is no end.
const ERRORS: [Errno; 5] = [
    Errno::EIO,
    Errno::ENOENT,
    Errno::EACCES,
    Errno::ENOMEM,
    Errno::EINTR,
];
/// Without `make faults`, one call of this many fails.
const STRIDE: usize = 29;
/// `timeout=` in milliseconds, that of a helper that lets it pass, and the further time that a phase may take to end.
const TIMEOUT: u64 = 5000;
const SHORT_TIMEOUT: u64 = 1000;
const MARGIN: u64 = 3000;
/// Calls that report no error or do not return.
const NEVER: [&str; 4] = ["brk", "exit", "exit_group", "rt_sigreturn"];
/// Wrong results after which a test stops early.
const WRONG_MOST: usize = 20;
/// Calls that restore sshd's process, and what they restore. With our arguments they cannot fail,
/// and no other call could restore it.
const RESTORES: [(&str, &str); 5] = [
    ("prctl", "dumpable"),
    ("rt_sigprocmask", "SigBlk"),
    // The end of the process that becomes the user.
    ("rt_sigprocmask", "ShdPnd"),
    ("sched_setattr", "scheduling"),
    (KILLED, "children"),
];
/// Stands for no call: the login killed the helper and does not wait until it has ended.
const KILLED: &str = "killed";
const LOG: &str = "/tmp/calls";

fn runs_all_faults() -> bool {
    std::env::var("JOB_ADOPT_FAULTS").as_deref() == Ok("all")
}

fn install_programs(node: &Node) {
    node.install(&Tool::Inject.path(), "/usr/bin/inject");
    node.install(&Tool::Cycles.path(), "/usr/bin/cycles");
    write_our_stack(node, TIMEOUT);
}

/// Installs a stack of our lines alone, since faults in other modules are not ours.
fn write_our_stack(node: &Node, timeout_ms: u64) {
    let ours = format!("required pam_job_adopt.so timeout={}", timeout_ms / 1000);
    node.write_stack(&format!(
        "{AUTH_LINES}account {ours}\nsession required pam_permit.so\nsession {ours}\n"
    ));
}

/// A job that many logins join, one after the other.
struct Scene<'a> {
    name: &'static str,
    node: &'a Node,
    leaf: Cgroup,
    /// Set if the job has private files.
    is_private: bool,
    /// The node's namespace of mounts and root, as `cycles` prints them.
    place: String,
    /// Removes what a login has made that belongs to the job.
    reset: &'a dyn Fn(),
    /// Describes what a refusal has left of a login.
    left: &'a dyn Fn() -> String,
}

/// Results of the injected faults, by the process that met them.
#[derive(Default)]
struct Tally {
    refused: BTreeMap<String, usize>,
    /// Admitted logins, by the call that failed.
    admitted: BTreeMap<String, BTreeMap<String, usize>>,
    wrong: Vec<String>,
}

impl Tally {
    /// Adds the result of a login ([`Scene::judge`]) that met `call` or a similar one; `what`
    /// describes it in full.
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

    /// Returns the closing lines.
    fn report(&self) -> String {
        let mut out = String::new();
        for (kind, count) in &self.refused {
            writeln!(out, "faults: {kind}: {count} refused").unwrap();
        }
        for (kind, calls) in &self.admitted {
            let total: usize = calls.values().sum();
            let calls: Vec<String> = calls
                .iter()
                .map(|(call, n)| format!("{call} {n}"))
                .collect();
            let calls = calls.join(", ");
            writeln!(
                out,
                "faults: {kind}: {total} admitted and confined: {calls}"
            )
            .unwrap();
        }
        self.wrong
            .iter()
            .for_each(|wrong| writeln!(out, "faults: wrong: {wrong}").unwrap());
        out
    }
}

impl<'a> Scene<'a> {
    fn new(
        name: &'static str,
        node: &'a Node,
        leaf: Cgroup,
        reset: &'a dyn Fn(),
        left: &'a dyn Fn() -> String,
    ) -> Self {
        let place = node
            .sh("echo place $(readlink /proc/self/ns/mnt) $(stat -c %d:%i /)")
            .ok();
        let place = place.stdout.trim().to_owned();
        Self {
            name,
            node,
            leaf,
            is_private: false,
            place,
            reset,
            left,
        }
    }

    /// Runs one login in which this call of `who` fails. An empty `who` makes all calls succeed.
    fn login(&self, who: &str, number: usize, error: Errno) -> Outcome {
        self.node.log.clear();
        let number = number.to_string();
        let error = (error as i32).to_string();
        let cycles = ["cycles", ALICE.name, "1", "/dev/nvidia0", "/dev/nvidia1"];
        // Without close_range(2) the module closes descriptors one by one, and each call stops
        // here.
        let limited = ["--nofile=256", "inject", who, &number, &error, LOG];
        self.node.run("prlimit", &[&limited[..], &cycles].concat())
    }

    /// Judges a login: returns whether it was admitted. The error describes what is wrong with it.
    fn judge(&self, outcome: &Outcome, before: &[i32], call: &str) -> Result<bool, String> {
        let phase_result = |phase: &str| {
            let line = outcome
                .stdout
                .lines()
                .find_map(|line| line.strip_prefix(phase))?;
            let (code, took) = line.strip_suffix(" ms")?.split_once(" after ")?;
            Some((code.parse::<i32>().ok()?, took.parse::<u64>().ok()?))
        };
        let account = phase_result("account ");
        let session = phase_result("session ");
        let Some((code, _)) = session.or(account) else {
            return Err("no phase ended".into());
        };
        let late =
            |(_, took): &(i32, u64)| *took > (TIMEOUT + MARGIN) * u64::from(timeout_factor());
        if let Some((_, took)) = account.iter().chain(&session).find(|phase| late(phase)) {
            return Err(format!("it took {took} ms"));
        }
        let admitted = session.is_some() && code == 0;
        if let Some((_, comparison)) = outcome.stdout.split_once("--- before\n") {
            let (comparison, _) = comparison
                .split_once("--- end\n")
                .unwrap_or((comparison, ""));
            let (old, new) = comparison
                .split_once("--- after\n")
                .unwrap_or((comparison, ""));
            let old: BTreeSet<&str> = old.lines().collect();
            let new: BTreeSet<&str> = new.lines().collect();
            let mut changed: Vec<&str> = old.symmetric_difference(&new).copied().collect();
            for (_, what) in RESTORES.iter().filter(|(restores, _)| *restores == call) {
                changed.retain(|line| !line.starts_with(what));
            }
            if !changed.is_empty() {
                return Err(format!("sshd's process is not as it was: {changed:?}"));
            }
        }
        if admitted && outcome.stdout.contains("the user's process was killed") {
            // sshd then ends with it.
            return Ok(false);
        }
        let place = outcome
            .stdout
            .lines()
            .find(|line| line.starts_with("place "));
        if admitted && place.is_some_and(|place| place == self.place) == self.is_private {
            return Err(format!("the user is in {place:?}"));
        }
        let cgroup = outcome
            .stdout
            .lines()
            .find_map(|line| line.strip_prefix("0::"));
        let leaf = if admitted {
            self.leaf.clone()
        } else {
            self.node.outside()
        };
        if cgroup != Some(leaf.path()) {
            return Err(format!("admitted {admitted}, in {cgroup:?}"));
        }
        let devices = ["/dev/nvidia0", "/dev/nvidia1"].map(|device| outcome.device(device));
        // The helper leaves out a device that it cannot read, which only tightens the list.
        if admitted && devices != [OPENS, DENIED] && devices != [DENIED, DENIED] {
            return Err(format!("admitted, and opens {devices:?}"));
        }
        if !self.await_leftover_processes(before, admitted) {
            return Err("processes are left".into());
        }
        let left = if admitted {
            String::new()
        } else {
            (self.left)()
        };
        if left.is_empty() {
            Ok(admitted)
        } else {
            Err(format!("left: {left}"))
        }
    }

    /// Waits until only the processes of `before` are left, since a killed one takes a moment. An
    /// admitted login may leave a keeper.
    fn await_leftover_processes(&self, before: &[i32], admitted: bool) -> bool {
        let end = std::time::Instant::now() + Duration::from_secs(60) * timeout_factor();
        loop {
            let keepers = if admitted {
                self.node.keepers()
            } else {
                Vec::new()
            };
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

    /// Injects faults, one per login.
    fn calls(&self) -> Tally {
        let mut tally = Tally::default();
        let before = self.node.processes();
        (self.reset)();
        let sound = self.login("nobody", 0, Errno::EIO);
        let admitted = self.judge(&sound, &before, "");
        assert_eq!(
            admitted,
            Ok(true),
            "{}: without a fault: {sound}",
            self.name
        );
        let log = self.node.read(LOG);
        for who in ["sshd", "helper", "keeper"] {
            let calls = log
                .lines()
                .filter_map(|line| line.strip_prefix(who)?.strip_prefix(' '));
            for at in 0..calls.count() {
                if !runs_all_faults() && at % STRIDE != 0 {
                    continue;
                }
                let error = ERRORS[(at + self.name.len()) % ERRORS.len()];
                (self.reset)();
                let outcome = self.login(who, at + 1, error);
                // The number may name another call than before: how often a process polls depends
                // on the moment.
                let log_of_fault = self.node.read(LOG);
                let failed = log_of_fault
                    .lines()
                    .find_map(|line| line.strip_suffix(" failed"));
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

/// Injects `faults` into logins to a registered job. Each login makes its leaf and its filter,
/// unless both stay.
fn inject_into_registered_job(
    name: &'static str,
    stays: bool,
    faults: impl FnOnce(&Scene<'_>) -> Tally,
) -> Tally {
    let mut tally = Tally::default();
    on_node(|node| {
        install_programs(node);
        let job = node.job(ALICE, "4242").devices(&["/dev/nvidia0"]);
        let job = job.with("leaf", json!("logins")).start();
        let leaf = job.cgroup.child("logins");
        let reset = || {
            if !stays {
                leaf.remove();
                job.cgroup
                    .our_filters()
                    .iter()
                    .for_each(|filter| job.cgroup.detach(filter));
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
        let scene = Scene::new(name, node, leaf.clone(), &reset, &left);
        if stays {
            scene.login("nobody", 0, Errno::EIO).ok();
        }
        tally = faults(&scene);
    });
    tally
}

/// Actions of a helper after a part of its reply, and how often it performs each.
const ENDS: [(&str, Verbs, usize); 5] = [
    ("ends well", &[], 1),
    ("fails", &[("exit", 1)], 2),
    ("is killed", &[("raise", 9)], 2),
    ("closes it and stays", &[("close", 0), ("sleep", 3600)], 16),
    ("stays", &[("sleep", 3600)], 16),
];
/// Verbs in the form that [`Fake::verb`] takes.
type Verbs = &'static [(&'static str, u64)];

/// Cuts the reply after a byte.
fn cut_reply(scene: &Scene<'_>) -> Tally {
    let mut tally = Tally::default();
    let before = scene.node.processes();
    let mut reply = admitting_reply("4242", &scene.leaf);
    if let Verdict::Admit(plan) = &mut reply.verdict {
        let job = scene
            .leaf
            .path()
            .strip_suffix("/logins")
            .unwrap()
            .parse()
            .unwrap();
        plan.placement = Placement::Cgroup {
            path: job,
            leaf: Some("logins".parse().unwrap()),
        };
        let mut list = Allowlist::new();
        for rule in ["c:1:-1:rw", "c:195:0:rw"] {
            list.push(rule.parse().unwrap()).unwrap();
        }
        plan.containment = Containment::Enforce(list);
    }
    let whole = reply.encode();
    for (then, verbs, every) in ENDS {
        let every = if runs_all_faults() {
            every
        } else {
            every * STRIDE
        };
        let stays = verbs.iter().any(|(verb, _)| *verb == "sleep");
        write_our_stack(scene.node, if stays { SHORT_TIMEOUT } else { TIMEOUT });
        for length in (0..whole.len()).step_by(every).chain([whole.len()]) {
            let fake = Fake::new().says(&whole[..length]);
            let fake = verbs
                .iter()
                .fold(fake, |fake, (verb, number)| fake.verb(verb, *number));
            fake.install(scene.node);
            (scene.reset)();
            let outcome = scene.login("nobody", 0, Errno::EIO);
            let mut came = scene.judge(&outcome, &before, KILLED);
            if came == Ok(true) && (length, then) != (whole.len(), "ends well") {
                came = Err("it was believed".into());
            }
            let kind = format!("{}: a helper that {then}", scene.name);
            tally.add(
                &kind,
                "the whole answer",
                came,
                &format!("behind byte {length}"),
            );
        }
    }
    // Byte by byte: fast enough unless the machine is busy, and too slow.
    for (pause, in_time) in [(100, true), (1_000_000, false)] {
        write_our_stack(scene.node, if in_time { TIMEOUT } else { SHORT_TIMEOUT });
        let fake = Fake::new().pauses(&whole, pause);
        fake.install(scene.node);
        (scene.reset)();
        let outcome = scene.login("nobody", 0, Errno::EIO);
        let mut came = scene.judge(&outcome, &before, KILLED);
        if came == Ok(true) && !in_time {
            came = Err("it was believed".into());
        }
        let kind = format!("{}: a slow helper", scene.name);
        tally.add(
            &kind,
            "the whole answer",
            came,
            &format!("{pause} us for a byte"),
        );
    }
    tally
}

/// Injects faults into logins to a Slurm job whose filter is pinned, with a stand-in for its step
/// daemon. A `private` job has its own `/tmp`.
fn inject_into_slurm_job(name: &'static str, private: bool) -> Tally {
    let mut tally = Tally::default();
    on_node(|node| {
        install_programs(node);
        node.create_dir(SPOOL, 0o755);
        node.configure(&format!("slurm_spool = {SPOOL}\n"));
        node.create_dir("/etc/slurm", 0o755);
        node.write("/etc/slurm/slurm.conf", "ClusterName=site\n");
        let namespace = private.then(|| make_private_namespace(node));
        let faults = namespace
            .iter()
            .flat_map(|path| ["version", SLURM_24_11, "ns", path]);
        let step = node.step_alone(ALICE, &faults.collect::<Vec<_>>());
        step.job
            .attach(Flags::Override, "Slurm_Cgroup_v2", &["195:1"]);
        let reset = || step.leaf().remove();
        // The daemon creates the leaf and leaves it in place.
        let left = || {
            if step.leaf().pids_or_empty().is_empty() {
                ""
            } else {
                "somebody"
            }
            .into()
        };
        let scene = Scene::new(name, node, step.leaf(), &reset, &left);
        let scene = Scene {
            is_private: private,
            ..scene
        };
        tally = scene.calls();
    });
    tally
}

/// Injects faults into logins to a Flux job, which make a filter and start a keeper.
fn inject_into_flux_job() -> Tally {
    let mut tally = Tally::default();
    on_flux(|node| {
        install_programs(node);
        let job = node.start_flux_job(ALICE, "fxyzzy", &[]);
        let file = format!("{}/imp-shell-0-fxyzzy.service", node.transient());
        let policy = "DevicePolicy=closed\nDeviceAllow=/dev/nvidia0 rw\n";
        node.write(&file, &format!("[Service]\nType=notify\n{policy}"));
        let reset = || {
            // A keeper waits for the end of the job.
            for keeper in node.keepers() {
                let _ = kill(Pid::from_raw(keeper), Signal::SIGKILL);
            }
            eventually("no keeper is left", || node.keepers().is_empty());
            job.leaf().remove();
            job.unit
                .our_filters()
                .iter()
                .for_each(|filter| job.unit.detach(filter));
        };
        let left = || match (job.leaf().exists(), node.keepers().is_empty()) {
            (false, true) => String::new(),
            left => format!("a leaf, no keeper: {left:?}"),
        };
        let scene = Scene::new("flux", node, job.leaf(), &reset, &left);
        tally = scene.calls();
    });
    tally
}

/// Prints the results of a test, and the totals of all tests so far.
fn print_tally(tally: Tally) {
    static ALL: Mutex<(usize, usize)> = Mutex::new((0, 0));
    let report = tally.report();
    let (count, wrong) = {
        let mut all = ALL.lock().unwrap();
        *all = (all.0 + tally.count(), all.1 + tally.wrong.len());
        *all
    };
    eprintln!("{report}faults: {count} so far, {wrong} wrong");
    assert!(tally.wrong.is_empty(), "{report}");
    assert!(!runs_all_faults() || tally.count() >= 400, "{report}");
}

#[test]
fn failing_call_in_first_login_to_job_refuses_or_confines() {
    print_tally(inject_into_registered_job("first login", false, |scene| {
        scene.calls()
    }));
}

#[test]
fn failing_call_in_later_login_refuses_or_confines() {
    print_tally(inject_into_registered_job("later login", true, |scene| {
        scene.calls()
    }));
}

#[test]
fn failing_call_in_login_to_slurm_job_refuses_or_confines() {
    print_tally(inject_into_slurm_job("slurm", false));
}

#[test]
fn failing_call_in_login_to_job_with_private_files_refuses_or_confines() {
    print_tally(inject_into_slurm_job("private files", true));
}

#[test]
fn failing_call_in_login_to_flux_job_refuses_or_confines() {
    print_tally(inject_into_flux_job());
}

#[test]
fn cut_reply_of_helper_refuses_or_confines() {
    print_tally(inject_into_registered_job("an answer", false, cut_reply));
}
