//! The jobs of the node: which run, what is in them, and how they begin and end.

mod again;
pub(crate) mod cgroup_members;
pub(crate) mod ending;
pub(crate) mod enter;
mod job_devices;
pub(crate) mod limits;
pub(crate) mod limits_in_force;
pub(crate) mod list;
mod login_processes;
pub(crate) mod logins;
pub(crate) mod names;
pub(crate) mod other_jobs;
pub(crate) mod pin;
pub(crate) mod record_options;
pub(crate) mod register;
pub(crate) mod run;
pub(crate) mod stamped_cgroup;
mod stray_devices;
pub(crate) mod strays;
pub(crate) mod unregister;
pub(crate) mod usage;
pub(crate) mod use_job;
