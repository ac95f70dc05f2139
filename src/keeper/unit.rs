//! The unit's own cgroup, once its logins are gone.

use crate::cgroup::{Dir, Result, event};
use crate::keeper::subtree::unless_gone;
use std::thread::sleep;
use std::time::Duration;

/// What its service manager has to remove it by itself.
const GRACE: Duration = Duration::from_secs(2);

/// Removes the cgroup of a unit that nothing runs in any more.
///
/// That is its service manager's to do. But a manager that meets logins where the job has ended
/// leaves it for later, and may forget the unit before it hears that they are gone, as systemd 252
/// was seen to do: then nobody would remove it.
///
/// # Errors
/// As [`Dir::children`] and [`Dir::remove_child`].
pub(super) fn release(unit: &Dir) -> Result<()> {
    sleep(GRACE);
    if unless_gone(event(unit, "populated"))?.flatten() != Some(false) {
        return Ok(());
    }
    let identity = unit.identity()?;
    let parent = unit.parent()?;
    for name in parent.children()? {
        let Some(child) = unless_gone(parent.child(&name))? else { continue };
        // Whatever has taken its name is not it.
        if child.identity()? == identity {
            return parent.remove_child(name);
        }
    }
    Ok(())
}
