//! How jobs begin and end: the commands that prolog, epilog and timer run, as root. `strays` shows to anybody.

#![forbid(unsafe_code)]

mod again;
mod checked_target;
mod ending;
mod job_devices;
mod limits;
pub mod notify;
mod other_jobs;
mod pin;
mod record_options;
pub mod register;
pub mod run;
mod signals;
mod stamped_cgroup;
mod stray_devices;
pub mod strays;
mod terminals;
#[cfg(test)]
#[path = "../testing.rs"]
mod testing;
pub mod unregister;
