//! What happens when a user logs in to a compute node: the login joins its user's running job
//! and sees that job's devices only.
//!
//! The tree tells what runs as root. Data flows one way: a login is a [`protocol::Request`], the
//! unprivileged half answers with a [`protocol::Reply`], the privileged half carries the plan out.
//!
//! | folder | runs as |
//! |---|---|
//! | [`pam`], [`module`] | root, inside sshd |
//! | [`helper`] | the user `job-adopt`; nothing of it is linked into the module |
//! | [`keeper`] | root, outside of sshd |
//! | [`admin`] | whoever calls the command `job-adopt` |
//! | [`schedulers`], [`kernel`], [`protocol`] | all of these, so root inside sshd as well |
//!
//! Arrows run one way: from pam to module; from admin to keeper, helper and module, which do not import
//! each other; from these to schedulers, kernel and protocol, in this order. `tests/boundaries.rs` checks it.

// The system calls that change identity take 16-bit numbers on 32-bit machines (setresuid(2),
// "C library/kernel differences"), and a truncated uid could be root's.
#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
compile_error!("pam_job_adopt is for 64-bit Linux");

pub mod admin;
pub mod helper;
pub mod keeper;
pub mod kernel;
pub mod module;
pub mod pam;
pub mod protocol;
pub mod schedulers;
#[cfg(test)]
mod testing;
