//! Reads tables of mounts (proc_pid_mountinfo(5)), and compares those of two namespaces: each path must lead to the
//! same files in both.
//!
//! Ids of mounts, peer groups and options differ between copies of one tree, so they do not count. Only the file
//! system counts to which a path leads, and the directory in it.

use crate::sys::file::read_to_end;
use nix::errno::Errno;
use nix::sys::stat::{major, minor};
use protocol::{is_within, parse_decimal};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;

/// Table of the mounts that this process sees.
pub const OWN_TABLE: &str = "/proc/self/mountinfo";

/// Maximum size of a table of mounts, which takes some 100 bytes for each.
pub(super) const TABLE_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Directories that a job may have to itself unless the admin names others.
pub const PRIVATE_DIRS: [&str; 3] = ["/tmp", "/var/tmp", "/dev/shm"];

/// Directory of the channels of NVIDIA's IMEX driver, which lead to the memory of GPUs in other nodes. Slurm's
/// plugin switch/nvidia_imex leaves it empty on the node, and mounts another in namespaces of steps.
pub const IMEX_CHANNEL_DIR: &str = "/dev/nvidia-caps-imex-channels";

/// Trees in which Slurm, systemd and container engines mount and unmount while jobs run. Neither sshd nor
/// PAM reads system files in them.
const VOLATILE_TREES: [&str; 11] = [
    IMEX_CHANNEL_DIR,
    "/run/containerd",
    "/run/containers",
    "/run/credentials",
    "/run/docker",
    "/run/netns",
    "/run/user",
    "/var/lib/containerd",
    "/var/lib/containers",
    "/var/lib/docker",
    "/var/lib/kubelet",
];
/// Trees of programs and settings: a job must have each of their mounts as the node has it.
const SYSTEM_TREES: [&str; 12] = [
    "/bin", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/root", "/sbin",
    "/sys", "/usr",
];
/// Trees in which a job may not have a file system of a user.
const STATE_TREES: [&str; 2] = ["/run", "/var"];
/// File systems of the kernel that are mounted at their first use, below `/proc` and `/sys`.
const LATE_FILE_SYSTEMS: [&str; 11] = [
    "autofs",
    "binfmt_misc",
    "bpf",
    "configfs",
    "debugfs",
    "efivarfs",
    "fusectl",
    "nfsd",
    "pstore",
    "resctrl",
    "tracefs",
];

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

/// Tells whether an admin may let jobs have this directory to themselves: no tree of programs or settings,
/// and not all of the node's state.
pub fn can_be_private(dir: &str) -> bool {
    // A directory below /dev may be private, as /dev/shm is.
    let is_system = |tree: &str| dir == tree || is_within(dir, tree) && tree != "/dev";
    dir != "/" && !STATE_TREES.contains(&dir) && !SYSTEM_TREES.into_iter().any(is_system)
}

