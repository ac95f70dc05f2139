//! What the kernel is asked for: cgroups, device filters, processes, locks, trusted files, the log.
//!
//! Used by every privilege, so all of it counts as run by root inside sshd.

// The system calls that change identity take 16-bit numbers on 32-bit machines (setresuid(2),
// "C library/kernel differences"), and a truncated uid could be root's.
#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
compile_error!("pam_job_adopt is for 64-bit Linux");

#[cfg(test)]
extern crate self as kernel;

pub mod bpf;
pub mod cgroup;
pub mod choice;
pub mod lock;
pub mod log;
pub mod mounts;
pub mod namespace;
pub mod proc;
pub mod sys;
#[cfg(test)]
#[path = "../testing.rs"]
mod testing;
pub mod trust;

use std::io;
use thiserror::Error;

/// An operation, the object it was done on, and the kernel's answer.
#[derive(Debug, Error)]
#[error("{operation} {object}: {source}")]
pub struct Failed {
    /// What was done.
    pub operation: &'static str,
    /// To which file, cgroup or program.
    pub object: String,
    /// The kernel's answer.
    pub source: io::Error,
}

impl Failed {
    /// That `operation` on `object` failed, and why.
    pub fn new(
        operation: &'static str,
        object: impl Into<String>,
        source: impl Into<io::Error>,
    ) -> Self {
        Self { operation, object: object.into(), source: source.into() }
    }

    /// Whether it was not to be had in time.
    pub fn timed_out(&self) -> bool {
        self.source.kind() == io::ErrorKind::TimedOut
    }
}
