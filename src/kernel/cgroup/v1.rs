//! Opens cgroup v1 hierarchies by their mounts (proc(5), `/proc/PID/mountinfo`), one for each controller or set of
//! controllers, and finds a Slurm job's cgroups in them.
//!
//! A Slurm job has `/slurm_NODE/uid_UID/job_ID/step_extern` in the hierarchies of freezer, devices, cpuset, memory
//! and cpuacct, if the site's configuration uses them. The step's daemon stays in its job's cgroup in the
//! freezer's hierarchy, by which Slurm kills, and in its step's cgroup in the hierarchies whose limits it keeps
//! (`src/plugins/cgroup/v1` of Slurm 22.05).

use super::hierarchy::MountInfo;
use super::{Cpuset, Dir, Error, Membership, Result, ignore_gone};
use crate::OperationError;
use crate::mounts::OWN_TABLE;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::{Mode, fstat, major, minor, stat};
use protocol::{CgroupPath, is_within};
use std::fs::File;
use std::io::{BufRead, BufReader};

/// Size of the parts in which the list of mounts is read: as much as the kernel writes at once.
const LIST_PART_BYTES: usize = 4096;

impl MountInfo {
    /// Reads the mounts of the v1 hierarchies of a process, up to the last of those that it needs. The kernel writes the
    /// list while it is read, at some 5 us for each mount, and a node may have thousands; hierarchies are mounted at
    /// boot, and so come first. The list is read to its end if a hierarchy is not mounted, or covered.
    ///
    /// # Errors
    ///
    /// As `open(2)` and `read(2)`.
    pub fn read_hierarchies(process: &Membership) -> Result<Vec<Self>> {
        let failed = |error| OperationError::new("read", OWN_TABLE, error);
        let hierarchies = process.v1_hierarchies();
        let mut missing: Vec<&str> = hierarchies.map(|(controllers, _)| controllers).collect();
        let mut mounts = Vec::new();
        let file = File::open(OWN_TABLE).map_err(failed)?;
        for line in BufReader::with_capacity(LIST_PART_BYTES, file).split(b'\n') {
            let line = line.map_err(failed)?;
            let Some(mount) = Self::parse(&String::from_utf8_lossy(&line)) else {
                continue;
            };
            if mount.kind != "cgroup" {
                continue;
            }
            // Only a mount that would count is looked at: one below a container may be on a file system that hangs.
            let is_needed = missing
                .iter()
                .any(|controllers| mount.has_controllers(controllers));
            if is_needed && mount.is_visible() {
                missing.retain(|controllers| !mount.has_controllers(controllers));
            }
            mounts.push(mount);
            if missing.is_empty() {
                break;
            }
        }
        Ok(mounts)
    }

    /// Tells whether no other file system covers the mount.
    fn is_visible(&self) -> bool {
        stat(self.at.as_str())
            .is_ok_and(|stat| (major(stat.st_dev), minor(stat.st_dev)) == self.device)
    }

    /// Tells whether this mount is the whole v1 hierarchy of these controllers: its options name each of them.
    fn has_controllers(&self, controllers: &str) -> bool {
        if self.kind != "cgroup" || self.root != "/" {
            return false;
        }
        controllers
            .split(',')
            .all(|controller| self.options.split(',').any(|option| option == controller))
    }

    /// Opens the root of the mount; `None` if another mount covers it, or it is gone.
    fn open_root(&self) -> Option<Dir> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let fd = open(self.at.as_str(), flags, Mode::empty()).ok()?;
        let device = fstat(&fd).ok()?.st_dev;
        ((major(device), minor(device)) == self.device).then(|| Dir::new(fd, ""))
    }
}

/// Opens the root of the hierarchy with these controllers, which are written as in `/proc/PID/cgroup`; `None` if
/// its root is not visible.
pub(super) fn open_root(mounts: &[MountInfo], controllers: &str) -> Option<Dir> {
    let mut matching = mounts
        .iter()
        .rev()
        .filter(|mount| mount.has_controllers(controllers));
    matching.find_map(MountInfo::open_root)
}

