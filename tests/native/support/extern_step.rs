//! Slurm jobs with a stand-in for the extern step.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use protocol::{
    ChoiceRule, Containment, LoginLimits, Placement, Plan, Probe, Reply, SessionLine, Variables,
    Verdict,
};

use super::{Cgroup, Fake, Node, SPOOL, Tool, User, eventually};

/// Path of the stand-in on a node.
const DAEMON: &str = "/usr/bin/extern";

/// The extern step of a job (`tools/extern.c`).
#[derive(Debug)]
pub(crate) struct Step {
    /// The cgroup of the job.
    pub(crate) job: Cgroup,
    daemon: Child,
}

/// Returns the helper's plan for job 4242.
pub(crate) fn plan(containment: Containment) -> Plan {
    Plan {
        job: "4242".parse().unwrap(),
        rule: ChoiceRule::OnlyJob,
        placement: Placement::Extern {
            spool: SPOOL.parse().unwrap(),
            node: "gpu017".parse().unwrap(),
        },
        ends: None,
        gpus: 0,
        containment,
        limits: LoginLimits::default(),
        end_grace: 0,
        namespaces: None,
        probes: Vec::new(),
        dropped: Vec::new(),
        env: Variables::default(),
    }
}

/// Returns one probe for each of the stand-in GPUs 0 to 3.
pub(crate) fn probes() -> Vec<Probe> {
    (0..4)
        .map(|gpu| format!("c:195:{gpu}:rw /dev/nvidia{gpu}").parse().unwrap())
        .collect()
}

impl Node {
    /// Starts job 4242 of `owner` with these faults, and a helper that answers with it.
    pub(crate) fn step(&self, owner: User, faults: &[&str]) -> Step {
        self.create_dir(SPOOL, 0o755);
        self.answers(&plan(Containment::None));
        self.step_alone(owner, faults)
    }

    /// Starts job 4242 of `owner` in an existing directory of sockets, without a helper.
    pub(crate) fn step_alone(&self, owner: User, faults: &[&str]) -> Step {
        self.install(&Tool::Extern.path(), DAEMON);
        let job = self.cgroup().child("jobs").child("job_4242");
        let mut command = self.daemon(&self.outside(), DAEMON);
        command.args([SPOOL, "gpu017", "4242", &owner.uid.to_string()]);
        command
            .arg(format!("/sys/fs/cgroup{}", job.path()))
            .args(faults);
        let mut daemon = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut ready = String::new();
        BufReader::new(daemon.stdout.take().unwrap())
            .read_line(&mut ready)
            .unwrap();
        assert_eq!(ready, "ready\n", "the stand-in does not listen");
        Step { job, daemon }
    }

    /// Makes the helper answer both phases with this plan.
    pub(crate) fn answers(&self, plan: &Plan) {
        let reply = Reply {
            stack: SessionLine::Effective,
            auth_fault: String::new(),
            detail: String::new(),
            warnings: Vec::new(),
            hint: String::new(),
            message: String::new(),
            verdict: Verdict::Admit(plan.clone()),
        };
        Fake::new().answers(&reply).install(self);
    }
}

impl Step {
    /// Returns the cgroup of the extern step.
    pub(crate) fn cgroup(&self) -> Cgroup {
        self.job.child("step_extern")
    }

    /// Returns the cgroup of its logins.
    pub(crate) fn leaf(&self) -> Cgroup {
        self.cgroup().child("user").child("task_special")
    }

    /// Returns the daemon's process.
    fn pid(&self) -> i32 {
        self.cgroup().child("slurm").pids()[0]
    }

    /// Sends the daemon a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid()), signal).unwrap();
    }

    /// Returns whether the daemon serves a client, in a thread of its own.
    pub(crate) fn has_clients(&self) -> bool {
        std::fs::read_dir(format!("/proc/{}/task", self.pid()))
            .unwrap()
            .count()
            > 1
    }

    /// Ends the job in Slurm's way; returns whether all of its cgroups are gone.
    pub(crate) fn finish(mut self) -> bool {
        self.signal(Signal::SIGTERM);
        let done = self.daemon.wait().unwrap().success();
        done && !self.job.exists()
    }

    /// Asserts that no login has joined, and that no leaf was made for one.
    #[track_caller]
    pub(crate) fn assert_untouched(&self) {
        assert!(!self.leaf().exists(), "somebody was added");
    }

    /// Asserts that the job has no process but its daemon.
    #[track_caller]
    pub(crate) fn assert_empty(&self) {
        let user = self.cgroup().child("user");
        eventually("nobody is in the step", || {
            !user.exists() || user.is_empty()
        });
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        self.job.remove();
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}
