//! The move itself: in, back out, and the proof of where we are.

use super::{Dir, Error, Mount, Result};
use nix::unistd::write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The cgroup that the login came from, with its `cgroup.procs` open: the way back needs no path.
#[derive(Debug)]
pub struct Origin {
    path: String,
    procs: OwnedFd,
}

impl AsFd for Origin {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.procs.as_fd()
    }
}

impl Origin {
    /// Opens the calling process's own cgroup.
    ///
    /// # Errors
    /// As [`Dir::open_procs`]; [`Error::Unfit`] where the mount shows another part of the
    /// hierarchy than `/proc/self/cgroup` speaks of: the way back would lead elsewhere.
    pub fn open(mount: &Mount) -> Result<Self> {
        mount.require_own_namespace()?;
        let path = own_path()?;
        let procs = lookup(mount.root(), &path)?.open_procs()?;
        Ok(Self { path, procs })
    }

    /// Moves the calling process back.
    ///
    /// # Errors
    /// As `write(2)` to `cgroup.procs`.
    pub fn back(&self) -> Result<()> {
        move_self(&self.procs, &self.path)
    }
}

/// A leaf whose `cgroup.procs` is open for the move.
#[derive(Debug)]
pub struct Entry<'a> {
    leaf: &'a Dir,
    procs: OwnedFd,
}

impl<'a> Entry<'a> {
    /// Opens the way in.
    ///
    /// # Errors
    /// As [`Dir::open_procs`].
    pub fn open(leaf: &'a Dir) -> Result<Self> {
        Ok(Self { leaf, procs: leaf.open_procs()? })
    }

    /// Moves the calling process, with all its threads, into the leaf. It writes `0`, which the
    /// kernel takes for the writer: no process id that could mean another one by then.
    ///
    /// # Errors
    /// `ENODEV` when the leaf is gone, `EBUSY` and `EOPNOTSUPP` when it can take no process.
    pub fn enter(&self) -> Result<()> {
        move_self(&self.procs, self.leaf.path())
    }

    /// Reads back where the calling process is: the leaf's path, and the same directory.
    ///
    /// # Errors
    /// [`Error::Elsewhere`] for anything but this leaf.
    pub fn verify(&self, root: &Dir) -> Result<()> {
        let found = own_path()?;
        let elsewhere =
            |found: String| Error::Elsewhere { wanted: self.leaf.path().to_owned(), found };
        if found != self.leaf.path() {
            return Err(elsewhere(found));
        }
        if lookup(root, &found)?.identity()? != self.leaf.identity()? {
            return Err(elsewhere(format!("another cgroup of that name, {found}")));
        }
        Ok(())
    }
}

fn move_self(procs: &OwnedFd, path: &str) -> Result<()> {
    write(procs, b"0").map(drop).map_err(|errno| Error::system("move to", path, errno))
}

/// The calling process's cgroup v2 path: the line `0::PATH` of `/proc/self/cgroup` (cgroups(7)).
fn own_path() -> Result<String> {
    const FILE: &str = "/proc/self/cgroup";
    let text = std::fs::read_to_string(FILE).map_err(|error| Error::system("read", FILE, error))?;
    let path = text.lines().find_map(|line| line.strip_prefix("0::"));
    path.map(str::to_owned).ok_or_else(|| Error::Malformed { object: FILE.into() })
}

/// Opens a cgroup by a path of `/proc/self/cgroup`. A path with `..` lies outside our cgroup
/// namespace, one that ends in ` (deleted)` is gone: neither can be opened, which is right.
fn lookup(root: &Dir, path: &str) -> Result<Dir> {
    let mut dir = root.try_clone()?;
    for name in path.split('/').filter(|name| !name.is_empty()) {
        if name == ".." {
            return Err(Error::Unfit {
                object: path.to_owned(),
                why: "lies outside this cgroup namespace",
            });
        }
        dir = dir.child(name)?;
    }
    Ok(dir)
}
