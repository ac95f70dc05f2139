//! Finds the cgroup v2 mount, opens a job's cgroup with every cgroup above it, and chooses the leaf for its
//! logins (cgroup-v2.rst, "Core Interface Files").

use super::{Dir, Error, Result};
use crate::OperationError;
use crate::mounts::{MountLine, OWN_TABLE};
use crate::proc;
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::{Mode, stat};
use nix::sys::statfs::{CGROUP2_SUPER_MAGIC, fstatfs};
use protocol::{CgroupPath, LeafName};
use std::path::Path;

/// Mount points of a cgroup v2 hierarchy, in the order of the search: unified, then hybrid.
const MOUNT_POINTS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];

/// Inode of the initial cgroup namespace (`linux/proc_ns.h`), in which every mount has the one root.
const PROC_CGROUP_INIT_INO: u64 = 0xEFFF_FFFB;
/// Inode of a hierarchy's root (`cgroup_setup_root` in `kernel/cgroup/cgroup.c`).
const ROOT_INO: u64 = 1;

/// A mount of a file system, perhaps of a hierarchy of cgroups.
#[derive(Debug, PartialEq, Eq)]
pub struct MountInfo {
    /// Major and minor of the file system.
    pub(super) device: (u64, u64),
    /// Directory of the file system that is mounted.
    pub(super) root: String,
    pub(super) at: String,
    pub(super) kind: String,
    /// Options of the file system, with commas between them.
    pub(super) options: String,
}

impl MountInfo {
    /// Reads all mounts, in order: the last mount on a directory covers the others. Mounts of users are among
    /// them, on directories of any name.
    ///
    /// # Errors
    ///
    /// As `open(2)` and `read(2)`.
    pub fn read_all() -> Result<Vec<Self>> {
        let text =
            proc::read(OWN_TABLE).map_err(|error| OperationError::new("read", OWN_TABLE, error))?;
        Ok(text.lines().filter_map(Self::parse).collect())
    }

    /// Parses a line of the table of mounts; `None` for a malformed one.
    pub(super) fn parse(line: &str) -> Option<Self> {
        let line = MountLine::parse(line)?;
        Some(Self {
            device: line.parse_device()?,
            root: line.root.to_owned(),
            at: line.at.to_owned(),
            kind: line.kind.to_owned(),
            options: line.options.to_owned(),
        })
    }
}

/// The root of the cgroup v2 hierarchy.
#[derive(Debug)]
pub struct Mount {
    root: Dir,
    at: &'static str,
}

impl Mount {
    /// Opens the mount of this node.
    ///
    /// # Errors
    ///
    /// [`Error::NotMounted`] if no mount point has a cgroup v2 file system; as `open(2)`.
    pub fn open() -> Result<Self> {
        Self::open_below(Path::new("/"))
    }

