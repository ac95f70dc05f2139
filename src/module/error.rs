//! Why a login was not taken into its job.

use super::SlurmFailure;
use crate::kernel::failed::Failed;
use crate::kernel::{bpf, cgroup};
use crate::protocol::{DecodeError, Reason, Refusal};
use std::fmt;
use std::io;

/// What went wrong with the unprivileged half.
#[derive(Debug)]
pub enum Fault {
    /// The executable cannot be opened, or is not fit to be run by root.
    Executable {
        /// Helper or keeper.
        what: &'static str,
        /// Its path.
        path: String,
        /// What is wrong with it.
        why: String,
    },
    /// The system user that it runs as is missing, or has uid or gid 0.
    Account,
    /// It could not be started.
    Start {
        /// The step.
        step: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// It did not answer within the budget.
    Timeout,
    /// It ended otherwise than with exit status 0.
    Ended(String),
    /// Its answer is larger than `REPLY_MAX`.
    TooLong,
    /// Its answer is not in the protocol, or of another version.
    Reply(DecodeError),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Executable { what, path, why } => write!(f, "{what} {path}: {why}"),
            Self::Account => f.write_str(
                "the system user job-adopt does not exist, or has root's uid or gid: create it",
            ),
            Self::Start { step, source } if source.raw_os_error() == Some(libc::EAGAIN) => write!(
                f,
                "start helper: {step}: {source}: the limit on processes (nproc) in force here is \
                 used up, and without CAP_SYS_RESOURCE it cannot be raised"
            ),
            Self::Start { step, source } => write!(f, "start helper: {step}: {source}"),
            Self::Timeout => f.write_str("the helper did not answer in time"),
            Self::Ended(how) => write!(f, "the helper ended without an answer: {how}"),
            Self::TooLong => f.write_str("the helper's answer is longer than 64 KiB"),
            Self::Reply(error) => write!(f, "the helper's answer: {error}"),
        }
    }
}

/// Why a login is refused, in the words of each layer.
#[derive(Debug)]
pub enum Failure {
    /// The unprivileged half refuses.
    Refused {
        /// Code and fields of the text.
        refusal: Refusal,
        /// The cause in full.
        detail: String,
    },
    /// The unprivileged half failed.
    Fault(Fault),
    /// The service's PAM stack has no effective session line of ours.
    Stack(String),
    /// The job is frozen.
    Frozen(String),
    /// The job's cgroup is gone.
    Gone(cgroup::Error),
    /// The job's cgroup cannot be joined, or the move failed.
    Cgroup(cgroup::Error),
    /// A job of Slurm's takes no login, or not this one.
    Slurm(SlurmFailure),
    /// The job takes no login, or not this one: the code that the user reads, and why.
    Job(Reason, String),
    /// The job's devices cannot be enforced.
    Bpf(bpf::Error),
    /// What the login can open was not to be found out.
    Probe(Failed),
    /// The job has no device containment and `require_devices` asks for one.
    Uncontained,
    /// The budget was used up before the move.
    Late,
    /// The leaf went away while the login was on its way into it, and the job is still there.
    LeafVanished(cgroup::Error),
    /// A variable for the login was not taken.
    Variable(&'static str),
    /// The first failure, and then the move back failed as well: the login is not admitted, but
    /// its sshd is not where it came from either.
    Stuck(Box<Failure>, cgroup::Error),
}

impl Failure {
    /// The code that the user reads.
    #[must_use]
    pub fn reason(&self) -> Reason {
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

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused { detail: why, .. } | Self::Stack(why) | Self::Job(_, why) => {
                f.write_str(why)
            }
            Self::Fault(fault) => fault.fmt(f),
            Self::Frozen(path) => write!(f, "cgroup {path} is frozen"),
            Self::Gone(error) | Self::LeafVanished(error) | Self::Cgroup(error) => error.fmt(f),
            Self::Slurm(failure) => failure.fmt(f),
            Self::Bpf(error) => error.fmt(f),
            Self::Probe(failed) => failed.fmt(f),
            Self::Uncontained => {
                f.write_str("the job has no device containment, and require_devices is set")
            }
            Self::Late => f.write_str("the time budget was used up before the move"),
            Self::Variable(name) => write!(f, "set {name} for the login: libpam did not take it"),
            Self::Stuck(failure, error) => write!(f, "{failure}; and the way back failed: {error}"),
        }
    }
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
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

impl From<bpf::Error> for Failure {
    fn from(error: bpf::Error) -> Self {
        Self::Bpf(error)
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
