//! cgroup v1: where its hierarchies are mounted (proc(5), `/proc/PID/mountinfo`), one for each
//! controller or set of them, and where a Slurm job is in them.
//!
//! `/slurm_NODE/uid_UID/job_ID/step_extern` in the hierarchies of freezer, devices, cpuset, memory
//! and cpuacct, as far as the site's configuration uses them. A step's daemon stays in its job's
//! cgroup in the hierarchy of the freezer, which is the one that Slurm's kill goes by, and in its
//! step's in those whose limits it keeps (`src/plugins/cgroup/v1` of Slurm 22.05).

use super::place::Mounted;
use super::{Dir, Error, Membership, Result};
use nix::fcntl::{OFlag, open};
use nix::sys::stat::{Mode, fstat, major, minor};
use protocol::is_within;

impl Mounted {
    /// Whether this is the v1 hierarchy of these controllers, whole: its options name each of them.
    fn has(&self, controllers: &str) -> bool {
        let named = |wanted| self.options.split(',').any(|option| option == wanted);
        self.kind == "cgroup" && self.root == "/" && controllers.split(',').all(named)
    }

    /// Opens its root; `None` where something else is seen at that place, or nothing.
    fn open(&self) -> Option<Dir> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let fd = open(self.at.as_str(), flags, Mode::empty()).ok()?;
        let device = fstat(&fd).ok()?.st_dev;
        ((major(device), minor(device)) == self.device).then(|| Dir::new(fd, ""))
    }
}

/// Opens the root of the hierarchy that has these controllers, as `/proc/PID/cgroup` lists them;
/// `None` where it is not to be seen.
pub(super) fn root(mounts: &[Mounted], controllers: &str) -> Option<Dir> {
    mounts.iter().rev().filter(|mounted| mounted.has(controllers)).find_map(Mounted::open)
}

/// The extern step's own cgroup in each hierarchy.
const STEP: &str = "/step_extern";

/// Controllers whose limits hold for a login wherever the step's daemon is.
const LIMITS: [&str; 2] = ["cpuset", "memory"];

/// Where a job is, as the place of its extern step's daemon tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    path: String,
    /// Controllers of each hierarchy that it uses.
    pub hierarchies: Vec<String>,
}

impl Job {
    /// Finds the job of a daemon; `None` for one that is in no job on cgroup v1: it has not got
    /// there yet, or has left, or the node is one of cgroup v2.
    pub fn of(daemon: &Membership) -> Option<Self> {
        let freezer = daemon.of_controller("freezer")?;
        let path = freezer.strip_suffix(STEP).unwrap_or(freezer);
        let names = path.strip_prefix('/')?.split('/');
        if names.into_iter().any(|name| matches!(name, "" | "..")) {
            return None;
        }
        let step = format!("{path}{STEP}");
        let used = daemon.legacy().filter(|(_, place)| *place == path || *place == step);
        let hierarchies = used.map(|(controllers, _)| controllers.to_owned()).collect();
        Some(Self { path: path.to_owned(), hierarchies })
    }

