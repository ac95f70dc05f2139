//! A real Slurm on a node: munged, slurmctld and slurmd, on cgroup v1, with stand-in GPUs.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, PoisonError};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::slurm_job::{EXTERN_STEP, HIERARCHIES};
use super::{Mount, Node, User, eventually, skip};

/// Folder of the step daemons' sockets.
pub(crate) const SPOOL: &str = "/var/spool/slurmd";
/// `cgroup.conf` of a site that constrains everything.
const CONSTRAINED: &str = "ConstrainDevices=yes\nConstrainCores=yes\nConstrainRAMSpace=yes\n";
/// Suffixes of the node names if the host is two nodes.
const PARTS: [&str; 2] = ["-a", "-b"];
/// Address of the node. Slurm rejects a loopback address.
const ADDRESS: &str = "10.99.0.1";

/// Runs `body` on a fresh node with a Slurm that constrains devices, cores and memory. Prints
/// "skipped" if this machine cannot have one.
pub(crate) fn on_slurm(body: impl FnOnce(&Slurm<'_>)) {
    /// A small machine has time for six at once: Slurm's daemons mostly wait.
    static SEATS: Seats = Seats::new(6);
    on_slurm_after(&SEATS, body);
}

/// Runs `body` beside all others, for a `body` that mostly waits.
pub(crate) fn on_idle_slurm(body: impl FnOnce(&Slurm<'_>)) {
    static SEAT: Seats = Seats::new(1);
    on_slurm_after(&SEAT, body);
}

fn on_slurm_after(seats: &'static Seats, body: impl FnOnce(&Slurm<'_>)) {
    if let Some(obstacle) = super::missing_requirement().or_else(missing_requirement) {
        return skip(obstacle);
    }
    let _seat = seats.take();
    let _others = super::share_machine();
    with_slurm(body);
}

/// A number of tests that may run at once.
struct Seats {
    free: Mutex<usize>,
    freed: Condvar,
}

impl Seats {
    const fn new(count: usize) -> Self {
        Self {
            free: Mutex::new(count),
            freed: Condvar::new(),
        }
    }

    /// Waits for a free seat, and takes it until the result is dropped.
    fn take(&self) -> Seat<'_> {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let free = self.freed.wait_while(free, |free| *free == 0);
        *free.unwrap_or_else(PoisonError::into_inner) -= 1;
        Seat(self)
    }
}

struct Seat<'a>(&'a Seats);

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        *self.0.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.freed.notify_one();
    }
}

/// Runs `body` while no other test has a node.
pub(crate) fn on_slurm_alone(body: impl FnOnce(&Slurm<'_>)) {
    if let Some(obstacle) = super::missing_requirement().or_else(missing_requirement) {
        return skip(obstacle);
    }
    let _alone = super::lock_machine();
    with_slurm(body);
}

fn with_slurm(body: impl FnOnce(&Slurm<'_>)) {
    let node = Node::new(Mount::V1);
    let slurm = Slurm::new(&node);
    body(&slurm);
    slurm.end();
    node.end();
}

fn missing_requirement() -> Option<&'static str> {
    if !HIERARCHIES
        .iter()
        .all(|name| hierarchy(name).join("cgroup.procs").exists())
    {
        return Some("needs cgroup v1's freezer, cpuset, memory, cpuacct and devices hierarchies");
    }
    let programs = ["slurmctld", "slurmd", "sbatch", "munged"];
    programs
        .into_iter()
        .find(|program| !super::is_installed(program))
        .map(|_| "needs slurmctld, slurmd, slurm-client and munge")
}

/// Starts the daemon by which Slurm's programs know each other, as the node's own.
pub(crate) fn start_munged(node: &Node) {
    node.create_dir("/run/munge", 0o755);
    node.sh(MUNGED).ok();
}

fn hierarchy(name: &str) -> PathBuf {
    Path::new("/sys/fs/cgroup").join(name)
}

/// A running Slurm. Dropping it removes everything that belongs to it.
#[derive(Debug)]
pub(crate) struct Slurm<'a> {
    pub(crate) node: &'a Node,
}

