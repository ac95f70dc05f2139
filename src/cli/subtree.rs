//! A cgroup with everything below it.

use crate::cgroup::{Dir, Result};

/// Most cgroups of one job that are looked at.
const DIRS_MAX: usize = 4096;

/// The cgroup itself and its descendants, parents before children. Those that go away meanwhile
/// are left out.
///
/// # Errors
/// As [`Dir::children`] and [`Dir::child`].
pub(super) fn subtree(dir: &Dir) -> Result<Vec<Dir>> {
    let mut found = vec![dir.try_clone()?];
    let mut next = 0;
    while let Some(dir) = found.get(next) {
        let mut children = Vec::new();
        for name in unless_gone(dir.children())?.unwrap_or_default() {
            children.extend(unless_gone(dir.child(&name))?);
        }
        found.extend(children);
        next += 1;
        if found.len() > DIRS_MAX {
            break;
        }
    }
    Ok(found)
}

/// Numbers of the processes in a cgroup and below it.
///
/// # Errors
/// As [`subtree`] and [`Dir::read`].
pub(super) fn processes(dir: &Dir) -> Result<Vec<i32>> {
    let mut pids = Vec::new();
    for dir in subtree(dir)? {
        let text = unless_gone(dir.read("cgroup.procs"))?.flatten().unwrap_or_default();
        pids.extend(text.lines().filter_map(|line| line.parse::<i32>().ok()));
    }
    Ok(pids)
}

/// `None` where the cgroup is gone, which is no failure here.
///
/// # Errors
/// Any other one.
pub(super) fn unless_gone<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is_gone() => Ok(None),
        Err(error) => Err(error),
    }
}
