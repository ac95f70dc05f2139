//! Checks that several kinds of jobs share.

use crate::context::Adoption;
use crate::error::Failure;
use kernel::cgroup::{Dir, find_frozen};
use protocol::{Containment, Reason};

/// Returns the name of the containment again, unless it is `none` and the admin requires one (`require_devices`).
///
/// # Errors
///
/// [`Reason::CannotConfine`] for a job without containment that must have one.
pub(super) fn require_containment(
    name: &'static str,
    adoption: &Adoption<'_>,
) -> Result<&'static str, Failure> {
    if adoption.context.settings.require_devices && name == Containment::None.as_str() {
        let cause = "the job has no device containment, and require_devices is set";
        return Err(Failure::new(Reason::CannotConfine, cause));
    }
    Ok(name)
}

/// Requires that none of the cgroups is frozen.
pub(super) fn require_not_frozen(levels: &[Dir]) -> Result<(), Failure> {
    find_frozen(levels)?.map_or(Ok(()), |dir| Err(frozen_failure(dir)))
}

/// The failure for a job with a frozen cgroup.
pub(super) fn frozen_failure(dir: &Dir) -> Failure {
    Failure::new(
        Reason::Suspended,
        format_args!("cgroup {} is frozen", dir.path()),
    )
}
