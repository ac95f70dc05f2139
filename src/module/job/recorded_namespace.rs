//! The mount namespace that a record names for a job whose scheduler places its logins.

use crate::context::Adoption;
use crate::error::Failure;
use kernel::namespace::{Namespace, owner_pin_path};

/// Opens the namespace that `register` has pinned for the record of the plan; `None` without one. The pin is found by
/// the login's own user, so that a wrong plan can name another job of this user, and none of another.
///
/// # Errors
///
/// As [`Namespace::open_on_node`].
pub(super) fn open_recorded_namespace(
    adoption: &Adoption<'_>,
) -> Result<Option<Namespace>, Failure> {
    let Some(record) = &adoption.plan.namespaces else {
        return Ok(None);
    };
    let path = owner_pin_path(adoption.uid(), record);
    Ok(Some(Namespace::open_on_node(&path.to_string_lossy())?))
}
