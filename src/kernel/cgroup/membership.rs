//! Reads the cgroups of a process, one for each hierarchy, from `/proc/PID/cgroup` (cgroups(7)); moves this
//! process into a cgroup and back, and verifies where it is.

use super::hierarchy::MountInfo;
use super::{Dir, Error, Mount, Result, v1};
use crate::OperationError;
use crate::proc;
use nix::unistd::write;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

/// The cgroups of one process: for each hierarchy its controllers, with commas between them, and the path
/// there. The text of controllers is empty for cgroup v2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership(Vec<(String, String)>);

impl Membership {
    /// Reads the cgroups of the calling process.
    ///
    /// # Errors
    ///
    /// As [`Membership::read`].
    pub fn read_own() -> Result<Self> {
        Self::read_file("/proc/self/cgroup")
    }

    /// Reads the cgroups of a process.
    ///
    /// # Errors
    ///
    /// `ENOENT` or `ESRCH` for a process that is gone; [`Error::UnexpectedState`] for lines that are not as
    /// documented.
    pub fn read(pid: i32) -> Result<Self> {
        Self::read_file(&format!("/proc/{pid}/cgroup"))
    }

    fn read_file(file: &str) -> Result<Self> {
        let text =
            proc::read_record(file).map_err(|error| OperationError::new("read", file, error))?;
        Self::parse(&text).ok_or_else(|| Error::malformed(file))
    }

    /// Parses the text of `/proc/PID/cgroup`; `None` for a text that is not as documented.
    pub fn parse(text: &str) -> Option<Self> {
        let line = |line: &str| {
            let (_, rest) = line.split_once(':')?;
            let (controllers, path) = rest.split_once(':')?;
            path.starts_with('/').then(|| (controllers.to_owned(), path.to_owned()))
        };
        text.lines().map(line).collect::<Option<_>>().map(Self)
    }

    /// Returns the path below the cgroup v2 mount; `None` without such a hierarchy.
    pub fn unified(&self) -> Option<&str> {
        self.path("")
    }

    /// Returns the path in the cgroup v1 hierarchy of a controller (`freezer`, or `name=systemd`).
    pub fn path_of_controller(&self, name: &str) -> Option<&str> {
        let has = |controllers: &str| controllers.split(',').any(|controller| controller == name);
        self.0.iter().find(|(controllers, _)| has(controllers)).map(|(_, path)| path.as_str())
    }

    /// Returns the path in the hierarchy of exactly these controllers; for an empty text, in cgroup v2.
    pub fn path(&self, controllers: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == controllers).map(|(_, path)| path.as_str())
    }

    /// Requires that `now` has the same path in every hierarchy of this membership.
    ///
    /// # Errors
    ///
    /// [`Error::UnexpectedState`] for the first hierarchy with another path.
    fn require_same(&self, now: &Self) -> Result<()> {
        let path_now = |controllers: &str| now.path(controllers).unwrap_or_default();
        match self.0.iter().find(|(controllers, path)| path_now(controllers) != path) {
            None => Ok(()),
            Some((controllers, path)) => Err(Error::elsewhere(
                &format!("{controllers}:{path}"),
                &format!("{controllers}:{}", path_now(controllers)),
            )),
        }
    }

    /// Iterates over the cgroup v1 hierarchies: controllers with commas between them, and the path there.
    pub fn v1_hierarchies(&self) -> impl Iterator<Item = (&str, &str)> {
        let v1 = self.0.iter().filter(|(controllers, _)| !controllers.is_empty());
        v1.map(|(controllers, path)| (controllers.as_str(), path.as_str()))
    }
}

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
        let mut origin = Self { before: Membership::read_own()?, procs_fds: BTreeMap::new() };
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

    fn add(&mut self, controllers: &str, path: &str, root: &Dir) -> Result<()> {
        let procs = open_path(root, path)?.open_procs()?;
        let cgroup = OriginCgroup { procs, root: root.clone() };
        self.procs_fds.insert(controllers.to_owned(), cgroup);
        Ok(())
    }

    /// Opens the calling process's cgroups of version 1 as well, for a job that uses these hierarchies.
    ///
    /// # Errors
    ///
    /// [`Error::UnexpectedState`] for one of these hierarchies that cannot be opened.
    pub fn require_hierarchies(
        &mut self,
        hierarchies: &[String],
        mounts: &[MountInfo],
    ) -> Result<()> {
        for (controllers, path) in self.before.clone().v1_hierarchies() {
            if let Some(root) = v1::open_root(mounts, controllers) {
                let _ = self.add(controllers, path, &root);
            }
        }
        match hierarchies.iter().find(|required| !self.procs_fds.contains_key(*required)) {
            None => Ok(()),
            Some(required) => Err(Error::unfit(
                &format!("{required}:/"),
                "is in use by the job and not mounted here: no way back would lead there",
            )),
        }
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
        let now = Membership::read_own().ok();
        let mut moves = Ok(());
        let mut expected = self.before.clone();
        for (hierarchy, cgroup) in &self.procs_fds {
            let path = self.before.path(hierarchy).unwrap_or_default();
            if now.as_ref().and_then(|now| now.path(hierarchy)) == Some(path) {
                continue;
            }
            let result = match enter(path, &cgroup.procs) {
                Err(error) if error.is_gone() => cgroup.enter_ancestor(path).map(|ancestor| {
                    let line =
                        expected.0.iter_mut().find(|(controllers, _)| controllers == hierarchy);
                    line.into_iter().for_each(|(_, path)| ancestor.clone_into(path));
                }),
                result => result,
            };
            moves = moves.and(result);
        }
        moves.and_then(|()| expected.require_same(&Membership::read_own()?))
    }
}

