//! The daemon of a Slurm job's extern step (slurmstepd): where its socket is, and what is asked of
//! it. Both halves ask; only the privileged one has it add a process.
//!
//! Nothing but integers of 4 bytes in the machine's own order cross the socket, and each wait has
//! a deadline. The numbers are those of `src/common/stepd_api.h` in Slurm's source, the same from
//! Slurm 20.11 to 26.05.

#![forbid(unsafe_code)]

mod daemon;
mod name;
mod socket;
mod wire;

use std::fmt;

use nix::errno::Errno;

pub use daemon::{Daemon, pid_of};
pub use name::{SocketName, job_of, step_of};
pub use socket::{AGAIN, Connection, call, made};
pub use wire::{ANSWER_LEN, Answer, QUERY_LEN, State, query};

/// The result of asking a step daemon.
pub type Result<T> = std::result::Result<T, Error>;

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// There is no socket of that name, or nobody listens at it any more: the job is over.
    Gone,
    /// The name stands for something else than a socket, or one that is not root's.
    NotRoots,
    /// Who listens there is not root; the number is its uid.
    Peer(u32),
    /// A system call failed.
    System(&'static str, Errno),
    /// It did not answer in time.
    Timeout,
    /// It hung up before it had answered.
    Closed,
    /// It does not talk to our version of the protocol.
    Refused,
    /// Its answer has no meaning.
    Malformed,
    /// It would not take the process; the number is its return code.
    NotAdded(i32),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gone => f.write_str("nobody listens there: the job is over"),
            Self::NotRoots => f.write_str("is no socket of root's"),
            Self::Peer(uid) => write!(f, "who listens there is uid {uid}, not root"),
            Self::System(call, errno) => write!(f, "{call}: {}", errno.desc()),
            Self::Timeout => f.write_str("did not answer in time"),
            Self::Closed => f.write_str("hung up"),
            Self::Refused => f.write_str("does not talk to this version of its protocol"),
            Self::Malformed => f.write_str("gave an answer that has no meaning"),
            Self::NotAdded(code) => write!(f, "would not take the login into the job ({code})"),
        }
    }
}

impl std::error::Error for Error {}
