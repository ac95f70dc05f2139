//! Which cgroups a process is in, one for each hierarchy: `/proc/PID/cgroup` (cgroups(7)).

use super::{Error, Result};
use crate::kernel::failed::Failed;
use crate::kernel::proc;

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
    /// Errors: `ENOENT` or `ESRCH` for one that is gone; [`Error::Malformed`] for lines that are
    /// not as documented.
    pub fn of(pid: i32) -> Result<Self> {
        Self::read(&format!("/proc/{pid}/cgroup"))
    }

    fn read(file: &str) -> Result<Self> {
        let text = proc::read(file).map_err(|error| Failed::new("read", file, error))?;
        Self::parse(&text).ok_or_else(|| Error::Malformed(file.to_owned()))
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
    /// Errors: [`Error::Elsewhere`] for the first in which it is not.
    pub(super) fn require_same(&self, now: &Self) -> Result<()> {
        let found = |controllers: &str| now.path(controllers).unwrap_or_default();
        match self.0.iter().find(|(controllers, path)| found(controllers) != path) {
            None => Ok(()),
            Some((controllers, path)) => Err(Error::Elsewhere {
                wanted: format!("{controllers}:{path}"),
                found: format!("{controllers}:{}", found(controllers)),
            }),
        }
    }

    /// Every cgroup v1 hierarchy: its controllers with commas between them, and the path there.
    pub fn legacy(&self) -> impl Iterator<Item = (&str, &str)> {
        let v1 = self.0.iter().filter(|(controllers, _)| !controllers.is_empty());
        v1.map(|(controllers, path)| (controllers.as_str(), path.as_str()))
    }
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
