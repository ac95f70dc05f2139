//! How a device is named, and which numbers that is on this node.
//!
//! A [`Specifier`] is what `DeviceAllow` and the configuration say, [`Named`] what the other keys of
//! a record say; a [`Resolver`] turns both into devices by the files of a [`Tree`], and
//! [`allowlist`] puts a job's devices together under its [`Policy`]. Each folder is one way of
//! naming devices and ends in a function from a name to what was [`Found`].

pub mod cdi;
pub mod directory;
pub mod driver;
mod found;
mod gpu_name;
pub mod gres;
pub mod nvidia;
mod resolver;
pub mod slurm;
mod specifier;
pub mod topology;
pub(crate) mod tree;

pub use found::{
    Device, DeviceError, Found, Policy, Resolved, Unfit, Unresolved, Wanted, allowlist, gpu_count,
};
pub use gpu_name::{GpuName, GpuNameError, Named};
pub use gres::{HostList, HostListError};
pub use resolver::{Resolver, Settings};
pub use specifier::{Glob, Specifier, SpecifierError};
pub use tree::{FileError, Node, NodeError, ProcDevices, Tree};

#[cfg(test)]
mod tests;
