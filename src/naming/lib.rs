//! Names of devices that are no paths: CDI, GPUs, directories of devices. `register` and `run` resolve them to numbers,
//! with a login's rights, and nothing that runs at a login links this.
//!
//! A [`NameResolver`] turns names into devices by the files of a node, and [`resolve_record`] those of a record into the
//! numbers that each login to the job reads. Each folder implements one way of naming devices.

#![forbid(unsafe_code)]

mod allowlist;
pub mod cdi;
pub mod directory;
mod gpu_name;
mod registration;
mod resolver;
mod unresolved_name;

#[cfg(test)]
use helper::node;
#[cfg(test)]
#[path = "../helper/node/topology/tests/layout.rs"]
#[allow(dead_code, reason = "the tests of the crate helper use the rest")]
mod layout;
#[cfg(test)]
#[path = "../testing.rs"]
mod testing;

pub use allowlist::{AllowlistError, build_allowlist};
pub use gpu_name::{GpuName, GpuNameError};
pub use registration::{Registration, RegistrationError, resolve_record};
pub use resolver::NameResolver;
pub use unresolved_name::UnresolvedName;
