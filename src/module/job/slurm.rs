//! Joins Slurm jobs. The daemon of the extern step reports the job's user and adds the login. The
//! daemon's own cgroup shows the job's layout; no path is made from a job's number.
//!
//! On cgroup v2 the layout is `JOB/step_extern/{slurm,user/task_special,user/task_N}`. The daemon
//! is in `slurm`. Logins go to `task_special`, which the daemon makes for the first login. If Slurm
//! accounts by `jobacct_gather/cgroup`, they go on at once to `task_N`, with the node's number N in
//! the job. This module makes no cgroup there: the daemon cannot remove a cgroup that it does not
//! know.

use super::join_result::JoinResult;
use super::login_limits::{LeafLimit, plan_limits, set_limits};
use super::requirements::{frozen_failure, require_containment, require_not_frozen};
use crate::context::Adoption;
use crate::error::Failure;
use crate::probe::ProbeResult;
use crate::undo::Undo;
use kernel::bpf::{self, AttachScope, AttachTarget, Confinement};
use kernel::cgroup::{self, CgroupChain, Cpuset, Dir, Membership, Mount, MountInfo, ignore_gone};
use kernel::cgroup::{list_own_processes, v1, verify_in_leaf};
use kernel::mounts::IMEX_CHANNEL_DIR;
use kernel::namespace::Namespace;
use kernel::proc::{Proc, Process};
use kernel::trust::{Distrust, Trust, TrustError, TrustedDir};
use nix::fcntl::{self, OFlag};
use nix::sys::stat::{Mode, fstat};
use protocol::{AbsolutePath, CgroupPath, Containment, LoginLimits, NodeName, Reason};
use protocol::{Variable, parse_decimal};
use schedulers::stepd::{self, Daemon, SocketName, State};
use std::fmt::Display;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Instant;

/// A running job of Slurm's that the user owns: the daemon of its extern step, and the step's cgroups.
pub(super) enum SlurmJob {
    /// On cgroup v2.
    V2(Daemon, ExternStep),
    /// On cgroup v1.
    V1(Daemon, ExternStepV1),
}

/// Connects to the daemon and opens the cgroups of its job. The user of the job is the one that the
/// daemon reports, which only root can have started, and not the one of the helper's reply.
pub(super) fn open(
    adoption: &Adoption<'_>,
    spool: &AbsolutePath,
    node: &NodeName,
) -> Result<SlurmJob, Failure> {
    // Query the daemon before any request to add a process. A stopped daemon does not answer, so it
    // never gets a request that it would carry out later, on a process that was refused long ago or
    // on another one with the same number.
    let mut daemon = connect_to_daemon(adoption, spool, node)?;
    require_running(adoption, daemon.last_answer())?;
    require_shared_pid_namespace(daemon.pid())?;
    let cgroups = Membership::read(daemon.pid()).map_err(|error| {
        let errno = error.errno();
        Failure::with_errno(Reason::Ended, format_args!("{DAEMON_TEXT}: {error}"), errno)
    })?;
    if let Some(path) = cgroups.unified().and_then(stepd::step_of_daemon) {
        let step = ExternStep::open(&path)?;
        require_not_frozen(step.levels())?;
        return Ok(SlurmJob::V2(daemon, step));
    }
    if let Some(job) = v1::JobCgroups::from_daemon(&cgroups) {
        return Ok(SlurmJob::V1(daemon, ExternStepV1::open(job, &cgroups)?));
    }
    // A daemon is in its step's cgroup as long as it runs, so it may have ended meanwhile.
    let answer = daemon
        .query_state(adoption.deadline())
        .map_err(stepd_failure)?;
    require_running(adoption, answer)?;
    let path = cgroups
        .unified()
        .or(cgroups.path_of_controller("freezer"))
        .unwrap_or("/");
    let cause = format!(
        "is in {path}, which is no step's cgroup: slurm.conf has to say \
         ProctrackType=proctrack/cgroup"
    );
    Err(daemon_failure(Reason::Configuration, cause))
}

