//! Which devices of the node a path or a class means, and what Slurm's own files give to jobs.
//!
//! `DeviceAllow` and the configuration contain [`Specifier`]s. A [`Resolver`] turns these into devices by the files of a
//! node, and [`build_allowlist`] combines a job's devices under its [`Policy`]. The other keys of a record contain
//! [`DeviceName`]s, which no login resolves: that is done by the crate `naming`.

mod allowlist;
pub mod gres;
mod name;
mod resolver;
mod settings;
mod specifier;

pub use allowlist::{DeviceRequest, JobAllowlist, Policy, TooManyEntries, build_allowlist};
pub use gres::{HostList, HostListError, ListSyntax};
pub use name::DeviceName;
pub use resolver::Resolver;
pub use settings::DeviceSettings;
pub use specifier::{Glob, Specifier, SpecifierError, is_site_name};
