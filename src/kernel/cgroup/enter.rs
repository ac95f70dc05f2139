//! The move itself: in, back out, and the proof of where we are.

use super::place::Mounted;
use super::v1;
use super::{Dir, Error, Membership, Mount, Result};
use crate::kernel::failed::Failed;
use nix::unistd::write;
use std::os::fd::OwnedFd;

/// Where the login came from, in every hierarchy that is mounted here, each with its
/// `cgroup.procs` open: the way back needs no path.
#[derive(Debug)]
pub struct Origin {
    before: Membership,
    ways: Vec<Way>,
}

/// The way back in one hierarchy.
#[derive(Debug)]
struct Way {
    /// As in [`Membership`]; empty for cgroup v2.
    controllers: String,
    path: String,
    procs: OwnedFd,
}

impl Origin {
    /// Opens the calling process's own cgroups. A v1 hierarchy in which there is no way back does
    /// no harm until a job is found to use it.
    /// Errors: as [`Dir::open_procs`]; [`Error::Unfit`] where the mount shows another part of the
    /// hierarchy than `/proc/self/cgroup` speaks of: the way back would lead elsewhere.
    /// [`Error::NotMounted`] for a node that has no hierarchy at all.
    pub fn open() -> Result<Self> {
        let before = Membership::own()?;
        let mut ways = Vec::new();
        match Mount::open() {
            Ok(mount) => {
                mount.require_own_namespace()?;
                let path = unified(&before)?;
                let procs = lookup(mount.root(), path)?.open_procs()?;
                ways.push(Way { controllers: String::new(), path: path.to_owned(), procs });
            }
            // A node that has cgroup v1 only.
            Err(Error::NotMounted) => {}
            Err(error) => return Err(error),
        }
        if before.legacy().next().is_some() {
            let mounts = Mounted::all()?;
            let ways_v1 = before.legacy().filter_map(|(controllers, path)| {
                let root = v1::root(&mounts, controllers)?;
                let procs = lookup(&root, path).ok()?.open_procs().ok()?;
                Some(Way { controllers: controllers.to_owned(), path: path.to_owned(), procs })
            });
            ways.extend(ways_v1);
        }
        if ways.is_empty() { Err(Error::NotMounted) } else { Ok(Self { before, ways }) }
    }

    /// Refuses a job that uses a v1 hierarchy in which there is no way back.
    /// Errors: [`Error::Unfit`].
    pub fn require(&self, hierarchies: &[String]) -> Result<()> {
        let open = |wanted: &str| self.ways.iter().any(|way| way.controllers == wanted);
        match hierarchies.iter().find(|wanted| !open(wanted)) {
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
        let now = Membership::own();
        let is_back = |way: &&Way| match &now {
            Ok(now) => now.path(&way.controllers) == Some(&way.path),
            Err(_) => false,
        };
        let away = self.ways.iter().filter(|way| !is_back(way));
        let moved = away.map(|way| enter(&way.path, &way.procs)).fold(Ok(()), Result::and);
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
