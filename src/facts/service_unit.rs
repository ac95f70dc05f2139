//! The unit of a running server.

use kernel::cgroup::Membership;

/// Finds the service of systemd that runs a process: the last part of its cgroup's path. `None` if the process
/// is in no service's cgroup, or has ended.
pub fn find_unit(pid: i32) -> Option<String> {
    let membership = Membership::read(pid).ok()?;
    // With cgroup v1 systemd keeps its services in a hierarchy of its own, else in cgroup v2.
    let path = membership
        .path("name=systemd")
        .filter(|path| path.ends_with(".service"))
        .or(membership.unified())?;
    let unit = path.rsplit('/').next()?;
    unit.ends_with(".service").then(|| unit.to_owned())
}
