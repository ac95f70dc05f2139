//! The guard of the user's own slice: what of theirs is in no job opens no guarded device.

use super::{Failure, Visit};
use crate::guard::{self, Ensured};

/// What the log says of the guard of the login's user: nothing, where it is as it should be.
/// `changes`: where it is missing, it is attached.
///
/// # Errors
/// [`Failure::Guard`].
pub(super) fn guard(visit: &Visit<'_>, changes: bool) -> Result<&'static str, Failure> {
    let list = &visit.plan.guard;
    if list.is_empty() {
        return Ok("");
    }
    let deadline = changes.then(|| visit.budget.deadline());
    Ok(match guard::see_to(&guard::slice(visit.login.uid)?, list, deadline)? {
        Ensured::NoSlice | Ensured::Held => "",
        Ensured::Missing => "missing",
        Ensured::Attached => "attached",
    })
}
