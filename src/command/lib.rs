//! What every command of `job-adopt` shares: options, output, errors, signals and child processes.

pub mod caller_limits;
pub mod child_process;
pub mod device_options;
pub mod disk;
pub mod error;
pub mod exit_status;
pub mod number_list;
pub mod options;
pub mod output;
pub mod process;
pub mod replace_file;
pub mod shell;
pub mod signals;
pub mod sys;
#[cfg(test)]
#[path = "../testing.rs"]
mod testing;