/// Opens the cgroup of a path in the hierarchy of a controller, or its nearest ancestor that exists; `None` if
/// the root of the hierarchy is not visible.
///
/// # Errors
///
/// As [`Dir::child`], except for a cgroup that does not exist.
pub fn open_nearest(
    mounts: &[MountInfo],
    controller: &str,
    path: &CgroupPath,
) -> Result<Option<Dir>> {
    let Some(mut dir) = open_root(mounts, controller) else {
        return Ok(None);
    };
    for name in path.relative().split('/') {
        let Some(child) = ignore_gone(dir.child(name))? else {
            break;
        };
        dir = child;
    }
    Ok(Some(dir))
}

/// Path of the extern step's cgroup below its job's.
const STEP_SUFFIX: &str = "/step_extern";

/// Controllers whose limits hold for a login wherever the step's daemon is.
const LIMIT_CONTROLLERS: [&str; 2] = ["cpuset", "memory"];

/// A job's cgroups on cgroup v1, derived from the cgroups of its extern step's daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobCgroups {
    path: String,
    /// Controllers of each hierarchy that the job uses.
    pub hierarchies: Vec<String>,
}

impl JobCgroups {
    /// Derives the job's cgroups from the daemon's; `None` for a daemon that is in no job on cgroup v1: it has not
    /// entered the job yet, or has left it, or the node uses cgroup v2. Any other path in the freezer's hierarchy is
    /// taken for the job's: root's daemon is where Slurm has put it, and the form of Slurm's paths differs by version.
    pub fn from_daemon(daemon: &Membership) -> Option<Self> {
        let freezer = daemon.path_of_controller("freezer")?;
        // In the freezer's hierarchy the daemon is in its job's cgroup or in its step's, once it has entered the job.
        let path = freezer.strip_suffix(STEP_SUFFIX).unwrap_or(freezer);
        // The root is no job's cgroup: its only name is empty. A path with ".." is outside of this process's cgroup
        // namespace.
        let names = path.strip_prefix('/')?.split('/');
        if names.into_iter().any(|name| matches!(name, "" | "..")) {
            return None;
        }
        let step = format!("{path}{STEP_SUFFIX}");
        let mut hierarchies = Vec::new();
        for (controllers, cgroup) in daemon.v1_hierarchies() {
            if cgroup == path || cgroup == step {
                hierarchies.push(controllers.to_owned());
            }
        }
        Some(Self {
            path: path.to_owned(),
            hierarchies,
        })
    }

    /// Adds the hierarchies with limits in which the step has a cgroup, although its daemon is elsewhere: the daemon
    /// of Slurm 24.11 stays out of the job's memory cgroup. A hierarchy that is not mounted here is left out.
    ///
    /// # Errors
    ///
    /// As [`Dir::child`], except for a cgroup that does not exist.
    pub fn add_limits(&mut self, daemon: &Membership, mounts: &[MountInfo]) -> Result<()> {
        for (controllers, _) in daemon.v1_hierarchies() {
            let has_limits = controllers
                .split(',')
                .any(|name| LIMIT_CONTROLLERS.contains(&name));
            if !has_limits || self.hierarchies.iter().any(|known| known == controllers) {
                continue;
            }
            let Some(root) = open_root(mounts, controllers) else {
                continue;
            };
            if self.has_step_below(root)? {
                self.hierarchies.push(controllers.to_owned());
            }
        }
        Ok(())
    }

    /// Tells whether the step has a cgroup in the hierarchy with this root.
    fn has_step_below(&self, root: Dir) -> Result<bool> {
        let mut dir = root;
        // The path begins with `/`, so that its first part is empty.
        for name in self.step().split('/').skip(1) {
            let Some(child) = ignore_gone(dir.child(name))? else {
                return Ok(false);
            };
            dir = child;
        }
        Ok(true)
    }

    /// The path of the cgroup for logins, which is the same in each hierarchy.
    pub fn step(&self) -> String {
        format!("{}{STEP_SUFFIX}", self.path)
    }

    /// Tells whether the job uses the devices controller, by which Slurm constrains its devices.
    pub fn has_devices(&self) -> bool {
        let mut controllers = self.hierarchies.iter().flat_map(|list| list.split(','));
        controllers.any(|controller| controller == "devices")
    }

    /// Opens the extern step's cgroup in the freezer's hierarchy, and its ancestors except for the root, which has no
    /// freezer. The step's cgroup is the last.
    ///
    /// # Errors
    ///
    /// [`Error::UnexpectedState`] if the hierarchy is not mounted here; as [`Dir::child`], `ENOENT` for a step that
    /// is gone.
    pub fn open_freezers(&self, mounts: &[MountInfo]) -> Result<Vec<Dir>> {
        let why = "is in the hierarchy of the freezer, which is not mounted here";
        let levels = self.open_levels("freezer", mounts)?;
        levels.ok_or_else(|| Error::unfit(&self.step(), why))
    }