/// Tells whether a path is one of these directories or below one.
fn is_below(at: &str, trees: &[&str]) -> bool {
    trees.iter().any(|tree| is_within(at, tree))
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
        let line = Self {
            id: mount.next()?,
            parent: mount.next()?,
            device: mount.next()?,
            root: mount.next()?,
            at: mount.next()?,
            kind: system.next()?,
            source: system.next()?,
            options: system.next()?,
        };
        let is_valid = !line.root.is_empty() && line.at.starts_with('/') && !line.kind.is_empty();
        is_valid.then_some(line)
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

    /// Tells whether this is the whole of a file system that the kernel makes, in its usual place.
    fn is_kernels(&self) -> bool {
        let MountEntry { root, at, kind, .. } = self.mount;
        let is_in_place = match kind.as_str() {
            "proc" => at == "/proc",
            "sysfs" => at == "/sys",
            kind => LATE_FILE_SYSTEMS.contains(&kind),
        };
        root == "/" && is_in_place
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

    /// Finds the automount point at this path or above it that the other table has as well; `None` without one.
    fn automount<'a>(&'a self, other: &Self, at: &str) -> Option<&'a MountEntry> {
        let mut all = self.mounts.iter().filter(|mount| mount.kind == "autofs");
        all.find(|mount| {
            let mut others = other.mounts.iter();
            is_within(at, &mount.at)
                && others.any(|their| (&their.at, &their.device) == (&mount.at, &mount.device))
        })
    }

    /// Tells whether anything is mounted on this directory.
    pub fn has_mount_at(&self, dir: &str) -> bool {
        self.points.contains_key(dir)
    }

    /// Finds the first path that leads elsewhere in a job's namespace than in this one, the node's; `None` if every
    /// path leads to the same files. Jobs may have the `private` directories to themselves.
    ///
    /// Some more differences are tolerated, since they give the job no control over system files: `VOLATILE_TREES`; the
    /// kernel's own file systems in their places below `/proc` and `/sys`; file systems of automount points; outside of
    /// the trees of programs and settings also mounts that the node has made since the job's namespace began, and file
    /// systems of users.
    pub fn difference<'a>(&'a self, job: &'a Self, private: &[String]) -> Option<&'a str> {
        // Mount points of the node that the job lacks.
        let mut absent: Vec<&str> = Vec::new();
        // In their order a directory comes before what is below it.
        let points: BTreeSet<&String> = self.points.keys().chain(job.points.keys()).collect();
        points.into_iter().map(String::as_str).find(|at| {
            if is_below(at, &VOLATILE_TREES) || private.iter().any(|dir| is_within(at, dir)) {
                return false;
            }
            let follow = |table: &'a Self| table.follow(at, LastMount::Enter);
            let (Some(here), Some(there)) = (follow(self), follow(job)) else {
                return true;
            };
            if here.is_same(&there) {
                return false;
            }
            if is_below(at, &["/proc", "/sys"]) && here.is_kernels() && there.is_kernels() {
                return false;
            }
            let is_system = is_below(at, &SYSTEM_TREES);
            // An automount point that both have may have mounted its file system in one of them alone: among programs
            // and settings only on the node.
            if let Some(automount) = job.automount(self, at) {
                if !is_system || there.mount.id == automount.id {
                    return false;
                }
            }
            if is_system {
                return true;
            }
            // A mount that only the node has: the job sees the directory on which it is mounted (`is_plain`), or a
            // directory in such a one.
            let is_absent = there.mount.at != *at;
            let below = self.follow(at, LastMount::Ignore);
            let is_plain = below.is_some_and(|below| below.is_same(&there));
            if is_absent && (is_plain || is_below(at, &absent)) {
                absent.push(at);
                return false;
            }
            // A mount in the job's namespace is tolerated only if it is a user's and not where the node keeps its state.
            let is_of_user = there.mount.kind == "fuse" || there.mount.kind.starts_with("fuse.");
            let is_tolerated = is_of_user && !is_absent && !is_below(at, &STATE_TREES);
            !is_tolerated
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    const NODE: [&str; 8] = [
        "1 1 0:1 / / rw - ext4 /dev/sda1 rw",
        "2 1 0:2 / /proc rw,nosuid shared:5 - proc proc rw",
        "3 1 0:3 / /sys rw - sysfs sysfs rw",
        "4 1 0:4 / /run rw shared:7 master:2 - tmpfs tmpfs rw",
        "5 1 0:5 / /usr ro - squashfs x ro",
        "6 1 0:6 / /home rw - autofs auto rw,fd=5",
        "7 1 0:1 /var/a /srv/a rw - ext4 /dev/sda1 rw",
        "8 1 0:7 / /mnt/a\\040b rw - nfs x rw",
    ];

    fn table(lines: &[&str]) -> MountTable {
        MountTable::parse(lines.join("\n").as_bytes()).unwrap()
    }

    /// Finds the difference of a job that has these mounts and the node's.
    fn with(more: &[&str]) -> Option<String> {
        let node = table(&NODE);
        let job = table(&[&NODE, more].concat());
        node.difference(&job, &PRIVATE_DIRS.map(String::from))
            .map(str::to_owned)
    }

    /// Finds the difference of a job without these mounts, which the node has.
    fn without(more: &[&str]) -> Option<String> {
        let node = table(&[&NODE, more].concat());
        let job = table(&NODE);
        node.difference(&job, &PRIVATE_DIRS.map(String::from))
            .map(str::to_owned)
    }

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
            let table = format!("{}\n{bad}\n{}\n", NODE[0], NODE[1]);
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
    fn copy_of_the_tree_is_no_difference() {
        let node = table(&NODE);
        let mut copy = table(&NODE);
        for mount in &mut copy.mounts {
            (mount.id, mount.parent) = (mount.id + 90, mount.parent + 90);
        }
        assert_eq!(node.difference(&copy, &[]), None);
        // A directory that is mounted on itself is no difference either.
        assert_eq!(
            with(&["20 1 0:1 /var/spool /var/spool rw - ext4 x rw"]),
            None
        );
        assert_eq!(
            without(&["20 5 0:5 /lib /usr/lib rw - squashfs x rw"]),
            None
        );
    }

    #[test]
    fn private_and_volatile_directories_may_differ() {
        for at in [
            "/tmp",
            "/tmp/a/b",
            "/var/tmp",
            "/dev/shm",
            "/run/user/1001",
            "/run/netns/a",
        ] {
            let line = format!("20 1 0:20 / {at} rw - tmpfs tmpfs rw");
            assert_eq!((with(&[&line]), without(&[&line])), (None, None), "{at}");
        }
    }

    #[test]
    fn mount_that_only_the_job_has_is_a_difference() {
        for at in [
            "/",
            "/etc",
            "/etc/group",
            "/tmpx",
            "/srv",
            "/run/x",
            "/usr/lib/x",
            "/dev/x",
        ] {
            let line = format!("20 1 0:20 / {at} rw - tmpfs tmpfs rw");
            // A mount below another one has that as its parent.
            let line = line.replacen(
                "20 1",
                if at.starts_with("/run") {
                    "20 4"
                } else {
                    "20 1"
                },
                1,
            );
            let line = line.replacen(
                "20 1",
                if at.starts_with("/usr") {
                    "20 5"
                } else {
                    "20 1"
                },
                1,
            );
            assert_eq!(with(&[&line]).as_deref(), Some(at));
        }
        // Another directory of the same file system is a difference as well.
        let line = "20 1 0:1 /home/alice/group /etc/group rw - ext4 /dev/sda1 rw";
        assert_eq!(with(&[line]).as_deref(), Some("/etc/group"));
        assert_eq!(
            with(&["20 7 0:9 / /srv/a rw - ext4 x rw"]).as_deref(),
            Some("/srv/a")
        );
    }

    #[test]
    fn mount_that_the_node_made_later_is_a_system_file_or_none() {
        for (at, expected) in [
            ("/data", None),
            ("/run/x", None),
            ("/etc/security", Some("/etc/security")),
        ] {
            let parent = if at.starts_with("/run") { 4 } else { 1 };
            let line = format!("20 {parent} 0:20 / {at} rw - tmpfs tmpfs rw");
            let below = format!("21 20 0:21 / {at}/below rw - tmpfs tmpfs rw");
            assert_eq!(without(&[&line]).as_deref(), expected);
            assert_eq!(without(&[&line, &below]).as_deref(), expected);
        }
    }

    #[test]
    fn automounts_and_late_file_systems_come_and_go() {
        let home = "20 6 0:20 / /home/alice rw - nfs home:/alice rw";
        assert_eq!((with(&[home]), without(&[home])), (None, None));
        let trace = "20 3 0:20 / /sys/kernel/tracing rw - tracefs tracefs rw";
        assert_eq!((with(&[trace]), without(&[trace])), (None, None));
        let part = "20 3 0:20 /x /sys/kernel/tracing rw - tracefs tracefs rw";
        assert_eq!(with(&[part]).as_deref(), Some("/sys/kernel/tracing"));
        // A pid namespace has its own /proc.
        assert_eq!(with(&["20 2 0:20 / /proc rw - proc proc rw"]), None);
        assert_eq!(
            with(&["20 2 0:20 /1 /proc rw - proc proc rw"]).as_deref(),
            Some("/proc")
        );
        // An automount in a system tree may be missing, but another mount may not replace it.
        let automount = "20 5 0:20 / /usr/local rw - autofs auto rw";
        let mounted = "21 20 0:21 / /usr/local rw - nfs x rw";
        let node = table(&[&NODE[..], &[automount]].concat());
        let job = [automount, mounted];
        let job = table(&[&NODE[..], &job].concat());
        assert_eq!(node.difference(&job, &[]), Some("/usr/local"));
        assert_eq!(job.difference(&node, &[]), None);
    }

    #[test]
    fn users_own_file_system_is_tolerated_among_their_files() {
        for (at, expected) in [
            ("/scratch/a", None),
            ("/run/a", Some("/run/a")),
            ("/etc/a", Some("/etc/a")),
        ] {
            let parent = if at.starts_with("/run") { 4 } else { 1 };
            let line = format!("20 {parent} 0:20 / {at} rw - fuse.sshfs x rw");
            assert_eq!(with(&[&line]).as_deref(), expected);
        }
    }

    #[test]
    fn mount_behind_another_one_does_not_count() {
        let covered = "20 1 0:20 / /etc rw - tmpfs tmpfs rw";
        let over = "21 20 0:1 /etc /etc rw - ext4 /dev/sda1 rw";
        assert_eq!(with(&[covered, over]), None);
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
    fn system_tree_cannot_be_private() {
        for dir in [
            "/scratch",
            "/dev/hugepages",
            "/var/tmp",
            "/run/lock",
            "/tmp",
        ] {
            assert!(can_be_private(dir), "{dir}");
        }
        for dir in [
            "/",
            "/etc",
            "/etc/security",
            "/usr/lib",
            "/dev",
            "/run",
            "/var",
            "/proc/1",
        ] {
            assert!(!can_be_private(dir), "{dir}");
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

    #[test]
    fn own_table_has_no_difference_from_itself() {
        let text = std::fs::read(OWN_TABLE).unwrap();
        let own = || MountTable::parse(&text).unwrap();
        assert_eq!(own().difference(&own(), &[]), None);
    }
}
