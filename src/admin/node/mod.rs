//! The set-up of the node, and what its timers run.

pub(crate) mod callerid;
pub(crate) mod change;
pub(crate) mod disable;
pub(crate) mod enable;
mod file_change;
pub(crate) mod jobless;
pub(crate) mod metrics;
mod missing_names;
pub(crate) mod notify;
pub(crate) mod pam;
mod part;
mod slice_opening;
mod slices;
mod use_mount;
