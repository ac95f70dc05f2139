//! Reads tables of mounts (proc_pid_mountinfo(5)), and follows paths in them.

mod comparison;

pub use comparison::{IMEX_CHANNEL_DIR, PRIVATE_DIRS, can_be_private};

use crate::sys::file::read_to_end;
use nix::errno::Errno;
use nix::sys::stat::{major, minor};
use protocol::parse_decimal;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;

/// Table of the mounts that this process sees.
pub const OWN_TABLE: &str = "/proc/self/mountinfo";

/// Maximum size of a table of mounts, which takes some 100 bytes for each.
pub(super) const TABLE_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Tells whether the file system with this device number is in memory (tmpfs), by this process's table of
/// mounts. Unlike `statfs(2)`, this asks no file system: one of a user may never answer.
///
/// # Errors
///
/// A table that cannot be read; `EINVAL` for a malformed one.
pub fn is_memory_file_system(device: u64) -> io::Result<bool> {
    let file = OwnedFd::from(File::open(OWN_TABLE)?);
    let table = MountTable::parse(&read_to_end(file, TABLE_BYTES_MAX)?).ok_or(Errno::EINVAL)?;
    let device = (major(device), minor(device));
    Ok(table
        .mounts
        .iter()
        .any(|mount| mount.device == device && mount.kind == "tmpfs"))
}

/// The fields of a line of a table of mounts. Names keep the kernel's escapes ([`escape`]).
#[derive(Clone, Copy, Debug)]
pub struct MountLine<'a> {
    id: &'a str,
    parent: &'a str,
    device: &'a str,
    /// Directory of the file system that is mounted.
    pub root: &'a str,
    /// Mount point, an absolute path.
    pub at: &'a str,
    /// Type of the file system.
    pub kind: &'a str,
    /// Device, server or other name that the file system was mounted from.
    pub source: &'a str,
    /// Options of the file system, with commas between them.
    pub options: &'a str,
}

impl<'a> MountLine<'a> {
    /// Splits a line: id, parent, device, root, mount point, options of the mount, optional fields, a dash, type,
    /// source, options of the file system. `None` for a line that the kernel would not write.
    pub fn parse(line: &'a str) -> Option<Self> {
        let (mount, system) = line.split_once(" - ")?;
        let mut mount = mount.split(' ');
        let mut system = system.split(' ');
        let fields = Self {
            id: mount.next()?,
            parent: mount.next()?,
            device: mount.next()?,
            root: mount.next()?,
            at: mount.next()?,
            kind: system.next()?,
            source: system.next()?,
            options: system.next()?,
        };
        let is_valid =
            !fields.root.is_empty() && fields.at.starts_with('/') && !fields.kind.is_empty();
        is_valid.then_some(fields)
    }

    /// Parses the major and minor of the file system.
    pub fn parse_device(&self) -> Option<(u64, u64)> {
        let (major, minor) = self.device.split_once(':')?;
        Some((parse_decimal(major)?.into(), parse_decimal(minor)?.into()))
    }
}

/// Parses the lines of a table, and skips malformed ones. The last mount on a directory covers the others.
pub fn parse_lines(table: &str) -> impl DoubleEndedIterator<Item = MountLine<'_>> {
    table.lines().filter_map(MountLine::parse)
}

/// Writes a path as the kernel does in a table of mounts (`seq_path`).
pub fn escape(path: &str) -> String {
    path.replace('\\', "\\134")
        .replace(' ', "\\040")
        .replace('\t', "\\011")
        .replace('\n', "\\012")
}

/// A mount, with each byte outside of ASCII in its names as a character.
#[derive(Debug)]
struct MountEntry {
    id: u32,
    parent: u32,
    device: (u64, u64),
    /// The directory of the file system that is mounted.
    root: String,
    at: String,
    kind: String,
}

impl MountEntry {
    /// Parses a line; `None` for a malformed one.
    fn parse(line: &str) -> Option<Self> {
        let line = MountLine::parse(line)?;
        Some(Self {
            id: parse_decimal(line.id)?,
            parent: parse_decimal(line.parent)?,
            device: line.parse_device()?,
            root: line.root.to_owned(),
            at: line.at.to_owned(),
            kind: line.kind.to_owned(),
        })
    }
}

/// The mounts of a namespace that a process in it sees.
#[derive(Debug)]
pub struct MountTable {
    mounts: Vec<MountEntry>,
    /// Indexes of the mounts at each mount point.
    points: BTreeMap<String, Vec<usize>>,
    /// Index of the mount that is the process's root.
    root: usize,
}

/// The target of a path: the mount, and the file in its file system.
#[derive(Debug)]
struct Target<'a> {
    mount: &'a MountEntry,
    file: String,
}

impl Target<'_> {
    /// Tells whether both are the same file of the same file system. The mounts that lead there may differ.
    fn is_same(&self, other: &Self) -> bool {
        (&self.mount.device, &self.file) == (&other.mount.device, &other.file)
    }
}

/// The treatment of mounts on the last directory of a path.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LastMount {
    /// The path continues in the topmost of them.
    Enter,
    /// The path ends in the directory below them.
    Ignore,
}