/// Asks the daemon to add the calling process. Its answer must show that the job is still the
/// user's and runs. With no time left it sends nothing.
fn add_login(daemon: &mut Daemon, adoption: &Adoption<'_>, undo: &mut Undo) -> Result<(), Failure> {
    undo.moved = true;
    let answer = daemon.add_process(nix::unistd::getpid().as_raw(), adoption.deadline());
    require_running(adoption, answer.map_err(stepd_failure)?)
}

/// Queries the daemon for the job's namespaces and display, and adds them to the result.
fn query_namespaces_and_display(
    mut joined: JoinResult,
    daemon: &Daemon,
    adoption: &Adoption<'_>,
) -> Result<JoinResult, Failure> {
    let settings = adoption.context.settings;
    let deadline = adoption.deadline();
    if settings.join_container {
        for (kind, fd) in daemon.query_namespaces(deadline).map_err(stepd_failure)? {
            joined
                .namespaces
                .push(Namespace::from_fd(fd, kind, "of the job's step daemon")?);
        }
    }
    if !settings.disable_x11 {
        let (number, keys) = daemon.query_display(deadline).map_err(stepd_failure)?;
        joined.display = Variable::from_display(number, &keys);
    }
    Ok(joined)
}

/// Connects to the daemon of the plan's job.
fn connect_to_daemon(
    adoption: &Adoption<'_>,
    spool: &AbsolutePath,
    node: &NodeName,
) -> Result<Daemon, Failure> {
    let job = &adoption.plan.job;
    let misconfigured = |cause: String| Failure::new(Reason::Configuration, cause);
    let name = SocketName::from_job(node, job);
    let name =
        name.ok_or_else(|| misconfigured(format!("{job} is no number of a job of Slurm's")))?;
    let spool = open_spool(adoption, Path::new(spool.as_str()));
    let spool = spool.map_err(|error| misconfigured(format!("Slurm's spool directory {error}")))?;
    Daemon::connect(&spool, &name, adoption.deadline()).map_err(stepd_failure)
}

/// Opens the directory of the sockets. Root or the account `slurm` must own each directory of the
/// path; the account is looked up only if root does not own one. No link is followed: the helper
/// must give the real path.
fn open_spool(adoption: &Adoption<'_>, path: &Path) -> Result<TrustedDir, TrustError> {
    match Trust::root().dir(path) {
        Err(error) if matches!(error.cause(), Distrust::WrongOwner(_)) => {
            let slurm = (adoption.context.find_slurm_user)().ok_or(error)?;
            Trust::root().or_owned_by(slurm).dir(path)
        }
        result => result,
    }
}

/// Requires that the job is the user's and accepts logins.
fn require_running(adoption: &Adoption<'_>, answer: stepd::Answer) -> Result<(), Failure> {
    let uid = answer.uid;
    match answer.state {
        _ if uid != adoption.uid() => Err(daemon_failure(
            Reason::AdoptionFailed,
            format_args!("the job is uid {uid}'s"),
        )),
        State::Starting => Err(daemon_failure(Reason::Starting, "the step is starting")),
        State::Running => Ok(()),
        State::Ending => Err(daemon_failure(Reason::Ended, "the step is ending")),
    }
}

/// Requires that the daemon and this process are in the pid namespace of `/proc`: the daemon adds
/// the login by its process number. `NSpid` has one number for each namespace from the one of
/// `/proc` downwards (proc_pid_status(5)).
fn require_shared_pid_namespace(pid: i32) -> Result<(), Failure> {
    let proc = Proc::host();
    if pid > 0 && has_one_number(proc.read_current()) && has_one_number(proc.read_process(pid)) {
        return Ok(());
    }
    Err(daemon_failure(
        Reason::Configuration,
        "is in another process namespace than this",
    ))
}

/// Returns whether a process can be read and has one number only.
fn has_one_number(process: std::io::Result<Process>) -> bool {
    process.is_ok_and(|process| process.namespaces == 1)
}

