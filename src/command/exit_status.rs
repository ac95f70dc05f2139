//! The exit statuses of the command.

use nix::sys::signal::Signal;

/// The command succeeded.
pub const EXIT_FINE: u8 = 0;
/// A query is complete and its result negative: a login that `resolve` or `enable` sees
/// refused, a broken or reused record in `list`, a name that `devices` cannot resolve, a fault that
/// `check` finds, a difference in `compare`, a stray, a line that `disable` leaves, a stack that
/// keeps no user without a job out after it or `enable --undo`, an edit that `enable --undo` leaves, and a job of `use` that does not run here.
pub const EXIT_FINDINGS: u8 = 1;
/// The command line or a record is wrong.
pub(crate) const EXIT_USAGE: u8 = 2;
/// An operation failed.
pub const EXIT_FAILED: u8 = 3;
/// Processes remain that no signal ends, as they wait in the kernel: the node needs an admin.
pub(crate) const EXIT_UNKILLABLE: u8 = 4;
/// `run` and `enter` could not start their command.
pub const EXIT_NOT_STARTED: u8 = 125;

/// The exit status for a command that a signal ended, as shells give it.
pub fn signal_status(signal: Signal) -> u8 {
    u8::try_from(128 + signal as i32).unwrap_or(u8::MAX)
}
