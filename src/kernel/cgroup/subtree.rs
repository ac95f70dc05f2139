//! Walks a cgroup with everything below it, and lists its processes.
//!
//! A user who owns cgroups in a job decides how many cgroups and processes there are. So a walk ends at a
//! deadline, and not after a number that such a user could reach.

use super::{Dir, Error, Result};
use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::time::Instant;

/// The items of a walk, which may have ended early.
#[derive(Debug)]
pub struct Listing<T> {
    /// Items up to the end of the walk.
    pub all: Vec<T>,
    /// Error that ended the walk early.
    pub cut: Option<Error>,
}

impl<T> Listing<T> {
    /// The items of a complete walk.
    ///
    /// # Errors
    ///
    /// The error that ended the walk early.
    pub fn complete(self) -> Result<Vec<T>> {
        match self.cut {
            None => Ok(self.all),
            Some(error) => Err(error),
        }
    }
}

/// Visits the cgroup itself and its descendants, parents before children. Cgroups that go away meanwhile are left
/// out. It needs one descriptor and one path, however deep the subtree is.
///
/// # Errors
///
/// As [`Dir::children`], [`Dir::child`] and `visit`; [`ErrorKind::TimedOut`] at the deadline, before which `top`
/// itself is always visited.
pub fn walk(top: &Dir, deadline: Instant, visit: impl FnMut(&Dir) -> Result<()>) -> Result<()> {
    walk_selected(top, deadline, |dir, name| dir.child(name).map(Some), visit)
}

/// As [`walk`], but visits only the children that `open` opens, by their parent and name.
///
/// # Errors
///
/// As [`walk`] and `open`.
pub fn walk_selected(
    top: &Dir,
    deadline: Instant,
    open: impl Fn(&Dir, &OsStr) -> Result<Option<Dir>>,
    mut visit: impl FnMut(&Dir) -> Result<()>,
) -> Result<()> {
    visit(top)?;
    let mut dir = top.clone();
    // The children that are left to visit, of `top` first and of `dir` last.
    let mut levels = vec![list_children(top)?];
    while let Some(names) = levels.last_mut() {
        let Some(name) = names.pop() else {
            levels.pop();
            if !levels.is_empty() {
                dir = dir.parent()?;
            }
            continue;
        };
        if Instant::now() >= deadline {
            return Err(top.failed("visit all cgroups in", "", ErrorKind::TimedOut));
        }
        let Some(child) = ignore_gone(open(&dir, &name))?.flatten() else {
            continue;
        };
        visit(&child)?;
        levels.push(list_children(&child)?);
        dir = child;
    }
    Ok(())
}

/// Lists the names of a cgroup's children; empty if it has none or is gone.
fn list_children(dir: &Dir) -> Result<Vec<OsString>> {
    // Most cgroups have none, and a look at the number of links needs no list.
    let names = dir
        .has_children()
        .and_then(|has| if has { dir.children() } else { Ok(Vec::new()) });
    Ok(ignore_gone(names)?.unwrap_or_default())
}

/// Lists the numbers of the processes in a cgroup and below it, as this pid namespace has them (0 for a process
/// outside of it). At the deadline or after an error the list ends early ([`Listing::cut`]).
#[must_use]
pub fn list_processes(dir: &Dir, deadline: Instant) -> Listing<i32> {
    let mut all = Vec::new();
    let result = walk(dir, deadline, |dir| {
        all.extend(list_own_processes(dir)?);
        Ok(())
    });
    Listing {
        all,
        cut: result.err(),
    }
}

/// Lists the numbers of the processes right in a cgroup; empty for one that is gone. A threaded cgroup has none: its
/// processes are in the list of its domain, further up.
///
/// # Errors
///
/// As [`Dir::read`], except for a cgroup that is gone.
pub fn list_own_processes(dir: &Dir) -> Result<Vec<i32>> {
    let text = match ignore_gone(dir.read("cgroup.procs")) {
        Err(error) if error.errno() == Some(libc::EOPNOTSUPP) => return Ok(Vec::new()),
        text => text?.flatten().unwrap_or_default(),
    };
    Ok(text.lines().filter_map(|line| line.parse().ok()).collect())
}

/// Reads the lowest limit in a file of these cgroups; `u64::MAX` if none is set: a cgroup that lacks the file, such as
/// the root, or has "max" or another text there, sets none.
///
/// # Errors
///
/// The errors of [`Dir::read`].
pub fn find_lowest_limit(file: &str, levels: &[Dir]) -> Result<u64> {
    let mut lowest = u64::MAX;
    for dir in levels {
        let limit = dir
            .read(file)?
            .and_then(|text| text.trim_end().parse().ok());
        lowest = lowest.min(limit.unwrap_or(u64::MAX));
    }
    Ok(lowest)
}

/// Turns the error of a cgroup that is gone into `None`.
///
/// # Errors
///
/// Any other error.
pub fn ignore_gone<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is_gone() => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;
    use std::fs::{File, create_dir};
    use std::time::Duration;

    fn count(top: &Dir, deadline: Instant) -> (usize, Option<Error>) {
        let mut count = 0;
        let result = walk(top, deadline, |_| {
            count += 1;
            Ok(())
        });
        (count, result.err())
    }

    #[test]
    fn walk_ends_at_its_deadline() {
        let scratch = Scratch::new();
        for number in 0..9 {
            create_dir(scratch.path().join(number.to_string())).unwrap();
        }
        let top = Dir::new(File::open(scratch.path()).unwrap().into(), "/a");
        let (visited, error) = count(&top, Instant::now() + Duration::from_secs(60));
        assert_eq!((visited, error.map(|error| error.to_string())), (10, None));
        let (other_visited, other_error) = count(&top, Instant::now());
        assert_eq!(other_visited, 1, "the cgroup itself is always visited");
        let Some(Error::System(failed)) = other_error else {
            panic!("no error")
        };
        assert!(failed.is_timeout(), "{failed}");
    }
}