impl OriginCgroup {
    /// Moves to the nearest cgroup above `path` that takes the process; returns its path.
    fn enter_ancestor<'a>(&self, path: &'a str) -> Result<&'a str> {
        let ancestors =
            path.rmatch_indices('/').map(|(end, _)| path.get(..end.max(1)).unwrap_or("/"));
        let enter = |ancestor| enter(ancestor, &open_path(&self.root, ancestor)?.open_procs()?);
        let mut result = Err(Error::NotMounted);
        for ancestor in ancestors {
            result = enter(ancestor).map(|()| ancestor);
            if result.is_ok() {
                break;
            }
        }
        result
    }
}

/// Moves the calling process, with all its threads, into a cgroup. It writes `0` to `cgroup.procs`, by which the
/// kernel means the writer: a number could belong to another process by then.
///
/// # Errors
///
/// `ENODEV` for a cgroup that is gone; `EBUSY` and `EOPNOTSUPP` for a cgroup that can take no process.
pub fn enter(path: &str, procs: &OwnedFd) -> Result<()> {
    Ok(write(procs, b"0").map(drop).map_err(|errno| OperationError::new("move to", path, errno))?)
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

/// Returns the cgroup v2 path of a membership.
fn unified(membership: &Membership) -> Result<&str> {
    membership.unified().ok_or_else(|| Error::malformed("/proc/self/cgroup"))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_of_each_hierarchy_is_found() {
        let text =
            "5:freezer:/slurm_a/uid_1/job_2\n4:cpu,cpuacct:/x:y\n1:name=systemd:/\n0::/a b\n";
        let parsed = Membership::parse(text).unwrap();
        assert_eq!(parsed.unified(), Some("/a b"));
        assert_eq!(parsed.path_of_controller("freezer"), Some("/slurm_a/uid_1/job_2"));
        assert_eq!(parsed.path_of_controller("cpuacct"), Some("/x:y"));
        assert_eq!(parsed.path_of_controller("cpua"), None);
        let v1: Vec<_> = parsed.v1_hierarchies().map(|(controllers, _)| controllers).collect();
        assert_eq!(v1, ["freezer", "cpu,cpuacct", "name=systemd"]);
        assert_eq!(Membership::parse("4:cpu:/\n").unwrap().unified(), None);
    }

    #[test]
    fn malformed_line_is_refused() {
        for bad in ["0:/a\n", "x\n", "0::a\n", "0::\n"] {
            assert_eq!(Membership::parse(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn other_path_in_one_hierarchy_is_not_the_same() {
        let parse = |text: &str| Membership::parse(text).unwrap();
        let before = parse("2:freezer:/a\n0::/\n");
        before.require_same(&parse("9:cpu:/x\n3:freezer:/a\n0::/\n")).unwrap();
        for (now, actual) in [("2:freezer:/b\n0::/\n", "freezer:/b"), ("0::/\n", "freezer:")] {
            let error = before.require_same(&parse(now)).unwrap_err().to_string();
            assert_eq!(error, format!("the login should be in freezer:/a and is in {actual}"));
        }
    }
}
