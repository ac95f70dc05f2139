//! Which cgroups a process is in, one for each hierarchy: `/proc/PID/cgroup` (cgroups(7)). The move into
//! one, back out, and the proof of where we are.

use super::place::Mounted;
use super::{Dir, Error, Mount, Result, v1};
use crate::Failed;
use crate::proc;
use nix::unistd::write;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

/// The cgroups of one process: for each hierarchy its controllers, with commas between them (none for
/// that of cgroup v2), and the path there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership(Vec<(String, String)>);

impl Membership {
    /// That of the calling process.
    pub fn own() -> Result<Self> {
        Self::read("/proc/self/cgroup")
    }

    /// That of a process.
    /// Errors: `ENOENT` or `ESRCH` for one that is gone; [`Error::Wrong`] for lines that are
    /// not as documented.
    pub fn of(pid: i32) -> Result<Self> {
        Self::read(&format!("/proc/{pid}/cgroup"))
    }

    fn read(file: &str) -> Result<Self> {
        let text = proc::read(file).map_err(|error| Failed::new("read", file, error))?;
        Self::parse(&text).ok_or_else(|| Error::malformed(file))
    }

    /// Reads the text of such a file; `None` for one that is not as documented.
    pub fn parse(text: &str) -> Option<Self> {
        let line = |line: &str| {
            let (_, rest) = line.split_once(':')?;
            let (controllers, path) = rest.split_once(':')?;
            path.starts_with('/').then(|| (controllers.to_owned(), path.to_owned()))
        };
        text.lines().map(line).collect::<Option<_>>().map(Self)
    }

    /// The path below the cgroup v2 mount; `None` where there is no such hierarchy.
    pub fn unified(&self) -> Option<&str> {
        self.path("")
    }

    /// The path in the cgroup v1 hierarchy of that controller (`freezer`, or `name=systemd`).
    pub fn of_controller(&self, name: &str) -> Option<&str> {
        let has = |controllers: &str| controllers.split(',').any(|found| found == name);
        self.0.iter().find(|(controllers, _)| has(controllers)).map(|(_, path)| path.as_str())
    }

    /// The path in the hierarchy of exactly these controllers; of none, in that of cgroup v2.
    pub fn path(&self, controllers: &str) -> Option<&str> {
        self.0.iter().find(|(found, _)| found == controllers).map(|(_, path)| path.as_str())
    }

    /// Checks that `now` is the same in every hierarchy that this one knows of.
    /// Errors: [`Error::Wrong`] for the first in which it is not.
    fn require_same(&self, now: &Self) -> Result<()> {
        let found = |controllers: &str| now.path(controllers).unwrap_or_default();
        match self.0.iter().find(|(controllers, path)| found(controllers) != path) {
            None => Ok(()),
            Some((controllers, path)) => Err(Error::elsewhere(
                &format!("{controllers}:{path}"),
                &format!("{controllers}:{}", found(controllers)),
            )),
        }
    }

    /// Every cgroup v1 hierarchy: its controllers with commas between them, and the path there.
    pub fn legacy(&self) -> impl Iterator<Item = (&str, &str)> {
        let v1 = self.0.iter().filter(|(controllers, _)| !controllers.is_empty());
        v1.map(|(controllers, path)| (controllers.as_str(), path.as_str()))
    }
}

/// Where the login came from, and the way back, which needs no path.
#[derive(Debug)]
pub struct Origin {
    before: Membership,
    /// By controllers as in [`Membership`].
    ways: BTreeMap<String, WayBack>,
}

/// The way back in one hierarchy.
#[derive(Debug)]
struct WayBack {
    procs: OwnedFd,
    /// The root of the hierarchy.
    root: Dir,
}

impl Origin {
    /// Opens the calling process's own cgroup of version 2, if that is mounted.
    /// Errors: as [`Dir::open_procs`]; [`Error::Wrong`] where the mount shows another part of the
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
        let way = WayBack { procs: lookup(root, path)?.open_procs()?, root: root.try_clone()? };
        self.ways.insert(controllers.to_owned(), way);
        Ok(())
    }

    /// Opens its cgroups of version 1 too, for a job that uses these hierarchies.
    /// Errors: [`Error::Wrong`] for one of these in which there is no way back.
    pub fn require(&mut self, hierarchies: &[String], mounts: &[Mounted]) -> Result<()> {
        for (controllers, path) in self.before.clone().legacy() {
            if let Some(root) = v1::root(mounts, controllers) {
                let _ = self.add(controllers, path, &root);
            }
        }
        match hierarchies.iter().find(|wanted| !self.ways.contains_key(*wanted)) {
            None => Ok(()),
            Some(wanted) => Err(Error::unfit(
                &format!("{wanted}:/"),
                "is in use by the job and not mounted here: no way back would lead there",
            )),
        }
    }

    /// Moves the calling process back in every hierarchy that it has left. One failure does not stop the
    /// others. If its cgroup is gone, as logind removes the scope of a session that nothing is in, it goes
    /// to the nearest one above that takes it.
    ///
    /// # Errors
    ///
    /// Fails as `write(2)` to `cgroup.procs` for the first move that failed, and with [`Error::Wrong`] for a
    /// process that is not where it was moved to.
    pub fn back(&self) -> Result<()> {
        let now = Membership::own().ok();
        let mut moved = Ok(());
        let mut expected = self.before.clone();
        for (of, way) in &self.ways {
            let path = self.before.path(of).unwrap_or_default();
            if now.as_ref().and_then(|now| now.path(of)) == Some(path) {
                continue;
            }
            let result = match enter(path, &way.procs) {
                Err(error) if error.is_gone() => way.enter_above(path).map(|above| {
                    let own = expected.0.iter_mut().find(|(controllers, _)| controllers == of);
                    own.into_iter().for_each(|(_, path)| above.clone_into(path));
                }),
                result => result,
            };
            moved = moved.and(result);
        }
        moved.and_then(|()| expected.require_same(&Membership::own()?))
    }
}

