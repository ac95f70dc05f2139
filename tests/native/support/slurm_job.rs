//! Jobs of a real Slurm, started in each way that users have.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use schedulers::stepd::{self, State};

use super::slurm::{Slurm, walk_tree};
use super::{LOOK, OPENS, Outcome, User, eventually};

/// The cgroup v1 hierarchies in which Slurm makes cgroups.
pub(crate) const HIERARCHIES: [&str; 5] = ["freezer", "cpuset", "memory", "devices", "cpuacct"];
/// Number of the extern step, which logins join (`SLURM_EXTERN_CONT` of `slurm.h`).
pub(super) const EXTERN_STEP: u32 = 0xffff_fffc;
/// Number of the step that runs a batch script (`SLURM_BATCH_SCRIPT`).
const BATCH_STEP: u32 = 0xffff_fffb;
/// Resources of every job.
const SIZE: [&str; 3] = ["--ntasks=1", "--mem=400", "--job-name=test"];
/// Stand-ins for the GPUs of `gres.conf`.
const GPUS: [&str; 4] = [
    "/dev/nvidia0",
    "/dev/nvidia1",
    "/dev/nvidia2",
    "/dev/nvidia3",
];

/// States of a job that is over.
const OVER: [&str; 3] = ["CANCELLED", "COMPLETED", "TIMEOUT"];

/// A running job.
#[derive(Debug)]
pub(crate) struct SlurmJob<'a> {
    slurm: &'a Slurm<'a>,
    pub(crate) owner: User,
    pub(crate) id: String,
    /// Slurm's name of the job's node.
    node: String,
    /// The command that waits for the job, if there is one.
    waits: Option<Child>,
}

