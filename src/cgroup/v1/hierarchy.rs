//! Where the v1 hierarchies are mounted (proc(5), `/proc/PID/mountinfo`).

use crate::cgroup::{Dir, Error, Result};
use crate::proc;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::{Mode, fstat, major, minor};
use std::collections::BTreeSet;

/// One line of `/proc/self/mountinfo` that is about a v1 hierarchy, whole.
#[derive(Debug, PartialEq, Eq)]
struct Mounted {
    device: (u64, u64),
    at: String,
    options: String,
}

impl Mounted {
    /// Reads a line: id, parent, device, root, mount point, options, optional fields, a dash,
    /// type, source, options of the file system. `None` for any other file system, and for a
    /// mount whose root is not that of our cgroup namespace.
    fn parse(line: &str) -> Option<Self> {
        let (mount, system) = line.split_once(" - ")?;
        let mut fields = mount.split(' ').skip(2);
        let (device, root, at) = (fields.next()?, fields.next()?, fields.next()?);
        let mut system = system.split(' ');
        let (kind, options) = (system.next()?, system.nth(1)?);
        let (major, minor) = device.split_once(':')?;
        let device = (major.parse().ok()?, minor.parse().ok()?);
        let wanted = kind == "cgroup" && root == "/";
        wanted.then(|| Self { device, at: at.to_owned(), options: options.to_owned() })
    }

    /// Whether this is the hierarchy of these controllers: its options name each of them.
    fn has(&self, controllers: &str) -> bool {
        let options: BTreeSet<_> = self.options.split(',').collect();
        controllers.split(',').all(|controller| options.contains(controller))
    }

    /// Opens its root; `None` where something else is seen at that place, or nothing.
    fn open(&self) -> Option<Dir> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let fd = open(self.at.as_str(), flags, Mode::empty()).ok()?;
        let device = fstat(&fd).ok()?.st_dev;
        ((major(device), minor(device)) == self.device).then(|| Dir::new(fd, ""))
    }
}

/// The v1 hierarchies that are mounted here.
#[derive(Debug)]
pub struct Hierarchies {
    mounted: Vec<Mounted>,
}

impl Hierarchies {
    /// Reads what is mounted.
    pub fn read() -> Result<Self> {
        const FILE: &str = "/proc/self/mountinfo";
        let text = proc::read_table(FILE).map_err(|error| Error::system("read", FILE, error))?;
        Ok(Self::parse(&text))
    }

    fn parse(text: &str) -> Self {
        Self { mounted: text.lines().filter_map(Mounted::parse).collect() }
    }

    /// Opens the root of the hierarchy that has these controllers, as `/proc/PID/cgroup` lists
    /// them; `None` where it is not to be seen.
    pub fn root(&self, controllers: &str) -> Option<Dir> {
        let mut mounts = self.mounted.iter().rev().filter(|mounted| mounted.has(controllers));
        mounts.find_map(Mounted::open)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &str = "\
        31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n\
        32 31 0:29 / /sys/fs/cgroup/cpu rw shared:7 master:1 - cgroup cgroup rw,cpu,cpuacct\n\
        36 31 0:33 /part /sys/fs/cgroup/devices rw - cgroup cgroup rw,devices\n\
        37 31 0:34 / /sys/fs/cgroup/freezer rw,relatime - cgroup cgroup rw,freezer\n\
        40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n\
        41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";

    fn place(controllers: &str) -> Option<String> {
        let all = Hierarchies::parse(LINES).mounted;
        all.into_iter().find(|mounted| mounted.has(controllers)).map(|mounted| mounted.at)
    }

    #[test]
    fn a_hierarchy_is_found_by_its_controllers() {
        assert_eq!(place("cpuacct,cpu").as_deref(), Some("/sys/fs/cgroup/cpu"));
        assert_eq!(place("freezer").as_deref(), Some("/sys/fs/cgroup/freezer"));
        assert_eq!(place("name=systemd").as_deref(), Some("/sys/fs/cgroup/systemd"));
        for none in ["memory", "cpu,memory", "systemd"] {
            assert_eq!(place(none), None, "{none}");
        }
    }

    #[test]
    fn a_mount_of_a_part_is_not_the_hierarchy() {
        assert_eq!(place("devices"), None);
    }

    #[test]
    fn what_is_mounted_over_is_not_opened() {
        let mounted = |device| Mounted { device, at: "/proc".into(), options: "rw,x".into() };
        let device = fstat(std::fs::File::open("/proc").unwrap()).unwrap().st_dev;
        assert!(mounted((major(device), minor(device))).open().is_some());
        assert!(mounted((major(device), minor(device) + 1)).open().is_none());
    }
}
