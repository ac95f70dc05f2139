//! Slurm's configuration files: where they lie, their lines, and the little of them that matters
//! here.
//!
//! Read as Slurm reads them, but only where nobody besides root and Slurm's own account can have
//! written them.

mod account;
mod cgroup_conf;
mod error;
mod lines;
mod place;
mod spool;

pub use account::believed;
pub use cgroup_conf::{constrains, constrains_devices};
pub use error::{ConfError, LineFault};
pub use lines::{At, Line, Text, joined};
pub use place::{Files, Texts};
pub use spool::{NodesDirs, SpoolPath};
