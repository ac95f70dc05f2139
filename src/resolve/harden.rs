//! What the helper gives up before it reads its first byte.

use nix::errno::Errno;
use nix::sys::prctl::set_dumpable;

/// No tracer of the same user: whoever could write this process's memory would write the plan. An
/// exec undoes this, so that it cannot be done before; limits come from the privileged half.
///
/// # Errors
/// The system call's own error.
pub(super) fn harden() -> Result<(), Errno> {
    set_dumpable(false)
}
