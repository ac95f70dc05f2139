//! Unsafe blocks of the command alone, each with its argument for safety: libpam as an application
//! sees it, and a fork. What sshd's module calls stands in [`crate::sys`].

#![allow(unsafe_code)]

pub(super) mod pam_client;
pub(super) mod process;
