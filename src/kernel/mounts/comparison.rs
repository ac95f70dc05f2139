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

/// A rule by which a path may lead elsewhere in a job's namespace than on the node, in the order in which they are
/// tried. None gives the job control over system files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tolerance {
    /// Both paths lead to the same file, perhaps by other mounts.
    SameFile,
    /// Both lead to a file system of the kernel in its place below `/proc` or `/sys`: a pid namespace has its own
    /// `/proc`, and others are mounted at their first use.
    KernelFileSystem,
    /// The job is still at an automount point of both, which may have mounted its file system on the node.
    WaitingAutomount,
    /// An automount point of both has mounted its file system in one of them alone.
    Automount,
    /// The node has mounted there since the job's namespace began, and the job has nothing there: it sees the directory
    /// on which the node's mount is, or a directory below such a one.
    LaterMount,
    /// The job has a file system of a user there, and the node keeps no state there.
    UserFileSystem,
}

/// A mount point of a namespace or of both, and its targets.
struct ComparedPath<'a> {
    at: &'a str,
    node: &'a MountTable,
    job: &'a MountTable,
    on_node: Target<'a>,
    in_job: Target<'a>,
}

impl<'a> ComparedPath<'a> {
    /// Follows a path in both namespaces; `None` if it leads nowhere in one of them.
    fn follow(node: &'a MountTable, job: &'a MountTable, at: &'a str) -> Option<Self> {
        Some(Self {
            at,
            node,
            job,
            on_node: node.follow(at, LastMount::Enter)?,
            in_job: job.follow(at, LastMount::Enter)?,
        })
    }

    /// Finds the first rule that tolerates the path; `None` for a difference. Below [`SYSTEM_TREES`] the first three
    /// rules alone hold. `later` are the paths of [`Tolerance::LaterMount`] that come before this one.
    fn find_tolerance(&self, later: &[&str]) -> Option<Tolerance> {
        if self.on_node.is_same(&self.in_job) {
            return Some(Tolerance::SameFile);
        }
        if self.is_kernel_file_system() {
            return Some(Tolerance::KernelFileSystem);
        }
        let automount = self.find_automount();
        if automount.is_some_and(|automount| automount.id == self.in_job.mount.id) {
            return Some(Tolerance::WaitingAutomount);
        }
        if is_below(self.at, &SYSTEM_TREES) {
            return None;
        }
        if automount.is_some() {
            return Some(Tolerance::Automount);
        }
        if self.is_later_mount(later) {
            return Some(Tolerance::LaterMount);
        }
        if self.is_user_file_system() {
            return Some(Tolerance::UserFileSystem);
        }
        None
    }

    /// Tells whether the path leads to a file system of the kernel in both namespaces, in its place.
    fn is_kernel_file_system(&self) -> bool {
        is_below(self.at, &["/proc", "/sys"])
            && self.on_node.is_kernels()
            && self.in_job.is_kernels()
    }

    /// Tells whether the node alone has a mount at the path. The job sees the directory that it covers, or one below a
    /// `later` mount of the node.
    fn is_later_mount(&self, later: &[&str]) -> bool {
        !self.is_mounted_in_job()
            && (self.job_sees_directory_of_mount() || is_below(self.at, later))
    }

    /// Tells whether the job has a file system of a user at the path, where the node keeps no state.
    fn is_user_file_system(&self) -> bool {
        self.is_mounted_in_job()
            && self.in_job.mount.is_of_user()
            && !is_below(self.at, &STATE_TREES)
    }

    /// Finds the job's automount point at the path or above it that the node has as well.
    fn find_automount(&self) -> Option<&MountEntry> {
        let is_of_both = |mount: &&MountEntry| {
            let mut on_node = self.node.mounts.iter();
            is_within(self.at, &mount.at)
                && on_node.any(|other| (&other.at, other.device) == (&mount.at, mount.device))
        };
        let mut automounts = self
            .job
            .mounts
            .iter()
            .filter(|mount| mount.kind == "autofs");
        automounts.find(is_of_both)
    }

    /// Tells whether the path leads to the root of a mount in the job's namespace.
    fn is_mounted_in_job(&self) -> bool {
        self.in_job.mount.at == self.at
    }

    /// Tells whether the job sees the directory that the mount at the path covers on the node.
    fn job_sees_directory_of_mount(&self) -> bool {
        let directory = self.node.follow(self.at, LastMount::Ignore);
        directory.is_some_and(|directory| directory.is_same(&self.in_job))
    }
}

impl MountEntry {
    /// Tells whether a user may have mounted this file system.
    fn is_of_user(&self) -> bool {
        self.kind == "fuse" || self.kind.starts_with("fuse.")
    }
}

impl MountTable {
    /// Finds the first path that leads elsewhere in a job's namespace than in this one, the node's, and that no
    /// `Tolerance` covers; `None` if there is none. Paths in the `private` directories and in `VOLATILE_TREES`
    /// are not compared.
    pub fn difference<'a>(&'a self, job: &'a Self, private: &[String]) -> Option<&'a str> {
        let mut later: Vec<&str> = Vec::new();
        // In their order a directory comes before what is below it.
        let points: BTreeSet<&String> = self.points.keys().chain(job.points.keys()).collect();
        for at in points {
            if is_below(at, &VOLATILE_TREES) || private.iter().any(|dir| is_within(at, dir)) {
                continue;
            }
            let Some(path) = ComparedPath::follow(self, job, at) else {
                return Some(at);
            };
            match path.find_tolerance(&later) {
                None => return Some(at),
                Some(Tolerance::LaterMount) => later.push(at),
                Some(_) => {}
            }
        }
        None
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
    fn each_path_is_tolerated_by_its_rule() {
        let home = "20 6 0:20 / /home/alice rw - nfs home:/alice rw";
        let data = "20 1 0:20 / /data rw - nfs x rw";
        let auto = "20 5 0:20 / /usr/local rw - autofs auto rw";
        let auto_used = "21 20 0:21 / /usr/local rw - nfs x rw";
        for (at, node, job, rule) in [
            ("/usr", vec![], vec![], Some(Tolerance::SameFile)),
            (
                "/proc",
                vec![],
                vec!["20 2 0:20 / /proc rw - proc proc rw"],
                Some(Tolerance::KernelFileSystem),
            ),
            (
                "/usr/local",
                vec![auto, auto_used],
                vec![auto],
                Some(Tolerance::WaitingAutomount),
            ),
            ("/usr/local", vec![auto], vec![auto, auto_used], None),
            (
                "/home/alice",
                vec![],
                vec![home],
                Some(Tolerance::Automount),
            ),
            ("/data", vec![data], vec![], Some(Tolerance::LaterMount)),
            ("/data", vec![], vec![data], None),
            (
                "/data",
                vec![],
                vec!["20 1 0:20 / /data rw - fuse x rw"],
                Some(Tolerance::UserFileSystem),
            ),
        ] {
            let node = table(&[&NODE, &node[..]].concat());
            let job = table(&[&NODE, &job[..]].concat());
            let path = ComparedPath::follow(&node, &job, at).unwrap();
            assert_eq!(path.find_tolerance(&[]), rule, "{at}");
        }
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
