//! Why a login does not get the limits of its job.

use crate::failed::Failed;
use nix::errno::Errno;
use std::fmt;

/// What stands in the way.
#[derive(Debug)]
pub enum LimitsFailure {
    /// A file of the process's cannot be read.
    Unread(Failed),
    /// A file of the process's is not as documented.
    Malformed(String),
    /// The process has another uid than the login's, be it one of four.
    Owner(i32),
    /// The process is in no cgroup of the job's.
    Outside(i32),
    /// A limit of the process is lower than what sshd needs.
    TooLow {
        /// Its name, as in limits.conf(5).
        name: &'static str,
        /// Its value, soft and hard.
        limit: String,
    },
    /// A limit was not to be set.
    Set {
        /// Its name, as in limits.conf(5).
        name: &'static str,
        /// The value that it was to have, soft and hard.
        limit: String,
        /// The kernel's answer.
        errno: Errno,
    },
}

impl fmt::Display for LimitsFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unread(failed) => write!(f, "limits of the job: {failed}"),
            Self::Malformed(object) => write!(f, "limits of the job: {object} is malformed"),
            Self::Owner(pid) => {
                write!(f, "limits of the job: process {pid} is not the user's alone")
            }
            Self::Outside(pid) => write!(f, "limits of the job: process {pid} is not in the job"),
            Self::TooLow { name, limit } => {
                write!(f, "limits of the job: {name} of {limit} is lower than sshd needs")
            }
            Self::Set { name, limit, errno: Errno::EPERM } => write!(
                f,
                "limits of the job: set {name} to {limit}: {}: it is higher than here, and without \
                 CAP_SYS_RESOURCE cannot be raised",
                std::io::Error::from(Errno::EPERM)
            ),
            Self::Set { name, limit, errno } => {
                let errno = std::io::Error::from(*errno);
                write!(f, "limits of the job: set {name} to {limit}: {errno}")
            }
        }
    }
}