impl WayBack {
    /// Moves to the nearest cgroup above `path` that takes the process; returns its path.
    fn enter_above<'a>(&self, path: &'a str) -> Result<&'a str> {
        let above = path.rmatch_indices('/').map(|(end, _)| path.get(..end.max(1)).unwrap_or("/"));
        let enter = |above| enter(above, &lookup(&self.root, above)?.open_procs()?);
        let mut result = Err(Error::NotMounted);
        for above in above {
            result = enter(above).map(|()| above);
            if result.is_ok() {
                break;
            }
        }
        result
    }
}

/// Moves the calling process, with all its threads, into a cgroup, by its `cgroup.procs`. It writes
/// `0`, which the kernel takes for the writer: no process id that could mean another one by then.
/// Errors: `ENODEV` when the cgroup is gone, `EBUSY` and `EOPNOTSUPP` when it can take no process.
pub fn enter(path: &str, procs: &OwnedFd) -> Result<()> {
    Ok(write(procs, b"0").map(drop).map_err(|errno| Failed::new("move to", path, errno))?)
}

/// Reads back where the calling process is: the leaf's path, and the same directory.
/// Errors: [`Error::Wrong`] for anything but this leaf.
pub fn stands_in(leaf: &Dir, root: &Dir) -> Result<()> {
    let found = unified(&Membership::own()?)?.to_owned();
    if found != leaf.path() {
        return Err(Error::elsewhere(leaf.path(), &found));
    }
    if lookup(root, &found)?.identity()? != leaf.identity()? {
        let found = format!("another cgroup of that name, {found}");
        return Err(Error::elsewhere(leaf.path(), &found));
    }
    Ok(())
}

/// The cgroup v2 path among a process's own.
fn unified(own: &Membership) -> Result<&str> {
    own.unified().ok_or_else(|| Error::malformed("/proc/self/cgroup"))
}

/// Opens a cgroup by a path of `/proc/self/cgroup`. A path with `..` lies outside our cgroup
/// namespace, one that ends in ` (deleted)` is gone: neither can be opened, which is right.
fn lookup(root: &Dir, path: &str) -> Result<Dir> {
    let mut dir = root.try_clone()?;
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
    fn each_hierarchy_has_its_line() {
        let text =
            "5:freezer:/slurm_a/uid_1/job_2\n4:cpu,cpuacct:/x:y\n1:name=systemd:/\n0::/a b\n";
        let found = Membership::parse(text).unwrap();
        assert_eq!(found.unified(), Some("/a b"));
        assert_eq!(found.of_controller("freezer"), Some("/slurm_a/uid_1/job_2"));
        assert_eq!(found.of_controller("cpuacct"), Some("/x:y"));
        assert_eq!(found.of_controller("cpua"), None);
        let v1: Vec<_> = found.legacy().map(|(controllers, _)| controllers).collect();
        assert_eq!(v1, ["freezer", "cpu,cpuacct", "name=systemd"]);
        assert_eq!(Membership::parse("4:cpu:/\n").unwrap().unified(), None);
    }

    #[test]
    fn what_is_no_such_line_is_refused() {
        for bad in ["0:/a\n", "x\n", "0::a\n", "0::\n"] {
            assert_eq!(Membership::parse(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn a_process_that_is_elsewhere_in_one_hierarchy_is_not_where_it_was() {
        let parse = |text: &str| Membership::parse(text).unwrap();
        let before = parse("2:freezer:/a\n0::/\n");
        before.require_same(&parse("9:cpu:/x\n3:freezer:/a\n0::/\n")).unwrap();
        for (now, found) in [("2:freezer:/b\n0::/\n", "freezer:/b"), ("0::/\n", "freezer:")] {
            let error = before.require_same(&parse(now)).unwrap_err().to_string();
            assert_eq!(error, format!("the login should be in freezer:/a and is in {found}"));
        }
    }
}
