//! Unsafe blocks of the command alone, each with its argument for safety. What sshd's module calls
//! stands in [`crate::kernel::sys`].

#![allow(unsafe_code)]

pub(super) mod bpf;
pub(super) mod file;
pub(super) mod pam;
pub(super) mod process;
