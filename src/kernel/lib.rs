//! Operates on the kernel: cgroups, device filters, processes, locks, trusted files, the log.
//!
//! Code of every privilege uses this crate, so all of it counts as code that root runs inside sshd.

// The system calls that change identity take 16-bit numbers on 32-bit machines (setresuid(2),
// "C library/kernel differences"), and a truncated uid could be 0.
#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
compile_error!("pam_job_adopt is for 64-bit Linux");

#[cfg(test)]
extern crate self as kernel;

pub mod bpf;
pub mod cgroup;
pub mod choice;
pub mod device;
pub mod lock;
pub mod log;
pub mod mounts;
pub mod namespace;
pub mod priority;
pub mod proc;
pub mod sys;
#[cfg(test)]
#[path = "../testing.rs"]
mod testing;
pub mod trust;

use std::io;
use thiserror::Error;

/// A failed operation: its object and the kernel's error.
#[derive(Debug, Error)]
#[error("{operation} {object}: {source}")]
pub struct OperationError {
    /// Verb of the operation.
    pub operation: &'static str,
    /// File, cgroup or program of the operation.
    pub object: String,
    /// Error of the kernel.
    pub source: io::Error,
}

impl OperationError {
    /// Describes the failure of `operation` on `object`.
    pub fn new(
        operation: &'static str,
        object: impl Into<String>,
        source: impl Into<io::Error>,
    ) -> Self {
        Self {
            operation,
            object: object.into(),
            source: source.into(),
        }
    }

    /// Tells whether the operation timed out.
    pub fn is_timeout(&self) -> bool {
        self.source.kind() == io::ErrorKind::TimedOut
    }
}
