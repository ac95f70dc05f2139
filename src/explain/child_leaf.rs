//! The cgroup of a job's logins, where that is a child of the job's.

use kernel::cgroup::Dir;
use module::LeafJob;

/// Opens the cgroup of the logins; `None` if it does not exist, or if logins go into the job's own cgroup.
pub(super) fn open_child_leaf(cgroups: &LeafJob) -> Option<Dir> {
    cgroups
        .place
        .dir()
        .ok()?
        .child(cgroups.child.as_ref()?.as_str())
        .ok()
}
