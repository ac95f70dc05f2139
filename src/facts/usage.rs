//! Reads what the logins of a job have used, from cgroups that have nothing but logins.

use command::error::Error;
use kernel::cgroup::{Dir, MADE_XATTR, has_mark, ignore_gone};
use nix::unistd::Uid;
use protocol::LeafName;
use serde::Serialize;

/// The memory, processor time and disk accesses of logins. A value that the kernel does not count for them alone
/// stays empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// Bytes of memory now.
    pub memory: Option<u64>,
    /// Most bytes of memory at any time, from Linux 5.19 on; empty for several cgroups.
    pub memory_peak: Option<u64>,
    /// Bytes of swap now.
    pub swap: Option<u64>,
    /// Most bytes of swap at any time, from Linux 6.5 on; empty for several cgroups.
    pub swap_peak: Option<u64>,
    /// Microseconds of processor time, also of processes that have ended.
    pub cpu_usec: Option<u64>,
    /// Bytes read from disks of this node, also by processes that have ended.
    pub io_read: Option<u64>,
    /// Bytes written to disks of this node, also by processes that have ended.
    pub io_written: Option<u64>,
}

/// The heads of [`Usage::columns`].
pub const USAGE_HEADS: [&str; 5] = [
    "LOGIN-MEM",
    "LOGIN-SWAP",
    "LOGIN-CPU",
    "LOGIN-READ",
    "LOGIN-WRITE",
];

impl Usage {
    /// Reads the usage of the logins in a job's cgroup; empty if they have no cgroup of their own, whose name is `leaf`
    /// (`None`: the usual one).
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] if the child for logins cannot be opened, or its mark cannot be read.
    pub fn read(job: &Dir, leaf: Option<&LeafName>) -> Result<Self, Error> {
        let leaf = open_login_cgroup(job, leaf)?;
        Ok(leaf
            .map(|leaf| Self::read_leaves(&[leaf]))
            .unwrap_or_default())
    }

    /// Sums up the usage of cgroups for logins. A value that one of them lacks is `None`, and so is a peak if there are
    /// several, which need not have had theirs at the same time.
    pub fn read_leaves(leaves: &[Dir]) -> Self {
        let peaks = if leaves.len() == 1 { leaves } else { &[] };
        Self {
            memory: sum_values(leaves, "memory.current", ""),
            memory_peak: sum_values(peaks, "memory.peak", ""),
            swap: sum_values(leaves, "memory.swap.current", ""),
            swap_peak: sum_values(peaks, "memory.swap.peak", ""),
            cpu_usec: sum_values(leaves, "cpu.stat", "usage_usec "),
            io_read: sum_disks(leaves, "rbytes="),
            io_written: sum_disks(leaves, "wbytes="),
        }
    }

    /// Shows bytes in MiB, rounded up, and processor time as H:MM:SS; `-` for a missing value.
    pub fn columns(&self) -> [String; USAGE_HEADS.len()] {
        let bytes = |value: Option<u64>| value.map(|bytes| format!("{}M", bytes.div_ceil(1 << 20)));
        let cpu = self.cpu_usec.map(|usec| {
            let seconds = usec / 1_000_000;
            format!(
                "{}:{:02}:{:02}",
                seconds / 3600,
                seconds / 60 % 60,
                seconds % 60
            )
        });
        [
            bytes(self.memory),
            bytes(self.swap),
            cpu,
            bytes(self.io_read),
            bytes(self.io_written),
        ]
        .map(|column| column.unwrap_or_else(|| "-".to_owned()))
    }

    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Sums up the values of a key in a file of several cgroups; `None` if one lacks it, and for no cgroups.
fn sum_values(leaves: &[Dir], file: &str, key: &str) -> Option<u64> {
    if leaves.is_empty() {
        return None;
    }
    leaves.iter().map(|leaf| read_value(leaf, file, key)).sum()
}

fn read_value(dir: &Dir, file: &str, key: &str) -> Option<u64> {
    let text = dir.read(file).ok()??;
    let value = text.lines().find_map(|line| line.strip_prefix(key))?;
    value.trim().parse().ok()
}

