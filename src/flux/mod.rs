//! What both halves know of the jobs of Flux's system instance: how their ids and units are named,
//! and which processes of a unit say whose it is.
//!
//! Flux's account runs each job of another user's in a unit of its own service manager
//! (`imp-shell-RANK-ID.service`). The IMP of flux-security is that unit's first process: a setuid
//! program, so that its real uid is the account's and the others are root's, which no user can
//! bring about in a cgroup that is the account's. It starts the job's shell as the job's user.

#![forbid(unsafe_code)]

mod f58;
mod process;
mod unit;

pub use f58::FluxId;
pub use process::{Imp, Shell, imp, is_imp, shell};
pub use unit::{Unit, folders, unit_at};
