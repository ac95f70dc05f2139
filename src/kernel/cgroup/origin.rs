//! Moves this process into a cgroup and back, and verifies where it is.

use super::hierarchy::MountInfo;
use super::{Dir, Error, Membership, Mount, Result, v1};
use crate::OperationError;
use nix::unistd::write;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

/// The cgroups to which a login returns if it is refused. Open descriptors make this work without a path.
#[derive(Debug)]
pub struct Origin {
    before: Membership,
    /// Open cgroup of each hierarchy, by its controllers as in [`Membership`].
    procs_fds: BTreeMap<String, OriginCgroup>,
}

/// The process's original cgroup in one hierarchy.
#[derive(Debug)]
struct OriginCgroup {
    procs: OwnedFd,
    /// Root of the hierarchy.
    root: Dir,
}

impl Origin {
    /// Opens the calling process's own cgroup of version 2, if that is mounted.
    ///
    /// # Errors
    ///
    /// As [`Dir::open_procs`]; [`Error::UnexpectedState`] if the mount shows another part of the hierarchy than
    /// `/proc/self/cgroup` refers to: the process would return to another cgroup.
    pub fn open() -> Result<Self> {
        let mut origin = Self {
            before: Membership::read_own()?,
            procs_fds: BTreeMap::new(),
        };
        match Mount::open() {
            Ok(mount) => {
                mount.require_own_namespace()?;
                let path = unified(&origin.before)?.to_owned();
                origin.add("", &path, mount.root())?;
            }
            // The node has cgroup v1 only.
            Err(Error::NotMounted) => {}
            Err(error) => return Err(error),
        }
        Ok(origin)
    }

    /// Opens the process's cgroup in one hierarchy, as a way back. `path` is its path below `root`, and `controllers`
    /// names the hierarchy.
    ///
    /// # Errors
    ///
    /// As [`open_path`] and [`Dir::open_procs`].
    fn add(&mut self, controllers: &str, path: &str, root: &Dir) -> Result<()> {
        let procs = open_path(root, path)?.open_procs()?;
        let cgroup = OriginCgroup {
            procs,
            root: root.clone(),
        };
        self.procs_fds.insert(controllers.to_owned(), cgroup);
        Ok(())
    }

    /// Opens the calling process's cgroups in the hierarchies of version 1 that a job uses. The way back in another one
    /// is opened once the process has left its cgroup there.
    ///
    /// # Errors
    ///
    /// [`Error::UnexpectedState`] for one of these hierarchies that cannot be opened.
    pub fn require_hierarchies(
        &mut self,
        hierarchies: &[String],
        mounts: &[MountInfo],
    ) -> Result<()> {
        for required in hierarchies {
            if !self.add_v1(required, mounts) {
                let why = "is in use by the job and not mounted here: no way back would lead there";
                return Err(Error::unfit(&format!("{required}:/"), why));
            }
        }
        Ok(())
    }

    /// Opens the process's cgroup in a hierarchy of version 1; returns whether that was possible.
    fn add_v1(&mut self, controllers: &str, mounts: &[MountInfo]) -> bool {
        let Some(path) = self.before.path(controllers).map(str::to_owned) else {
            return false;
        };
        v1::open_root(mounts, controllers)
            .is_some_and(|root| self.add(controllers, &path, &root).is_ok())
    }

    /// Moves the process back in every hierarchy that it has left. One failure does not stop the others.
    ///
    /// If its cgroup is gone, the process goes to the nearest cgroup above that takes it: logind removes the
    /// scope of a session without processes.
    ///
    /// # Errors
    ///
    /// As `write(2)` to `cgroup.procs`, for the first move that failed; [`Error::UnexpectedState`] for a process
    /// that is not where it was moved to.
    pub fn move_back(&mut self) -> Result<()> {
        // If this cannot be read, the process moves back in every hierarchy.
        let now = Membership::read_own().ok();
        self.open_others(now.as_ref());
        let mut moves = Ok(());
        let mut expected = self.before.clone();
        for (hierarchy, cgroup) in &self.procs_fds {
            let path = self.before.path(hierarchy).unwrap_or_default();
            if now.as_ref().and_then(|now| now.path(hierarchy)) == Some(path) {
                continue;
            }
            let result = match enter(path, &cgroup.procs) {
                Err(error) if error.is_gone() => cgroup
                    .enter_ancestor(path)
                    .map(|ancestor| expected.set_path(hierarchy, ancestor)),
                result => result,
            };
            // The first failure stays.
            moves = moves.and(result);
        }
        moves.and_then(|()| expected.require_same(&Membership::read_own()?))
    }

