//! Jobs of a real Slurm, in each way in which a user starts one.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use pam_job_adopt::schedulers::stepd::{self, State};

use super::slurm::{Slurm, tree};
use super::{LOOK, OPENS, Outcome, User, eventually};

/// The hierarchies of cgroup v1 that Slurm makes cgroups in.
pub(crate) const HIERARCHIES: [&str; 5] = ["freezer", "cpuset", "memory", "devices", "cpuacct"];
/// Number of the step that logins belong to (`SLURM_EXTERN_CONT` of `slurm.h`).
pub(super) const EXTERN_STEP: u32 = 0xffff_fffc;
/// Number of the step that runs a batch script (`SLURM_BATCH_SCRIPT`).
const BATCH_STEP: u32 = 0xffff_fffb;
/// What every job asks for.
const SIZE: [&str; 3] = ["--ntasks=1", "--mem=400", "--job-name=test"];
/// Stand-ins for GPUs, those of `gres.conf`.
const GPUS: [&str; 4] = ["/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia2", "/dev/nvidia3"];

/// States of a job that is over.
const OVER: [&str; 3] = ["CANCELLED", "COMPLETED", "TIMEOUT"];

/// A running job.
#[derive(Debug)]
pub(crate) struct SlurmJob<'a> {
    slurm: &'a Slurm<'a>,
    pub(crate) owner: User,
    pub(crate) id: String,
    /// Slurm's name of the node that it is on.
    node: String,
    /// Who waits for it, where it is one that somebody waits for.
    waits: Option<Child>,
}

