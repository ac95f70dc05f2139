//! How a device is named, and which numbers that is on this node.
//!
//! A [`Specifier`] is what a record or the configuration says, a [`Resolver`] turns it into rules,
//! and [`allowlist`] puts a job's rules together under its [`Policy`]. Whatever further ways to
//! name a device there will be, [`Specifier`] and [`Resolver`] are where they go.

#![forbid(unsafe_code)]

mod gpu;
mod policy;
mod proc_devices;
mod resolver;
mod specifier;

pub use gpu::gpu_count;
pub use policy::{Policy, Resolved, TooMany, allowlist};
pub use proc_devices::ProcDevices;
pub use resolver::{ResolveError, Resolver};
pub use specifier::{Specifier, SpecifierError};
