//! Cgroups of a test, created and removed from outside the node.

use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use nix::fcntl::{OFlag, openat};
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::{Mode, mkdirat};
use nix::sys::statfs::{CGROUP2_SUPER_MAGIC, statfs};
use nix::unistd::{Pid, UnlinkatFlags, unlinkat, write};

use super::eventually;

/// The cgroup v2 mount of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mount {
    /// The mount is at `/sys/fs/cgroup`.
    Unified,
    /// The mount is at `/sys/fs/cgroup/unified`.
    Hybrid,
    /// Like `Hybrid`, and the machine's own v1 hierarchies, which hold the Slurm jobs, are visible.
    V1,
    /// Like `Unified`, in a cgroup namespace of the node (cgroup_namespaces(7)). Its root is a
    /// cgroup of the test, so no other node shares its `/user.slice`.
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

    /// Returns the mount's path inside the node.
    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::Unified | Self::Namespace => "/sys/fs/cgroup",
            Self::Hybrid | Self::V1 => "/sys/fs/cgroup/unified",
        }
    }
}

/// Returns the machine's own cgroup v2 mount.
pub(super) fn host_mount() -> Option<&'static Path> {
    ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"]
        .into_iter()
        .map(Path::new)
        .find(|path| {
            statfs(*path).is_ok_and(|found| found.filesystem_type() == CGROUP2_SUPER_MAGIC)
        })
}

/// A cgroup, by its path below the mount.
#[derive(Clone, Debug)]
pub(crate) struct Cgroup {
    /// The root of the node's cgroup namespace, below the machine's own mount. It is empty without
    /// a namespace.
    base: String,
    path: String,
}

impl Cgroup {
    /// Names the cgroup at that path. It need not exist.
    pub(crate) fn new(path: impl Into<String>) -> Self {
        Self {
            base: String::new(),
            path: path.into(),
        }
    }

    /// Names the root of a node's cgroup namespace, by its path on the machine.
    pub(super) fn new_namespace_root(base: String) -> Self {
        Self {
            base,
            path: String::new(),
        }
    }

    /// Returns the path below the mount, in the spelling of records and `/proc/PID/cgroup`.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// Names the child of this cgroup with that name.
    pub(crate) fn child(&self, name: &str) -> Self {
        Self {
            base: self.base.clone(),
            path: format!("{}/{name}", self.path),
        }
    }

    /// Returns the directory, in this process's mount namespace.
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

    /// Returns the processes directly in the cgroup, in this process's PID namespace.
    pub(crate) fn pids(&self) -> Vec<i32> {
        parse_pids(&self.read("cgroup.procs"))
    }

    /// Returns the same as [`Cgroup::pids`], or nothing if the cgroup is gone.
    pub(crate) fn pids_or_empty(&self) -> Vec<i32> {
        parse_pids(&fs::read_to_string(self.dir().join("cgroup.procs")).unwrap_or_default())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.read("cgroup.events").contains("populated 0")
    }

    pub(crate) fn children(&self) -> Vec<Self> {
        let Ok(entries) = fs::read_dir(self.dir()) else {
            return Vec::new();
        };
        let folders = entries.flatten().filter(|entry| entry.path().is_dir());
        folders
            .map(|entry| self.child(&entry.file_name().to_string_lossy()))
            .collect()
    }

    /// Kills every process in the cgroup and below, and waits until none is left.
    pub(crate) fn kill(&self) -> &Self {
        self.kill_processes();
        eventually("the cgroup is empty", || self.is_empty());
        self
    }

    /// Freezes or thaws the cgroup, and waits until the kernel reports the new state.
    pub(crate) fn freeze(&self, frozen: bool) -> &Self {
        let (value, event) = if frozen {
            ("1", "frozen 1")
        } else {
            ("0", "frozen 0")
        };
        self.write("cgroup.freeze", value);
        eventually(event, || self.read("cgroup.events").contains(event));
        self
    }

    /// Kills every process, then removes the cgroup and all below it. A missing cgroup is no error.
    pub(crate) fn remove(&self) {
        if self.exists() {
            self.remove_tree();
        }
    }

    /// Sends SIGKILL to every process. `cgroup.kill` skips a process whose first thread has ended.
    fn kill_processes(&self) {
        let _ = fs::write(self.dir().join("cgroup.kill"), "1");
        for pid in self.pids_or_empty() {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }

    fn remove_tree(&self) {
        self.kill_processes();
        self.children().iter().for_each(Self::remove_tree);
        eventually("the cgroup can be removed", || {
            fs::remove_dir(self.dir()).is_ok() || !self.exists()
        });
    }
}

/// Parses the contents of `cgroup.procs`. A process that is reaped while the kernel prints its line is 0 there, which
/// kill(2) takes for the caller's own process group.
fn parse_pids(procs: &str) -> Vec<i32> {
    let pids = procs.lines().map(|line| line.parse().unwrap());
    pids.filter(|pid| *pid != 0).collect()
}

/// Nested cgroups whose path is longer than the kernel reports: it truncates the path, or (before
/// Linux 6.8) reports none.
pub(crate) struct Deep(Vec<OwnedFd>);

impl Deep {
    const NAME: [u8; 250] = [b'd'; 250];

    /// Creates them below that cgroup.
    pub(crate) fn create_below(cgroup: &Cgroup) -> Self {
        let mut levels: Vec<OwnedFd> = vec![File::open(cgroup.dir()).unwrap().into()];
        for _ in 0..20 {
            let above = levels.last().unwrap();
            mkdirat(above, &Self::NAME[..], Mode::S_IRWXU).unwrap();
            levels.push(openat(above, &Self::NAME[..], OFlag::O_DIRECTORY, Mode::empty()).unwrap());
        }
        Self(levels)
    }

    /// Moves a process into the deepest one.
    pub(crate) fn move_in(&self, pid: i32) {
        let procs = openat(
            self.0.last().unwrap(),
            "cgroup.procs",
            OFlag::O_WRONLY,
            Mode::empty(),
        );
        write(procs.unwrap(), pid.to_string().as_bytes()).unwrap();
    }
}

impl Drop for Deep {
    fn drop(&mut self) {
        let kill = openat(&self.0[0], "cgroup.kill", OFlag::O_WRONLY, Mode::empty());
        write(kill.unwrap(), b"1").unwrap();
        while let Some(above) = self.0.pop().and_then(|_| self.0.last()) {
            let gone = || unlinkat(above, &Self::NAME[..], UnlinkatFlags::RemoveDir).is_ok();
            let pause = Duration::from_millis(10);
            (0..500).take_while(|_| !gone()).for_each(|_| sleep(pause));
        }
    }
}