    /// Opens the cgroup v2 mount below `root`. Skips a path that ends in a symbolic link.
    ///
    /// # Errors
    ///
    /// As [`Mount::open`].
    pub fn open_below(root: &Path) -> Result<Self> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        for at in MOUNT_POINTS {
            let fd = match open(&root.join(at.trim_start_matches('/')), flags, Mode::empty()) {
                Ok(fd) => fd,
                Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => continue,
                Err(errno) => return Err(OperationError::new("open", at, errno).into()),
            };
            let stat = fstatfs(&fd).map_err(|errno| OperationError::new("statfs", at, errno))?;
            if stat.filesystem_type() == CGROUP2_SUPER_MAGIC {
                return Ok(Self {
                    root: Dir::new(fd, ""),
                    at,
                });
            }
        }
        Err(Error::NotMounted)
    }

    /// The mount point below the node's root.
    pub fn path(&self) -> &'static str {
        self.at
    }

    /// Requires that the root of the mount is the root of our cgroup namespace (cgroup_namespaces(7)).
    ///
    /// # Errors
    ///
    /// [`Error::UnexpectedState`] for another mount, or one that `/proc/self/mountinfo` does not have.
    pub fn require_own_namespace(&self) -> Result<()> {
        let namespace = stat("/proc/self/ns/cgroup")
            .map_err(|errno| OperationError::new("stat", "/proc/self/ns/cgroup", errno))?;
        let (_, root) = self.root.identity()?;
        // The usual case, without reading the table of mounts.
        if namespace.st_ino == PROC_CGROUP_INIT_INO && root == ROOT_INO {
            return Ok(());
        }
        let mut mounts = MountInfo::read_all()?
            .into_iter()
            .filter(|mount| mount.kind == "cgroup2" && mount.at == self.at);
        match mounts.next_back() {
            Some(mount) if mount.root == "/" => Ok(()),
            _ => Err(Error::unfit(
                self.at,
                "is mounted for another cgroup namespace than ours",
            )),
        }
    }

    /// The directory of the root.
    pub fn root(&self) -> &Dir {
        &self.root
    }

    /// Opens a cgroup and all its ancestors.
    ///
    /// # Errors
    ///
    /// As [`Dir::child`] for the first component that cannot be opened.
    pub fn open_chain(self, path: &CgroupPath) -> Result<CgroupChain> {
        let mut levels = vec![self.root];
        for name in path.relative().split('/') {
            let child = match levels.last() {
                Some(parent) => parent.child(name)?,
                None => return Err(Error::NotMounted),
            };
            levels.push(child);
        }
        levels.reverse();
        Ok(CgroupChain { levels, depth: 0 })
    }
}

/// A job's cgroup or a leaf below it, with all its ancestors, each opened below its parent.
#[derive(Clone, Debug)]
pub struct CgroupChain {
    /// The cgroup itself first, the root last; never empty.
    levels: Vec<Dir>,
    /// Number of levels between the cgroup and the job's own.
    depth: usize,
}

impl CgroupChain {
    /// The cgroup itself and then every ancestor up to the root of the mount.
    pub fn levels(&self) -> &[Dir] {
        &self.levels
    }

    /// The cgroup itself.
    ///
    /// # Errors
    ///
    /// [`Error::NotMounted`] for an empty chain, which is never made.
    pub fn dir(&self) -> Result<&Dir> {
        self.levels.first().ok_or(Error::NotMounted)
    }

    /// Finds the job's own cgroup and its index in [`CgroupChain::levels`].
    ///
    /// # Errors
    ///
    /// [`Error::NotMounted`] for an empty chain, which is never made.
    pub fn job(&self) -> Result<(&Dir, usize)> {
        self.levels
            .get(self.depth)
            .map(|dir| (dir, self.depth))
            .ok_or(Error::NotMounted)
    }

    /// The cgroup itself and then every one above it up to the job's own.
    pub fn up_to_job(&self) -> &[Dir] {
        self.levels.get(..=self.depth).unwrap_or_default()
    }

    /// The root of the mount.
    ///
    /// # Errors
    ///
    /// [`Error::NotMounted`] for an empty chain, which is never made.
    pub fn root(&self) -> Result<&Dir> {
        self.levels.last().ok_or(Error::NotMounted)
    }

    /// Extends the chain by a child of this cgroup.
    pub fn with_child(mut self, child: Dir) -> Self {
        self.levels.insert(0, child);
        self.depth += 1;
        self
    }

    /// The chain of the job's leaf: the `child` of this cgroup, which is the job's own, or without a name this cgroup
    /// itself. This chain as `Err` if the child does not exist.
    ///
    /// # Errors
    ///
    /// [`Error::UnexpectedState`] for a child that can take no process; as [`Dir::child`].
    pub fn into_leaf(self, child: Option<&LeafName>) -> Result<std::result::Result<Self, Self>> {
        let Some(name) = child else {
            return Ok(Ok(self));
        };
        match self.dir()?.child(name.as_str()) {
            Ok(dir) if is_leaf(&dir)? => Ok(Ok(self.with_child(dir))),
            Ok(dir) => Err(Error::unfit(dir.path(), "is to take logins and is no leaf")),
            Err(error) if error.is_gone() => Ok(Err(self)),
            Err(error) => Err(error),
        }
    }
}

