//! Opens, checks and joins a job. The kinds of jobs differ in the proof of who owns them.
//!
//! The helper's reply is no proof. A registered job's cgroup has our stamp; for a Slurm job the
//! module asks the daemon of the extern step; for a Flux job it checks the unit's processes.

mod add_queue;
mod flux;
mod join_result;
mod leaf;
mod login_limits;
mod recorded_namespace;
mod requirements;
mod slurm;

pub use join_result::JoinResult;
pub use leaf::{LeafJob, OwnerProof};
pub use login_limits::LeafLimit;

use crate::context::Adoption;
use crate::error::Failure;
use crate::undo::Undo;
use flux::Imp;
use kernel::cgroup::{Cpuset, Mount, Stamp, choose_leaf};
use kernel::priority::TaskPriority;
use protocol::{Containment, LeafName, Placement, Plan, Reason};
use requirements::{require_containment, require_not_frozen};
use schedulers::stepd::Daemon;
use slurm::SlurmJob;
use std::time::Instant;

/// A job that runs, that the user owns, and that is not frozen.
#[derive(Debug)]
pub enum Job {
    /// A registered job or a Flux job: this module chooses the leaf for its logins.
    Leaf(LeafJob),
    /// A Slurm job on cgroup v2, with the daemon of its extern step.
    Slurm(Daemon, slurm::ExternStep),
    /// A Slurm job on cgroup v1, with the daemon of its extern step.
    SlurmV1(Daemon, slurm::ExternStepV1),
}

impl Job {
    /// Finds and checks the job; changes nothing.
    ///
    /// # Errors
    ///
    /// The job is over, belongs to another user, is frozen or accepts no login.
    pub(super) fn open(adoption: &Adoption<'_>) -> Result<Self, Failure> {
        let uid = adoption.uid();
        match &adoption.plan.placement {
            Placement::Cgroup { path, leaf } => {
                let place = Mount::open()?.open_chain(path)?;
                let stamp = Stamp {
                    uid,
                    job: adoption.plan.job.clone(),
                };
                stamp.require(place.dir()?)?;
                require_not_frozen(place.levels())?;
                let child = choose_leaf(place.dir()?, leaf.as_ref())?;
                Ok(Self::Leaf(LeafJob {
                    place,
                    child,
                    proof: OwnerProof::Stamp(stamp),
                }))
            }
            Placement::Extern { spool, node } => Ok(match slurm::open(adoption, spool, node)? {
                SlurmJob::V2(daemon, step) => Self::Slurm(daemon, step),
                SlurmJob::V1(daemon, step) => Self::SlurmV1(daemon, step),
            }),
            Placement::Unit { path, flux } => {
                flux::require_unit(adoption, path, *flux)?;
                let place = Mount::open()?.open_chain(path)?;
                let proof = OwnerProof::Imp(Imp::find(place.dir()?, *flux, uid)?);
                require_not_frozen(place.levels())?;
                // Use a child: Flux waits until the unit's own cgroup is empty.
                Ok(Self::Leaf(LeafJob {
                    place,
                    child: Some(LeafName::default()),
                    proof,
                }))
            }
        }
    }

    /// Returns the text of the unit's file, which names the job's devices, if the plan relies on the filter that the IMP
    /// (Flux's setuid program) attaches to the unit, and that is missing; else `None`, also for another kind of job. The
    /// module parses no files: from the text the helper makes a second plan with a list, in place of this one.
    ///
    /// # Errors
    ///
    /// The programs of the cgroup cannot be read; as [`Imp::unit_text`].
    pub(super) fn unit_text_for_helper(&self, plan: &Plan) -> Result<Option<String>, Failure> {
        let Self::Leaf(
            job @ LeafJob {
                proof: OwnerProof::Imp(imp),
                ..
            },
        ) = self
        else {
            return Ok(None);
        };
        match &plan.containment {
            Containment::Inherit | Containment::InheritAndEnforce(_)
                if !job.has_foreign_filter()? =>
            {
                Ok(Some(imp.unit_text(&job.place)?))
            }
            _ => Ok(None),
        }
    }