impl MountTable {
    /// Parses a table; `None` for a malformed line, or without a mount at `/`.
    pub fn parse(table: &[u8]) -> Option<Self> {
        // Names may hold any bytes, and two names must not become one.
        let text: String = table.iter().copied().map(char::from).collect();
        let mounts: Vec<_> = text.lines().map(MountEntry::parse).collect::<Option<_>>()?;
        let ids: BTreeSet<u32> = mounts.iter().map(|mount| mount.id).collect();
        // The mount under the process's root is out of its sight, or is that mount itself.
        let is_root = |mount: &MountEntry| {
            mount.at == "/" && (mount.parent == mount.id || !ids.contains(&mount.parent))
        };
        let root = mounts.iter().position(is_root)?;
        let mut points = BTreeMap::<_, Vec<_>>::new();
        for (index, mount) in mounts.iter().enumerate() {
            points.entry(mount.at.clone()).or_default().push(index);
        }
        Some(Self {
            mounts,
            points,
            root,
        })
    }

    /// Follows a path as the kernel does: on each directory it continues in the topmost mount there. `None` if the
    /// mount at which it arrives is not above the path, as in a table that changed while the kernel wrote it.
    fn follow(&self, path: &str, last_mount: LastMount) -> Option<Target<'_>> {
        let mut mount = self.mounts.get(self.root)?;
        // The directories on the way to `/a/b` end at these bytes: `/`, `/a`, `/a/b`.
        let ends = path
            .match_indices('/')
            .map(|(end, _)| end.max(1))
            .chain([path.len()]);
        for prefix in ends.filter_map(|end| path.get(..end)) {
            if prefix.len() < path.len() || last_mount == LastMount::Enter {
                mount = self.topmost(mount, prefix);
            }
        }
        let rest = path.strip_prefix(mount.at.trim_end_matches('/'))?;
        let file = format!("{}{rest}", mount.root.trim_end_matches('/'));
        Some(Target { mount, file })
    }

    /// Finds the mount that one sees at the directory `at` of the mount `below`: the uppermost of those that are stacked
    /// there, or `below` itself without any.
    fn topmost<'a>(&'a self, mut below: &'a MountEntry, at: &str) -> &'a MountEntry {
        let indexes = self.points.get(at).into_iter().flatten();
        let mut here: Vec<_> = indexes
            .filter_map(|index| self.mounts.get(*index))
            .collect();
        while let Some(next) = here.iter().position(|mount| mount.parent == below.id) {
            below = here.swap_remove(next);
        }
        below
    }

    /// Tells whether anything is mounted on this directory.
    pub fn has_mount_at(&self, dir: &str) -> bool {
        self.points.contains_key(dir)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn line_is_split_into_its_fields() {
        let line =
            "36 35 98:0 /a\\040b /mnt rw,noatime shared:1 master:2 - ext3  rw,errors=continue";
        let mount = MountLine::parse(line).unwrap();
        assert_eq!(
            (mount.root, mount.at, mount.parse_device()),
            ("/a\\040b", "/mnt", Some((98, 0)))
        );
        assert_eq!(
            (mount.kind, mount.source, mount.options),
            ("ext3", "", "rw,errors=continue")
        );
    }

    #[test]
    fn malformed_line_is_skipped_or_has_no_device() {
        for bad in [
            "1 1 0:1 / / rw ext4 x rw",
            "1 1 0:1 / /a rw - ext4 x",
            "1 1 0:1  /a rw - ext4 x rw",
            "1 1 0:1 / a rw - ext4 x rw",
            "1 1 0:1 / /a rw -  x rw",
        ] {
            assert!(MountLine::parse(bad).is_none(), "{bad:?}");
            let good = "1 1 0:1 / / rw - ext4 x rw";
            let table = format!("{good}\n{bad}\n{good}\n");
            assert_eq!(parse_lines(&table).count(), 2, "{bad:?}");
        }
        for device in ["", "0", "0:", ":1", "0:+1", "a:1"] {
            let line = format!("1 1 {device} / / rw - ext4 x rw");
            let mount = MountLine::parse(&line).unwrap();
            assert_eq!(mount.parse_device(), None, "{device:?}");
        }
    }

    #[test]
    fn path_is_escaped_as_in_the_table() {
        assert_eq!(escape("/a b\\c\td\ne#"), r"/a\040b\134c\011d\012e#");
    }

    #[test]
    fn malformed_tables_are_refused() {
        for bad in [
            "",
            "x",
            "1 1 0:1 / /a rw - ext4 x rw",
            "1 1 0:1 /",
            "1 x 0:1 / / rw - a b c",
            "1 1 0:x / / rw - a b c",
            "1 1 0:1 / / rw - a b",
        ] {
            assert!(MountTable::parse(bad.as_bytes()).is_none(), "{bad:?}");
        }
    }

    #[test]
    fn only_tmpfs_is_in_memory() {
        let is_memory = |path: &str| {
            let file = File::open(path).unwrap();
            let status = crate::sys::file::read_file_status(file.as_fd()).unwrap();
            is_memory_file_system(status.file_system).unwrap()
        };
        assert!(!is_memory("/proc"));
        let table = std::fs::read_to_string(OWN_TABLE).unwrap();
        let is_tmpfs = |line: &&str| line.contains(" /dev/shm ") && line.contains(" - tmpfs ");
        if table.lines().any(|line| is_tmpfs(&line)) {
            assert!(is_memory("/dev/shm"));
        }
    }
}
