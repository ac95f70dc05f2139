//! Finds out whether a service's PAM stack runs our module in every login that succeeds.
//!
//! The account phase only admits; the session phase puts the login into its job. A stack with the
//! one and without the other would admit users to the bare node, so the account phase asks this
//! module. It reads the service files as libpam does. A line that libpam rejects, or that its
//! versions from 1.3 to 1.7 do not read alike, makes a stack one that does not.

mod barrier;
mod compare;
mod control;
mod dirs;
mod entry;
mod error;
mod file;
mod flatten;
mod group;
mod image;
mod judge;
mod libpam;
mod lines;
mod rejection;
mod service_file;
mod statement;
#[cfg(test)]
mod tests;
mod walk;

pub use barrier::{Barrier, find_barrier, find_jump_past_end};
pub use compare::{ComparedLine, Comparison, Side, Step, compare_stacks, jump_targets};
pub use control::ModuleReturn;
pub use dirs::service_dirs;
pub use entry::{Entry, FileLine, LineFault, MODULE_FILES, is_close_only};
pub use error::StackError;
pub use flatten::named_services;
pub use group::Group;
pub use judge::{
    StackFinding, judge_stack, judge_stack_with, judge_stacks_of_login, read_entries,
    read_entries_with,
};
pub use libpam::{find_module, find_module_folder, is_missing_module};
pub use lines::{LogicalLine, parse_lines};
pub use rejection::Rejection;
