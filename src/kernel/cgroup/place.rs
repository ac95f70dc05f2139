//! A job's cgroup and every cgroup above it, and the leaf that its logins are put into (cgroup-v2.rst,
//! "Core Interface Files").

use super::{Dir, Error, Result};
use crate::Failed;
use crate::proc;
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::{Mode, stat};
use nix::sys::statfs::{CGROUP2_SUPER_MAGIC, fstatfs};
use protocol::{CgroupPath, LeafName};
use std::path::Path;

/// Where a cgroup v2 hierarchy is looked for, in this order: unified, then hybrid.
const MOUNTS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];

/// Inode of the initial cgroup namespace (`linux/proc_ns.h`), in which every mount has the one root.
const PROC_CGROUP_INIT_INO: u64 = 0xEFFF_FFFB;
/// Inode of a hierarchy's root (`cgroup_setup_root` in `kernel/cgroup/cgroup.c`).
const ROOT_INO: u64 = 1;

/// A mount of the kernel's table (proc(5), `/proc/PID/mountinfo`), as far as it matters here.
#[derive(Debug, PartialEq, Eq)]
pub struct Mounted {
    /// Major and minor of the file system.
    pub(super) device: (u64, u64),
    /// What of the file system is seen.
    pub(super) root: String,
    pub(super) at: String,
    pub(super) kind: String,
    /// Options of the file system, with commas between them.
    pub(super) options: String,
}

impl Mounted {
    /// All mounts, in order: the last one on a place is the one that is seen. Users' stand there too,
    /// on directories of any name.
    pub fn all() -> Result<Vec<Self>> {
        const FILE: &str = "/proc/self/mountinfo";
        let text = proc::read(FILE).map_err(|error| Failed::new("read", FILE, error))?;
        Ok(text.lines().filter_map(Self::parse).collect())
    }

    /// Reads a line: id, parent, device, root, mount point, options, optional fields, a dash, type,
    /// source, options of the file system.
    pub(super) fn parse(line: &str) -> Option<Self> {
        let (mount, system) = line.split_once(" - ")?;
        let mut mount = mount.split(' ').skip(2);
        let (major, minor) = mount.next()?.split_once(':')?;
        let mut system = system.split(' ');
        Some(Self {
            device: (major.parse().ok()?, minor.parse().ok()?),
            root: mount.next()?.to_owned(),
            at: mount.next()?.to_owned(),
            kind: system.next()?.to_owned(),
            options: system.nth(1)?.to_owned(),
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
    /// Opens the mount.
    /// Errors: [`Error::NotMounted`] where neither place is a cgroup v2 file system.
    pub fn open() -> Result<Self> {
        Self::below(Path::new("/"))
    }

    /// Opens the mount of a node whose root is `root`. A link in the last component is none.
    pub fn below(root: &Path) -> Result<Self> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        for at in MOUNTS {
            let fd = match open(&root.join(at.trim_start_matches('/')), flags, Mode::empty()) {
                Ok(fd) => fd,
                Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => continue,
                Err(errno) => return Err(Failed::new("open", at, errno).into()),
            };
            let stat = fstatfs(&fd).map_err(|errno| Failed::new("statfs", at, errno))?;
            if stat.filesystem_type() == CGROUP2_SUPER_MAGIC {
                return Ok(Self { root: Dir::new(fd, ""), at });
            }
        }
        Err(Error::NotMounted)
    }

    /// Where it is mounted, as seen from the node's root.
    pub fn path(&self) -> &'static str {
        self.at
    }

    /// Refuses a mount whose root is not the root of our cgroup namespace (cgroup_namespaces(7)).
    /// Errors: [`Error::Wrong`] for such a mount, or one that `/proc/self/mountinfo` does not have.
    pub fn require_own_namespace(&self) -> Result<()> {
        let namespace = stat("/proc/self/ns/cgroup")
            .map_err(|errno| Failed::new("stat", "/proc/self/ns/cgroup", errno))?;
        let (_, root) = self.root.identity()?;
        if namespace.st_ino == PROC_CGROUP_INIT_INO && root == ROOT_INO {
            return Ok(());
        }
        let mut here = Mounted::all()?
            .into_iter()
            .filter(|mount| mount.kind == "cgroup2" && mount.at == self.at);
        match here.next_back() {
            Some(mount) if mount.root == "/" => Ok(()),
            _ => Err(Error::unfit(self.at, "is mounted for another cgroup namespace than ours")),
        }
    }

    /// The root's directory.
    pub fn root(&self) -> &Dir {
        &self.root
    }

    /// Opens a cgroup and all its ancestors.
    /// Errors: as [`Dir::child`] for the first component that cannot be opened.
    pub fn place(self, path: &CgroupPath) -> Result<Place> {
        let mut levels = vec![self.root];
        for name in path.relative().split('/') {
            let below = match levels.last() {
                Some(above) => above.child(name)?,
                None => return Err(Error::NotMounted),
            };
            levels.push(below);
        }
        levels.reverse();
        Ok(Place { levels, depth: 0 })
    }
}

/// A cgroup with its ancestors, each opened below the one above it.
#[derive(Debug)]
pub struct Place {
    /// The cgroup itself first, the root last; never empty.
    levels: Vec<Dir>,
    /// How many levels below that of the path this is.
    depth: usize,
}

impl Place {
    /// The cgroup itself first, then every ancestor up to the root of the mount.
    pub fn levels(&self) -> &[Dir] {
        &self.levels
    }

