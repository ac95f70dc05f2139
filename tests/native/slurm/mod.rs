//! Real Slurm on cgroup v1: what a login to its jobs sees, how it ends, and why it is refused.

mod beside;
mod devices;
mod ending;
mod environment;
mod guest;
mod harness;
mod hierarchies;
mod joining;
mod launching;
mod lying;
mod nodes;
mod parity;
mod passing;
mod spool;
mod waiting;
