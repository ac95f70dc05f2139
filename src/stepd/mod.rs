//! The daemon of a Slurm job's extern step (slurmstepd): where its socket is, and what is asked of
//! it. Both halves ask; only the privileged one has it add a process.
//!
//! Nothing but integers of 4 bytes in the machine's own order cross the socket, and each wait has
//! a deadline. The numbers are those of `src/common/stepd_api.h` in Slurm's source, the same from
//! Slurm 20.11 to 26.05.

#![forbid(unsafe_code)]

mod daemon;
mod error;
mod name;
mod place;
mod socket;
mod wire;

pub use daemon::{Daemon, pid_of};
pub use error::{Error, Result};
pub use name::SocketName;
pub use place::{job_of, step_of};
pub use socket::{AGAIN, Connection, call, made};
pub use wire::{ANSWER_LEN, Answer, QUERY_LEN, State, query};