impl<'a> Slurm<'a> {
    fn new(node: &'a Node) -> Self {
        let slurm = Self { node };
        node.sh(&format!("ip address add {ADDRESS}/24 dev lo")).ok();
        node.write(
            "/etc/hosts",
            &format!("127.0.0.1 localhost\n{ADDRESS} {}\n", node.name()),
        );
        node.create_dir("/etc/slurm", 0o755);
        node.create_dir(SPOOL, 0o755);
        for folder in ["/run/slurm", "/var/spool/slurmctld", "/var/log/slurm"] {
            node.create_dir(folder, 0o755);
        }
        node.write("/etc/slurm/slurm.conf", &slurm_conf(node.name()));
        node.write("/etc/slurm/gres.conf", "Name=gpu File=/dev/nvidia[0-3]\n");
        slurm.constrain(CONSTRAINED);
        start_munged(node);
        node.sh("slurmctld && slurmd").ok();
        slurm.wait_until_idle();
        slurm
    }

    /// Replaces the constraints of `cgroup.conf`. Steps that start after the next
    /// [`Slurm::restart_slurmd`] follow it.
    pub(crate) fn constrain(&self, what: &str) {
        let conf = "CgroupPlugin=cgroup/v1\nCgroupMountpoint=/sys/fs/cgroup\nCgroupAutomount=no\n";
        self.node
            .write("/etc/slurm/cgroup.conf", &format!("{conf}{what}"));
    }

    /// Ends slurmd and leaves its steps running.
    pub(crate) fn stop_slurmd(&self) {
        self.node.sh(STOP_SLURMD).ok();
    }

    /// Starts slurmd again.
    pub(crate) fn start_slurmd(&self) {
        self.node.sh("slurmd").ok();
        self.wait_until_idle();
    }

    /// Stops slurmd, then starts it.
    pub(crate) fn restart_slurmd(&self) {
        self.stop_slurmd();
        self.start_slurmd();
    }

    /// Splits the host into two nodes without jobs, each with a slurmd and two GPUs; returns their
    /// names.
    pub(crate) fn split(&self) -> [String; 2] {
        self.stop_slurmd();
        self.node.sh(STOP_SLURMCTLD).ok();
        let host = self.node.name();
        let nodes = PARTS.map(|part| format!("{host}{part}"));
        self.node.write(
            "/etc/slurm/slurm.conf",
            &split_conf(&slurm_conf(host), &nodes, host),
        );
        let gres = |(node, files)| format!("NodeName={node} Name=gpu File=/dev/nvidia[{files}]\n");
        let gres: String = nodes.iter().zip(["0-1", "2-3"]).map(gres).collect();
        self.node.write("/etc/slurm/gres.conf", &gres);
        let [one, other] = &nodes;
        self.node
            .sh(&format!(
                "slurmctld -c && slurmd -N {one} && slurmd -N {other}"
            ))
            .ok();
        for node in &nodes {
            let idle = format!("the slurmd of {node} is there");
            let state = format!("sinfo --noheader --nodes={node} --format=%T");
            eventually(&idle, || self.node.sh(&state).stdout.trim() == "idle");
        }
        nodes
    }

    /// Gives the node these resources in place of four GPUs of one kind, and no jobs.
    pub(crate) fn retype(&self, gres: &str, lines: &str) {
        self.stop_slurmd();
        self.node.sh(STOP_SLURMCTLD).ok();
        let conf = self.node.read("/etc/slurm/slurm.conf");
        self.node.write(
            "/etc/slurm/slurm.conf",
            &conf.replace(" Gres=gpu:4 ", &format!(" Gres={gres} ")),
        );
        self.node.write("/etc/slurm/gres.conf", lines);
        self.node.sh("slurmctld -c").ok();
        self.start_slurmd();
    }

    /// Waits until the node takes jobs: Slurm's commands do not wait for a node that is down.
    fn wait_until_idle(&self) {
        self.node.sh(WAIT_UNTIL_IDLE).ok();
    }

    /// Returns the cgroup of this node's jobs in that hierarchy.
    fn top(&self, hierarchy_name: &str) -> PathBuf {
        hierarchy(hierarchy_name).join(format!("slurm_{}", self.node.name()))
    }

    /// Returns the cgroups of all nodes of this host, in all hierarchies.
    fn tops(&self) -> Vec<PathBuf> {
        let all = HIERARCHIES.iter().map(|name| self.top(name));
        let parts = |top: PathBuf| {
            let part = |part| PathBuf::from(format!("{}{part}", top.display()));
            [vec![top.clone()], PARTS.map(part).to_vec()].concat()
        };
        all.flat_map(parts).collect()
    }

