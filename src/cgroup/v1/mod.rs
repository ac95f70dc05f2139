//! The hierarchies of cgroup v1, one for each controller or set of them: where each is mounted,
//! and where a job of a scheduler that uses them is.

mod hierarchy;
mod job;

pub use hierarchy::Hierarchies;
pub use job::{Job, frozen_level};