    /// Adds the hierarchies with limits in which the step has a cgroup, although its daemon is
    /// elsewhere: that of Slurm 24.11 stays out of the job's memory cgroup.
    ///
    /// # Errors
    ///
    /// As [`Dir::child`], but for a cgroup that does not exist.
    pub fn add_limits(&mut self, daemon: &Membership, mounts: &[Mounted]) -> Result<()> {
        for (controllers, _) in daemon.legacy() {
            let limits = controllers.split(',').any(|name| LIMITS.contains(&name));
            if !limits || self.hierarchies.iter().any(|known| known == controllers) {
                continue;
            }
            let Some(root) = root(mounts, controllers) else { continue };
            match self.step().split('/').skip(1).try_fold(root, |dir, name| dir.child(name)) {
                Ok(_) => self.hierarchies.push(controllers.to_owned()),
                Err(error) if error.is_gone() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The cgroup of its logins, the same in each hierarchy.
    pub fn step(&self) -> String {
        format!("{}{STEP}", self.path)
    }

    /// Whether Slurm keeps its devices by a cgroup of its own.
    pub fn holds_devices(&self) -> bool {
        self.hierarchies.iter().any(|list| list.split(',').any(|found| found == "devices"))
    }

    /// Opens the extern step's cgroup in the hierarchy of the freezer, and those above it but for
    /// the root, which has no freezer: the step's last.
    /// Errors: [`Error::Wrong`] where the hierarchy is not mounted here; as [`Dir::child`],
    /// `ENOENT` for a step that is gone.
    pub fn freezers(&self, mounts: &[Mounted]) -> Result<Vec<Dir>> {
        let why = "is in the hierarchy of the freezer, which is not mounted here";
        let root = root(mounts, "freezer").ok_or_else(|| Error::unfit(&self.step(), why))?;
        let mut levels: Vec<Dir> = Vec::new();
        for name in self.step().split('/').skip(1) {
            levels.push(levels.last().unwrap_or(&root).child(name)?);
        }
        Ok(levels)
    }

    /// Checks that a process is in the extern step, in every hierarchy that the job uses.
    /// Errors: [`Error::Wrong`] for the first in which it is not.
    pub fn require(&self, login: &Membership) -> Result<()> {
        let step = self.step();
        let found = |hierarchy: &str| login.path(hierarchy).unwrap_or_default();
        match self.hierarchies.iter().find(|one| !is_within(found(one), &step)) {
            None => Ok(()),
            Some(one) => {
                Err(Error::elsewhere(&format!("{one}:{step}"), &format!("{one}:{}", found(one))))
            }
        }
    }
}

/// The first of these cgroups in which a process would stop: any state but `THAWED` is such a one,
/// be it the cgroup's own or that of one above it (freezer-subsystem.rst).
pub fn frozen_level(levels: &[Dir]) -> Result<Option<&Dir>> {
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

    fn job() -> Job {
        Job::of(&membership(DAEMON)).unwrap()
    }

    #[test]
    fn a_job_is_where_its_daemon_is() {
        let job = job();
        assert_eq!(job.step(), "/slurm_n/uid_1001/job_7/step_extern");
        assert_eq!(job.hierarchies, ["freezer", "devices", "memory"]);
        assert!(job.holds_devices());
        let unconstrained =
            DAEMON.replace("5:devices:/slurm_n/uid_1001/job_7/step_extern", "5:devices:/");
        assert!(!Job::of(&membership(&unconstrained)).unwrap().holds_devices());
        let shared = DAEMON.replace("5:devices:", "5:pids,devices:");
        assert!(Job::of(&membership(&shared)).unwrap().holds_devices(), "one mount of two");
    }

    #[test]
    fn step_cgroup_with_limits_is_required_without_its_daemon() {
        let scratch = Scratch::new();
        let device = fstat(std::fs::File::open(scratch.path()).unwrap()).unwrap().st_dev;
        let mounts = ["memory", "cpu,cpuacct", "cpuset"].map(|controllers| {
            let line = format!("32 31 0:29 / / rw - cgroup cgroup rw,{controllers}");
            let at = format!("{}/{controllers}", scratch.path().display());
            let device = (major(device), minor(device));
            scratch.dir(controllers);
            Mounted { at, device, ..Mounted::parse(&line).unwrap() }
        });
        for controllers in ["memory", "cpu,cpuacct"] {
            scratch.dir(&format!("{controllers}/slurm_n/uid_1001/job_7/step_extern"));
        }
        let daemon = membership(
            "6:freezer:/slurm_n/uid_1001/job_7\n4:memory:/\n3:cpuset:/\n2:cpu,cpuacct:/\n0::/\n",
        );
        let mut job = Job::of(&daemon).unwrap();
        job.add_limits(&daemon, &[]).unwrap();
        assert_eq!(job.hierarchies, ["freezer"], "not mounted");
        job.add_limits(&daemon, &mounts).unwrap();
        assert_eq!(job.hierarchies, ["freezer", "memory"]);
        job.add_limits(&daemon, &mounts).unwrap();
        assert_eq!(job.hierarchies, ["freezer", "memory"], "again");
    }

    #[test]
    fn a_daemon_in_its_step_everywhere_is_in_the_same_job() {
        let text = DAEMON.replace("job_7\n", "job_7/step_extern\n");
        assert_eq!(Job::of(&membership(&text)), Some(job()));
    }

    #[test]
    fn a_daemon_outside_any_job_has_none() {
        for freezer in ["/", "/../slurm_n/uid_1/job_7", "/a//b", "/step_extern"] {
            let text = format!("6:freezer:{freezer}\n0::/\n");
            assert_eq!(Job::of(&membership(&text)), None, "{freezer}");
        }
        assert_eq!(Job::of(&membership("0::/system.slice/slurmstepd.scope/job_7\n")), None);
    }

    #[test]
    fn a_login_in_the_step_or_below_is_in_the_job() {
        job().require(&membership(LOGIN)).unwrap();
    }

    #[test]
    fn one_hierarchy_elsewhere_is_enough_to_be_outside() {
        for (controllers, wrong) in [
            ("freezer", "/"),
            ("devices", "/slurm_n/uid_1001/job_7"),
            ("memory", "/slurm_n/uid_1001/job_8/step_extern"),
            ("devices", "/slurm_n/uid_1001/job_7/step_externs"),
            ("memory", "/slurm_n/uid_1001/job_7/step_batch"),
        ] {
            let moved = |line: &str| match line.split(':').nth(1) {
                Some(found) if found == controllers => format!("0:{found}:{wrong}\n"),
                _ => format!("{line}\n"),
            };
            let text: String = LOGIN.lines().map(moved).collect();
            let error = job().require(&membership(&text)).unwrap_err().to_string();
            let wanted = format!(
                "the login should be in {controllers}:/slurm_n/uid_1001/job_7/step_extern and \
                 is in {controllers}:{wrong}"
            );
            assert_eq!(error, wanted);
        }
    }

    #[test]
    fn a_hierarchy_that_has_gone_counts_as_elsewhere() {
        let text = LOGIN.replace("6:freezer", "6:frozen");
        assert!(job().require(&membership(&text)).is_err());
    }

    #[test]
    fn any_level_that_is_not_thawed_is_frozen() {
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
            assert_eq!(frozen_level(&levels).unwrap().map(Dir::path), frozen);
        }
    }

    const LINES: &str = "\
        31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n\
        32 31 0:29 / /sys/fs/cgroup/cpu rw shared:7 master:1 - cgroup cgroup rw,cpu,cpuacct\n\
        36 31 0:33 /part /sys/fs/cgroup/devices rw - cgroup cgroup rw,devices\n\
        37 31 0:34 / /sys/fs/cgroup/freezer rw,relatime - cgroup cgroup rw,freezer\n\
        40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n\
        41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";

    fn place(controllers: &str) -> Option<String> {
        let mut all = LINES.lines().filter_map(Mounted::parse);
        all.find(|mounted| mounted.has(controllers)).map(|mounted| mounted.at)
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
        let line = "21 1 0:0 / /proc rw - proc proc rw";
        let mounted = |device| Mounted { device, ..Mounted::parse(line).unwrap() };
        let device = fstat(std::fs::File::open("/proc").unwrap()).unwrap().st_dev;
        assert!(mounted((major(device), minor(device))).open().is_some());
        assert!(mounted((major(device), minor(device) + 1)).open().is_none());
    }
}
