//! Why a login was not taken into a job of Slurm's.

use crate::plan::{JobId, Reason};
use crate::trust::TrustError;
use crate::{cgroup, stepd};
use std::fmt;

/// What stands in the way.
#[derive(Debug)]
pub enum SlurmFailure {
    /// The directory of the sockets is not believed.
    Spool(TrustError),
    /// The id is no number of Slurm's.
    Number(JobId),
    /// The daemon was not asked, or its answer is none.
    Daemon(stepd::Error),
    /// The daemon's job is this uid's.
    Owner(u32),
    /// The step does not take logins yet.
    Starting,
    /// The step takes no logins any more.
    Ending,
    /// The job was over when this went wrong.
    Ended(String),
    /// The daemon's process cannot be looked at.
    Lost(cgroup::Error),
    /// The daemon numbers processes otherwise than we do.
    Abroad,
    /// The daemon says that it runs, and is in no cgroup of a step.
    Nowhere(String),
    /// A list of devices cannot be enforced on cgroup v1.
    NoLists,
    /// Slurm was to constrain the job's devices, and has no cgroup for that on cgroup v1.
    Unconstrained,
}

impl SlurmFailure {
    /// The code that the user reads.
    #[must_use]
    pub fn reason(&self) -> Reason {
        match self {
            Self::Daemon(error) => of_daemon(error),
            Self::Spool(_) | Self::Number(_) | Self::Abroad | Self::Nowhere(_) => {
                Reason::Configuration
            }
            Self::Starting => Reason::Starting,
            Self::Ending | Self::Ended(_) | Self::Lost(_) => Reason::Ended,
            Self::Owner(_) => Reason::AdoptionFailed,
            Self::NoLists | Self::Unconstrained => Reason::CannotConfine,
        }
    }
}

fn of_daemon(error: &stepd::Error) -> Reason {
    use stepd::Error;
    match error {
        Error::Gone => Reason::Ended,
        Error::Timeout => Reason::Timeout,
        Error::NotRoots | Error::Peer(_) | Error::Refused => Reason::Configuration,
        Error::System(..) | Error::Closed | Error::Malformed | Error::NotAdded(_) => {
            Reason::AdoptionFailed
        }
    }
}

impl fmt::Display for SlurmFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Spool(error) => write!(f, "Slurm's spool directory {error}"),
            Self::Number(job) => write!(f, "{job} is no number of a job of Slurm's"),
            Self::Daemon(error) => write!(f, "the job's step daemon: {error}"),
            Self::Owner(uid) => write!(f, "the job's step daemon: the job is uid {uid}'s"),
            Self::Starting => f.write_str("the job's step daemon: the step is starting"),
            Self::Ending => f.write_str("the job's step daemon: the step is ending"),
            Self::Ended(failure) => write!(f, "the job is over: {failure}"),
            Self::Lost(error) => write!(f, "the job's step daemon: {error}"),
            Self::Abroad => {
                f.write_str("the job's step daemon is in another process namespace than this")
            }
            Self::Nowhere(path) => {
                write!(
                    f,
                    "the job's step daemon is in {path}, which is no step's cgroup: slurm.conf has \
                     to say ProctrackType=proctrack/cgroup"
                )
            }
            Self::NoLists => f.write_str(
                "a list of devices cannot be enforced on cgroup v1, where filters are not to be had",
            ),
            Self::Unconstrained => f.write_str(
                "Slurm was to constrain the job's devices, and has made no devices cgroup for it",
            ),
        }
    }
}

impl From<TrustError> for SlurmFailure {
    fn from(error: TrustError) -> Self {
        Self::Spool(error)
    }
}

impl From<stepd::Error> for SlurmFailure {
    fn from(error: stepd::Error) -> Self {
        Self::Daemon(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_failure_has_the_code_that_says_what_to_do() {
        use stepd::Error;
        for (error, reason) in [
            (Error::Gone, Reason::Ended),
            (Error::Timeout, Reason::Timeout),
            (Error::NotRoots, Reason::Configuration),
            (Error::Peer(1), Reason::Configuration),
            (Error::Refused, Reason::Configuration),
            (Error::System("recv", nix::errno::Errno::EIO), Reason::AdoptionFailed),
            (Error::Closed, Reason::AdoptionFailed),
            (Error::Malformed, Reason::AdoptionFailed),
            (Error::NotAdded(-1), Reason::AdoptionFailed),
        ] {
            assert_eq!(SlurmFailure::Daemon(error.clone()).reason(), reason, "{error}");
        }
        for (failure, reason) in [
            (SlurmFailure::Number("x".parse().unwrap()), Reason::Configuration),
            (SlurmFailure::Abroad, Reason::Configuration),
            (SlurmFailure::Starting, Reason::Starting),
            (SlurmFailure::Ending, Reason::Ended),
            (SlurmFailure::Ended("x".into()), Reason::Ended),
            (SlurmFailure::Owner(1), Reason::AdoptionFailed),
            (SlurmFailure::NoLists, Reason::CannotConfine),
            (SlurmFailure::Unconstrained, Reason::CannotConfine),
        ] {
            assert_eq!(failure.reason(), reason, "{failure}");
        }
    }
}
