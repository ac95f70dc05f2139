//! What both halves know of schedulers: Slurm's step daemons, and units and ids of Flux.

#![forbid(unsafe_code)]

pub mod flux;
pub mod stepd;
#[cfg(test)]
#[path = "../testing.rs"]
mod testing;
