//! The set-up of a node and the way back, which root runs once, and the service that answers for caller identity.

pub mod callerid;
mod change;
pub mod disable;
mod drop_ins;
pub mod enable;
mod file_change;
mod missing_names;
mod pam;
mod part;
mod slice_opening;
mod sys;
#[cfg(test)]
#[path = "../testing.rs"]
mod testing;
mod use_mount;

pub use change::is_tried;