    /// Opens the extern step's cgroup in the hierarchy of a controller, and its ancestors except for the root. The
    /// step's cgroup is the last. `None` if the job has none there, or if that hierarchy is not mounted here.
    ///
    /// # Errors
    ///
    /// As [`Dir::child`], `ENOENT` for a step that is gone.
    pub fn open_levels(&self, controller: &str, mounts: &[MountInfo]) -> Result<Option<Vec<Dir>>> {
        let Some(root) = self.open_hierarchy(controller, mounts) else {
            return Ok(None);
        };
        let mut levels: Vec<Dir> = Vec::new();
        // The path begins with `/`, so that its first part is empty.
        for name in self.step().split('/').skip(1) {
            levels.push(levels.last().unwrap_or(&root).child(name)?);
        }
        Ok(Some(levels))
    }

    /// Opens the root of a controller's hierarchy, if the job has a cgroup there.
    fn open_hierarchy(&self, controller: &str, mounts: &[MountInfo]) -> Option<Dir> {
        let mut hierarchies = self.hierarchies.iter();
        let hierarchy = hierarchies.find(|list| list.split(',').any(|name| name == controller))?;
        open_root(mounts, hierarchy)
    }

    /// Reads the cpuset of a cgroup, by its path in the hierarchy of cpusets; `None` if the job has none there, or if that
    /// hierarchy is not mounted here. Slurm makes one for a job only with `ConstrainCores`.
    ///
    /// # Errors
    ///
    /// As [`Dir::child`] and [`Dir::read`].
    pub fn read_cpuset(&self, cgroup: &str, mounts: &[MountInfo]) -> Result<Option<Cpuset>> {
        let Some(root) = self.open_hierarchy("cpuset", mounts) else {
            return Ok(None);
        };
        Cpuset::read_v1(&root.child(cgroup.trim_start_matches('/'))?).map(Some)
    }

    /// Requires that a process is in the extern step, in every hierarchy that the job uses.
    ///
    /// # Errors
    ///
    /// [`Error::UnexpectedState`] for the first hierarchy in which it is not.
    pub fn require_in_step(&self, login: &Membership) -> Result<()> {
        let step = self.step();
        for hierarchy in &self.hierarchies {
            let path = login.path(hierarchy).unwrap_or_default();
            if !is_within(path, &step) {
                return Err(Error::elsewhere(
                    &format!("{hierarchy}:{step}"),
                    &format!("{hierarchy}:{path}"),
                ));
            }
        }
        Ok(())
    }
}