    /// The cgroup itself.
    pub fn dir(&self) -> Result<&Dir> {
        self.levels.first().ok_or(Error::NotMounted)
    }

    /// The cgroup of the path by which it was opened, and its index in [`Place::levels`].
    pub fn job(&self) -> Result<(&Dir, usize)> {
        self.levels.get(self.depth).map(|dir| (dir, self.depth)).ok_or(Error::NotMounted)
    }

    /// The root of the mount.
    pub fn root(&self) -> Result<&Dir> {
        self.levels.last().ok_or(Error::NotMounted)
    }

    /// Other descriptors of the same directories.
    /// Errors: `EMFILE` when there are too many.
    pub fn try_clone(&self) -> Result<Self> {
        let levels = self.levels.iter().map(Dir::try_clone).collect::<Result<_>>()?;
        Ok(Self { levels, depth: self.depth })
    }

    /// The place of a child of this cgroup, opened below it.
    pub fn below(mut self, child: Dir) -> Self {
        self.levels.insert(0, child);
        self.depth += 1;
        self
    }

    /// The leaf of this job: a child of that name, or the job's own cgroup. Gives the job back where
    /// there is no such child.
    /// Errors: [`Error::Wrong`] for a child that can take no process.
    pub fn leaf(self, child: Option<&LeafName>) -> Result<std::result::Result<Self, Self>> {
        let Some(name) = child else { return Ok(Ok(self)) };
        match self.dir()?.child(name.as_str()) {
            Ok(dir) if is_leaf(&dir)? => Ok(Ok(self.below(dir))),
            Ok(dir) => Err(Error::unfit(dir.path(), "is to take logins and is no leaf")),
            Err(error) if error.is_gone() => Ok(Err(self)),
            Err(error) => Err(error),
        }
    }
}

/// The child of a job's cgroup that takes its logins, which may not be there yet; `None` where the job's
/// own does. The child that a record names is always used. Otherwise it is the default one where the
/// job's own cgroup can hold no process, or already has children of its own.
pub fn choose(job: &Dir, wanted: Option<&LeafName>) -> Result<Option<LeafName>> {
    let is_leaf = is_leaf(job)?;
    Ok(wanted.cloned().or_else(|| (!is_leaf).then(LeafName::default)))
}

/// Whether a cgroup can hold processes itself: it has no children, and hands no controllers to any.
/// Errors: [`Error::Wrong`] for a threaded or invalid one, which takes no process.
fn is_leaf(dir: &Dir) -> Result<bool> {
    let kind = dir.read("cgroup.type")?.unwrap_or_default();
    let why = match kind.trim_end() {
        "domain" | "domain threaded" => {
            let controllers = dir.read("cgroup.subtree_control")?.unwrap_or_default();
            return Ok(controllers.trim().is_empty() && !dir.has_children()?);
        }
        "threaded" => "is threaded and takes threads only",
        "domain invalid" => "is in an invalid domain and takes no process",
        _ => "has an unknown cgroup.type",
    };
    Err(Error::unfit(dir.path(), why))
}

/// Whether any of these cgroups is frozen or about to be: moving below one would stop us at once,
/// inside sshd (`cgroup.freeze` is what was asked for, `frozen` in `cgroup.events` what is).
/// Errors: as [`Dir::read`]; kernels before 5.2 have no freezer here, and the root never has.
pub fn frozen_level(levels: &[Dir]) -> Result<Option<&Dir>> {
    for dir in levels {
        let wanted = dir.read("cgroup.freeze")?.is_some_and(|text| text.trim_end() == "1");
        if wanted {
            return Ok(Some(dir));
        }
    }
    match levels.first() {
        Some(leaf) if event(leaf, "frozen")? == Some(true) => Ok(Some(leaf)),
        _ => Ok(None),
    }
}

/// One flag of `cgroup.events`; `None` where the kernel has none of that name.
pub fn event(dir: &Dir, key: &str) -> Result<Option<bool>> {
    let events = dir.read("cgroup.events")?.unwrap_or_default();
    Ok(events.lines().find_map(|line| {
        let (found, value) = line.split_once(' ')?;
        (found == key).then(|| value.trim() == "1")
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;
    use std::os::unix::fs::symlink;

    fn is_none(scratch: &Scratch) -> bool {
        matches!(Mount::below(scratch.path()), Err(Error::NotMounted))
    }

    #[test]
    fn a_plain_directory_is_no_mount() {
        let scratch = Scratch::new();
        assert!(is_none(&scratch));
        scratch.dir("sys/fs/cgroup/unified");
        assert!(is_none(&scratch));
    }

    /// Can only fail on a node that has one to link to.
    #[test]
    fn a_link_to_a_mount_is_none() {
        for mount in MOUNTS {
            let scratch = Scratch::new();
            scratch.dir("sys/fs/cgroup");
            symlink(mount, scratch.path().join("sys/fs/cgroup/unified")).unwrap();
            assert!(is_none(&scratch), "{mount}");
        }
    }
}