/// The cgroups between the step and its logins.
const LOGIN_CGROUPS: [&str; 2] = ["user", "task_special"];
/// The cgroup of a step's daemon, below the step's.
const DAEMON_CGROUP: &str = "slurm";
/// Prefix of the name of a leaf for accounting; a number follows.
const TASK_PREFIX: &str = "task_";
/// Index of the job's own cgroup, counted from `task_special`.
const JOB_LEVEL: usize = 3;

/// Returns the name of the leaf at `path`, if it is a leaf for logins below `user`.
fn parse_leaf_name<'a>(path: &'a str, user: &str) -> Option<&'a str> {
    let name = path.strip_prefix(user)?.strip_prefix('/')?;
    let is_numbered = name
        .strip_prefix(TASK_PREFIX)
        .is_some_and(|number| parse_decimal(number).is_some());
    let [_, special] = LOGIN_CGROUPS;
    (name == special || is_numbered).then_some(name)
}

/// The cgroup of an extern step, those above it, and those below it that have logins.
#[derive(Debug)]
pub struct ExternStep {
    /// The step's path.
    path: String,
    /// The step, and every level above.
    step: CgroupChain,
    /// `task_special`, `user` and the step, as far as they exist, and every level above.
    place: CgroupChain,
    /// The number of `user` and `task_special` that do not exist, before the first login.
    missing: usize,
}

impl ExternStep {
    /// Opens the cgroups.
    ///
    /// # Errors
    ///
    /// [`Failure::CgroupGone`] if the step ended meanwhile.
    fn open(step: &CgroupPath) -> Result<Self, Failure> {
        let path = step.as_str().to_owned();
        let mut place = Mount::open()?.open_chain(step)?;
        let step_chain = place.clone();
        let mut missing = LOGIN_CGROUPS.len();
        for name in LOGIN_CGROUPS {
            match place.dir()?.child(name) {
                Ok(dir) => place = place.with_child(dir),
                Err(error) if error.is_gone() => break,
                Err(error) => return Err(error.into()),
            }
            missing -= 1;
        }
        Ok(Self {
            path,
            step: step_chain,
            place,
            missing,
        })
    }

    /// The path of the cgroup for the login, below the cgroup v2 mount. The daemon may move it on.
    pub fn leaf(&self) -> String {
        let [user, leaf] = LOGIN_CGROUPS;
        format!("{}/{user}/{leaf}", self.path)
    }

