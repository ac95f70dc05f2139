//! How devices are named, and which devices of the node a name means.
//!
//! `DeviceAllow` and the configuration contain [`Specifier`]s, the other keys of a record
//! [`DeviceName`]s. A [`Resolver`] turns both into devices by the files of a node, and
//! [`build_allowlist`] combines a job's devices under its [`Policy`]. Each folder implements one way
//! of naming devices and ends in a function from a name to [`crate::node::ResolvedDevices`].

mod allowlist;
pub mod cdi;
pub mod directory;
mod gpu_name;
pub mod gres;
mod name;
mod resolver;
mod settings;
mod specifier;

pub use allowlist::{AllowlistError, DeviceRequest, JobAllowlist, Policy, build_allowlist};
pub use gpu_name::{GpuName, GpuNameError};
pub use gres::{HostList, HostListError, ListSyntax};
pub use name::{DeviceName, UnresolvedName};
pub use resolver::Resolver;
pub use settings::DeviceSettings;
pub use specifier::{Glob, Specifier, SpecifierError, is_site_name};

#[cfg(test)]
mod tests;
