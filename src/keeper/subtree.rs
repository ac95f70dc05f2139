//! A cgroup with everything below it, as those look at it who end a job.

use crate::kernel::cgroup::{Dir, Error, Result};
use crate::kernel::sys::process::{pidfd_open, pidfd_send_signal};
use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use std::ffi::{OsStr, OsString};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;

/// Most cgroups of one job that are looked at.
const DIRS_MAX: usize = 65_536;

/// Opens the cgroup that this one is in, or was in when it was removed. The root of the mount has
/// none, and is not for this.
pub fn parent(dir: &Dir) -> Result<Dir> {
    let path = dir.path().rsplit_once('/').map_or("", |(parent, _)| parent);
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let fd =
        openat(dir, "..", flags, Mode::empty()).map_err(|errno| dir.failed("open", "..", errno))?;
    Ok(Dir::new(fd, path))
}

/// Writes a file of the interface.
/// Errors: as `write(2)`; `ENOENT` where the kernel has no such file.
pub fn write(dir: &Dir, file: &str, text: &str) -> Result<()> {
    let fd = openat(dir, file, OFlag::O_WRONLY | OFlag::O_CLOEXEC, Mode::empty())
        .map_err(|errno| dir.failed("open", file, errno))?;
    nix::unistd::write(&fd, text.as_bytes())
        .map(drop)
        .map_err(|errno| dir.failed("write", file, errno))
}

/// Names of the children, in no order. Whoever owns the directory chooses them: any byte but
/// `/` and a newline (`cgroup_mkdir` in `kernel/cgroup/cgroup.c`).
pub fn children(dir: &Dir) -> Result<Vec<OsString>> {
    let error = |errno: Errno| dir.failed("list", "", errno);
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let mut listing = nix::dir::Dir::openat(dir, ".", flags, Mode::empty()).map_err(error)?;
    let mut names = Vec::new();
    for entry in listing.iter() {
        let entry = entry.map_err(error)?;
        let name = entry.file_name().to_bytes();
        let directory = entry.file_type() == Some(nix::dir::Type::Directory);
        if directory && name != b"." && name != b".." {
            names.push(OsStr::from_bytes(name).to_owned());
        }
    }
    Ok(names)
}

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
/// one another: a user who owns the inside of a job's cgroup decides how many.
/// Errors: as [`children`], [`Dir::child`] and `visit`; [`Error::Wrong`] past `DIRS_MAX`
/// cgroups.
pub fn walk(top: &Dir, mut visit: impl FnMut(&Dir) -> Result<()>) -> Result<()> {
    visit(top)?;
    let mut dir = top.try_clone()?;
    let mut levels = vec![unless_gone(children(top))?.unwrap_or_default()];
    let mut seen = 1;
    while let Some(names) = levels.last_mut() {
        let Some(name) = names.pop() else {
            levels.pop();
            if !levels.is_empty() {
                dir = parent(&dir)?;
            }
            continue;
        };
        let Some(child) = unless_gone(dir.child(&name))? else { continue };
        seen += 1;
        if seen > DIRS_MAX {
            return Err(Error::unfit(top.path(), "has more cgroups in it than are looked at"));
        }
        visit(&child)?;
        levels.push(unless_gone(children(&child))?.unwrap_or_default());
        dir = child;
    }
    Ok(())
}

/// Numbers of the processes in a cgroup and below it.
#[must_use]
pub fn processes(dir: &Dir) -> Found<i32> {
    let mut all = Vec::new();
    let cut = walk(dir, |dir| {
        all.extend(own_processes(dir)?);
        Ok(())
    });
    Found { all, cut: cut.err() }
}

/// Kills what is in a cgroup and below it. What this cannot, shows in what is left. The kernel signals
/// the first thread of each process alone (`__cgroup_kill` in `kernel/cgroup/cgroup.c`), which does
/// nothing where that has ended before the others, and before Linux 5.14 not even that: so `again`,
/// where it was tried before, goes through the processes as well.
pub fn kill(dir: &Dir, again: bool) {
    if write(dir, "cgroup.kill", "1").is_ok() && !again {
        return;
    }
    // Those that are there before as well as after they were taken hold of: a number that another
    // process took over meanwhile is not there a second time, or stands for none any more.
    let before = processes(dir).all;
    let held: Vec<_> =
        before.into_iter().filter_map(|pid| Some((pid, pidfd_open(pid).ok()?))).collect();
    let still = processes(dir).all;
    for (_, pidfd) in held.iter().filter(|(pid, _)| still.contains(pid)) {
        let _ = pidfd_send_signal(pidfd.as_fd(), Signal::SIGKILL as i32);
    }
}

/// A threaded cgroup lists none: its processes stand in the list of its domain, further up.
fn own_processes(dir: &Dir) -> Result<Vec<i32>> {
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

    #[test]
    fn a_child_of_any_name_is_found() {
        let scratch = Scratch::new();
        let name = OsStr::from_bytes(b"a\xff");
        std::fs::create_dir(scratch.path().join(name)).unwrap();
        let dir = Dir::new(std::fs::File::open(scratch.path()).unwrap().into(), "/a");
        assert_eq!(children(&dir).unwrap(), [name]);
        assert_eq!(dir.child(name).unwrap().path(), "/a/a\u{fffd}");
        assert!(dir.child("..").is_err());
    }
}