    /// Predicts the containment of the login.
    pub(super) fn predict_containment(
        &self,
        adoption: &Adoption<'_>,
    ) -> Result<&'static str, Failure> {
        let job = JOB_LEVEL - self.missing;
        let target = AttachTarget {
            levels: self.place.levels(),
            job,
            scope: AttachScope::Leaf,
        };
        Ok(bpf::predict_containment(
            target,
            self.missing,
            &adoption.plan.containment,
        )?)
    }

    /// Predicts the limits of the leaf. If cgroups are missing, the daemon makes them and enables in them the
    /// controllers of the nearest existing one.
    pub(super) fn predict_limits(
        &self,
        adoption: &Adoption<'_>,
    ) -> Result<Vec<LeafLimit>, Failure> {
        plan_step_limits(adoption, self.above_leaf())
    }

    /// Reads the cpuset of the logins.
    pub(super) fn read_cpuset(&self) -> cgroup::Result<Option<Cpuset>> {
        let job = JOB_LEVEL - self.missing;
        Cpuset::find(self.levels().get(..=job).unwrap_or_default())
    }

    /// The existing cgroups above the leaf, the nearest first.
    pub fn above_leaf(&self) -> &[Dir] {
        self.levels()
            .get(usize::from(self.missing == 0)..)
            .unwrap_or_default()
    }

    /// The existing cgroups from the leaf up to the root of the mount, the lowest first. The step's is among them.
    pub fn levels(&self) -> &[Dir] {
        self.place.levels()
    }

    /// Asks the daemon to add the calling process, confines the cgroup where it is then, and
    /// verifies the result.
    ///
    /// # Errors
    ///
    /// Any [`Failure`]; the caller must roll back.
    pub(super) fn join(
        &self,
        daemon: &mut Daemon,
        adoption: &Adoption<'_>,
        undo: &mut Undo,
    ) -> Result<JoinResult, Failure> {
        // Do not move a login that cannot be confined.
        require_containment(self.predict_containment(adoption)?, adoption)?;
        add_login(daemon, adoption, undo)?;
        let (place, confinement) = self.confine_login(adoption)?;
        let containment = require_containment(confinement.name, adoption)?;
        let limits = plan_step_limits(adoption, place.levels().get(1..).unwrap_or_default())?;
        set_limits(&limits, place.dir()?)?;
        let probes = ProbeResult::from_probes(&adoption.plan.probes);
        confinement.verify(place.dir()?)?;
        verify_in_leaf(place.dir()?, place.root()?)?;
        let cgroup = place.dir()?.path().to_owned();
        let mut joined = JoinResult {
            cgroup,
            containment,
            limits,
            probes,
            ..JoinResult::default()
        };
        let up_to_job = place.levels().get(..=JOB_LEVEL).unwrap_or_default();
        joined.set_cpuset(Cpuset::find(up_to_job));
        let mut joined = query_namespaces_and_display(joined, daemon, adoption)?;
        if joined.namespaces.is_empty() && adoption.context.settings.join_container {
            joined
                .namespaces
                .extend(self.open_channel_namespace(adoption.deadline())?);
        }
        Ok(joined)
    }

    /// Opens the mount namespace of another step's daemon if the job's IMEX channel is there. Slurm mounts it for
    /// steps of srun, from 26.05 on also for the batch step, never for the extern step, and does not hand that
    /// namespace over. All these mounts are the same. A step that is ending is skipped.
    fn open_channel_namespace(&self, deadline: Instant) -> Result<Option<Namespace>, Failure> {
        let Some(job) = self
            .step
            .levels()
            .get(1)
            .filter(|_| Path::new(IMEX_CHANNEL_DIR).exists())
        else {
            return Ok(None);
        };
        for step in job.children()? {
            let daemons = job.child(step).and_then(|step| step.child(DAEMON_CGROUP));
            let Some(daemons) = ignore_gone(daemons)? else {
                continue;
            };
            for pid in list_own_processes(&daemons)? {
                if Instant::now() >= deadline {
                    let cause = "the search for the job's IMEX channel took too long";
                    return Err(Failure::new(Reason::Timeout, cause));
                }
                let namespace = open_daemon_proc_dir(&daemons, pid)?
                    .and_then(|dir| Namespace::open_with_mount(&dir, IMEX_CHANNEL_DIR));
                if namespace.is_some() {
                    return Ok(namespace);
                }
            }
        }
        Ok(None)
    }

    /// Finds the leaf with the login, and confines it. The caller must verify the confinement.
    ///
    /// # Errors
    ///
    /// The login is in another cgroup: the daemon reports success even if its own move failed.
    fn confine_login(
        &self,
        adoption: &Adoption<'_>,
    ) -> Result<(CgroupChain, Confinement), Failure> {
        let [user, special] = LOGIN_CGROUPS;
        let current = Membership::read_own()?
            .unified()
            .unwrap_or_default()
            .to_owned();
        let Some(name) = parse_leaf_name(&current, &format!("{}/{user}", self.path)) else {
            return Err(cgroup::Error::elsewhere(&self.leaf(), &current).into());
        };
        let place = self.open_leaf([user, name])?;
        // The daemon adds a process that outlives its login again. On its way to a leaf for
        // accounting this process is in `task_special` for a moment, so the filters are attached
        // above both.
        let point = place
            .levels()
            .get(usize::from(name != special)..)
            .unwrap_or_default();
        let job = JOB_LEVEL - usize::from(name != special);
        let target = AttachTarget {
            levels: point,
            job,
            scope: AttachScope::Leaf,
        };
        let containment = &adoption.plan.containment;
        let deadline = adoption.deadline();
        let confinement = bpf::confine(target, containment, adoption.old_filter(), deadline)?;
        Ok((place, confinement))
    }

    /// Opens the leaf and all cgroups above it, below the step that was checked before the move.
    fn open_leaf(&self, names: [&str; 2]) -> Result<CgroupChain, Failure> {
        let mut place = self.step.clone();
        for name in names {
            let dir = place.dir()?.child(name)?;
            place = place.with_child(dir);
        }
        Ok(place)
    }
}

