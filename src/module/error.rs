//! Reasons why a login does not join its job, with the code for the user and the cause for the log.

use kernel::OperationError;
use kernel::{bpf, cgroup};
use protocol::{DecodeError, JobId, Reason, Refusal};
use std::fmt;
use thiserror::Error;

/// The texts of `EACCES` and `EPERM`.
const DENIALS: [&str; 2] = ["Permission denied", "Operation not permitted"];

/// Reason why a login does not join its job. Its text is the cause for the log, which users never see.
#[derive(Debug, Error)]
pub enum Failure {
    /// The helper refuses the login.
    #[error("{detail}")]
    HelperRefused {
        /// The code, and the fields of its text.
        refusal: Refusal,
        /// The cause for the log.
        detail: String,
    },
    /// A check or an operation of this module failed.
    #[error("{cause}")]
    CheckFailed {
        /// The code for the user.
        reason: Reason,
        /// The cause for the log.
        cause: String,
        /// The error number of the system call that failed, if one did.
        errno: Option<i32>,
    },
    /// The helper is of another version, as in the middle of an upgrade.
    #[error("the helper's answer: {0}")]
    OtherVersion(DecodeError),
    /// A cgroup is gone: the job's, or only the leaf.
    #[error("{0}")]
    CgroupGone(cgroup::Error),
    /// Adoption failed, and so did the move back: the login is refused, and sshd is not in its
    /// original cgroup.
    #[error("{0}; and the way back failed: {1}")]
    MoveBackFailed(Box<Failure>, cgroup::Error),
}

impl Failure {
    /// Describes a failed check that was no system call. `reason` is the code for the user, `cause` the text
    /// for the log.
    pub fn new(reason: Reason, cause: impl fmt::Display) -> Self {
        Self::with_errno(reason, cause, None)
    }

    /// Returns a failure with the error number of its system call.
    pub(crate) fn with_errno(reason: Reason, cause: impl fmt::Display, errno: Option<i32>) -> Self {
        Self::CheckFailed {
            reason,
            cause: cause.to_string(),
            errno,
        }
    }

    /// Returns the cause for the log. A possible denial by SELinux comes first, since the log cuts
    /// a long text at its end.
    pub(crate) fn cause(&self) -> String {
        let error = self.to_string();
        let is_enforcing =
            || std::fs::read("/sys/fs/selinux/enforce").is_ok_and(|state| state == b"1");
        if self.is_denied() && is_enforcing() {
            let hint = "SELinux enforces here; is job-adopt.cil loaded? see ausearch -m avc: ";
            return hint.to_owned() + &error;
        }
        error
    }

    /// Returns whether the kernel denied a system call.
    fn is_denied(&self) -> bool {
        let is_denial = |errno| matches!(errno, Some(libc::EACCES | libc::EPERM));
        match self {
            // A reply has no error number, only the text of the helper's error.
            Self::HelperRefused { detail, .. } => {
                DENIALS.iter().any(|denial| detail.contains(denial))
            }
            Self::MoveBackFailed(failure, error) => failure.is_denied() || is_denial(error.errno()),
            Self::CheckFailed { .. } | Self::OtherVersion(_) | Self::CgroupGone(_) => {
                is_denial(self.errno())
            }
        }
    }

    /// Returns the code for the user.
    pub(crate) fn reason(&self) -> Reason {
        match self {
            Self::HelperRefused { refusal, .. } => refusal.reason,
            Self::CheckFailed { reason, .. } => *reason,
            Self::OtherVersion(_) => Reason::Timeout,
            Self::CgroupGone(_) => Reason::Ended,
            Self::MoveBackFailed(..) => Reason::AdoptionFailed,
        }
    }

    /// Returns the refusal for the user, with the helper's own facts if it refuses, else with the job.
    pub(crate) fn to_refusal(&self, job: Option<&JobId>) -> Refusal {
        if let Self::HelperRefused { refusal, .. } = self {
            return refusal.clone();
        }
        let jobs = job.into_iter().cloned().collect();
        Refusal {
            reason: self.reason(),
            jobs,
            ended: None,
            device: String::new(),
        }
    }

    /// Returns the error number of the first system call that failed, if one did.
    pub(crate) fn errno(&self) -> Option<i32> {
        match self {
            Self::HelperRefused { .. } | Self::OtherVersion(_) => None,
            Self::CheckFailed { errno, .. } => *errno,
            Self::CgroupGone(error) => error.errno(),
            Self::MoveBackFailed(failure, _) => failure.errno(),
        }
    }
}

