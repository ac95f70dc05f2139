//! What is on this node, each fact with one reader. A reader neither judges nor prints, and imports no command.

pub(crate) mod configuration;
pub(crate) mod device_numbers;
pub(crate) mod file_identity;
pub(crate) mod filters;
pub(crate) mod jobs;
pub(crate) mod own_programs;
pub(crate) mod pam_rejection;
pub(crate) mod restricted_nodes;
pub(crate) mod rival_modules;
pub(crate) mod root_processes;
pub(crate) mod service_unit;
pub(crate) mod sshd;
pub(crate) mod strays;
pub(crate) mod trusted_file;
pub(crate) mod user_slices;