/// Opens the directory in `/proc` of a daemon in its cgroup; `None` if it is gone, or not root's.
fn open_daemon_proc_dir(daemons: &Dir, pid: i32) -> Result<Option<OwnedFd>, Failure> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let Ok(process) = fcntl::open(&Proc::host().dir(pid), flags, Mode::empty()) else {
        return Ok(None);
    };
    // The directory belongs to the process's effective uid. The pid is looked for after the directory was opened: if
    // a new process has it since, nothing can be read in the old process's directory.
    let is_root = fstat(&process).is_ok_and(|status| status.st_uid == 0);
    let is_daemon = is_root && list_own_processes(daemons)?.contains(&pid);
    Ok(is_daemon.then_some(process))
}

/// Computes the limits of a leaf below `user`. Slurm's own limits are on the cgroups above it, and a
/// weight would count among logins only: the job's steps are beside the extern step.
fn plan_step_limits(adoption: &Adoption<'_>, above: &[Dir]) -> Result<Vec<LeafLimit>, Failure> {
    Ok(plan_limits(
        &LoginLimits {
            cpu_weight: 0,
            ..adoption.plan.limits
        },
        above,
    )?)
}

/// The cgroups of an extern step, and of its job, on cgroup v1: one in each hierarchy that Slurm
/// uses.
///
/// No filter can be attached there. The lines of `devices.list` are of little use, since Slurm
/// denies the devices of other jobs and the kernel shows no list of denials. So the login must be
/// in the cgroups of the job, and the module probes which devices it can open.
#[derive(Debug)]
pub struct ExternStepV1 {
    job: v1::JobCgroups,
    /// The cgroups in the freezer's hierarchy.
    freezers: Vec<Dir>,
    mounts: Vec<MountInfo>,
}

impl ExternStepV1 {
    /// Opens the cgroups.
    ///
    /// # Errors
    ///
    /// [`Failure::CgroupGone`] if the step ended meanwhile; [`Failure::CheckFailed`] if the freezer
    /// is not mounted or the job is frozen.
    fn open(mut job: v1::JobCgroups, daemon: &Membership) -> Result<Self, Failure> {
        let mounts = MountInfo::read_all()?;
        job.add_limits(daemon, &mounts)?;
        let step = Self {
            freezers: job.open_freezers(&mounts)?,
            job,
            mounts,
        };
        step.require_not_frozen()?;
        Ok(step)
    }

    /// The path of the cgroup for the login, the same in every hierarchy.
    pub fn leaf(&self) -> String {
        self.job.step()
    }

    /// Reads the cpuset of the logins.
    pub(super) fn read_cpuset(&self) -> cgroup::Result<Option<Cpuset>> {
        self.job.read_cpuset(&self.leaf(), &self.mounts)
    }

    /// Requires that none of the cgroups is frozen.
    pub(super) fn require_not_frozen(&self) -> Result<(), Failure> {
        v1::find_stopped(&self.freezers)?.map_or(Ok(()), |dir| Err(frozen_failure(dir)))
    }