/// Finds the first of these cgroups in which a process would stop; `None` if it would run in all of them, or has no
/// freezer there. A process stops in any state but `THAWED`, and the state of a cgroup follows its ancestors
/// (freezer-subsystem.rst).
///
/// # Errors
///
/// As [`Dir::read`].
pub fn find_stopped(levels: &[Dir]) -> Result<Option<&Dir>> {
    for dir in levels {
        let state = dir.read("freezer.state")?;
        if state.is_some_and(|state| state.trim_end() != "THAWED") {
            return Ok(Some(dir));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::testing::Scratch;

    const DAEMON: &str = "\
        9:name=systemd:/\n7:blkio:/\n\
        6:freezer:/slurm_n/uid_1001/job_7\n\
        5:devices:/slurm_n/uid_1001/job_7/step_extern\n\
        4:memory:/slurm_n/uid_1001/job_7/step_extern\n\
        2:cpu,cpuacct:/\n0::/\n";

    const LOGIN: &str = "\
        9:name=systemd:/user.slice\n7:blkio:/\n\
        6:freezer:/slurm_n/uid_1001/job_7/step_extern\n\
        5:devices:/slurm_n/uid_1001/job_7/step_extern\n\
        4:memory:/slurm_n/uid_1001/job_7/step_extern/task_0\n\
        2:cpu,cpuacct:/slurm_n/uid_1001/job_7/step_extern/task_0\n0::/\n";

    fn membership(text: &str) -> Membership {
        Membership::parse(text).unwrap()
    }

    fn job() -> JobCgroups {
        JobCgroups::from_daemon(&membership(DAEMON)).unwrap()
    }

    #[test]
    fn cgroups_of_job_follow_from_its_daemon() {
        let job = job();
        assert_eq!(job.step(), "/slurm_n/uid_1001/job_7/step_extern");
        assert_eq!(job.hierarchies, ["freezer", "devices", "memory"]);
        assert!(job.has_devices());
        let unconstrained = DAEMON.replace(
            "5:devices:/slurm_n/uid_1001/job_7/step_extern",
            "5:devices:/",
        );
        let has_devices = |text: &str| {
            JobCgroups::from_daemon(&membership(text))
                .unwrap()
                .has_devices()
        };
        assert!(!has_devices(&unconstrained));
        let shared = DAEMON.replace("5:devices:", "5:pids,devices:");
        assert!(has_devices(&shared), "one mount of two");
    }

    #[test]
    fn step_cgroup_with_limits_is_required_without_its_daemon() {
        let scratch = Scratch::new();
        let device = fstat(std::fs::File::open(scratch.path()).unwrap())
            .unwrap()
            .st_dev;
        let mounts = ["memory", "cpu,cpuacct", "cpuset"].map(|controllers| {
            let line = format!("32 31 0:29 / / rw - cgroup cgroup rw,{controllers}");
            let at = format!("{}/{controllers}", scratch.path().display());
            let device = (major(device), minor(device));
            scratch.dir(controllers);
            MountInfo {
                at,
                device,
                ..MountInfo::parse(&line).unwrap()
            }
        });
        for controllers in ["memory", "cpu,cpuacct"] {
            scratch.dir(&format!("{controllers}/slurm_n/uid_1001/job_7/step_extern"));
        }
        let daemon = membership(
            "6:freezer:/slurm_n/uid_1001/job_7\n4:memory:/\n3:cpuset:/\n2:cpu,cpuacct:/\n0::/\n",
        );
        let mut job = JobCgroups::from_daemon(&daemon).unwrap();
        job.add_limits(&daemon, &[]).unwrap();
        assert_eq!(job.hierarchies, ["freezer"], "not mounted");
        job.add_limits(&daemon, &mounts).unwrap();
        assert_eq!(job.hierarchies, ["freezer", "memory"]);
        job.add_limits(&daemon, &mounts).unwrap();
        assert_eq!(job.hierarchies, ["freezer", "memory"], "again");
    }

    #[test]
    fn cpuset_is_that_of_the_login_where_the_job_uses_one() {
        let scratch = Scratch::new();
        let device = fstat(std::fs::File::open(scratch.path()).unwrap())
            .unwrap()
            .st_dev;
        let mounts = [MountInfo {
            at: scratch.path().display().to_string(),
            device: (major(device), minor(device)),
            ..MountInfo::parse("32 31 0:29 / / rw - cgroup cgroup rw,cpuset").unwrap()
        }];
        let step = "slurm_n/uid_1001/job_7/step_extern";
        scratch.file(&format!("{step}/cpuset.effective_cpus"), "2-3\n");
        scratch.file(&format!("{step}/cpuset.effective_mems"), "1\n");
        let daemon = DAEMON.replace("7:blkio:/", &format!("7:cpuset:/{step}"));
        let job = JobCgroups::from_daemon(&membership(&daemon)).unwrap();
        let path = format!("/{step}");
        let cpuset = job.read_cpuset(&path, &mounts).unwrap().unwrap();
        assert_eq!(
            (cpuset.cpus.as_str(), cpuset.read_mems().unwrap().as_str()),
            ("2-3", "1")
        );
        assert!(
            job.read_cpuset(&path, &[]).unwrap().is_none(),
            "not mounted"
        );
        let without = JobCgroups::from_daemon(&membership(DAEMON)).unwrap();
        assert!(without.read_cpuset(&path, &mounts).unwrap().is_none());
    }

    #[test]
    fn daemon_in_its_step_everywhere_is_in_same_job() {
        let text = DAEMON.replace("job_7\n", "job_7/step_extern\n");
        assert_eq!(JobCgroups::from_daemon(&membership(&text)), Some(job()));
    }

    #[test]
    fn daemon_outside_any_job_has_no_cgroups() {
        let from_daemon = |text: &str| JobCgroups::from_daemon(&membership(text));
        for freezer in ["/", "/../slurm_n/uid_1/job_7", "/a//b", "/step_extern"] {
            let text = format!("6:freezer:{freezer}\n0::/\n");
            assert_eq!(from_daemon(&text), None, "{freezer}");
        }
        assert_eq!(
            from_daemon("0::/system.slice/slurmstepd.scope/job_7\n"),
            None
        );
    }

    #[test]
    fn login_in_step_or_below_is_in_job() {
        job().require_in_step(&membership(LOGIN)).unwrap();
    }

    #[test]
    fn login_outside_in_one_hierarchy_is_outside() {
        for (controllers, wrong) in [
            ("freezer", "/"),
            ("devices", "/slurm_n/uid_1001/job_7"),
            ("memory", "/slurm_n/uid_1001/job_8/step_extern"),
            ("devices", "/slurm_n/uid_1001/job_7/step_externs"),
            ("memory", "/slurm_n/uid_1001/job_7/step_batch"),
        ] {
            let replace_path = |line: &str| match line.split(':').nth(1) {
                Some(list) if list == controllers => format!("0:{list}:{wrong}\n"),
                _ => format!("{line}\n"),
            };
            let text: String = LOGIN.lines().map(replace_path).collect();
            let error = job()
                .require_in_step(&membership(&text))
                .unwrap_err()
                .to_string();
            let expected = format!(
                "the login should be in {controllers}:/slurm_n/uid_1001/job_7/step_extern and \
                 is in {controllers}:{wrong}"
            );
            assert_eq!(error, expected);
        }
    }

    #[test]
    fn missing_hierarchy_counts_as_outside() {
        let text = LOGIN.replace("6:freezer", "6:frozen");
        assert!(job().require_in_step(&membership(&text)).is_err());
    }

    #[test]
    fn level_that_is_not_thawed_is_frozen() {
        let scratch = Scratch::new();
        scratch.dir("job/step");
        let levels = || -> Vec<Dir> {
            let root = std::fs::File::open(scratch.path()).unwrap();
            let job = Dir::new(root.into(), "").child("job").unwrap();
            let step = job.child("step").unwrap();
            vec![job, step]
        };
        for (job, step, frozen) in [
            ("THAWED", "THAWED", None),
            ("FROZEN", "THAWED", Some("/job")),
            ("THAWED", "FREEZING", Some("/job/step")),
        ] {
            scratch.file("job/freezer.state", &format!("{job}\n"));
            scratch.file("job/step/freezer.state", &format!("{step}\n"));
            let levels = levels();
            assert_eq!(find_stopped(&levels).unwrap().map(Dir::path), frozen);
        }
    }

    const LINES: &str = "\
        31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n\
        32 31 0:29 / /sys/fs/cgroup/cpu rw shared:7 master:1 - cgroup cgroup rw,cpu,cpuacct\n\
        36 31 0:33 /part /sys/fs/cgroup/devices rw - cgroup cgroup rw,devices\n\
        37 31 0:34 / /sys/fs/cgroup/freezer rw,relatime - cgroup cgroup rw,freezer\n\
        40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n\
        41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";

    fn mount_point(controllers: &str) -> Option<String> {
        let mut mounts = LINES.lines().filter_map(MountInfo::parse);
        mounts
            .find(|mount| mount.has_controllers(controllers))
            .map(|mount| mount.at)
    }

    #[test]
    fn hierarchy_is_found_by_its_controllers() {
        assert_eq!(
            mount_point("cpuacct,cpu").as_deref(),
            Some("/sys/fs/cgroup/cpu")
        );
        assert_eq!(
            mount_point("freezer").as_deref(),
            Some("/sys/fs/cgroup/freezer")
        );
        assert_eq!(
            mount_point("name=systemd").as_deref(),
            Some("/sys/fs/cgroup/systemd")
        );
        for absent in ["memory", "cpu,memory", "systemd"] {
            assert_eq!(mount_point(absent), None, "{absent}");
        }
    }

    #[test]
    fn mount_of_a_part_is_not_the_hierarchy() {
        assert_eq!(mount_point("devices"), None);
    }

    #[test]
    fn covered_mount_is_not_opened() {
        let line = "21 1 0:0 / /proc rw - proc proc rw";
        let mount = |device| MountInfo {
            device,
            ..MountInfo::parse(line).unwrap()
        };
        let device = fstat(std::fs::File::open("/proc").unwrap()).unwrap().st_dev;
        assert!(mount((major(device), minor(device))).open_root().is_some());
        assert!(
            mount((major(device), minor(device) + 1))
                .open_root()
                .is_none()
        );
    }
}