    /// Reads the cpuset of the job's logins; `None` if the job was given no cores, and they keep those of sshd.
    ///
    /// # Errors
    ///
    /// The errors of [`Dir::read`](kernel::cgroup::Dir::read).
    pub fn read_cpuset(&self) -> kernel::cgroup::Result<Option<Cpuset>> {
        match self {
            Self::Leaf(job) => job.read_cpuset(),
            Self::Slurm(_, step) => step.read_cpuset(),
            Self::SlurmV1(_, step) => step.read_cpuset(),
        }
    }

    /// Reads the worst priority of the job's tasks, which a login gets at least, for the job's user.
    ///
    /// # Errors
    ///
    /// The job has ended, is another user's by now, or its cgroups cannot be read.
    pub fn read_priority(&self, user: u32, deadline: Instant) -> Result<TaskPriority, Failure> {
        match self {
            Self::Leaf(job) => job.read_priority(deadline),
            Self::Slurm(daemon, step) => Ok(step.read_priority(daemon.pid(), user)?),
            Self::SlurmV1(daemon, step) => Ok(step.read_priority(daemon.pid(), user)?),
        }
    }

    /// Predicts the result of [`Job::join`]; changes nothing.
    ///
    /// # Errors
    ///
    /// The composition rules do not allow the containment, the job has none although the admin
    /// requires it, or the keeper's executable is not trusted.
    pub(super) fn predict_join(&self, adoption: &Adoption<'_>) -> Result<JoinResult, Failure> {
        let (cgroup, containment, limits) = match self {
            Self::Leaf(job) => job.predict_join(adoption)?,
            Self::Slurm(_, step) => {
                let limits = step.predict_limits(adoption)?;
                (step.leaf(), step.predict_containment(adoption)?, limits)
            }
            Self::SlurmV1(_, step) => {
                (step.leaf(), step.predict_containment(adoption)?, Vec::new())
            }
        };
        let containment = require_containment(containment, adoption)?;
        Ok(JoinResult {
            cgroup,
            containment,
            limits,
            ..JoinResult::default()
        })
    }

    /// Moves the calling process into the job.
    ///
    /// # Errors
    ///
    /// Any [`Failure`]. The process is then in its original cgroups, and a leaf made by this call
    /// is gone. A filter stays: it belongs to the job, and another login may rely on it.
    pub(super) fn join(
        &mut self,
        adoption: &Adoption<'_>,
        undo: &mut Undo,
    ) -> Result<JoinResult, Failure> {
        match self {
            Self::Leaf(job) => job.join(adoption, undo),
            Self::Slurm(daemon, step) => step.join(daemon, adoption, undo).map_err(|failure| {
                let failure = undo.roll_back(failure);
                recheck_slurm_job(failure, adoption, require_not_frozen(step.levels()))
            }),
            Self::SlurmV1(daemon, step) => step.join(daemon, adoption, undo).map_err(|failure| {
                let failure = undo.roll_back(failure);
                recheck_slurm_job(failure, adoption, step.require_not_frozen())
            }),
        }
    }
}

/// Queries the job again after a failed join, and returns the failure to report: [`Reason::Suspended`] if the job is
/// frozen, [`Reason::Ended`] if it has ended, else `failure` itself. `frozen` is the result of a check for a frozen
/// cgroup.
///
/// A failed move back is always reported. A cgroup that is gone although the job lives is a failure of the adoption:
/// [`Failure::CgroupGone`] would mean that the job has ended.
fn recheck_slurm_job(
    failure: Failure,
    adoption: &Adoption<'_>,
    frozen: Result<(), Failure>,
) -> Failure {
    if let Failure::MoveBackFailed(..) = failure {
        return failure;
    }
    // The daemon of a frozen job does not answer, so do not query it.
    if let Err(
        suspended @ Failure::CheckFailed {
            reason: Reason::Suspended,
            ..
        },
    ) = frozen
    {
        return suspended;
    }
    match (Job::open(adoption), failure) {
        (
            Err(Failure::CheckFailed {
                reason: Reason::Ended,
                ..
            }),
            failure,
        ) => {
            let cause = format!("the job is over: {failure}");
            Failure::with_errno(Reason::Ended, cause, failure.errno())
        }
        (_, Failure::CgroupGone(error)) => Failure::new(Reason::AdoptionFailed, error),
        (_, failure) => failure,
    }
}