    /// Opens the way back in the hierarchies of version 1 that the process has left although the job does not use them.
    /// Where that fails, the process stays away, which the caller finds out.
    fn open_others(&mut self, now: Option<&Membership>) {
        let hierarchies = self.before.v1_hierarchies();
        let others: Vec<String> = hierarchies
            .filter(|(controllers, path)| {
                !self.procs_fds.contains_key(*controllers)
                    && now.and_then(|now| now.path(controllers)) != Some(path)
            })
            .map(|(controllers, _)| controllers.to_owned())
            .collect();
        if others.is_empty() {
            return;
        }
        let mounts = MountInfo::read_hierarchies(&self.before).unwrap_or_default();
        for controllers in others {
            self.add_v1(&controllers, &mounts);
        }
    }
}

impl OriginCgroup {
    /// Moves to the nearest cgroup above `path` that takes the process; returns its path.
    ///
    /// # Errors
    ///
    /// If no cgroup takes it, the failure for the root.
    fn enter_ancestor<'a>(&self, path: &'a str) -> Result<&'a str> {
        let mut failure = Error::NotMounted;
        // For `/a/b` these are `/a` and `/`.
        for (end, _) in path.rmatch_indices('/') {
            let ancestor = path.get(..end.max(1)).unwrap_or("/");
            match self.enter(ancestor) {
                Ok(()) => return Ok(ancestor),
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    /// Moves the process into the cgroup at this path of the hierarchy.
    fn enter(&self, path: &str) -> Result<()> {
        enter(path, &open_path(&self.root, path)?.open_procs()?)
    }
}

/// Moves the calling process, with all its threads, into a cgroup. It writes `0` to `cgroup.procs`, by which the
/// kernel means the writer: a number could belong to another process by then.
///
/// # Errors
///
/// `ENODEV` for a cgroup that is gone; `EBUSY` and `EOPNOTSUPP` for a cgroup that can take no process.
pub fn enter(path: &str, procs: &OwnedFd) -> Result<()> {
    write(procs, b"0").map_err(|errno| OperationError::new("move to", path, errno))?;
    Ok(())
}

/// Verifies that the calling process is in the leaf: by its path, and by the same directory.
///
/// # Errors
///
/// [`Error::UnexpectedState`] for a process in another cgroup; as [`Membership::read`].
pub fn verify_in_leaf(leaf: &Dir, root: &Dir) -> Result<()> {
    let path = unified(&Membership::read_own()?)?.to_owned();
    if path != leaf.path() {
        return Err(Error::elsewhere(leaf.path(), &path));
    }
    if open_path(root, &path)?.identity()? != leaf.identity()? {
        let other = format!("another cgroup of that name, {path}");
        return Err(Error::elsewhere(leaf.path(), &other));
    }
    Ok(())
}

/// The cgroup v2 path of our own membership.
fn unified(membership: &Membership) -> Result<&str> {
    membership
        .unified()
        .ok_or_else(|| Error::malformed("/proc/self/cgroup"))
}

/// Opens a cgroup by a path of `/proc/self/cgroup`. Two kinds of paths must not be opened, and cannot be: a path
/// with `..` is outside of our cgroup namespace, and the cgroup of a path that ends in ` (deleted)` is gone.
fn open_path(root: &Dir, path: &str) -> Result<Dir> {
    let mut dir = root.clone();
    for name in path.split('/').filter(|name| !name.is_empty()) {
        if name == ".." {
            return Err(Error::unfit(path, "lies outside this cgroup namespace"));
        }
        dir = dir.child(name)?;
    }
    Ok(dir)
}
