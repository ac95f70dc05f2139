//! The move into an extern step: the daemon makes it, and all of it is looked at afterwards.

use super::super::adopt::Joined;
use super::super::undo::Undo;
use super::super::{Failure, Visit};
use super::{Job, SlurmFailure, require};
use crate::bpf::Confinement;
use crate::plan::{AbsolutePath, NodeName};
use crate::stepd;

/// Has the calling process taken into the job.
///
/// # Errors
/// Any [`Failure`]; the process is then where it was, and a pin or filter stays: it belongs to
/// the job.
pub(in super::super) fn adopt(
    visit: &Visit<'_>,
    spool: &AbsolutePath,
    node: &NodeName,
    undo: &mut Undo,
) -> Result<Joined, Failure> {
    // The first exchange asks, and adds nothing: a daemon that is stopped does not answer it, so
    // that none is ever sent an order which it would carry out whenever it goes on, on a process
    // that was refused long ago or on another one of the same number.
    let mut job = Job::open(visit, spool, node)?;
    let joined = job.join(visit, undo);
    joined.map_err(|failure| match (undo.back(failure), job.layout.not_frozen()) {
        (stuck @ Failure::Stuck(..), _) => stuck,
        // Frozen with its job, the daemon does not answer.
        (_, Err(frozen @ Failure::Frozen(_))) => frozen,
        (failure, _) => job_or_login(failure, Job::open(visit, spool, node)),
    })
}

/// Whether the job is over, as another look at it says, or it is only that this login was not
/// taken in.
fn job_or_login(failure: Failure, look: Result<Job, Failure>) -> Failure {
    use SlurmFailure::{Daemon, Ended, Ending};
    match (look, failure) {
        (Err(Failure::Slurm(Daemon(stepd::Error::Gone) | Ending)), failure) => {
            Ended(failure.to_string()).into()
        }
        (_, Failure::Gone(error)) => Failure::LeafVanished(error),
        (_, failure) => failure,
    }
}

impl Job {
    fn join(&mut self, visit: &Visit<'_>, undo: &mut Undo) -> Result<Joined, Failure> {
        // What cannot be confined is not moved either.
        self.layout.foresee(visit)?;
        self.layout.require_ways(undo)?;
        let deadline = visit.budget.deadline();
        undo.moving();
        // With no time left nothing is sent.
        self.daemon.add(nix::unistd::getpid().as_raw(), deadline).map_err(SlurmFailure::Daemon)?;
        let arrival = self.layout.arrive(visit)?;
        let confinement = arrival.confinement().clone();
        if confinement == Confinement::None && visit.require_devices {
            return Err(Failure::Uncontained);
        }
        let tried = arrival.try_devices(&visit.plan.probes)?;
        // Still the user's and alive, every required filter in force, the login in its place.
        require(visit, self.daemon.ask_again(deadline).map_err(SlurmFailure::Daemon)?)?;
        arrival.verify_filters()?;
        arrival.verify_place()?;
        Ok(Joined { cgroup: arrival.leaf(), confinement, tried })
    }
}
