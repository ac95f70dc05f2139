//! Why a login was not taken into a job of Flux's.

use crate::failed::Failed;
use crate::plan::{CgroupPath, Reason};
use crate::trust::TrustError;
use std::fmt;

/// What stands in the way.
#[derive(Debug)]
pub enum FluxFailure {
    /// The path is not that of a unit in which this account runs the plan's job for the user.
    Unit(CgroupPath, u32),
    /// The unit has no IMP, or it has no child any more.
    Ended,
    /// The IMP has no child yet.
    Starting,
    /// The IMP's child is this uid's; of several users' none is known.
    Owner(Option<u32>),
    /// A process of the unit cannot be looked at.
    Process(Failed),
    /// The unit has no filter, and what it should have cannot be read.
    Policy(TrustError),
    /// The same, since the file is no text.
    Text,
    /// The helper's second answer is about another job.
    Changed,
    /// The keeper was not started.
    Keeper(Failed),
    /// No keeper lives, after one was started or found.
    NoKeeper,
    /// The keepers' locks cannot be used.
    Lock(Failed),
}

impl FluxFailure {
    /// The code that the user reads.
    #[must_use]
    pub fn reason(&self) -> Reason {
        match self {
            Self::Ended => Reason::Ended,
            Self::Starting => Reason::Starting,
            Self::Policy(_) | Self::Text => Reason::CannotConfine,
            Self::Lock(failed) if failed.timed_out() => Reason::Timeout,
            Self::Unit(..)
            | Self::Owner(_)
            | Self::Process(_)
            | Self::Changed
            | Self::Keeper(_)
            | Self::NoKeeper
            | Self::Lock(_) => Reason::AdoptionFailed,
        }
    }
}

impl fmt::Display for FluxFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unit(path, flux) => {
                write!(f, "{path} is not the job's unit, if Flux runs as uid {flux}")
            }
            Self::Ended => f.write_str("the job's unit has no IMP with a shell any more"),
            Self::Starting => f.write_str("the job's IMP has not started its shell yet"),
            Self::Owner(Some(uid)) => write!(f, "the job's shell is uid {uid}'s"),
            Self::Owner(None) => f.write_str("the job's IMP has children of several users'"),
            Self::Process(failed) | Self::Keeper(failed) => failed.fmt(f),
            Self::Policy(error) => {
                write!(f, "no filter is in force at the job's unit, and its file {error}")
            }
            Self::Text => f.write_str("no filter is in force at the job's unit, and its file is no text"),
            Self::Changed => f.write_str("the helper's second answer is about another job"),
            Self::NoKeeper => f.write_str(
                "no keeper lives that would end the login with its job; its last words are in the log",
            ),
            Self::Lock(error) => error.fmt(f),
        }
    }
}

impl From<Failed> for FluxFailure {
    fn from(error: Failed) -> Self {
        Self::Lock(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::errno::Errno;

    #[test]
    fn every_failure_has_the_code_that_says_what_to_do() {
        let failed = || Failed::new("a", "b", Errno::EIO);
        for (failure, reason) in [
            (FluxFailure::Unit("/a".parse().unwrap(), 1), Reason::AdoptionFailed),
            (FluxFailure::Ended, Reason::Ended),
            (FluxFailure::Starting, Reason::Starting),
            (FluxFailure::Owner(None), Reason::AdoptionFailed),
            (FluxFailure::Process(failed()), Reason::AdoptionFailed),
            (FluxFailure::Text, Reason::CannotConfine),
            (FluxFailure::Changed, Reason::AdoptionFailed),
            (FluxFailure::Keeper(failed()), Reason::AdoptionFailed),
            (FluxFailure::NoKeeper, Reason::AdoptionFailed),
            (
                FluxFailure::Lock(Failed::new("lock", "x", std::io::ErrorKind::TimedOut)),
                Reason::Timeout,
            ),
        ] {
            assert_eq!(failure.reason(), reason, "{failure}");
        }
    }
}