    /// Predicts the containment of the login.
    ///
    /// # Errors
    ///
    /// The plan has a list to enforce, or the job has no cgroup for its devices.
    pub(super) fn predict_containment(
        &self,
        adoption: &Adoption<'_>,
    ) -> Result<&'static str, Failure> {
        let containment = &adoption.plan.containment;
        let cause = match containment {
            Containment::Inherit if !self.job.has_devices() => {
                "Slurm was to constrain the job's devices, and has made no devices cgroup for it"
            }
            Containment::Enforce(_) | Containment::InheritAndEnforce(_) => {
                "a list of devices cannot be enforced on cgroup v1, where filters are not to be had"
            }
            Containment::None | Containment::Inherit => return Ok(containment.as_str()),
        };
        Err(Failure::new(Reason::CannotConfine, cause))
    }

    /// Asks the daemon to add the calling process, and verifies the result.
    ///
    /// # Errors
    ///
    /// The login is in another cgroup in at least one hierarchy, a hierarchy has no way back, or
    /// the devices cannot be probed, which is the only check of devices here.
    pub(super) fn join(
        &self,
        daemon: &mut Daemon,
        adoption: &Adoption<'_>,
        undo: &mut Undo,
    ) -> Result<JoinResult, Failure> {
        let containment = require_containment(self.predict_containment(adoption)?, adoption)?;
        undo.origin
            .require_hierarchies(&self.job.hierarchies, &self.mounts)?;
        add_login(daemon, adoption, undo)?;
        self.job.require_in_step(&Membership::read_own()?)?;
        let mut probes = ProbeResult::from_probes(&adoption.plan.probes);
        if let Some(error) = probes.error.take() {
            let errno = error.source.raw_os_error();
            return Err(Failure::with_errno(Reason::CannotConfine, error, errno));
        }
        let login = Membership::read_own()?;
        self.job.require_in_step(&login)?;
        let cgroup = self.leaf();
        let path = login.path_of_controller("cpuset").unwrap_or_default();
        let mut joined = JoinResult {
            cgroup,
            containment,
            probes,
            ..JoinResult::default()
        };
        joined.set_cpuset(self.job.read_cpuset(path, &self.mounts));
        query_namespaces_and_display(joined, daemon, adoption)
    }
}

/// Beginning of the causes that are about the daemon.
const DAEMON_TEXT: &str = "the job's step daemon";

/// Returns the failure for a daemon that adds no login.
fn daemon_failure(reason: Reason, cause: impl Display) -> Failure {
    Failure::new(reason, format_args!("{DAEMON_TEXT}: {cause}"))
}

/// Converts an error of a query to the daemon.
fn stepd_failure(error: stepd::Error) -> Failure {
    use stepd::Error;
    let reason = match error {
        Error::SocketGone => Reason::Ended,
        Error::Timeout => Reason::Timeout,
        Error::UntrustedSocket | Error::WrongPeerUid(_) | Error::VersionRefused => {
            Reason::Configuration
        }
        _ => Reason::AdoptionFailed,
    };
    daemon_failure(reason, error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_of_the_daemon_has_its_code() {
        use stepd::Error;
        for (error, reason) in [
            (Error::SocketGone, Reason::Ended),
            (Error::Timeout, Reason::Timeout),
            (Error::UntrustedSocket, Reason::Configuration),
            (Error::WrongPeerUid(1), Reason::Configuration),
            (Error::VersionRefused, Reason::Configuration),
            (
                Error::SystemCall("recv", nix::errno::Errno::EIO),
                Reason::AdoptionFailed,
            ),
            (Error::ConnectionClosed, Reason::AdoptionFailed),
            (Error::MalformedAnswer, Reason::AdoptionFailed),
            (Error::ProcessRefused(-1), Reason::AdoptionFailed),
        ] {
            assert_eq!(stepd_failure(error.clone()).reason(), reason, "{error}");
        }
    }

    #[test]
    fn leaf_of_login_is_task_special_or_a_task_for_accounting() {
        for name in ["task_special", "task_0", "task_17"] {
            assert_eq!(
                parse_leaf_name(&format!("/job_1/step_extern/user/{name}"), USER),
                Some(name)
            );
        }
        for path in [
            USER,
            "/job_1/step_extern/user/",
            "/job_1/step_extern/user/task_",
            "/job_1/step_extern/user/task_01",
            "/job_1/step_extern/user/task_0/a",
            "/job_1/step_extern/user/task_special (deleted)",
            "/job_1/step_extern/user2/task_0",
            "/job_2/step_extern/user/task_0",
        ] {
            assert_eq!(parse_leaf_name(path, USER), None, "{path}");
        }
    }

    const USER: &str = "/job_1/step_extern/user";
}
