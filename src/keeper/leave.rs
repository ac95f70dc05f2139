//! Out of the login's cgroup, with which the keeper would end, and out of its mounts.

use super::Trouble;
use crate::cgroup::{Dir, Membership};
use crate::plan::CgroupPath;
use nix::sched::{CloneFlags, setns};
use std::fs::File;

/// Moves to the root of the mount. Where that can hold no process, as in a container, to where the
/// system's first process is, which outlives everything as well.
pub(super) fn leave(root: &Dir) -> Result<(), Trouble> {
    let Err(error) = enter(root) else { return Ok(()) };
    let first = Membership::of(1)?;
    match first.unified().map(str::parse::<CgroupPath>) {
        Some(Ok(path)) => {
            let mut dir = root.try_clone()?;
            for name in path.relative().split('/') {
                dir = dir.child(name)?;
            }
            Ok(enter(&dir)?)
        }
        _ => Err(error.into()),
    }
}

/// Sees what the system's first process sees. Mounts that a login has to itself, as `pam_namespace`
/// makes them, would otherwise be there for as long as the job; where they cannot be left, they are.
pub(super) fn leave_mounts() {
    if let Ok(first) = File::open("/proc/1/ns/mnt") {
        let _ = setns(first, CloneFlags::CLONE_NEWNS);
    }
}

fn enter(dir: &Dir) -> crate::cgroup::Result<()> {
    dir.write("cgroup.procs", "0")
}
