//! What both halves know of schedulers: Slurm's step daemons, and units and ids of Flux.

pub mod flux;
pub mod stepd;
