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
        let Some(root) = v1::open_root(mounts, controllers) else {
            return false;
        };
        self.add(controllers, &path, &root).is_ok()
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
    pub fn move_back(&self) -> Result<()> {
        // If this cannot be read, the process moves back in every hierarchy.
        let now = Membership::read_own().ok();
        let mut moves = Ok(());
        let mut expected = self.before.clone();
        for (hierarchy, cgroup) in &self.procs_fds {
            let Some(path) = self.path_left(hierarchy, now.as_ref()) else {
                continue;
            };
            let moved = enter(path, &cgroup.procs);
            match enter_ancestor_if_gone(moved, path, &cgroup.root) {
                Ok(path) => expected.set_path(hierarchy, path),
                Err(error) => moves = moves.and(Err(error)),
            }
        }
        // These come last, since their mounts and cgroups are opened while the job's limits may still hold.
        for (hierarchy, root) in self.open_others(now.as_ref()) {
            let path = self.before.path(&hierarchy).unwrap_or_default();
            let moved = enter_path(path, &root);
            match enter_ancestor_if_gone(moved, path, &root) {
                Ok(path) => expected.set_path(&hierarchy, path),
                Err(error) => moves = moves.and(Err(error)),
            }
        }
        moves.and_then(|()| expected.require_same(&Membership::read_own()?))
    }

    /// Returns the path of the process's original cgroup in a hierarchy; `None` if the process is still there.
    fn path_left(&self, hierarchy: &str, now: Option<&Membership>) -> Option<&str> {
        let path = self.before.path(hierarchy)?;
        (now.and_then(|now| now.path(hierarchy)) != Some(path)).then_some(path)
    }

    /// Opens the roots of the hierarchies of version 1 that the process has left although its job does not use them:
    /// Slurm's accounting puts a login into one that its daemon has not joined. Where a root is not visible, the process
    /// stays away, which the caller finds out.
    fn open_others(&self, now: Option<&Membership>) -> Vec<(String, Dir)> {
        let hierarchies = self.before.v1_hierarchies();
        let mut left = hierarchies
            .map(|(hierarchy, _)| hierarchy)
            .filter(|hierarchy| !self.procs_fds.contains_key(*hierarchy))
            .filter(|hierarchy| self.path_left(hierarchy, now).is_some())
            .peekable();
        if left.peek().is_none() {
            return Vec::new();
        }
        let mounts = MountInfo::read_hierarchies(&self.before).unwrap_or_default();
        left.filter_map(|hierarchy| {
            v1::open_root(&mounts, hierarchy).map(|root| (hierarchy.to_owned(), root))
        })
        .collect()
    }
}

/// Moves the process to the nearest cgroup above `path` that takes it, if a move to `path` failed because that cgroup is
/// gone. Returns where the process is.
///
/// # Errors
///
/// The failure of the move for another reason; if no cgroup takes the process, that for the root.
fn enter_ancestor_if_gone<'a>(moved: Result<()>, path: &'a str, root: &Dir) -> Result<&'a str> {
    let mut failure = match moved {
        Ok(()) => return Ok(path),
        Err(error) if error.is_gone() => error,
        Err(error) => return Err(error),
    };
    // For `/a/b` these are `/a` and `/`.
    for (end, _) in path.rmatch_indices('/') {
        let ancestor = path.get(..end.max(1)).unwrap_or("/");
        match enter_path(ancestor, root) {
            Ok(()) => return Ok(ancestor),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

/// Moves the calling process into the cgroup at this path of a hierarchy.
fn enter_path(path: &str, root: &Dir) -> Result<()> {
    enter(path, &open_path(root, path)?.open_procs()?)
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
