//! Support for all tests: a private node, jobs on it, PAM stacks and logins.

mod artifact;
mod burst;
mod cgroup;
mod cluster;
mod extern_step;
mod fake;
mod filter;
mod flux;
mod gpus;
mod held;
mod job;
mod login;
mod node;
#[path = "../../skipped/notes.rs"]
mod notes;
pub(crate) mod origin;
mod outcome;
mod pam;
mod process;
mod slurm;
mod slurm_job;
mod sshd;
mod stand_in;
mod syslog;
mod tool;
mod trace;
mod user;

pub(crate) use artifact::{Artifact, artifact_path, built_path, finished_dir};
pub(crate) use cgroup::{Cgroup, Deep, Mount};
pub(crate) use cluster::{Cluster, on_cluster};
pub(crate) use extern_step::{Step, plan, probes};
pub(crate) use fake::Fake;
pub(crate) use filter::{AttachedFilter, Flags};
pub(crate) use flux::{FluxJob, on_flux, unit_reply};
pub(crate) use held::{run_while_delayed, run_while_held, try_run_while_held};
pub(crate) use job::Job;
pub(crate) use login::{DENIED, LOOK, OPENS};
pub(crate) use node::Node;
pub(crate) use origin::Listener;
pub(crate) use outcome::{Outcome, eventually, retry_until_in_time, timeout_factor, wait_within};
pub(crate) use process::{Process, start_crowd};
pub(crate) use slurm::{SPOOL, Slurm, on_idle_slurm, on_slurm, on_slurm_alone, start_munged};
pub(crate) use slurm_job::{HIERARCHIES, SlurmJob};
pub(crate) use sshd::Sshd;
pub(crate) use stand_in::{FORGED, StandIn};
pub(crate) use tool::Tool;
pub(crate) use trace::{Cost, trace_login};
pub(crate) use user::{ALICE, BOB, CAROL, FLUX, HELPER, OPS, ROOT, SLURM, User};

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Runs `body` on a fresh node with cgroup v2 at `/sys/fs/cgroup`.
pub(crate) fn on_node(body: impl FnOnce(&Node)) {
    on_node_with(Mount::Unified, body);
}

/// Runs `body` on a fresh node. Prints "skipped" if this machine cannot have one.
pub(crate) fn on_node_with(mount: Mount, body: impl FnOnce(&Node)) {
    if let Some(obstacle) = missing_requirement() {
        return skip(obstacle);
    }
    let _others = share_machine();
    run_on_new_node(mount, body);
}

/// Runs `body` on a fresh node while no other test has one. For a `body` that needs all of the
/// machine: beside it, logins of other tests would reach their deadlines.
pub(crate) fn on_node_alone(body: impl FnOnce(&Node)) {
    if let Some(obstacle) = missing_requirement() {
        return skip(obstacle);
    }
    let _alone = lock_machine();
    run_on_new_node(Mount::Unified, body);
}

/// Read by each test with a node, written by a test that must be alone.
static MACHINE: RwLock<()> = RwLock::new(());

/// Waits until no other test has a node. Others wait while the guard lives.
fn lock_machine() -> RwLockWriteGuard<'static, ()> {
    MACHINE.write().unwrap_or_else(PoisonError::into_inner)
}

/// Takes a share for one node. Do not take it twice: a writer may wait in between.
fn share_machine() -> RwLockReadGuard<'static, ()> {
    MACHINE.read().unwrap_or_else(PoisonError::into_inner)
}

fn run_on_new_node(mount: Mount, body: impl FnOnce(&Node)) {
    let node = Node::new(mount);
    body(&node);
    node.end();
}

/// Reports that a test does not run, once per reason and past libtest's capture. Panics if every
/// test must run.
pub(crate) fn skip(why: &'static str) {
    static REPORTED: Mutex<BTreeSet<&str>> = Mutex::new(BTreeSet::new());
    assert!(
        std::env::var("JOB_ADOPT_TESTS").as_deref() != Ok("all"),
        "skipped: {why}"
    );
    notes::add(why);
    if REPORTED.lock().unwrap().insert(why) {
        let _ = writeln!(std::io::stderr(), "{}", skip_message(why));
    }
}

/// Returns the line of a skipped test. Only root's absence skips all tests, so only then their
/// number is known.
fn skip_message(why: &str) -> String {
    if nix::unistd::geteuid().is_root() {
        return format!("native: skipped: {why}");
    }
    format!(
        "native: needs root: {} tests were skipped; make test-all as root runs them all",
        selected_test_count()
    )
}

/// Returns the number of tests in this run.
fn selected_test_count() -> usize {
    let mut list = Command::new(std::env::current_exe().unwrap());
    let listed = list
        .args(std::env::args().skip(1))
        .arg("--list")
        .output()
        .unwrap();
    String::from_utf8_lossy(&listed.stdout)
        .lines()
        .filter(|line| line.ends_with(": test"))
        .count()
}

/// Returns why this machine cannot have a node.
pub(crate) fn missing_requirement() -> Option<&'static str> {
    if !nix::unistd::geteuid().is_root() {
        return Some("needs root");
    }
    if cgroup::host_mount().is_none() {
        return Some("needs a cgroup2 mount");
    }
    let programs = [
        "unshare",
        "nsenter",
        "timeout",
        "setfattr",
        "ip",
        "sshd",
        "ssh",
        "pamtester",
    ];
    programs.into_iter().find(|program| !is_installed(program)).map(|_| {
        "needs util-linux, coreutils, attr, iproute2, openssh-server, openssh-client and pamtester"
    })
}

/// Returns whether this machine has that program.
pub(crate) fn is_installed(program: &str) -> bool {
    ["/usr/sbin", "/usr/bin", "/sbin", "/bin"]
        .iter()
        .any(|folder| Path::new(folder).join(program).exists())
}
