//! Joins registered jobs and Flux jobs. This module chooses the leaf for their logins: the job's
//! own cgroup, or a child of it.

use super::flux::{Imp, ensure_keeper};
use super::join_result::JoinResult;
use super::login_limits::{LeafLimit, plan_leaf_limits, plan_limits, set_limits};
use super::recorded_namespace::open_recorded_namespace;
use super::requirements::{require_containment, require_not_frozen};
use crate::context::Adoption;
use crate::error::Failure;
use crate::keeper::open_keeper_executable;
use crate::probe::ProbeResult;
use crate::undo::Undo;
use kernel::bpf::{self, AttachScope, AttachTarget, CgroupPrograms, Confinement, Obstacle};
use kernel::cgroup::{self, CgroupChain, Cpuset, Dir, Occupants, Stamp};
use kernel::namespace::Namespace;
use kernel::priority::TaskPriority;
use protocol::{LeafName, Reason};
use std::time::Instant;

/// A job's cgroup, those above it, and the proof of its owner.
#[derive(Debug)]
pub struct LeafJob {
    /// The proof that the user owns the job.
    pub proof: OwnerProof,
    /// The job's own cgroup, and every one above it.
    pub place: CgroupChain,
    /// The child for the login; `None` if the login goes into the job's own cgroup.
    pub child: Option<LeafName>,
}

/// Proof that the user owns the job and that it is alive.
#[derive(Debug)]
pub enum OwnerProof {
    /// For a registered job: our stamp on its cgroup.
    Stamp(Stamp),
    /// For a Flux job: the process in its unit that has started the job's shell.
    Imp(Imp),
}

impl OwnerProof {
    /// Requires that the proof still holds: the job is alive and the user's. Returns the numbers of processes with the
    /// priority of the job's tasks.
    fn require(&self, job: &Dir, deadline: Instant) -> Result<Vec<i32>, Failure> {
        match self {
            // The tasks of a Flux job have what its IMP has.
            Self::Imp(imp) => imp.require(job).map(|()| vec![imp.pid]),
            // The stamp was there when the job was opened, and `unregister` removes it first.
            Self::Stamp(stamp) => match Stamp::read(job)? {
                None => Err(Failure::new(Reason::Ended, "the job's stamp was withdrawn")),
                Some(_) => {
                    stamp.require(job)?;
                    self.require_processes(job, deadline)
                }
            },
        }
    }

    /// Requires that no other account uses the cgroup of a registered job: a scheduler may have reused it for the next
    /// job, with the stamp on it. Returns the numbers of the first processes of the user.
    fn require_processes(&self, job: &Dir, deadline: Instant) -> Result<Vec<i32>, Failure> {
        match self {
            Self::Stamp(stamp) => {
                Ok(Occupants::read(job, stamp.uid)?.require_job_of_user(job, deadline)?)
            }
            Self::Imp(_) => Ok(Vec::new()),
        }
    }

    /// Reads the worst priority of these processes, which [`OwnerProof::require`] has returned.
    fn read_priority(&self, processes: &[i32]) -> TaskPriority {
        match self {
            Self::Stamp(stamp) => Occupants::only(stamp.uid).worst_priority(processes),
            Self::Imp(imp) => imp.read_priority(),
        }
    }

    /// As [`OwnerProof::require_processes`], of all processes, however many there are.
    fn require_all_processes(&self, job: &Dir, deadline: Instant) -> Result<(), Failure> {
        if let Self::Stamp(stamp) = self {
            Occupants::read(job, stamp.uid)?.require_whole_job_of_user(job, deadline)?;
        }
        Ok(())
    }
}

impl LeafJob {
    /// Tells whether the job's own cgroup has a filter that is not ours.
    pub(super) fn has_foreign_filter(&self) -> Result<bool, Failure> {
        let level = CgroupPrograms::read(self.place.dir()?)?;
        Ok(level.programs.iter().any(|program| !program.is_ours()))
    }

    /// Reads the worst priority of the job's tasks.
    ///
    /// # Errors
    ///
    /// The job has ended, or is another user's by now.
    pub(super) fn read_priority(&self, deadline: Instant) -> Result<TaskPriority, Failure> {
        let processes = self.proof.require(self.place.dir()?, deadline)?;
        Ok(self.proof.read_priority(&processes))
    }

    /// Reads the cpuset of the logins.
    pub(super) fn read_cpuset(&self) -> cgroup::Result<Option<Cpuset>> {
        // A leaf that does not exist yet will have the cpuset of the job's own cgroup.
        match self.place.clone().into_leaf(self.child.as_ref())? {
            Ok(place) | Err(place) => Cpuset::find(place.up_to_job()),
        }
    }

