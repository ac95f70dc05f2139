//! Reads jobs of schedulers, for both halves: the step daemons of Slurm, and the units of Flux with their
//! processes.
//!
//! Nothing here decides about a login. The helper finds jobs with it, and the module verifies them.

#![forbid(unsafe_code)]

pub mod flux;
pub mod stepd;
#[cfg(test)]
#[path = "../testing.rs"]
mod testing;
