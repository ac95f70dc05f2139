//! The guard of the user's own slice: what of theirs is in no job opens no guarded device.

use super::{Failure, Visit};
use crate::guard::{self, Ensured, State};

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
    let slice = guard::slice(visit.login.uid)?;
    if !changes {
        let missing = guard::state(&slice, list)?;
        return Ok(match missing {
            State::NoSlice | State::Guarded { current: true } => "",
            State::Unguarded | State::Guarded { .. } => "missing",
        });
    }
    Ok(match guard::ensure(&slice, list, visit.budget.deadline())? {
        Ensured::NoSlice | Ensured::Held | Ensured::HoldsJob(_) => "",
        Ensured::Attached => "attached",
    })
}