    /// Predicts the containment of the login and the limits of the leaf, and returns them behind the path of the
    /// job's own cgroup. A leaf that does not exist counts as one more level without filters.
    ///
    /// # Errors
    ///
    /// A process of another account in the job's cgroup; a frozen leaf; a keeper's executable that is not trusted; as
    /// [`bpf::predict_containment`].
    pub(super) fn predict_join(
        &self,
        adoption: &Adoption<'_>,
    ) -> Result<(String, &'static str, Vec<LeafLimit>), Failure> {
        self.proof
            .require_processes(self.place.dir()?, adoption.deadline())?;
        if let OwnerProof::Imp(_) = self.proof {
            open_keeper_executable(adoption)?;
        }
        let required = &adoption.plan.containment;
        let limits = &adoption.plan.limits;
        let (containment, limits) = match self.place.clone().into_leaf(self.child.as_ref())? {
            Ok(leaf) => {
                if self.child.is_some() {
                    require_not_frozen(leaf.levels())?;
                }
                let target = AttachTarget::from_leaf(&leaf)?;
                let containment = bpf::predict_containment(target, 0, required)?;
                (containment, plan_leaf_limits(limits, &leaf)?)
            }
            // The leaf does not exist yet.
            Err(job) => {
                let target = AttachTarget {
                    levels: job.levels(),
                    job: 0,
                    scope: AttachScope::Job,
                };
                let containment = bpf::predict_containment(target, 1, required)?;
                (containment, plan_limits(limits, job.levels())?)
            }
        };
        Ok((self.place.dir()?.path().to_owned(), containment, limits))
    }

    /// Moves the login into the job. If another login's rollback removes the leaf meanwhile, it tries once more.
    ///
    /// # Errors
    ///
    /// Any [`Failure`], after the changes were rolled back.
    pub(super) fn join(
        &self,
        adoption: &Adoption<'_>,
        undo: &mut Undo,
    ) -> Result<JoinResult, Failure> {
        let mut can_retry = true;
        loop {
            match self
                .try_join(adoption, undo)
                .map_err(|failure| undo.roll_back(failure))
            {
                // Check whether the job or only its leaf is gone: the retry must not make a leaf in
                // a cgroup that may belong to another job by now.
                Err(Failure::CgroupGone(error)) if self.require(adoption).is_ok() => {
                    if !can_retry {
                        return Err(Failure::new(Reason::AdoptionFailed, error));
                    }
                    can_retry = false;
                }
                result => return result,
            }
        }
    }

    /// Requires that the job is alive, the user's, and not frozen.
    fn require(&self, adoption: &Adoption<'_>) -> Result<(), Failure> {
        self.proof.require(self.place.dir()?, adoption.deadline())?;
        require_not_frozen(self.place.levels())
    }

    /// Confines and limits the leaf, moves the login into it, and collects what the login gets: the devices that it can
    /// open, and the job's cores, priority and mount namespace.
    fn try_join(&self, adoption: &Adoption<'_>, undo: &mut Undo) -> Result<JoinResult, Failure> {
        let place = self.place.clone();
        let (leaf, confinement) =
            self.open_confined_leaf(place, self.child.as_ref(), adoption, undo)?;
        let containment = require_containment(confinement.name, adoption)?;
        let (limits, processes) = self
            .enter_leaf(&leaf, &confinement, adoption, undo)
            .map_err(|failure| {
                // If the job has ended since its check, report that.
                let job = leaf.job().map_err(Failure::from);
                match job.and_then(|(job, _)| self.proof.require(job, adoption.deadline())) {
                    Err(
                        ended @ Failure::CheckFailed {
                            reason: Reason::Ended,
                            ..
                        },
                    ) => ended,
                    _ => failure,
                }
            })?;
        let probes = ProbeResult::from_probes(&adoption.plan.probes);
        let cgroup = leaf.dir()?.path().to_owned();
        let job = self.place.dir()?;
        let mut joined = JoinResult {
            cgroup,
            containment,
            limits,
            probes,
            ..JoinResult::default()
        };
        joined.set_cpuset(Cpuset::find(leaf.up_to_job()));
        joined.priority = self.proof.read_priority(&processes);
        if adoption.context.settings.join_container {
            joined
                .namespaces
                .extend(self.open_namespace(job, adoption)?);
        }
        Ok(joined)
    }

    /// Opens the mount namespace of the job; `None` without one. A registered cgroup names it; for a Flux job a record may.
    fn open_namespace(
        &self,
        job: &Dir,
        adoption: &Adoption<'_>,
    ) -> Result<Option<Namespace>, Failure> {
        match &self.proof {
            OwnerProof::Stamp(_) => match cgroup::read_namespace_path(job)? {
                Some(name) => Ok(Some(Namespace::open_on_node(&name)?)),
                None => Ok(None),
            },
            OwnerProof::Imp(_) => open_recorded_namespace(adoption),
        }
    }

