//! Why a login was not taken into its job.

use kernel::Failed;
use kernel::{bpf, cgroup};
use protocol::{Reason, Refusal};
use std::fmt;
use thiserror::Error;

/// Why a login is refused, in the words of each layer.
#[derive(Debug, Error)]
pub enum Failure {
    /// The unprivileged half refuses.
    #[error("{detail}")]
    Refused {
        /// Code and fields of the text.
        refusal: Refusal,
        /// What the log says.
        detail: String,
    },
    /// The code that the user reads, and why.
    #[error("{1}")]
    Why(Reason, String),
    /// A cgroup is gone: the job's, or the leaf alone.
    #[error("{0}")]
    Gone(cgroup::Error),
    /// The first failure, and then the move back failed as well: the login is not admitted, but
    /// its sshd is not where it came from either.
    #[error("{0}; and the way back failed: {1}")]
    Stuck(Box<Failure>, cgroup::Error),
}

impl Failure {
    pub(crate) fn why(reason: Reason, why: impl fmt::Display) -> Self {
        Self::Why(reason, why.to_string())
    }

    /// What it says. Where SELinux may have denied it, behind that: the log cuts a long text at its end.
    pub(crate) fn cause(&self) -> String {
        let error = self.to_string();
        let denied = error.contains("(os error 13)") || error.contains("(os error 1)");
        if denied && std::fs::read("/sys/fs/selinux/enforce").is_ok_and(|read| read == b"1") {
            let hint = "SELinux enforces here; is job-adopt.cil loaded? see ausearch -m avc: ";
            return hint.to_owned() + &error;
        }
        error
    }

    /// The code that the user reads.
    pub(crate) fn reason(&self) -> Reason {
        match self {
            Self::Refused { refusal, .. } => refusal.reason,
            Self::Why(reason, _) => *reason,
            Self::Gone(_) => Reason::Ended,
            Self::Stuck(..) => Reason::AdoptionFailed,
        }
    }
}

/// The cgroup cannot be joined, or the move failed.
impl From<cgroup::Error> for Failure {
    fn from(error: cgroup::Error) -> Self {
        match error {
            cgroup::Error::System(failed) if failed.is_timeout() => failed.into(),
            error if error.is_gone() => Self::Gone(error),
            error => Self::why(Reason::AdoptionFailed, error),
        }
    }
}

/// The job's devices cannot be enforced.
impl From<bpf::Error> for Failure {
    fn from(error: bpf::Error) -> Self {
        match error {
            bpf::Error::System(failed) if failed.is_timeout() => failed.into(),
            error => Self::why(Reason::CannotConfine, error),
        }
    }
}

impl From<Failed> for Failure {
    fn from(failed: Failed) -> Self {
        let late = failed.is_timeout();
        Self::why(if late { Reason::Timeout } else { Reason::AdoptionFailed }, failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::ErrorKind;

    #[test]
    fn a_lock_that_was_not_to_be_had_in_time_says_so() {
        let failed = |kind| Failed::new("lock", "x", kind);
        let own = |kind| Failure::from(failed(kind)).reason();
        let filter = |kind| Failure::from(bpf::Error::System(failed(kind))).reason();
        let (late, missing) = (ErrorKind::TimedOut, ErrorKind::NotFound);
        assert_eq!((own(late), filter(late)), (Reason::Timeout, Reason::Timeout));
        assert_eq!(
            (own(missing), filter(missing)),
            (Reason::AdoptionFailed, Reason::CannotConfine)
        );
    }
}
