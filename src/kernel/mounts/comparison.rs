//! Compares the mounts of two namespaces: each path must lead to the same files in both.
//!
//! Ids of mounts, peer groups and options differ between copies of one tree, so they do not count. Only the file
//! system counts to which a path leads, and the directory in it.

use super::{LastMount, MountEntry, MountTable, Target};
use protocol::is_within;
use std::collections::BTreeSet;

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

impl Target<'_> {
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

impl MountTable {
    /// Finds the automount point at this path or above it that the other table has as well; `None` without one.
    fn automount<'a>(&'a self, other: &Self, at: &str) -> Option<&'a MountEntry> {
        let mut all = self.mounts.iter().filter(|mount| mount.kind == "autofs");
        all.find(|mount| {
            let mut others = other.mounts.iter();
            is_within(at, &mount.at)
                && others.any(|their| (&their.at, &their.device) == (&mount.at, &mount.device))
        })
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
    use crate::mounts::OWN_TABLE;

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
    fn own_table_has_no_difference_from_itself() {
        let text = std::fs::read(OWN_TABLE).unwrap();
        let own = || MountTable::parse(&text).unwrap();
        assert_eq!(own().difference(&own(), &[]), None);
    }
}
