//! The move into the job; or everything as it was.

use super::environment::{self, Environment};
use super::probe::Tried;
use super::site::{self, Spot};
use super::undo::Undo;
use super::{Failure, Visit, slurm};
use crate::bpf::Confinement;
use crate::cgroup::Origin;
use crate::plan::Placement;

/// Where a login is now, and what holds there.
#[derive(Debug)]
pub(super) struct Joined {
    pub(super) cgroup: String,
    pub(super) confinement: Confinement,
    /// What came of the plan's probes.
    pub(super) tried: Tried,
}

/// A login that has joined its job for good.
#[derive(Debug)]
pub(super) struct Adopted {
    pub(super) joined: Joined,
    /// The variables that it was given.
    pub(super) variables: Vec<&'static str>,
}

/// Takes the calling process into the job.
///
/// # Errors
/// Any [`Failure`]; the process is then where it was, and of this login nothing is left but a
/// filter, which belongs to the job: another login may rely on it.
pub(super) fn adopt(
    visit: &Visit<'_>,
    origin: Origin,
    environment: &dyn Environment,
) -> Result<Adopted, Failure> {
    let mut undo = Undo::new(origin);
    let joined = match &visit.plan.placement {
        Placement::Cgroup { path, leaf } => {
            site::adopt(visit, Spot::Stamped { path, leaf: leaf.as_ref() }, &mut undo)
        }
        Placement::Extern { spool, node } => slurm::adopt(visit, spool, node, &mut undo),
        Placement::Unit { path, flux } => {
            site::adopt(visit, Spot::Unit { path, flux: *flux }, &mut undo)
        }
    }?;
    let variables = environment::set(environment, &visit.plan.env);
    let variables = variables.map_err(|failure| undo.back(failure))?;
    undo.commit();
    Ok(Adopted { joined, variables })
}
