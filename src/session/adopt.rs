//! The move into the job; or everything as it was.

use super::grants::Giving;
use super::home::Home;
use super::limits::limits_of;
use super::probe::Tried;
use super::site::{self, Spot};
use super::undo::Undo;
use super::{Failure, Visit, slurm};
use crate::bpf::Confinement;
use crate::cgroup::Origin;
use crate::plan::{Placement, VariableName};

/// Where a login is now, and what holds there.
#[derive(Debug)]
pub(super) struct Joined {
    pub(super) cgroup: String,
    /// The job's own cgroup.
    pub(super) home: Home,
    pub(super) confinement: Confinement,
    /// What came of the plan's probes.
    pub(super) tried: Tried,
}

/// A login that has joined its job for good.
#[derive(Debug)]
pub(super) struct Adopted {
    pub(super) joined: Joined,
    /// The variables that it was given.
    pub(super) variables: Vec<VariableName>,
    /// Whether it has the limits of the process that the plan names.
    pub(super) limited: bool,
}

/// Takes the calling process into the job.
///
/// # Errors
/// Any [`Failure`]; the process is then where it was, and of this login nothing is left but a
/// filter, which belongs to the job: another login may rely on it.
pub(super) fn adopt(
    visit: &Visit<'_>,
    origin: Origin,
    giving: Giving<'_>,
) -> Result<Adopted, Failure> {
    let mut undo = Undo::new(origin, giving);
    let joined = match &visit.plan.placement {
        Placement::Cgroup { path, leaf } => {
            site::adopt(visit, Spot::Stamped { path, leaf: leaf.as_ref() }, &mut undo)
        }
        Placement::Extern { spool, node } => slurm::adopt(visit, spool, node, &mut undo),
        Placement::Unit { path, flux } => {
            site::adopt(visit, Spot::Unit { path, flux: *flux }, &mut undo)
        }
    }?;
    let limited = limit(visit, &joined.home, &mut undo).map_err(|failure| undo.back(failure))?;
    Ok(Adopted { joined, variables: undo.commit(), limited })
}

/// Gives the login the limits of its job, last of all: sshd's process has had its own so far. Where
/// the plan names no process, or one that has ended, it keeps them.
fn limit(visit: &Visit<'_>, job: &Home, undo: &mut Undo<'_>) -> Result<bool, Failure> {
    let Some(pid) = visit.plan.limits_of else { return Ok(false) };
    let Some(limits) = limits_of(pid, visit.login.uid, job)? else { return Ok(false) };
    undo.limit(&limits)?;
    Ok(true)
}
