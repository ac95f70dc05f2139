//! What says that a job is the user's, and alive: never the helper.

use super::flux::keeper::{self, Keep};
use super::undo::Undo;
use super::{Failure, Visit, flux};
use crate::cgroup::{Dir, Leaf, Stamp};

/// The proof, by the kind of job.
#[derive(Debug)]
pub(super) enum Claim {
    /// Our stamp on the job's cgroup.
    Stamp(Stamp),
    /// The process that has started the job's shell.
    Imp(flux::Imp),
}

impl Claim {
    /// # Errors
    /// Any [`Failure`] for a job that is over, or not the user's.
    pub(super) fn require(&self, job: &Dir) -> Result<(), Failure> {
        match self {
            Self::Stamp(stamp) => Ok(stamp.require(job)?),
            Self::Imp(imp) => Ok(imp.require(job)?),
        }
    }

    /// The failure to report where this one led to a refusal: that the job is over, where it is.
    pub(super) fn explain(&self, failure: Failure, job: &Dir) -> Failure {
        match (self, failure) {
            (Self::Stamp(_), Failure::Cgroup(error)) if matches!(Stamp::read(job), Ok(None)) => {
                Failure::Gone(error)
            }
            (Self::Imp(imp), failure) => match imp.require(job) {
                Err(over @ flux::FluxFailure::Ended) => over.into(),
                _ => failure,
            },
            (_, failure) => failure,
        }
    }

    /// What ends the logins of the leaf with the job, where the scheduler does not: it has to live
    /// before one goes in.
    ///
    /// # Errors
    /// [`Failure::Flux`].
    pub(super) fn keep(
        &self,
        leaf: &Leaf,
        visit: &Visit<'_>,
        undo: &mut Undo,
    ) -> Result<Option<Keep>, Failure> {
        match self {
            Self::Stamp(_) => Ok(None),
            Self::Imp(imp) => keeper::ensure(leaf, imp, visit, undo).map(Some),
        }
    }

    /// What would stand in the way of that; changes nothing.
    ///
    /// # Errors
    /// [`Failure::Fault`].
    pub(super) fn foresee(&self, visit: &Visit<'_>) -> Result<(), Failure> {
        match self {
            Self::Stamp(_) => Ok(()),
            Self::Imp(_) => Ok(keeper::executable(visit).map(drop)?),
        }
    }

    /// A word and a text, for `job-adopt resolve`.
    pub(super) fn shown(&self) -> (&'static str, String) {
        match self {
            Self::Stamp(stamp) => ("stamp", stamp.to_string()),
            Self::Imp(imp) => ("imp", imp.to_string()),
        }
    }
}
