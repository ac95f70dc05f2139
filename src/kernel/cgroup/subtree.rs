//! Walks a cgroup with everything below it, and lists its processes.
//!
//! A user who owns the inside of a job's cgroup decides how many cgroups and processes there are. So a
//! walk ends at a deadline, and not after a number that such a user could reach.

use super::{Dir, Error, Result};
use std::ffi::OsString;
use std::io::ErrorKind;
use std::time::Instant;

/// What was found on a walk, and why the walk ended early where it did.
#[derive(Debug)]
pub struct Found<T> {
    /// What was found so far.
    pub all: Vec<T>,
    /// Why there may be more.
    pub cut: Option<Error>,
}

impl<T> Found<T> {
    /// All there is.
    /// Errors: the one that ended the walk.
    pub fn complete(self) -> Result<Vec<T>> {
        match self.cut {
            None => Ok(self.all),
            Some(error) => Err(error),
        }
    }
}

/// Visits the cgroup itself and its descendants, parents before children. Those that go away
/// meanwhile are left out. One descriptor and one path are held, however many cgroups there are in
/// one another.
///
/// # Errors
///
/// As [`Dir::children`], [`Dir::child`] and `visit`; [`ErrorKind::TimedOut`] at the deadline, before which `top`
/// itself is always visited.
pub fn walk(top: &Dir, deadline: Instant, mut visit: impl FnMut(&Dir) -> Result<()>) -> Result<()> {
    visit(top)?;
    let mut dir = top.try_clone()?;
    let mut levels = vec![children(top)?];
    while let Some(names) = levels.last_mut() {
        let Some(name) = names.pop() else {
            levels.pop();
            if !levels.is_empty() {
                dir = dir.parent()?;
            }
            continue;
        };
        let Some(child) = unless_gone(dir.child(&name))? else { continue };
        if Instant::now() >= deadline {
            return Err(top.failed("visit all cgroups in", "", ErrorKind::TimedOut));
        }
        visit(&child)?;
        levels.push(children(&child)?);
        dir = child;
    }
    Ok(())
}

fn children(dir: &Dir) -> Result<Vec<OsString>> {
    Ok(unless_gone(dir.children())?.unwrap_or_default())
}

/// Lists the processes in a cgroup and below it, by number.
#[must_use]
pub fn processes(dir: &Dir, deadline: Instant) -> Found<i32> {
    let mut all = Vec::new();
    let cut = walk(dir, deadline, |dir| {
        all.extend(own_processes(dir)?);
        Ok(())
    });
    Found { all, cut: cut.err() }
}

/// Lists the processes right in a cgroup, by number. A threaded cgroup has none: its processes stand in
/// the list of its domain, further up.
pub fn own_processes(dir: &Dir) -> Result<Vec<i32>> {
    let text = match unless_gone(dir.read("cgroup.procs")) {
        Err(error) if error.errno() == Some(libc::EOPNOTSUPP) => return Ok(Vec::new()),
        text => text?.flatten().unwrap_or_default(),
    };
    Ok(text.lines().filter_map(|line| line.parse().ok()).collect())
}

/// `None` where the cgroup is gone, which is no failure here.
/// Errors: any other one.
pub fn unless_gone<T>(result: Result<T>) -> Result<Option<T>> {
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
        let walked = walk(top, deadline, |_| {
            count += 1;
            Ok(())
        });
        (count, walked.err())
    }

    #[test]
    fn walk_ends_at_its_deadline() {
        let scratch = Scratch::new();
        for number in 0..9 {
            create_dir(scratch.path().join(number.to_string())).unwrap();
        }
        let top = Dir::new(File::open(scratch.path()).unwrap().into(), "/a");
        let (seen, error) = count(&top, Instant::now() + Duration::from_secs(60));
        assert_eq!((seen, error.map(|error| error.to_string())), (10, None));
        let (seen, error) = count(&top, Instant::now());
        assert_eq!(seen, 1, "the cgroup itself is always visited");
        let Some(Error::System(failed)) = error else { panic!("{error:?}") };
        assert!(failed.is_timeout(), "{failed}");
    }
}
