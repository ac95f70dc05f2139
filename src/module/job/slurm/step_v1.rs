//! The cgroups of an extern step on cgroup v1.

use super::priority::read_priority;
use super::{add_login, query_namespaces_and_display};
use crate::context::Adoption;
use crate::error::Failure;
use crate::job::join_result::JoinResult;
use crate::job::requirements::{frozen_failure, require_containment};
use crate::probe::ProbeResult;
use crate::undo::Undo;
use kernel::cgroup::{self, Cpuset, Dir, Membership, MountInfo, v1};
use kernel::priority::TaskPriority;
use protocol::{Containment, Reason};
use schedulers::stepd::Daemon;

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
    pub(super) fn open(mut job: v1::JobCgroups, daemon: &Membership) -> Result<Self, Failure> {
        let mounts = MountInfo::read_hierarchies(daemon)?;
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

    /// Opens the cgroup for logins in the hierarchy of a controller, and those above; see
    /// [`v1::JobCgroups::open_levels`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn open_levels(&self, controller: &str) -> cgroup::Result<Option<Vec<Dir>>> {
        self.job.open_levels(controller, &self.mounts)
    }

    /// The step's cgroup in the freezer's hierarchy.
    fn freezer(&self) -> Result<&Dir, Failure> {
        Ok(self.freezers.last().ok_or(cgroup::Error::NotMounted)?)
    }

    /// Reads the worst priority of the job's tasks ([`read_priority`]).
    pub(crate) fn read_priority(&self, daemon: i32, user: u32) -> cgroup::Result<TaskPriority> {
        // The freezers begin with the outermost one, and end with that of the extern step.
        let mut freezers = self.freezers.iter().rev();
        let job = freezers.nth(1).ok_or(cgroup::Error::NotMounted)?;
        read_priority(job, daemon, user)
    }

    /// Reads the cpuset of the logins.
    pub(crate) fn read_cpuset(&self) -> cgroup::Result<Option<Cpuset>> {
        self.job.read_cpuset(&self.leaf(), &self.mounts)
    }

    /// Requires that none of the cgroups is frozen.
    pub(crate) fn require_not_frozen(&self) -> Result<(), Failure> {
        v1::find_stopped(&self.freezers)?.map_or(Ok(()), |dir| Err(frozen_failure(dir)))
    }

    /// Predicts the containment of the login.
    ///
    /// # Errors
    ///
    /// The plan has a list to enforce, or the job has no cgroup for its devices.
    pub(crate) fn predict_containment(
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

    /// Asks the daemon to add the calling process, verifies the result, and collects what the login gets from the job.
    ///
    /// # Errors
    ///
    /// The login is in another cgroup in at least one hierarchy, a hierarchy has no way back, or
    /// the devices cannot be probed, which is the only check of devices here.
    pub(crate) fn join(
        &self,
        daemon: &mut Daemon,
        adoption: &Adoption<'_>,
        undo: &mut Undo,
    ) -> Result<JoinResult, Failure> {
        let containment = require_containment(self.predict_containment(adoption)?, adoption)?;
        undo.origin
            .require_hierarchies(&self.job.hierarchies, &self.mounts)?;
        add_login(daemon, self.freezer()?, adoption, undo)?;
        self.job.require_in_step(&Membership::read_own()?)?;
        let mut probes = ProbeResult::from_probes(&adoption.plan.probes);
        if let Some(error) = probes.error.take() {
            let errno = error.source.raw_os_error();
            return Err(Failure::with_errno(Reason::CannotConfine, error, errno));
        }
        // The probes count only if the login was in the step meanwhile.
        let login = Membership::read_own()?;
        self.job.require_in_step(&login)?;
        let cgroup = self.leaf();
        // Without such a hierarchy the job has no cpuset, and the path is not used.
        let path = login.path_of_controller("cpuset").unwrap_or_default();
        let mut joined = JoinResult {
            cgroup,
            containment,
            probes,
            ..JoinResult::default()
        };
        joined.set_cpuset(self.job.read_cpuset(path, &self.mounts));
        joined.set_priority(self.read_priority(daemon.pid(), adoption.uid()));
        query_namespaces_and_display(joined, daemon, adoption)
    }
}
