//! Why a login was not taken into its job.

use super::SlurmFailure;
use crate::kernel::failed::Failed;
use crate::kernel::{bpf, cgroup};
use crate::protocol::{DecodeError, Reason, Refusal};
use std::io;
use thiserror::Error;

/// What went wrong with the unprivileged half.
#[derive(Debug, Error)]
pub(crate) enum Fault {
    /// The executable cannot be opened, or is not fit to be run by root.
    #[error("{what} {path}: {why}")]
    Executable {
        /// Helper or keeper.
        what: &'static str,
        path: String,
        why: String,
    },
    /// The system user that it runs as is missing, or has uid or gid 0.
    #[error("the system user job-adopt does not exist, or has root's uid or gid: create it")]
    Account,
    #[error("start helper: {step}: {source}{}", hint(source))]
    Start { step: &'static str, source: io::Error },
    #[error("the helper did not answer in time")]
    Timeout,
    #[error("the helper ended without an answer: {0}")]
    Ended(String),
    #[error("the helper's answer is longer than 64 KiB")]
    TooLong,
    /// Its answer is not in the protocol, or of another version.
    #[error("the helper's answer: {0}")]
    Reply(DecodeError),
}

/// What the usual cause of a start that fails is.
fn hint(source: &io::Error) -> &'static str {
    match source.raw_os_error() {
        Some(libc::EAGAIN) => {
            ": the limit on processes (nproc) in force here is used up, and without \
             CAP_SYS_RESOURCE it cannot be raised"
        }
        _ => "",
    }
}

/// Why a login is refused, in the words of each layer.
#[derive(Debug, Error)]
pub(crate) enum Failure {
    /// The unprivileged half refuses.
    #[error("{detail}")]
    Refused {
        /// Code and fields of the text.
        refusal: Refusal,
        detail: String,
    },
    /// The unprivileged half failed.
    #[error("{0}")]
    Fault(#[from] Fault),
    /// The service's PAM stack has no effective session line of ours.
    #[error("{0}")]
    Stack(String),
    #[error("cgroup {0} is frozen")]
    Frozen(String),
    /// The job's cgroup is gone.
    #[error("{0}")]
    Gone(cgroup::Error),
    /// The job's cgroup cannot be joined, or the move failed.
    #[error("{0}")]
    Cgroup(cgroup::Error),
    /// A job of Slurm's takes no login, or not this one.
    #[error("{0}")]
    Slurm(SlurmFailure),
    /// The job takes no login, or not this one: the code that the user reads, and why.
    #[error("{1}")]
    Job(Reason, String),
    /// The job's devices cannot be enforced.
    #[error("{0}")]
    Bpf(#[from] bpf::Error),
    /// What the login can open was not to be found out.
    #[error("{0}")]
    Probe(Failed),
    #[error("the job has no device containment, and require_devices is set")]
    Uncontained,
    #[error("the time budget was used up before the move")]
    Late,
    /// The leaf went away while the login was on its way into it, and the job is still there.
    #[error("{0}")]
    LeafVanished(cgroup::Error),
    #[error("set {0} for the login: libpam did not take it")]
    Variable(&'static str),
    /// The first failure, and then the move back failed as well: the login is not admitted, but
    /// its sshd is not where it came from either.
    #[error("{0}; and the way back failed: {1}")]
    Stuck(Box<Failure>, cgroup::Error),
}

impl Failure {
    /// The code that the user reads.
    pub(crate) fn reason(&self) -> Reason {
        match self {
            Self::Refused { refusal, .. } => refusal.reason,
            Self::Fault(Fault::Timeout | Fault::Reply(DecodeError::Version(_))) | Self::Late => {
                Reason::Timeout
            }
            Self::Bpf(bpf::Error::System(failed)) if failed.timed_out() => Reason::Timeout,
            Self::Fault(_) | Self::Stack(_) => Reason::Configuration,
            Self::Frozen(_) => Reason::Suspended,
            Self::Gone(_) => Reason::Ended,
            Self::Cgroup(_) | Self::LeafVanished(_) | Self::Variable(_) | Self::Stuck(..) => {
                Reason::AdoptionFailed
            }
            Self::Slurm(failure) => failure.reason(),
            Self::Job(reason, _) => *reason,
            Self::Bpf(_) | Self::Probe(_) | Self::Uncontained => Reason::CannotConfine,
        }
    }
}

impl From<cgroup::Error> for Failure {
    fn from(error: cgroup::Error) -> Self {
        if error.is_gone() { Self::Gone(error) } else { Self::Cgroup(error) }
    }
}

impl From<Failed> for Failure {
    fn from(failed: Failed) -> Self {
        let reason = if failed.timed_out() { Reason::Timeout } else { Reason::AdoptionFailed };
        Self::Job(reason, failed.to_string())
    }
}

impl From<SlurmFailure> for Failure {
    fn from(failure: SlurmFailure) -> Self {
        Self::Slurm(failure)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::ErrorKind;

    #[test]
    fn a_lock_that_was_not_to_be_had_in_time_says_so() {
        let reason = |kind| Failure::from(Failed::new("lock", "x", kind)).reason();
        assert_eq!(reason(ErrorKind::TimedOut), Reason::Timeout);
        assert_eq!(reason(ErrorKind::NotFound), Reason::AdoptionFailed);
    }
}
