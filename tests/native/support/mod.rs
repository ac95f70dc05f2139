//! What the tests stand on: a private node, jobs on it, PAM stacks and logins.

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
pub(crate) mod origin;
mod outcome;
mod pam;
mod slurm;
mod slurm_job;
mod sshd;
mod stand_in;
mod syslog;
mod tool;
mod user;

pub(crate) use artifact::{Artifact, artifact, built, finished};
pub(crate) use cgroup::{Cgroup, Mount};
pub(crate) use cluster::{Cluster, on_cluster};
pub(crate) use extern_step::{Step, plan, probes};
pub(crate) use fake::Fake;
pub(crate) use filter::{Attached, Flags};
pub(crate) use flux::{FluxJob, on_flux, unit_reply};
pub(crate) use held::{if_held, while_delayed, while_held};
pub(crate) use job::Job;
pub(crate) use login::{DENIED, LOOK, OPENS};
pub(crate) use node::Node;
pub(crate) use origin::Listener;
pub(crate) use outcome::{Outcome, eventually, in_time, patience, within};
pub(crate) use slurm::{SPOOL, Slurm, on_idle_slurm, on_slurm, on_slurm_alone};
pub(crate) use slurm_job::{HIERARCHIES, SlurmJob};
pub(crate) use sshd::Sshd;
pub(crate) use stand_in::{FORGED, StandIn};
pub(crate) use tool::Tool;
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

/// Runs `body` on a fresh node; says "skipped" where this machine cannot have one.
pub(crate) fn on_node_with(mount: Mount, body: impl FnOnce(&Node)) {
    if let Some(obstacle) = obstacle() {
        return skip(obstacle);
    }
    let _others = beside_others();
    node_for(mount, body);
}

/// As [`on_node`], while no other test has a node: for a `body` that takes all of the machine's
/// time, in which the logins of others would reach their deadlines.
pub(crate) fn on_node_alone(body: impl FnOnce(&Node)) {
    if let Some(obstacle) = obstacle() {
        return skip(obstacle);
    }
    let _alone = alone();
    node_for(Mount::Unified, body);
}

/// Read by whoever has a node, written by who wants to be the only one.
static MACHINE: RwLock<()> = RwLock::new(());

/// To be held while there is to be one node only.
fn alone() -> RwLockWriteGuard<'static, ()> {
    MACHINE.write().unwrap_or_else(PoisonError::into_inner)
}

/// To be held while there is a node, and once: who wants to be alone may be waiting.
fn beside_others() -> RwLockReadGuard<'static, ()> {
    MACHINE.read().unwrap_or_else(PoisonError::into_inner)
}

fn node_for(mount: Mount, body: impl FnOnce(&Node)) {
    let node = Node::new(mount);
    body(&node);
    node.end();
}

/// Says that tests do not run, once per reason and past the capture of output; a failure where
/// nothing may be skipped.
pub(crate) fn skip(why: &'static str) {
    static SAID: Mutex<BTreeSet<&str>> = Mutex::new(BTreeSet::new());
    assert!(std::env::var("JOB_ADOPT_TESTS").as_deref() != Ok("all"), "skipped: {why}");
    if SAID.lock().unwrap().insert(why) {
        let _ = writeln!(std::io::stderr(), "{}", skipped(why));
    }
}

/// How many that concerns is known for root only: without it none of the tests runs.
fn skipped(why: &str) -> String {
    if nix::unistd::geteuid().is_root() {
        return format!("native: skipped: {why}");
    }
    format!("native: needs root: {} tests were skipped; make test as root runs them all", chosen())
}

/// How many tests this run is about.
fn chosen() -> usize {
    let mut list = Command::new(std::env::current_exe().unwrap());
    let listed = list.args(std::env::args().skip(1)).arg("--list").output().unwrap();
    String::from_utf8_lossy(&listed.stdout).lines().filter(|line| line.ends_with(": test")).count()
}

fn obstacle() -> Option<&'static str> {
    if !nix::unistd::geteuid().is_root() {
        return Some("needs root");
    }
    if cgroup::host_mount().is_none() {
        return Some("needs a cgroup2 mount");
    }
    let programs = ["unshare", "nsenter", "timeout", "setfattr", "ip", "sshd", "ssh", "pamtester"];
    programs.into_iter().find(|program| !installed(program)).map(|_| {
        "needs util-linux, coreutils, attr, iproute2, openssh-server, openssh-client and pamtester"
    })
}

/// Whether this machine has that program.
pub(crate) fn installed(program: &str) -> bool {
    ["/usr/sbin", "/usr/bin", "/sbin", "/bin"]
        .iter()
        .any(|folder| Path::new(folder).join(program).exists())
}