/// Chooses the child of a job's cgroup that takes its logins, which may not exist yet; `None` if the job's own
/// cgroup takes them. The child that a record names is always used. Otherwise it is the default child if the
/// job's own cgroup has children or controllers for children.
///
/// # Errors
///
/// [`Error::UnexpectedState`] for a threaded or invalid cgroup, which takes no process.
pub fn choose_leaf(job: &Dir, requested: Option<&LeafName>) -> Result<Option<LeafName>> {
    let is_leaf = is_leaf(job)?;
    Ok(requested
        .cloned()
        .or_else(|| (!is_leaf).then(LeafName::default)))
}

/// Tells whether a cgroup can take processes itself, as [`takes_processes`] does, and has no children.
fn is_leaf(dir: &Dir) -> Result<bool> {
    Ok(takes_processes(dir)? && !dir.has_children()?)
}

/// Tells whether a cgroup below the root gives no controllers to its children, so that it takes processes
/// itself (cgroup-v2.rst, "No Internal Process Constraint").
///
/// # Errors
///
/// [`Error::UnexpectedState`] for a threaded or invalid cgroup, which takes no process, and for the root, which has no
/// `cgroup.type`.
pub fn takes_processes(dir: &Dir) -> Result<bool> {
    let kind = dir.read("cgroup.type")?.unwrap_or_default();
    let why = match kind.trim_end() {
        "domain" | "domain threaded" => {
            let controllers = dir.read("cgroup.subtree_control")?.unwrap_or_default();
            return Ok(controllers.trim().is_empty());
        }
        "threaded" => "is threaded and takes threads only",
        "domain invalid" => "is in an invalid domain and takes no process",
        _ => "has an unknown cgroup.type",
    };
    Err(Error::unfit(dir.path(), why))
}

/// Finds the first of these cgroups, the leaf first, that is frozen or will be; `None` if none is. A move below a
/// frozen cgroup would stop sshd at once.
///
/// `cgroup.freeze` has the requested state of one cgroup. `frozen` in `cgroup.events` is the present state, which a
/// leaf has from the cgroups above it, so that only the leaf is asked. Kernels before 5.2 have no freezer in cgroup
/// v2, and the root never has one.
///
/// # Errors
///
/// As [`Dir::read`].
pub fn find_frozen(levels: &[Dir]) -> Result<Option<&Dir>> {
    for dir in levels {
        let is_requested = dir
            .read("cgroup.freeze")?
            .is_some_and(|text| text.trim_end() == "1");
        if is_requested {
            return Ok(Some(dir));
        }
    }
    match levels.first() {
        Some(leaf) if read_event(leaf, "frozen")? == Some(true) => Ok(Some(leaf)),
        _ => Ok(None),
    }
}

/// Reads a flag of `cgroup.events`; `None` if the kernel has no flag of that name.
///
/// # Errors
///
/// As [`Dir::read`].
pub fn read_event(dir: &Dir, key: &str) -> Result<Option<bool>> {
    let events = dir.read("cgroup.events")?.unwrap_or_default();
    Ok(events.lines().find_map(|line| {
        let (name, value) = line.split_once(' ')?;
        (name == key).then(|| value.trim() == "1")
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;
    use std::os::unix::fs::symlink;

    fn is_not_mounted(scratch: &Scratch) -> bool {
        matches!(Mount::open_below(scratch.path()), Err(Error::NotMounted))
    }

    #[test]
    fn plain_directory_is_no_mount() {
        let scratch = Scratch::new();
        assert!(is_not_mounted(&scratch));
        scratch.dir("sys/fs/cgroup/unified");
        assert!(is_not_mounted(&scratch));
    }

    /// This can only fail on a node with a mount to link to.
    #[test]
    fn link_to_mount_is_skipped() {
        for mount in MOUNT_POINTS {
            let scratch = Scratch::new();
            scratch.dir("sys/fs/cgroup");
            symlink(mount, scratch.path().join("sys/fs/cgroup/unified")).unwrap();
            assert!(is_not_mounted(&scratch), "{mount}");
        }
    }
}