impl<'a> Slurm<'a> {
    /// Starts an idle batch job with that many GPUs.
    pub(crate) fn batch(&'a self, owner: User, gpus: u32) -> SlurmJob<'a> {
        self.script(owner, gpus, "sleep infinity")
    }

    /// Starts a batch job that runs this script.
    pub(crate) fn script(&'a self, owner: User, gpus: u32, script: &str) -> SlurmJob<'a> {
        let mut sbatch = self.ask(owner, gpus, "sbatch");
        let submitted = Outcome::run(sbatch.args(["--parsable", "--wrap", script])).ok();
        let job = self.find_job(owner, submitted.stdout.trim());
        job.wait_for(BATCH_STEP);
        job
    }

    /// Starts an allocation without a step. The job exists long before `salloc` polls again and
    /// returns.
    pub(crate) fn alloc(&'a self, owner: User, gpus: u32) -> SlurmJob<'a> {
        self.alloc_as(owner, gpus, &[], self.node.name())
    }

    /// Starts an allocation with further options on that Slurm node.
    pub(crate) fn alloc_as(
        &'a self,
        owner: User,
        gpus: u32,
        options: &[&str],
        node: &str,
    ) -> SlurmJob<'a> {
        let mut salloc = self.ask(owner, gpus, "salloc");
        salloc
            .arg("--no-shell")
            .args(options)
            .arg(format!("--nodelist={node}"));
        self.grant(salloc, owner, node)
    }

    /// Starts a heterogeneous job: two parts with a GPU each, one on either node.
    pub(crate) fn alloc_on_both(&'a self, owner: User, nodes: &[String; 2]) -> [SlurmJob<'a>; 2] {
        let [one, other] = nodes;
        let mut salloc = self.ask(owner, 1, "salloc");
        salloc
            .args(["--no-shell", &format!("--nodelist={one}"), ":"])
            .args(SIZE);
        salloc.args(["--gres=gpu:1", &format!("--nodelist={other}")]);
        let first = self.grant(salloc, owner, one);
        let id: u32 = first.id.parse().unwrap();
        let second = self.find_job_on(owner, &(id + 1).to_string(), other);
        [first, second]
    }

    /// Starts a job array with that many GPUs for each task. The first task has the array's own
    /// number, which cancels all of them.
    pub(crate) fn array(&'a self, owner: User, gpus: u32, tasks: u32) -> Vec<SlurmJob<'a>> {
        let mut sbatch = self.ask(owner, gpus, "sbatch");
        sbatch
            .arg(format!("--array=1-{tasks}"))
            .args(["--parsable", "--wrap", "sleep infinity"]);
        let array = Outcome::run(&mut sbatch).ok();
        let list = format!(
            "squeue --noheader --array --state=running --jobs={} --format=%A",
            array.stdout.trim()
        );
        let mut ids = Vec::new();
        eventually("all tasks run", || {
            let running = self.node.sh(&list).stdout;
            ids = running.split_whitespace().map(str::to_owned).collect();
            ids.len() == tasks as usize
        });
        ids.sort_by_key(|id| id.parse::<u32>().unwrap());
        ids.iter().map(|id| self.find_job(owner, id)).collect()
    }

    fn grant(&'a self, mut salloc: Command, owner: User, node: &str) -> SlurmJob<'a> {
        let output = self.node.path("/run/salloc");
        let waits = salloc
            .stderr(File::create(&output).unwrap())
            .spawn()
            .unwrap();
        let mut id = None;
        eventually("the job is granted", || {
            id = parse_job_id(&std::fs::read_to_string(&output).unwrap());
            id.is_some()
        });
        let mut job = self.find_job_on(owner, &id.unwrap(), node);
        job.waits = Some(waits);
        job
    }

    /// Starts a job of one step with `srun`, which waits for it.
    pub(crate) fn srun(&'a self, owner: User, gpus: u32) -> SlurmJob<'a> {
        let name = format!("--job-name=srun-{}", owner.name);
        let mut srun = self.ask(owner, gpus, "srun");
        srun.args([&name, "sleep", "infinity"]);
        let waits = srun
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let list = format!(
            "squeue --noheader --state=running --name=srun-{} --format=%i",
            owner.name
        );
        let mut id = String::new();
        eventually("the step's job runs", || {
            id = self.node.sh(&list).stdout.trim().to_owned();
            !id.is_empty()
        });
        let mut job = self.find_job(owner, &id);
        job.waits = Some(waits);
        job.wait_for(0);
        job
    }

    /// Prepares a request with the resources of every job.
    fn ask(&self, owner: User, gpus: u32, program: &str) -> Command {
        let mut command = self.as_user(owner, program);
        command.args(SIZE);
        if gpus > 0 {
            command.arg(format!("--gres=gpu:{gpus}"));
        }
        command
    }

    fn find_job(&'a self, owner: User, id: &str) -> SlurmJob<'a> {
        self.find_job_on(owner, id, self.node.name())
    }

    fn find_job_on(&'a self, owner: User, id: &str, node: &str) -> SlurmJob<'a> {
        let id = id.to_owned();
        let node = node.to_owned();
        let job = SlurmJob {
            slurm: self,
            owner,
            id,
            node,
            waits: None,
        };
        eventually("the extern step runs", || {
            job.state() == Some(State::Running)
        });
        job
    }
}

/// Parses the job id in the output of salloc(1).
fn parse_job_id(output: &str) -> Option<String> {
    let line = output
        .lines()
        .find(|line| line.contains("Granted job allocation"))?;
    line.rsplit(' ').next().map(str::to_owned)
}

impl SlurmJob<'_> {
    /// Returns the state of its extern step, if the daemon answers.
    fn state(&self) -> Option<State> {
        let path = self.slurm.node.path(&self.socket());
        // An address has 107 bytes, which a node's long name can exceed (unix(7)).
        let spool = File::open(path.parent()?).ok()?;
        let name = path.file_name()?.to_str()?;
        let address = format!("/proc/self/fd/{}/{name}", spool.as_raw_fd());
        let mut socket = UnixStream::connect(address).ok()?;
        socket.write_all(&stepd::encode_query()).ok()?;
        let mut answer = [0; stepd::ANSWER_BYTES];
        socket.read_exact(&mut answer).ok()?;
        stepd::Answer::parse(&answer)
            .ok()
            .map(|answer| answer.state)
    }

    /// Waits until the daemon of that step listens.
    fn wait_for(&self, step: u32) {
        let socket = self.slurm.socket(&self.node, &self.id, step);
        eventually("the step has started", || self.slurm.node.exists(&socket));
    }

    /// Returns the path of the socket of the extern step.
    pub(crate) fn socket(&self) -> String {
        self.slurm.socket(&self.node, &self.id, EXTERN_STEP)
    }

    /// Returns the job's path below each v1 hierarchy.
    pub(crate) fn path(&self) -> String {
        let Self {
            node, owner, id, ..
        } = self;
        format!("/slurm_{node}/uid_{}/job_{id}", owner.uid)
    }

    /// Returns its directory in that hierarchy, as a path of this process.
    pub(crate) fn dir(&self, hierarchy: &str) -> PathBuf {
        PathBuf::from(format!("/sys/fs/cgroup/{hierarchy}{}", self.path()))
    }

    /// Runs `script` in a new step of the job.
    pub(crate) fn step(&self, script: &str) -> Outcome {
        self.step_with(&[], script)
    }

    /// Runs `script` in a new step of the job with further options.
    pub(crate) fn step_with(&self, options: &[&str], script: &str) -> Outcome {
        let mut srun = self.slurm.as_user(self.owner, "srun");
        srun.args(["--jobid", &self.id, "--overlap", "--ntasks=1"]);
        Outcome::run(srun.args(options).args(["sh", "-c", script]))
    }

    /// Lists the GPUs that the job's own steps can open.
    pub(crate) fn gpus(&self) -> Vec<&'static str> {
        self.step(LOOK).ok().gpus()
    }

    /// Returns the index of the GPU that Slurm allocated; of several, the first.
    pub(crate) fn gpu(&self) -> usize {
        let details = self
            .slurm
            .node
            .run("scontrol", &["show", "--details", "job", &self.id])
            .ok();
        let (_, rest) = details
            .stdout
            .split_once("(IDX:")
            .unwrap_or_else(|| panic!("{details}"));
        rest.split(|c: char| !c.is_ascii_digit())
            .next()
            .unwrap()
            .parse()
            .unwrap()
    }

    /// Returns the process of the extern step's daemon, in this process's PID namespace.
    pub(crate) fn daemon(&self) -> i32 {
        self.find_daemon().expect("no extern step")
    }

    fn find_daemon(&self) -> Option<i32> {
        let title = format!("slurmstepd: [{}.extern]", self.id);
        let runs = |pid: &i32| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).starts_with(&title)
        };
        self.slurm.running("slurmstepd").into_iter().find(runs)
    }

    /// Sends a signal to the extern step's daemon.
    pub(crate) fn signal_daemon(&self, signal: nix::sys::signal::Signal) {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(self.daemon()), signal).unwrap();
    }

    /// Freezes or thaws the job.
    pub(crate) fn freeze(&self, frozen: bool) {
        let state = if frozen { "FROZEN" } else { "THAWED" };
        let file = self.dir("freezer").join("freezer.state");
        std::fs::write(&file, state).unwrap();
        eventually(state, || {
            std::fs::read_to_string(&file).unwrap().trim() == state
        });
    }

    /// Cancels the job, and waits until Slurm has ended it.
    pub(crate) fn cancel(&self) {
        self.slurm.node.run("scancel", &[&self.id]).ok();
        self.await_end();
    }

    /// Waits until Slurm has ended the job with its logins.
    #[track_caller]
    pub(crate) fn await_end(&self) {
        let left_empty = !self.slurm.is_release_22();
        eventually("the job's cgroups are removed", || {
            if left_empty && self.find_daemon().is_none() {
                for dir in walk_tree(&self.dir("freezer")).iter().rev() {
                    let _ = std::fs::remove_dir(dir);
                }
            }
            !HIERARCHIES
                .iter()
                .any(|hierarchy| self.dir(hierarchy).exists())
        });
        self.is_over();
    }

    /// Waits until Slurm has ended the job, then removes the empty cgroups that Slurm left, with the
    /// socket of their daemon, and returns their number. Slurm 22.05 creates some again for a login that it adds while the step
    /// ends.
    pub(crate) fn remove_forgotten_cgroups(&self) -> usize {
        eventually("its daemon has ended", || self.find_daemon().is_none());
        self.is_over();
        let trees = HIERARCHIES
            .iter()
            .flat_map(|hierarchy| walk_tree(&self.dir(hierarchy)));
        let dirs: Vec<PathBuf> = trees.collect();
        let removed = dirs
            .iter()
            .rev()
            .filter(|dir| std::fs::remove_dir(dir).is_ok())
            .count();
        if removed > 0 {
            // The daemon was killed before it could remove its socket.
            let _ = std::fs::remove_file(self.slurm.node.path(&self.socket()));
        }
        removed
    }

    fn is_over(&self) {
        let state = format!(
            "squeue --noheader --jobs={} --format=%T 2>/dev/null",
            self.id
        );
        eventually("Slurm knows that it is over", || {
            let states = self.slurm.node.sh(&state).stdout;
            states.lines().all(|line| OVER.contains(&line.trim()))
        });
    }
}

impl Drop for SlurmJob<'_> {
    fn drop(&mut self) {
        if let Some(child) = &mut self.waits {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Outcome {
    /// Lists the Slurm GPUs that a probe could open.
    #[track_caller]
    pub(crate) fn gpus(&self) -> Vec<&'static str> {
        GPUS.into_iter()
            .filter(|gpu| self.device(gpu) == OPENS)
            .collect()
    }

    /// Returns the path in that hierarchy, from a printed `/proc/PID/cgroup`.
    #[track_caller]
    pub(crate) fn path_in(&self, hierarchy: &str) -> &str {
        let controllers = |line: &&str| {
            line.split(':')
                .nth(1)
                .is_some_and(|list| list.split(',').any(|one| one == hierarchy))
        };
        let line = self
            .output_lines()
            .find(controllers)
            .unwrap_or_else(|| panic!("{self}"));
        line.trim_end().splitn(3, ':').nth(2).unwrap()
    }

    /// Asserts that the printed cgroups belong to this job, in every hierarchy of Slurm.
    #[track_caller]
    pub(crate) fn joins(self, job: &SlurmJob<'_>) -> Self {
        let step = format!("{}/step_extern", job.path());
        for hierarchy in HIERARCHIES {
            let path = self.path_in(hierarchy);
            let inside = path
                .strip_prefix(&step)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
            assert!(inside, "{hierarchy}: not in {step}: {self}");
        }
        self
    }

    /// Asserts that the printed cgroups belong to no job, in any hierarchy.
    #[track_caller]
    pub(crate) fn stays_outside(self) -> Self {
        for hierarchy in HIERARCHIES {
            assert!(
                !self.path_in(hierarchy).contains("/job_"),
                "{hierarchy}: {self}"
            );
        }
        self
    }
}
