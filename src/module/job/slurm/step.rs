//! The cgroups of an extern step on cgroup v2.
//!
//! Their layout is `JOB/step_extern/{slurm,user/task_special,user/task_N}`. The daemon is in `slurm`.
//! Logins go to `task_special`, which the daemon makes for the first login. If Slurm accounts by
//! `jobacct_gather/cgroup`, they go on at once to `task_N`, with the node's number N in the job. This
//! module makes no cgroup there: the daemon cannot remove a cgroup that it does not know.

use super::priority::read_priority;
use super::{add_login, query_namespaces_and_display};
use crate::context::Adoption;
use crate::error::Failure;
use crate::job::join_result::JoinResult;
use crate::job::login_limits::{LeafLimit, plan_limits, set_limits};
use crate::job::requirements::require_containment;
use crate::probe::ProbeResult;
use crate::undo::Undo;
use kernel::bpf::{self, AttachScope, AttachTarget, Confinement};
use kernel::cgroup::{self, CgroupChain, Cpuset, Dir, Membership, Mount};
use kernel::cgroup::{ignore_gone, list_own_processes, verify_in_leaf};
use kernel::mounts::IMEX_CHANNEL_DIR;
use kernel::namespace::Namespace;
use kernel::priority::TaskPriority;
use kernel::proc::Proc;
use nix::fcntl::{self, OFlag};
use nix::sys::stat::{Mode, fstat};
use protocol::{CgroupPath, LoginLimits, Reason, parse_decimal};
use schedulers::stepd::Daemon;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Instant;

/// The cgroups between the step and its logins.
const LOGIN_CGROUPS: [&str; 2] = ["user", "task_special"];
/// The cgroup of a step's daemon, below the step's.
const DAEMON_CGROUP: &str = "slurm";
/// Prefix of the name of a leaf for accounting; a number follows.
const TASK_PREFIX: &str = "task_";
/// Index of the job's own cgroup, counted from `task_special`. In [`ExternStep::levels`] it is smaller by the number of
/// those cgroups that are missing.
const JOB_LEVEL: usize = 3;

/// The name of the cgroup at `path`, if it is one for logins right below `user`: `task_special`, or `task_` and a
/// number. `None` for any other path.
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
    /// Opens the cgroups; those for logins as far as they exist.
    ///
    /// # Errors
    ///
    /// [`Failure::CgroupGone`] if the step ended meanwhile.
    pub(super) fn open(step: &CgroupPath) -> Result<Self, Failure> {
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

    /// Predicts the containment of the login. Cgroups that the daemon has not made yet count as levels without filters.
    pub(crate) fn predict_containment(
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
    pub(crate) fn predict_limits(
        &self,
        adoption: &Adoption<'_>,
    ) -> Result<Vec<LeafLimit>, Failure> {
        plan_step_limits(adoption, self.above_leaf())
    }

    /// Reads the worst priority of the job's tasks ([`read_priority`]).
    pub(crate) fn read_priority(&self, daemon: i32, user: u32) -> cgroup::Result<TaskPriority> {
        let job = self.step.levels().get(1).ok_or(cgroup::Error::NotMounted)?;
        read_priority(job, daemon, user)
    }

    /// Reads the cpuset of the logins.
    pub(crate) fn read_cpuset(&self) -> cgroup::Result<Option<Cpuset>> {
        let job = JOB_LEVEL - self.missing;
        Cpuset::find(self.levels().get(..=job).unwrap_or_default())
    }

    /// The existing cgroups above the leaf, the nearest first.
    pub fn above_leaf(&self) -> &[Dir] {
        // If no cgroup is missing, the first level is the leaf itself.
        self.levels()
            .get(usize::from(self.missing == 0)..)
            .unwrap_or_default()
    }

    /// The job's cgroup, and every level above.
    pub fn job_levels(&self) -> &[Dir] {
        let job = JOB_LEVEL - self.missing;
        self.levels().get(job..).unwrap_or_default()
    }

    /// The step, and every level above.
    pub fn step_levels(&self) -> &[Dir] {
        self.step.levels()
    }

    /// The existing cgroups from the leaf up to the root of the mount, the lowest first. The step's is among them.
    pub fn levels(&self) -> &[Dir] {
        self.place.levels()
    }

    /// Asks the daemon to add the calling process, confines and limits the cgroup where it is then, verifies the result,
    /// and collects what the login gets from the job.
    ///
    /// # Errors
    ///
    /// Any [`Failure`]; the caller must roll back.
    pub(crate) fn join(
        &self,
        daemon: &mut Daemon,
        adoption: &Adoption<'_>,
        undo: &mut Undo,
    ) -> Result<JoinResult, Failure> {
        // Do not move a login that cannot be confined.
        require_containment(self.predict_containment(adoption)?, adoption)?;
        add_login(daemon, self.step.dir()?, adoption, undo)?;
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
        joined.set_priority(self.read_priority(daemon.pid(), adoption.uid()));
        let mut joined = query_namespaces_and_display(joined, daemon, adoption)?;
        if joined.namespaces.is_empty() && adoption.context.settings.join_container {
            joined
                .namespaces
                .extend(self.open_channel_namespace(adoption.deadline())?);
        }
        Ok(joined)
    }

    /// Opens the mount namespace of another step's daemon if the job's IMEX channel is there; `None` if the node has
    /// no IMEX channels, or no step has the job's. Slurm mounts it for steps of srun, from 26.05 on also for the
    /// batch step, never for the extern step, and does not hand that namespace over. All these mounts are the same. A
    /// step that is ending is skipped.
    ///
    /// # Errors
    ///
    /// [`Reason::Timeout`] at the deadline; as [`Dir::children`], [`Dir::child`] and [`list_own_processes`].
    fn open_channel_namespace(&self, deadline: Instant) -> Result<Option<Namespace>, Failure> {
        if !Path::new(IMEX_CHANNEL_DIR).exists() {
            return Ok(None);
        }
        let Some(job) = self.step.levels().get(1) else {
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
    /// The login is in another cgroup: the daemon reports success even if its own move failed. A leaf that is gone, and
    /// the errors of [`bpf::confine`].
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
        // For a login in a leaf for accounting (`task_N`), the filters are attached one level above, to `user`: the daemon
        // may later add again a process that has outlived its login, and puts it into `task_special` first, where a
        // filter at `task_N` would not hold. Levels and the job's index then count from `user`.
        let skipped_levels = usize::from(name != special);
        let target = AttachTarget {
            levels: place.levels().get(skipped_levels..).unwrap_or_default(),
            job: JOB_LEVEL - skipped_levels,
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

/// Opens the directory in `/proc` of a process that is listed in the cgroup `daemons`; `None` if the process is gone,
/// or does not run as root.
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
            io_weight: 0,
            ..adoption.plan.limits
        },
        above,
    )?)
}

#[cfg(test)]
mod tests {
    use super::*;

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