impl<'a> Slurm<'a> {
    /// A batch job with so many GPUs whose script does nothing.
    pub(crate) fn batch(&'a self, owner: User, gpus: u32) -> SlurmJob<'a> {
        self.script(owner, gpus, "sleep infinity")
    }

    /// A batch job that runs this script.
    pub(crate) fn script(&'a self, owner: User, gpus: u32, script: &str) -> SlurmJob<'a> {
        let mut sbatch = self.ask(owner, gpus, "sbatch");
        let submitted = Outcome::of(sbatch.args(["--parsable", "--wrap", script])).ok();
        let job = self.known(owner, submitted.stdout.trim());
        job.wait_for(BATCH_STEP);
        job
    }

    /// An allocation in which no step runs. The job is there long before `salloc` looks again and
    /// ends.
    pub(crate) fn alloc(&'a self, owner: User, gpus: u32) -> SlurmJob<'a> {
        self.alloc_as(owner, gpus, &[], self.node.name())
    }

    /// One with these options besides, on that node of Slurm's.
    pub(crate) fn alloc_as(
        &'a self,
        owner: User,
        gpus: u32,
        options: &[&str],
        node: &str,
    ) -> SlurmJob<'a> {
        let mut salloc = self.ask(owner, gpus, "salloc");
        salloc.arg("--no-shell").args(options).arg(format!("--nodelist={node}"));
        self.grant(salloc, owner, node)
    }

    /// A job of two parts with a GPU each, one on either node: a heterogeneous job.
    pub(crate) fn alloc_on_both(&'a self, owner: User, nodes: &[String; 2]) -> [SlurmJob<'a>; 2] {
        let [one, other] = nodes;
        let mut salloc = self.ask(owner, 1, "salloc");
        salloc.args(["--no-shell", &format!("--nodelist={one}"), ":"]).args(SIZE);
        salloc.args(["--gres=gpu:1", &format!("--nodelist={other}")]);
        let first = self.grant(salloc, owner, one);
        let id: u32 = first.id.parse().unwrap();
        let second = self.known_on(owner, &(id + 1).to_string(), other);
        [first, second]
    }

    /// The tasks of a job array with so many GPUs each; the first has the array's own number, by
    /// which all of them are cancelled.
    pub(crate) fn array(&'a self, owner: User, gpus: u32, tasks: u32) -> Vec<SlurmJob<'a>> {
        let mut sbatch = self.ask(owner, gpus, "sbatch");
        sbatch.arg(format!("--array=1-{tasks}")).args(["--parsable", "--wrap", "sleep infinity"]);
        let array = Outcome::of(&mut sbatch).ok();
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
        ids.iter().map(|id| self.known(owner, id)).collect()
    }

    fn grant(&'a self, mut salloc: Command, owner: User, node: &str) -> SlurmJob<'a> {
        let said = self.node.path("/run/salloc");
        let waits = salloc.stderr(File::create(&said).unwrap()).spawn().unwrap();
        let mut id = None;
        eventually("the job is granted", || {
            id = granted(&std::fs::read_to_string(&said).unwrap());
            id.is_some()
        });
        let mut job = self.known_on(owner, &id.unwrap(), node);
        job.waits = Some(waits);
        job
    }

    /// A job of one step that somebody waits for.
    pub(crate) fn srun(&'a self, owner: User, gpus: u32) -> SlurmJob<'a> {
        let name = format!("--job-name=srun-{}", owner.name);
        let mut srun = self.ask(owner, gpus, "srun");
        srun.args([&name, "sleep", "infinity"]);
        let waits = srun.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let list =
            format!("squeue --noheader --state=running --name=srun-{} --format=%i", owner.name);
        let mut id = String::new();
        eventually("the step's job runs", || {
            id = self.node.sh(&list).stdout.trim().to_owned();
            !id.is_empty()
        });
        let mut job = self.known(owner, &id);
        job.waits = Some(waits);
        job.wait_for(0);
        job
    }

    /// A request with what every job asks for.
    fn ask(&self, owner: User, gpus: u32, program: &str) -> Command {
        let mut command = self.as_user(owner, program);
        command.args(SIZE);
        if gpus > 0 {
            command.arg(format!("--gres=gpu:{gpus}"));
        }
        command
    }

    fn known(&'a self, owner: User, id: &str) -> SlurmJob<'a> {
        self.known_on(owner, id, self.node.name())
    }

    fn known_on(&'a self, owner: User, id: &str, node: &str) -> SlurmJob<'a> {
        let (id, node) = (id.to_owned(), node.to_owned());
        let job = SlurmJob { slurm: self, owner, id, node, waits: None };
        eventually("the extern step runs", || job.state() == Some(State::Running));
        job
    }
}

/// The job that salloc(1) says it was given.
fn granted(said: &str) -> Option<String> {
    let line = said.lines().find(|line| line.contains("Granted job allocation"))?;
    line.rsplit(' ').next().map(str::to_owned)
}

impl SlurmJob<'_> {
    /// What its extern step does, where it answers.
    fn state(&self) -> Option<State> {
        let mut socket = UnixStream::connect(self.slurm.node.path(&self.socket())).ok()?;
        socket.write_all(&stepd::query()).ok()?;
        let mut answer = [0; stepd::ANSWER_LEN];
        socket.read_exact(&mut answer).ok()?;
        stepd::Answer::read(&answer).ok().map(|answer| answer.state)
    }

    /// Until that step's daemon listens.
    fn wait_for(&self, step: u32) {
        let socket = self.slurm.socket(&self.node, &self.id, step);
        eventually("the step has started", || self.slurm.node.exists(&socket));
    }

    /// Path of the socket that logins are adopted by.
    pub(crate) fn socket(&self) -> String {
        self.slurm.socket(&self.node, &self.id, EXTERN_STEP)
    }

    /// Its path in every hierarchy of version 1.
    pub(crate) fn path(&self) -> String {
        let Self { node, owner, id, .. } = self;
        format!("/slurm_{node}/uid_{}/job_{id}", owner.uid)
    }

    /// Its directory in that hierarchy, as this process sees it.
    pub(crate) fn dir(&self, hierarchy: &str) -> PathBuf {
        PathBuf::from(format!("/sys/fs/cgroup/{hierarchy}{}", self.path()))
    }

    /// What a step of the job says to `script`.
    pub(crate) fn step(&self, script: &str) -> Outcome {
        let mut srun = self.slurm.as_user(self.owner, "srun");
        srun.args(["--jobid", &self.id, "--overlap", "--ntasks=1", "sh", "-c", script]);
        Outcome::of(&mut srun)
    }

    /// GPUs that its own steps can open.
    pub(crate) fn gpus(&self) -> Vec<&'static str> {
        self.step(LOOK).ok().gpus()
    }

    /// Which of the node's GPUs Slurm gave it; of several the first.
    pub(crate) fn gpu(&self) -> usize {
        let told = self.slurm.node.run("scontrol", &["show", "--details", "job", &self.id]).ok();
        let (_, rest) = told.stdout.split_once("(IDX:").unwrap_or_else(|| panic!("{told}"));
        rest.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
    }

    /// Process of the extern step's daemon, as this process numbers it.
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

    /// Sends a signal to that daemon.
    pub(crate) fn signal_daemon(&self, signal: nix::sys::signal::Signal) {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(self.daemon()), signal).unwrap();
    }

    /// Freezes or thaws it.
    pub(crate) fn freeze(&self, frozen: bool) {
        let state = if frozen { "FROZEN" } else { "THAWED" };
        let file = self.dir("freezer").join("freezer.state");
        std::fs::write(&file, state).unwrap();
        eventually(state, || std::fs::read_to_string(&file).unwrap().trim() == state);
    }

    /// Has Slurm end it, and waits until it has.
    pub(crate) fn cancel(&self) {
        self.slurm.node.run("scancel", &[&self.id]).ok();
        self.ends();
    }

    /// Waits until Slurm has ended it, and its logins with it.
    #[track_caller]
    pub(crate) fn ends(&self) {
        eventually("the job's cgroups are removed", || {
            !HIERARCHIES.iter().any(|hierarchy| self.dir(hierarchy).exists())
        });
        self.is_over();
    }

    /// Waits until Slurm has ended it, then removes the empty cgroups that it forgot, and counts them.
    /// Slurm makes some anew for a login that it adds while the step ends (22.05).
    pub(crate) fn forgotten(&self) -> usize {
        eventually("its daemon has ended", || self.find_daemon().is_none());
        self.is_over();
        let trees = HIERARCHIES.iter().flat_map(|hierarchy| tree(&self.dir(hierarchy)));
        let dirs: Vec<PathBuf> = trees.collect();
        dirs.iter().rev().filter(|dir| std::fs::remove_dir(dir).is_ok()).count()
    }

    fn is_over(&self) {
        let state = format!("squeue --noheader --jobs={} --format=%T 2>/dev/null", self.id);
        eventually("Slurm knows that it is over", || {
            let states = self.slurm.node.sh(&state).stdout;
            states.lines().all(|state| OVER.contains(&state.trim()))
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
    /// GPUs of Slurm's that a probe could open.
    #[track_caller]
    pub(crate) fn gpus(&self) -> Vec<&'static str> {
        GPUS.into_iter().filter(|gpu| self.device(gpu) == OPENS).collect()
    }

    /// The path in that hierarchy, in a printed `/proc/PID/cgroup`.
    #[track_caller]
    pub(crate) fn path_in(&self, hierarchy: &str) -> &str {
        let controllers = |line: &&str| {
            line.split(':').nth(1).is_some_and(|list| list.split(',').any(|one| one == hierarchy))
        };
        let line = self.output_lines().find(controllers).unwrap_or_else(|| panic!("{self}"));
        line.trim_end().splitn(3, ':').nth(2).unwrap()
    }

    /// Asserts that the printed cgroups are this job's, in every hierarchy that it uses.
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

    /// Asserts that the printed cgroups are no job's, in any hierarchy.
    #[track_caller]
    pub(crate) fn stays_outside(self) -> Self {
        for hierarchy in HIERARCHIES {
            assert!(!self.path_in(hierarchy).contains("/job_"), "{hierarchy}: {self}");
        }
        self
    }
}