impl From<cgroup::Error> for Failure {
    /// Converts an error of a cgroup that the login cannot join: a timeout, a cgroup that is gone, or else a failed
    /// adoption.
    fn from(error: cgroup::Error) -> Self {
        match error {
            cgroup::Error::System(failed) if failed.is_timeout() => failed.into(),
            error if error.is_gone() => Self::CgroupGone(error),
            error => {
                let errno = error.errno();
                Self::with_errno(Reason::AdoptionFailed, error, errno)
            }
        }
    }
}

impl From<bpf::Error> for Failure {
    /// Converts an error about the job's device filters: a timeout, or else a job that cannot be confined.
    fn from(error: bpf::Error) -> Self {
        match error {
            bpf::Error::System(failed) if failed.is_timeout() => failed.into(),
            bpf::Error::System(failed) => {
                let errno = failed.source.raw_os_error();
                Self::with_errno(Reason::CannotConfine, failed, errno)
            }
            error @ bpf::Error::Obstacle { .. } => Self::new(Reason::CannotConfine, error),
        }
    }
}

impl From<OperationError> for Failure {
    /// Converts the error of another operation: a timeout, or else a failed adoption.
    fn from(failed: OperationError) -> Self {
        let reason = if failed.is_timeout() {
            Reason::Timeout
        } else {
            Reason::AdoptionFailed
        };
        let errno = failed.source.raw_os_error();
        Self::with_errno(reason, failed, errno)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernel::namespace::Namespace;
    use kernel::trust::{Distrust, TrustError};
    use nix::errno::Errno;
    use nix::fcntl::{OFlag, open};
    use nix::sys::stat::Mode;
    use std::io::ErrorKind;
    use std::path::Path;

    #[test]
    fn lock_timeout_has_the_code_for_timeouts() {
        let failed = |kind| OperationError::new("lock", "x", kind);
        let reason = |kind| Failure::from(failed(kind)).reason();
        let filter_reason = |kind| Failure::from(bpf::Error::System(failed(kind))).reason();
        let late = ErrorKind::TimedOut;
        let missing = ErrorKind::NotFound;
        assert_eq!(
            (reason(late), filter_reason(late)),
            (Reason::Timeout, Reason::Timeout)
        );
        assert_eq!(
            (reason(missing), filter_reason(missing)),
            (Reason::AdoptionFailed, Reason::CannotConfine)
        );
    }

    /// The condition for the hint at SELinux is in the text of the error as well, since it shows
    /// the error number of every system call.
    #[test]
    fn failure_is_denied_if_its_text_shows_a_denial() {
        let system = |errno| OperationError::new("open", "x", errno);
        for errno in [Errno::EACCES, Errno::EPERM, Errno::ENOENT, Errno::EIO] {
            let is_denied = matches!(errno, Errno::EACCES | Errno::EPERM);
            let moved = Failure::MoveBackFailed(
                Box::new(Failure::new(Reason::Ended, "x")),
                cgroup::Error::System(system(errno)),
            );
            let refused = |detail| Failure::HelperRefused {
                refusal: Refusal {
                    reason: Reason::Configuration,
                    jobs: Vec::new(),
                    ended: None,
                    device: String::new(),
                },
                detail,
            };
            let record = TrustError::new(Path::new("/x"), Distrust::Open(errno));
            for failure in [
                Failure::from(system(errno)),
                Failure::from(cgroup::Error::System(system(errno))),
                Failure::from(bpf::Error::System(system(errno))),
                moved,
                refused(system(errno).to_string()),
                refused(record.to_string()),
            ] {
                assert_eq!(failure.is_denied(), is_denied, "{failure}");
                let text = failure.to_string();
                let is_in_text = DENIALS.iter().any(|denial| text.contains(denial));
                assert_eq!(is_in_text, is_denied, "{failure}");
            }
        }
        assert!(!Failure::new(Reason::Ended, "Permission denied").is_denied());
    }

    #[test]
    fn failed_check_of_namespace_keeps_its_error_number() {
        // No ioctl(2) is possible on this descriptor.
        let fd = open("/proc/self/ns/mnt", OFlag::O_PATH, Mode::empty()).unwrap();
        let error = Namespace::from_fd(fd, libc::CLONE_NEWNS, "of a job").unwrap_err();
        assert_eq!(
            error.to_string(),
            "join namespace of a job: Bad file descriptor (os error 9)"
        );
        assert_eq!(Failure::from(error).errno(), Some(libc::EBADF));
    }
}
