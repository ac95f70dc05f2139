//! Reads the cgroups of a process, one for each hierarchy, from `/proc/PID/cgroup` (cgroups(7)).

use super::{Error, Result};
use crate::OperationError;
use crate::proc;

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

    /// Reads the cgroups from a file of this form; the errors are those of [`Membership::read`].
    fn read_file(file: &str) -> Result<Self> {
        let text =
            proc::read_record(file).map_err(|error| OperationError::new("read", file, error))?;
        Self::parse(&text).ok_or_else(|| Error::malformed(file))
    }

    /// Parses the text of `/proc/PID/cgroup`; `None` for a text that is not as documented.
    pub fn parse(text: &str) -> Option<Self> {
        let mut hierarchies = Vec::new();
        for line in text.lines() {
            let (_, rest) = line.split_once(':')?;
            let (controllers, path) = rest.split_once(':')?;
            if !path.starts_with('/') {
                return None;
            }
            hierarchies.push((controllers.to_owned(), path.to_owned()));
        }
        Some(Self(hierarchies))
    }

    /// The path below the cgroup v2 mount; `None` without such a hierarchy.
    pub fn unified(&self) -> Option<&str> {
        self.path("")
    }

    /// The path in the cgroup v1 hierarchy of a controller (`freezer`, or `name=systemd`); `None` without such a
    /// hierarchy.
    pub fn path_of_controller(&self, name: &str) -> Option<&str> {
        let mut hierarchies = self.0.iter();
        let (_, path) = hierarchies.find(|(list, _)| list.split(',').any(|one| one == name))?;
        Some(path)
    }

    /// The path in the hierarchy of exactly these controllers; for an empty text, in cgroup v2. `None` without such a
    /// hierarchy.
    pub fn path(&self, controllers: &str) -> Option<&str> {
        let (_, path) = self.0.iter().find(|(known, _)| known == controllers)?;
        Some(path)
    }

    /// Requires that `current` has the same path in every hierarchy of this membership.
    ///
    /// # Errors
    ///
    /// [`Error::UnexpectedState`] for the first hierarchy with another path, or that `current` lacks.
    pub(super) fn require_same(&self, current: &Self) -> Result<()> {
        for (controllers, expected) in &self.0 {
            let actual = current.path(controllers).unwrap_or_default();
            if actual != expected {
                return Err(Error::elsewhere(
                    &format!("{controllers}:{expected}"),
                    &format!("{controllers}:{actual}"),
                ));
            }
        }
        Ok(())
    }

    /// Replaces the path in the hierarchy of exactly these controllers.
    pub(super) fn set_path(&mut self, controllers: &str, path: &str) {
        if let Some((_, known)) = self.0.iter_mut().find(|(list, _)| list == controllers) {
            path.clone_into(known);
        }
    }

    /// Iterates over the cgroup v1 hierarchies: controllers with commas between them, and the path there.
    pub fn v1_hierarchies(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .filter(|(controllers, _)| !controllers.is_empty())
            .map(|(controllers, path)| (controllers.as_str(), path.as_str()))
    }
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
        assert_eq!(
            parsed.path_of_controller("freezer"),
            Some("/slurm_a/uid_1/job_2")
        );
        assert_eq!(parsed.path_of_controller("cpuacct"), Some("/x:y"));
        assert_eq!(parsed.path_of_controller("cpua"), None);
        let v1: Vec<_> = parsed
            .v1_hierarchies()
            .map(|(controllers, _)| controllers)
            .collect();
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
        before
            .require_same(&parse("9:cpu:/x\n3:freezer:/a\n0::/\n"))
            .unwrap();
        for (now, actual) in [
            ("2:freezer:/b\n0::/\n", "freezer:/b"),
            ("0::/\n", "freezer:"),
        ] {
            let error = before.require_same(&parse(now)).unwrap_err().to_string();
            assert_eq!(
                error,
                format!("the login should be in freezer:/a and is in {actual}")
            );
        }
    }
}