/// Sums up the bytes that several cgroups have read or written (`io.stat` in cgroup-v2.rst); `None` if one lacks the
/// controller, and for no cgroups.
fn sum_disks(leaves: &[Dir], key: &str) -> Option<u64> {
    if leaves.is_empty() {
        return None;
    }
    let texts = leaves.iter().map(|leaf| leaf.read("io.stat").ok()?);
    texts.map(|text| Some(count_bytes(&text?, key))).sum()
}

/// Sums up the value of a key, such as `rbytes=`, for all disks in the text of `io.stat`. A device that is made of
/// others (LVM, RAID) does not count: the kernel counts the same bytes for these again.
fn count_bytes(io_stat: &str, key: &str) -> u64 {
    let mut sum = 0;
    for line in io_stat.lines() {
        let mut words = line.split_whitespace();
        let device = words.next().unwrap_or_default();
        // The kernel may list a disk without values.
        let has_values = words.clone().next().is_some();
        if !has_values || is_made_of_others(device) {
            continue;
        }
        let value = words.find_map(|word| word.strip_prefix(key)?.parse().ok());
        sum += value.unwrap_or(0);
    }
    sum
}

/// Checks whether a device, as `253:0`, stands on other devices of the node.
fn is_made_of_others(device: &str) -> bool {
    let others = std::fs::read_dir(format!("/sys/dev/block/{device}/slaves"));
    others.is_ok_and(|mut others| others.next().is_some())
}

/// Opens the child of a job's cgroup that has nothing but logins: the one with the leaf's name (`None`: the usual name)
/// and the mark of this project. Only root can read the mark: other users take the child if root owns it. The result
/// is `None` if there is no such child.
///
/// # Errors
///
/// The child cannot be opened, or its mark cannot be read.
pub(crate) fn open_login_cgroup(job: &Dir, leaf: Option<&LeafName>) -> Result<Option<Dir>, Error> {
    let name = leaf.map_or(LeafName::DEFAULT, LeafName::as_str);
    let Some(child) = ignore_gone(job.child(name))? else {
        return Ok(None);
    };
    let is_of_logins = if Uid::effective().is_root() {
        ignore_gone(has_mark(&child, MADE_XATTR))? == Some(true)
    } else {
        ignore_gone(child.owner())? == Some(0)
    };
    Ok(is_of_logins.then_some(child))
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
    fn usage_is_summed_unless_a_leaf_lacks_the_value() {
        let scratch = Scratch::new();
        for name in ["a", "b"] {
            scratch.file(&format!("{name}/cgroup.procs"), "");
            scratch.file(&format!("{name}/cpu.stat"), "usage_usec 70\nuser_usec 60\n");
            scratch.file(&format!("{name}/memory.peak"), "9000\n");
        }
        scratch.file("a/memory.current", "4096\n");
        scratch.file("a/memory.swap.current", "2097153\n");
        // A disk without a statistic, and one that this node does not have.
        let disks = "8:0 \n4095:7 rbytes=1048576 wbytes=0 rios=1\n4095:8 rbytes=1 wbytes=9\n";
        scratch.file("a/io.stat", disks);
        scratch.file("b/io.stat", "");
        let a = leaf(&scratch, "a");
        let b = leaf(&scratch, "b");
        let expected = Usage {
            memory: Some(4096),
            memory_peak: Some(9000),
            swap: Some(2_097_153),
            swap_peak: None,
            cpu_usec: Some(70),
            io_read: Some(1_048_577),
            io_written: Some(9),
        };
        assert_eq!(Usage::read_leaves(std::slice::from_ref(&a)), expected);
        assert_eq!(expected.columns(), ["1M", "3M", "0:00:00", "2M", "1M"]);
        let long = Usage {
            cpu_usec: Some(3_723_999_999),
            io_written: Some(0),
            ..Usage::default()
        };
        assert_eq!(long.columns(), ["-", "-", "1:02:03", "-", "0M"]);
        let sum = Usage {
            cpu_usec: Some(140),
            io_read: Some(1_048_577),
            io_written: Some(9),
            ..Usage::default()
        };
        assert_eq!(Usage::read_leaves(&[a, b]), sum);
        assert!(Usage::read_leaves(&[]).is_empty());
    }
}
