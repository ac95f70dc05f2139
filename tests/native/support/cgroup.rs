//! Control groups of a test, made and removed from outside the node.

use std::fs;
use std::path::{Path, PathBuf};

use nix::sys::signal::{Signal, kill};
use nix::sys::statfs::{CGROUP2_SUPER_MAGIC, statfs};
use nix::unistd::Pid;

use super::eventually;

/// Where a node has its cgroup v2 mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mount {
    /// At `/sys/fs/cgroup`.
    Unified,
    /// At `/sys/fs/cgroup/unified`.
    Hybrid,
    /// There too, beside the machine's own hierarchies of version 1, which Slurm's jobs are in.
    V1,
    /// As unified, in a cgroup namespace of the node's own (cgroup_namespaces(7)): its root is a
    /// cgroup of the test's, so that `/user.slice` is nobody else's.
    Namespace,
}

impl Mount {
    pub(crate) fn layout(self) -> &'static str {
        match self {
            Self::Unified => "unified",
            Self::Hybrid => "hybrid",
            Self::V1 => "v1",
            Self::Namespace => "namespace",
        }
    }

    /// Path inside the node.
    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::Unified | Self::Namespace => "/sys/fs/cgroup",
            Self::Hybrid | Self::V1 => "/sys/fs/cgroup/unified",
        }
    }
}

/// The machine's own cgroup v2 mount.
pub(super) fn host_mount() -> Option<&'static Path> {
    ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].into_iter().map(Path::new).find(|path| {
        statfs(*path).is_ok_and(|found| found.filesystem_type() == CGROUP2_SUPER_MAGIC)
    })
}

/// One cgroup, by its path below the mount.
#[derive(Clone, Debug)]
pub(crate) struct Cgroup {
    /// The root of the node's cgroup namespace, below the machine's own mount; else empty.
    base: String,
    path: String,
}

impl Cgroup {
    /// The cgroup of that path, which need not exist.
    pub(crate) fn at(path: impl Into<String>) -> Self {
        Self { base: String::new(), path: path.into() }
    }

    /// The root of a node's cgroup namespace, at that path of the machine's.
    pub(super) fn root(base: String) -> Self {
        Self { base, path: String::new() }
    }

    /// The path below the mount, as records and `/proc/PID/cgroup` spell it.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// The cgroup of that name below this one.
    pub(crate) fn child(&self, name: &str) -> Self {
        Self { base: self.base.clone(), path: format!("{}/{name}", self.path) }
    }

    /// The directory, as this process sees it.
    pub(crate) fn dir(&self) -> PathBuf {
        let path = format!("{}{}", self.base, self.path);
        host_mount().unwrap().join(path.trim_start_matches('/'))
    }

    pub(crate) fn exists(&self) -> bool {
        self.dir().exists()
    }

    pub(crate) fn create(&self) -> &Self {
        fs::create_dir(self.dir()).unwrap_or_else(|error| panic!("{}: {error}", self.path));
        self
    }

    pub(crate) fn read(&self, file: &str) -> String {
        let path = self.dir().join(file);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    pub(crate) fn write(&self, file: &str, text: &str) -> &Self {
        let path = self.dir().join(file);
        fs::write(&path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        self
    }

    /// Processes right here, as this process numbers them.
    pub(crate) fn pids(&self) -> Vec<i32> {
        numbers(&self.read("cgroup.procs"))
    }

    /// As [`Cgroup::pids`]; none where the cgroup is gone.
    pub(crate) fn pids_or_none(&self) -> Vec<i32> {
        numbers(&fs::read_to_string(self.dir().join("cgroup.procs")).unwrap_or_default())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.read("cgroup.events").contains("populated 0")
    }

    pub(crate) fn children(&self) -> Vec<Self> {
        let Ok(entries) = fs::read_dir(self.dir()) else { return Vec::new() };
        let folders = entries.flatten().filter(|entry| entry.path().is_dir());
        folders.map(|entry| self.child(&entry.file_name().to_string_lossy())).collect()
    }

    /// Ends every process at and below.
    pub(crate) fn kill(&self) -> &Self {
        self.signal();
        eventually("the cgroup is empty", || self.is_empty());
        self
    }

    /// Freezes or thaws, and waits until the kernel says so.
    pub(crate) fn freeze(&self, frozen: bool) -> &Self {
        let (value, event) = if frozen { ("1", "frozen 1") } else { ("0", "frozen 0") };
        self.write("cgroup.freeze", value);
        eventually(event, || self.read("cgroup.events").contains(event));
        self
    }

    /// Kills, then removes this cgroup and all below; nothing where it is gone already.
    pub(crate) fn remove(&self) {
        if self.exists() {
            self.remove_tree();
        }
    }

    /// Kills; the kernel's own way passes over a process whose first thread has ended.
    fn signal(&self) {
        let _ = fs::write(self.dir().join("cgroup.kill"), "1");
        let procs = fs::read_to_string(self.dir().join("cgroup.procs")).unwrap_or_default();
        for pid in procs.lines().filter_map(|line| line.parse().ok()) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }

    fn remove_tree(&self) {
        self.signal();
        self.children().iter().for_each(Self::remove_tree);
        eventually("the cgroup can be removed", || {
            fs::remove_dir(self.dir()).is_ok() || !self.exists()
        });
    }
}

/// The contents of `cgroup.procs`.
fn numbers(procs: &str) -> Vec<i32> {
    procs.lines().map(|line| line.parse().unwrap()).collect()
}
