//! What the helper gives up before it reads its first byte.

use nix::errno::Errno;
use nix::sys::prctl::set_dumpable;
use nix::sys::resource::{Resource, setrlimit};

/// No further process or thread, no core file, and no tracer of the same user: whoever could write
/// this process's memory would write the plan.
///
/// # Errors
/// The system call's own error.
pub(super) fn harden() -> Result<(), Errno> {
    setrlimit(Resource::RLIMIT_NPROC, 0, 0)?;
    setrlimit(Resource::RLIMIT_CORE, 0, 0)?;
    set_dumpable(false)
}
