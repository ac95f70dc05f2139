//! Reads what the logins of a job have used, from cgroups that have nothing but logins.

use super::Error;
use super::ending::find_made_children;
use kernel::cgroup::{Dir, ignore_gone};
use nix::unistd::Uid;
use protocol::LeafName;
use serde::Serialize;

/// The memory and processor time of logins. A value that the kernel does not count for them alone stays empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Usage {
    /// Bytes of memory now.
    pub(super) memory: Option<u64>,
    /// Most bytes of memory at any time, from Linux 5.19 on; empty for several cgroups.
    pub(super) memory_peak: Option<u64>,
    /// Microseconds of processor time, also of processes that have ended.
    pub(super) cpu_usec: Option<u64>,
}

impl Usage {
    /// Reads the usage of the logins in a job's cgroup; empty if they have no cgroup of their own.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] if the children cannot be listed.
    pub(super) fn read(job: &Dir) -> Result<Self, Error> {
        Ok(Self::of_leaves(&find_login_cgroups(job)?))
    }

    /// Reads the usage of cgroups for logins. A file that cannot be read counts as missing.
    pub(super) fn of_leaves(leaves: &[Dir]) -> Self {
        let number = |dir: &Dir, file: &str, key: &str| {
            let text = dir.read(file).ok()??;
            let value = text.lines().find_map(|line| line.strip_prefix(key))?;
            value.trim().parse::<u64>().ok()
        };
        let sum = |file, key| -> Option<u64> {
            let values = leaves.iter().map(|leaf| number(leaf, file, key));
            values.sum::<Option<u64>>().filter(|_| !leaves.is_empty())
        };
        let is_one = leaves.len() == 1;
        Self {
            memory: sum("memory.current", ""),
            memory_peak: sum("memory.peak", "").filter(|_| is_one),
            cpu_usec: sum("cpu.stat", "usage_usec "),
        }
    }

    /// Returns memory and processor time for people, as ps(1) shows them.
    pub(super) fn columns(&self) -> [String; 2] {
        let time = |usec: u64| {
            let seconds = usec / 1_000_000;
            format!("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
        };
        let unknown = || "-".to_owned();
        [
            self.memory.map_or_else(unknown, |bytes| format!("{}M", bytes.div_ceil(1 << 20))),
            self.cpu_usec.map_or_else(unknown, time),
        ]
    }

    /// Returns whether nothing is known.
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Finds the children of a job's cgroup that have nothing but logins: those that this project made. Only
/// root can see that mark. Others know the usual name, which a user could have given only to a directory
/// of their own.
fn find_login_cgroups(job: &Dir) -> Result<Vec<Dir>, Error> {
    if Uid::effective().is_root() {
        return find_made_children(job);
    }
    let leaf = ignore_gone(job.child(LeafName::DEFAULT))?;
    Ok(leaf.into_iter().filter(|leaf| leaf.owner().is_ok_and(|uid| uid == 0)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;

    fn leaf(scratch: &Scratch, name: &str) -> Dir {
        let file = std::fs::File::open(scratch.path().join(name)).unwrap();
        Dir::new(file.into(), format!("/{name}"))
    }

    #[test]
    fn values_are_summed_and_missing_ones_claimed_for_none() {
        let scratch = Scratch::new();
        for name in ["a", "b"] {
            scratch.file(&format!("{name}/cgroup.procs"), "");
            scratch.file(&format!("{name}/cpu.stat"), "usage_usec 70\nuser_usec 60\n");
            scratch.file(&format!("{name}/memory.peak"), "9000\n");
        }
        scratch.file("a/memory.current", "4096\n");
        let (a, b) = (leaf(&scratch, "a"), leaf(&scratch, "b"));
        let expected = Usage { memory: Some(4096), memory_peak: Some(9000), cpu_usec: Some(70) };
        assert_eq!(Usage::of_leaves(std::slice::from_ref(&a)), expected);
        assert_eq!(expected.columns(), ["1M", "0:00:00"]);
        let long = Usage { memory: None, cpu_usec: Some(3_723_999_999), ..expected };
        assert_eq!(long.columns(), ["-", "1:02:03"]);
        let expected = Usage { cpu_usec: Some(140), ..Usage::default() };
        assert_eq!(Usage::of_leaves(&[a, b]), expected);
        assert!(Usage::of_leaves(&[]).is_empty());
    }
}
