//! How devices are named, and which numbers a name has on this node.
//!
//! `DeviceAllow` and the configuration contain [`Specifier`]s, the other keys of a record
//! [`DeviceName`]s. A [`Resolver`] turns both into devices by the files of a [`Tree`], and
//! [`build_allowlist`] combines a job's devices under its [`Policy`]. Each folder implements one way
//! of naming devices and ends in a function from a name to [`ResolvedDevices`].

mod allowlist;
pub mod cdi;
mod device;
pub mod directory;
pub mod driver;
mod gpu_name;
pub mod gres;
mod major;
pub mod nvidia;
mod resolver;
pub mod slurm_conf;
mod specifier;
pub mod topology;
pub(crate) mod tree;

pub use allowlist::{AllowlistError, DeviceRequest, JobAllowlist, Policy, build_allowlist};
pub use device::{Device, DeviceError, ResolvedDevices, UnresolvedName};
pub use gpu_name::{DeviceName, GpuName, GpuNameError};
pub use gres::{HostList, HostListError};
pub use major::gpu_count;
pub use resolver::{Resolver, Settings};
pub use specifier::{Glob, Specifier, SpecifierError};
pub use tree::{DeviceNode, FileError, NodeError, ProcDevices, Tree};

#[cfg(test)]
mod tests;