    /// Returns the path of the socket of a job's extern step.
    pub(crate) fn extern_socket(&self, job: &str) -> String {
        self.socket(self.node.name(), job, EXTERN_STEP)
    }

    /// Returns the path of a step daemon's socket on that Slurm node.
    pub(super) fn socket(&self, node: &str, job: &str, step: u32) -> String {
        let spool = if node == self.node.name() {
            SPOOL
        } else {
            &format!("{SPOOL}/{node}")
        };
        format!("{spool}/{node}_{job}.{step}")
    }

    /// Lists the jobs' cgroups in all hierarchies. None is left when all jobs are over.
    pub(crate) fn job_cgroups(&self) -> Vec<PathBuf> {
        let is_job = |path: &PathBuf| path.to_string_lossy().contains("/job_");
        self.tops()
            .iter()
            .flat_map(|top| walk_tree(top))
            .filter(is_job)
            .collect()
    }

    /// Returns the node's processes that run this program, in this process's PID namespace.
    pub(crate) fn running(&self, program: &str) -> Vec<i32> {
        let comm = |pid: &i32| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        let processes = self.node.processes().into_iter();
        processes
            .filter(|pid| comm(pid).trim_end() == program)
            .collect()
    }

    /// Returns the node's processes that have ended and were not reaped.
    pub(crate) fn zombies(&self) -> Vec<i32> {
        let stat = |pid: &i32| fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let processes = self.node.processes().into_iter();
        processes.filter(|pid| stat(pid).contains(") Z ")).collect()
    }

    /// Asserts that no job has left a cgroup, a process or a socket.
    #[track_caller]
    pub(crate) fn assert_nothing_left(&self) {
        eventually("Slurm has removed its cgroups", || {
            self.job_cgroups().is_empty()
        });
        eventually("step daemons have ended", || {
            self.running("slurmstepd").is_empty()
        });
        eventually("nobody is left to wait for", || self.zombies().is_empty());
        if self.is_release_22() {
            let sockets = format!("ls -R {SPOOL} | grep '\\.[0-9]*$'");
            self.node.sh(&sockets).fails();
        }
    }

    /// Returns whether this is Slurm 22.05. On cgroup v1 a step daemon of 24.11 cannot leave its job's
    /// freezer cgroup, and ends by its own kill: empty cgroups and its socket remain.
    pub(crate) fn is_release_22(&self) -> bool {
        self.node
            .run("slurmd", &["-V"])
            .ok()
            .stdout
            .contains(" 22.")
    }

    /// Prepares a command of that user, in their home.
    pub(crate) fn as_user(&self, user: User, program: &str) -> std::process::Command {
        let mut command = self.node.command("setpriv");
        let id = user.uid.to_string();
        command.args(["--reuid", &id, "--regid", &id, "--clear-groups"]);
        command.args([
            "env",
            "--chdir",
            &user.home(),
            &format!("HOME={}", user.home()),
            program,
        ]);
        command
    }

    /// Returns the logs of the daemons.
    fn logs(&self) -> String {
        self.node.sh("tail -n 40 /var/log/slurm/*.log").stdout
    }

    fn end(self) {
        self.stop();
        let left: Vec<_> = self
            .tops()
            .into_iter()
            .filter(|path| path.exists())
            .collect();
        assert!(left.is_empty(), "left behind: {left:?}");
    }

    /// Kills every process of the node: a daemon that lives on would create its cgroups again.
    fn stop(&self) {
        for path in self.tops().iter().flat_map(|top| walk_tree(top)) {
            // Only the freezer hierarchy has this file.
            let _ = fs::write(path.join("freezer.state"), "THAWED");
        }
        eventually("no process is left", || {
            let first = self.node.first();
            let mut processes = self.node.processes();
            processes.retain(|pid| Some(*pid) != first);
            for pid in &processes {
                let _ = kill(Pid::from_raw(*pid), Signal::SIGKILL);
            }
            processes.is_empty()
        });
        for top in self.tops() {
            eventually("the cgroups of Slurm can be removed", || {
                walk_tree(&top).iter().rev().for_each(|path| {
                    let _ = fs::remove_dir(path);
                });
                !top.exists()
            });
        }
    }
}

