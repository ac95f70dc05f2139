//! The move itself: in, back out, and the proof of where we are.

use super::place::Mounted;
use super::v1;
use super::{Dir, Error, Membership, Mount, Result};
use crate::kernel::failed::Failed;
use nix::unistd::write;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

/// Where the login came from, and the way back, which needs no path.
#[derive(Debug)]
pub struct Origin {
    before: Membership,
    /// `cgroup.procs`, by controllers as in [`Membership`].
    ways: BTreeMap<String, OwnedFd>,
}

impl Origin {
    /// Opens the calling process's own cgroup of version 2, if that is mounted.
    /// Errors: as [`Dir::open_procs`]; [`Error::Unfit`] where the mount shows another part of the
    /// hierarchy than `/proc/self/cgroup` speaks of: the way back would lead elsewhere.
    pub fn open() -> Result<Self> {
        let mut origin = Self { before: Membership::own()?, ways: BTreeMap::new() };
        match Mount::open() {
            Ok(mount) => {
                mount.require_own_namespace()?;
                let path = unified(&origin.before)?.to_owned();
                origin.add("", &path, mount.root())?;
            }
            // A node that has cgroup v1 only.
            Err(Error::NotMounted) => {}
            Err(error) => return Err(error),
        }
        Ok(origin)
    }

    fn add(&mut self, controllers: &str, path: &str, root: &Dir) -> Result<()> {
        self.ways.insert(controllers.to_owned(), lookup(root, path)?.open_procs()?);
        Ok(())
    }

    /// Opens its cgroups of version 1 too, for a job that uses these hierarchies.
    /// Errors: [`Error::Unfit`] for one of these in which there is no way back.
    pub fn require(&mut self, hierarchies: &[String], mounts: &[Mounted]) -> Result<()> {
        for (controllers, path) in self.before.clone().legacy() {
            if let Some(root) = v1::root(mounts, controllers) {
                let _ = self.add(controllers, path, &root);
            }
        }
        match hierarchies.iter().find(|wanted| !self.ways.contains_key(*wanted)) {
            None => Ok(()),
            Some(wanted) => Err(Error::Unfit {
                object: format!("{wanted}:/"),
                why: "is in use by the job and not mounted here: no way back would lead there",
            }),
        }
    }

    /// Moves the calling process back, in every hierarchy in which it is elsewhere now; where one
    /// bars the way, still in all others.
    /// Errors: as `write(2)` to `cgroup.procs`, for the first that failed; [`Error::Elsewhere`] for
    /// a process that is not where it was all the same.
    pub fn back(&self) -> Result<()> {
        let now = Membership::own().ok();
        let mut moved = Ok(());
        for (of, procs) in &self.ways {
            let path = self.before.path(of);
            if now.as_ref().and_then(|now| now.path(of)) != path {
                moved = moved.and(enter(path.unwrap_or_default(), procs));
            }
        }
        moved.and_then(|()| self.before.require_same(&Membership::own()?))
    }
}

/// Moves the calling process, with all its threads, into a cgroup, by its `cgroup.procs`. It writes
/// `0`, which the kernel takes for the writer: no process id that could mean another one by then.
/// Errors: `ENODEV` when the cgroup is gone, `EBUSY` and `EOPNOTSUPP` when it can take no process.
pub fn enter(path: &str, procs: &OwnedFd) -> Result<()> {
    Ok(write(procs, b"0").map(drop).map_err(|errno| Failed::new("move to", path, errno))?)
}

/// Reads back where the calling process is: the leaf's path, and the same directory.
/// Errors: [`Error::Elsewhere`] for anything but this leaf.
pub fn stands_in(leaf: &Dir, root: &Dir) -> Result<()> {
    let found = unified(&Membership::own()?)?.to_owned();
    let elsewhere = |found: String| Error::Elsewhere { wanted: leaf.path().to_owned(), found };
    if found != leaf.path() {
        return Err(elsewhere(found));
    }
    if lookup(root, &found)?.identity()? != leaf.identity()? {
        return Err(elsewhere(format!("another cgroup of that name, {found}")));
    }
    Ok(())
}

/// The cgroup v2 path among a process's own.
fn unified(own: &Membership) -> Result<&str> {
    own.unified().ok_or_else(|| Error::Malformed("/proc/self/cgroup".into()))
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
