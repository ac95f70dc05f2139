//! What every command of `job-adopt` shares, a user's too: options, output, errors, accounts and child processes.

pub mod accounts;
pub mod awaited_signals;
pub mod caller_limits;
pub mod child_process;
pub mod disk;
pub mod error;
pub mod exit_status;
pub mod number_list;
pub mod options;
pub mod output;
pub mod replace_file;
pub mod shell;
pub mod sys;
#[cfg(test)]
#[path = "../testing.rs"]
mod testing;
