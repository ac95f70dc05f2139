//! What the kernel is asked for: cgroups, device filters, processes, locks, trusted files, the log.
//!
//! Used by every privilege, so all of it counts as run by root inside sshd.

pub mod bpf;
pub mod cgroup;
pub mod choice;
pub mod failed;
pub mod lock;
pub mod log;
pub mod namespace;
pub mod proc;
pub mod sys;
pub mod trust;