    /// Opens or makes the leaf, and confines it. It is the `child` of the job's cgroup `place`, or that cgroup itself. If
    /// that cannot be confined beside the scheduler's filter, the default child becomes the leaf.
    fn open_confined_leaf(
        &self,
        place: CgroupChain,
        child: Option<&LeafName>,
        adoption: &Adoption<'_>,
        undo: &mut Undo,
    ) -> Result<(CgroupChain, Confinement), Failure> {
        let leaf = open_or_make_leaf(place, child, undo)?;
        if child.is_some() {
            require_not_frozen(leaf.levels())?;
        }
        let containment = &adoption.plan.containment;
        let target = AttachTarget::from_leaf(&leaf)?;
        let confinement = match bpf::find_confinement(target, containment).transpose() {
            // A containment that holds already, or an error.
            Some(result) => result,
            None => {
                // An attached filter stays, so none may get into a job that has become another user's.
                let deadline = adoption.deadline();
                let job = self.place.dir()?;
                self.proof.require_all_processes(job, deadline)?;
                bpf::confine(target, containment, adoption.old_filter(), deadline)
            }
        };
        match confinement {
            // Only the job's own cgroup needs a child, so this recurses once.
            Err(bpf::Error::Obstacle {
                why: Obstacle::NeedChild,
                ..
            }) => self.open_confined_leaf(leaf, Some(&LeafName::default()), adoption, undo),
            confinement => Ok((leaf, confinement?)),
        }
    }

    /// Moves the login and checks the result: the job is alive and the user's, all required filters
    /// are in force, the login is in the leaf, and a keeper for the leaf runs if its job needs one. Returns the limits of
    /// the leaf, which it sets once that is proven: a scheduler may have given the leaf, with our mark on it, to another
    /// user's job, and a limit stays. Returns also what [`OwnerProof::require`] has returned.
    fn enter_leaf(
        &self,
        leaf: &CgroupChain,
        confinement: &Confinement,
        adoption: &Adoption<'_>,
        undo: &mut Undo,
    ) -> Result<(Vec<LeafLimit>, Vec<i32>), Failure> {
        let procs = leaf.dir()?.open_procs()?;
        // Start the keeper before the move, so that the login ends with its job in any case.
        let keeper = match &self.proof {
            OwnerProof::Imp(imp) => Some(ensure_keeper(leaf, imp, adoption, undo)?),
            OwnerProof::Stamp(_) => None,
        };
        if adoption.context.budget.remaining().is_zero() {
            let cause = "the time budget was used up before the move";
            return Err(Failure::new(Reason::Timeout, cause));
        }
        undo.moved = true;
        cgroup::enter(leaf.dir()?.path(), &procs)?;
        #[cfg(debug_assertions)]
        provoke_panic(adoption);
        if let Some(keeper) = keeper {
            keeper.require_keeper()?;
        }
        let processes = self.proof.require(leaf.job()?.0, adoption.deadline())?;
        confinement.verify(leaf.dir()?)?;
        cgroup::verify_in_leaf(leaf.dir()?, leaf.root()?)?;
        let limits = plan_leaf_limits(&adoption.plan.limits, leaf)?;
        set_limits(&limits, leaf.dir()?)?;
        Ok((limits, processes))
    }
}

/// Opens the leaf, and makes it if it does not exist; without a `child`, the leaf is the job's own cgroup.
///
/// # Errors
///
/// [`Failure::CgroupGone`] if the new leaf is gone at once; as [`Undo::make_leaf`].
fn open_or_make_leaf(
    place: CgroupChain,
    child: Option<&LeafName>,
    undo: &mut Undo,
) -> Result<CgroupChain, Failure> {
    let job = match place.into_leaf(child)? {
        Ok(leaf) => return Ok(leaf),
        Err(job) => job,
    };
    if let Some(name) = child {
        undo.make_leaf(job.dir()?, name)?;
    }
    let lost = cgroup::Error::unfit(job.dir()?.path(), "lost the leaf that was just made");
    job.into_leaf(child)?.map_err(|_| Failure::CgroupGone(lost))
}

/// Panics after the move to one job, for a test of an unexpected fault. Installed builds are no
/// debug builds.
#[cfg(debug_assertions)]
#[allow(clippy::panic)]
fn provoke_panic(adoption: &Adoption<'_>) {
    if adoption.plan.job.as_str() == "provoke-panic" {
        panic!("provoked");
    }
}