impl Drop for Slurm<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("logs of Slurm:\n{}", self.logs());
            self.stop();
        }
    }
}

/// Lists a directory and all below, each directory before its contents. A missing one gives an
/// empty list.
pub(super) fn walk_tree(top: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(top) else {
        return Vec::new();
    };
    let folders = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.is_dir());
    std::iter::once(top.to_owned())
        .chain(folders.flat_map(|folder| walk_tree(&folder)))
        .collect()
}

/// Starts munged, which authenticates users. It needs a key of its own, and folders that no other
/// user can write.
const MUNGED: &str = "\
    set -e
    umask 077
    head -c 128 /dev/urandom > /run/munged.key
    munged --key-file=/run/munged.key --log-file=/run/munged.log --pid-file=/run/munged.pid \
        --seed-file=/run/munged.seed";

/// Sends the signal repeatedly, since slurmd can miss one: it checks for a signal, then waits for a
/// message, and a signal in between goes unnoticed (`_msg_engine` of `slurmd.c`).
const STOP_SLURMD: &str = "\
    set -e
    pid=$(cat /run/slurmd.pid)
    while kill $pid 2>/dev/null; do sleep 0.05; done";

const STOP_SLURMCTLD: &str = "\
    set -e
    pid=$(cat /run/slurmctld.pid)
    scontrol shutdown slurmctld
    while test -e /proc/$pid; do sleep 0.02; done";

const WAIT_UNTIL_IDLE: &str = "\
    for attempt in $(seq 200); do
        case $(sinfo -h -o %T) in idle|mixed|allocated) exit 0 ;; esac
        sleep 0.05
    done
    sinfo; exit 1";

fn slurm_conf(node: &str) -> String {
    format!(
        "ClusterName=test\n\
         SlurmctldHost={node}\n\
         SlurmUser=root\n\
         AuthType=auth/munge\n\
         ProctrackType=proctrack/cgroup\n\
         TaskPlugin=task/cgroup\n\
         JobAcctGatherType=jobacct_gather/cgroup\n\
         JobAcctGatherFrequency=1\n\
         PrologFlags=contain\n\
         SelectType=select/cons_tres\n\
         SelectTypeParameters=CR_Core\n\
         SchedulerParameters=batch_sched_delay=0,sched_min_interval=0\n\
         ReturnToService=2\n\
         SlurmdParameters=config_overrides\n\
         SlurmdSpoolDir={SPOOL}\n\
         StateSaveLocation=/var/spool/slurmctld\n\
         SlurmctldPidFile=/run/slurmctld.pid\n\
         SlurmdPidFile=/run/slurmd.pid\n\
         SlurmctldLogFile=/var/log/slurm/slurmctld.log\n\
         SlurmdLogFile=/var/log/slurm/slurmd.log\n\
         GresTypes=gpu\n\
         KillWait=1\n\
         NodeName={node} CPUs=2 RealMemory=1000 Gres=gpu:4 State=UNKNOWN\n\
         PartitionName=all Nodes=ALL Default=YES State=UP OverSubscribe=FORCE:40\n"
    )
}

/// Changes the configuration to two nodes, each with its own spool directory. Jobs of several
/// parts, which only the backfill scheduler starts, start at once.
fn split_conf(conf: &str, nodes: &[String; 2], host: &str) -> String {
    let dropped = [
        "NodeName=",
        "SlurmdSpoolDir=",
        "SlurmdPidFile=",
        "SlurmdLogFile=",
    ];
    let kept = conf
        .lines()
        .filter(|line| !dropped.iter().any(|key| line.starts_with(key)));
    let kept: String = kept.map(|line| format!("{line}\n")).collect();
    let kept = kept.replace("SchedulerParameters=", "SchedulerParameters=bf_interval=1,");
    let [one, other] = nodes;
    let size = "CPUs=2 RealMemory=1000 Gres=gpu:2 State=UNKNOWN";
    format!(
        "{kept}\
         SlurmdSpoolDir={SPOOL}/%n\n\
         SlurmdPidFile=/run/slurmd-%n.pid\n\
         SlurmdLogFile=/var/log/slurm/slurmd-%n.log\n\
         NodeName={one} NodeHostname={host} NodeAddr={ADDRESS} Port=7001 {size}\n\
         NodeName={other} NodeHostname={host} NodeAddr={ADDRESS} Port=7002 {size}\n"
    )
}
