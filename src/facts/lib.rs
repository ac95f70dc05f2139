//! What is on this node, each fact with one reader. A reader prints nothing and imports no command; the judgement is
//! theirs. Where several commands judge a fact alike, and in the same words, these stand beside its reader. The options
//! that name devices are here too, since `command` links no reader of names.

#![forbid(unsafe_code)]

pub mod cgroup_members;
pub mod closed_slices;
pub mod configuration;
pub mod device_numbers;
pub mod device_options;
pub mod exempt_accounts;
pub mod file_identity;
pub mod filters;
pub mod jobless;
pub mod jobs;
pub mod journal;
pub mod limits_in_force;
pub mod login_processes;
pub mod logins;
pub mod own_programs;
pub mod pam_rejection;
pub mod process;
pub mod restricted_nodes;
pub mod rival_modules;
pub mod root_processes;
pub mod service_unit;
pub mod squeue;
pub mod sshd;
pub mod strays;
pub mod systemd;
#[cfg(test)]
#[path = "../testing.rs"]
mod testing;
pub mod trusted_file;
pub mod usage;
pub mod user_slices;
