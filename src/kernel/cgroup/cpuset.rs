//! Finds the cpuset of a job (cgroup-v2.rst, "Cpuset Interface Files"; cgroup-v1/cpusets.rst).

use super::{Dir, Error, Result};

/// The file with the cores that a cgroup was given; empty if it has those of the one above.
const CPUS: &str = "cpuset.cpus";

/// The cpuset in which the logins of a job are.
#[derive(Clone, Debug)]
pub struct Cpuset {
    /// Its cores as the kernel lists them: `0-3,8`.
    pub cpus: String,
    dir: Dir,
    mems_file: &'static str,
}

impl Cpuset {
    /// Finds the cpuset of a job on cgroup v2 among these cgroups: from the login's own up to the job's own.
    ///
    /// `None` if none of them was given cores. A cgroup has the files as soon as any unit beside it was given some, and
    /// then the job may run where the node's other jobs do. Cores that were given to a cgroup above the job, such as a
    /// slice, do not count: they are those of other jobs too, and a mask that the admin gave to sshd is then all that
    /// keeps a login away from these.
    ///
    /// # Errors
    ///
    /// As [`Dir::read`].
    pub fn find(levels: &[Dir]) -> Result<Option<Self>> {
        // The first cgroup with the controller: the cgroups below have its cpuset.
        let mut nearest = None;
        for dir in levels {
            let Some(given_cpus) = dir.read(CPUS)? else {
                continue;
            };
            let logins_dir = *nearest.get_or_insert(dir);
            if !given_cpus.trim_end().is_empty() {
                let files = ["cpuset.cpus.effective", "cpuset.mems.effective"];
                return Self::read(logins_dir, files).map(Some);
            }
        }
        Ok(None)
    }

    /// Reads the cpuset of a cgroup of version 1.
    ///
    /// # Errors
    ///
    /// As [`Dir::read`].
    pub(super) fn read_v1(dir: &Dir) -> Result<Self> {
        Self::read(dir, ["cpuset.effective_cpus", "cpuset.effective_mems"])
    }

    /// Reads the cores of a cgroup from the first of these files, and keeps the second for [`Cpuset::read_mems`].
    fn read(dir: &Dir, [cpus_file, mems_file]: [&'static str; 2]) -> Result<Self> {
        Ok(Self {
            cpus: read_list(dir, cpus_file)?,
            dir: dir.clone(),
            mems_file,
        })
    }

    /// Reads its memory nodes, in the form of the cores.
    ///
    /// # Errors
    ///
    /// As [`Dir::read`].
    pub fn read_mems(&self) -> Result<String> {
        read_list(&self.dir, self.mems_file)
    }
}

/// Reads a list of cores or memory nodes.
///
/// # Errors
///
/// [`Error::UnexpectedState`] for a cgroup without this file; as [`Dir::read`].
fn read_list(dir: &Dir, file: &str) -> Result<String> {
    let text = dir.read(file)?;
    let text = text.ok_or_else(|| Error::unfit(dir.path(), &format!("has no {file}")))?;
    Ok(text.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;
    use std::fs::File;

    /// Makes a folder that looks like a cgroup, with cores that it was given, if its parent has the controller.
    fn cgroup(scratch: &Scratch, name: &str, given: Option<&str>, effective: &str) -> Dir {
        scratch.file(&format!("{name}/cgroup.procs"), "");
        if let Some(given) = given {
            scratch.file(&format!("{name}/cpuset.cpus"), &format!("{given}\n"));
            scratch.file(
                &format!("{name}/cpuset.cpus.effective"),
                &format!("{effective}\n"),
            );
            scratch.file(&format!("{name}/cpuset.mems.effective"), "0\n");
        }
        Dir::new(
            File::open(scratch.path().join(name)).unwrap().into(),
            format!("/{name}"),
        )
    }

    #[test]
    fn cpuset_is_that_of_the_nearest_cgroup_if_the_job_was_given_cores() {
        let scratch = Scratch::new();
        let mut number = 0;
        let mut find = |levels: &[(Option<&str>, &str)]| {
            number += 1;
            let make = |(index, (given, effective)): (usize, &(Option<&str>, &str))| {
                cgroup(&scratch, &format!("{number}-{index}"), *given, effective)
            };
            let levels: Vec<Dir> = levels.iter().enumerate().map(make).collect();
            Cpuset::find(&levels).unwrap().map(|cpuset| cpuset.cpus)
        };
        let absent = (None, "");
        let inherited = (Some(""), "0-7");
        let given = (Some("2-5"), "2-3");
        assert_eq!(find(&[]), None);
        assert_eq!(find(&[absent]), None);
        assert_eq!(find(&[inherited]), None, "the cores of the node");
        assert_eq!(find(&[given]).as_deref(), Some("2-3"));
        assert_eq!(
            find(&[absent, given]).as_deref(),
            Some("2-3"),
            "a leaf without the controller"
        );
        assert_eq!(
            find(&[(Some(""), "2"), given]).as_deref(),
            Some("2"),
            "a leaf with it"
        );
        assert_eq!(find(&[(Some("3"), "3"), absent]).as_deref(), Some("3"));
        assert_eq!(find(&[absent, inherited]), None);
    }
}
