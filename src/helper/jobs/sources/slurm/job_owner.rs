//! Finds the accounts that a job may belong to whose daemon does not answer, by what the kernel and root's records show.
//!
//! The result determines how long a login waits, never which job it joins; and whose processes outside of jobs a
//! command leaves alone. If something cannot be read, the job may be anybody's.

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::jobs::records::{LoginTarget, Record, Registry, Via};
use crate::jobs::sources::doubt::PossibleOwners;
use crate::jobs::sources::processes::list_numbers;
use crate::node::Tree;
use kernel::cgroup::Membership;
use kernel::proc::{Proc, read, read_record};
use kernel::sys::nsfs::namespace_owner;
use protocol::{CgroupPath, JobId};

/// Maximum processes and cgroups of a job that are read. Who has a process among the first of them counts: a job with
/// more is not everybody's.
const JOB_PROCESSES_MAX: usize = 1024;
const JOB_CGROUPS_MAX: usize = 256;
/// Mounts of cgroup version 2: unified and hybrid.
const CGROUP_MOUNTS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
/// Controllers in whose hierarchies of cgroup v1 Slurm has cgroups of its own for jobs (`src/plugins/cgroup/v1` of Slurm
/// 22.05). In the others, and in systemd's `name=systemd`, only others make any.
const V1_CONTROLLERS: [&str; 5] = ["freezer", "cpuset", "memory", "devices", "cpuacct"];
/// Mode bits that let others than the owner write a directory.
const WRITABLE_BY_OTHERS: u32 = 0o022;
/// Uid of Slurm's own processes in a job.
const ROOT_UID: u32 = 0;

/// Finds the owners of jobs, for one query of all daemons.
#[derive(Debug)]
pub(super) struct OwnerSearch<'a> {
    tree: &'a Tree,
    /// The records of Slurm's prolog; `None` if there is no registry to read.
    records: Option<&'a Registry>,
    /// The step daemons by their titles, which are read once, and only if a daemon lets nobody in.
    titles: OnceCell<BTreeMap<JobId, Vec<i32>>>,
    found: RefCell<BTreeMap<JobId, PossibleOwners>>,
}

impl<'a> OwnerSearch<'a> {
    pub(super) fn new(tree: &'a Tree, records: Option<&'a Registry>) -> Self {
        Self {
            tree,
            records,
            titles: OnceCell::new(),
            found: RefCell::default(),
        }
    }

    /// Finds the accounts that the job of the daemon `pid` may belong to: the one that the cgroup that Slurm made for it
    /// names, or those that have processes in it; if only root has, the one with Slurm's record of the job. `None`
    /// stands for a daemon that was never connected to, as its queue is full: its title shows its process.
    pub(super) fn find(&self, job: &JobId, pid: Option<i32>) -> PossibleOwners {
        if let Some(known) = self.found.borrow().get(job) {
            return known.clone();
        }
        let owners = self.search(job, pid);
        self.found.borrow_mut().insert(job.clone(), owners.clone());
        owners
    }

    fn search(&self, job: &JobId, pid: Option<i32>) -> PossibleOwners {
        let mut uids = BTreeSet::new();
        for daemon in pid.map_or_else(|| self.find_daemons(job), |pid| vec![pid]) {
            uids.extend(self.find_shown_owners(job, daemon));
        }
        if uids.is_empty() {
            uids.extend(self.find_recorded_owners(job));
        }
        PossibleOwners::from_uids(uids)
    }

    /// Finds the accounts that the cgroup of a daemon shows; none if it shows only root's, or nothing.
    fn find_shown_owners(&self, job: &JobId, pid: i32) -> BTreeSet<u32> {
        let proc = self.proc();
        let text = read(proc.dir(pid).join("cgroup")).unwrap_or_default();
        if let Some(owner) = self.find_named_owner(&text, job) {
            return BTreeSet::from([owner]);
        }
        let Some(path) = unified_path(&text).and_then(job_of_step_daemon) else {
            return BTreeSet::new();
        };
        let mut uids = BTreeSet::new();
        // At a mount point without cgroup v2 no process is found.
        for mount in CGROUP_MOUNTS {
            let dir = locate_cgroup(self.tree, mount, &path);
            // What was found before the error counts.
            let _ = add_owners(&proc, &dir, &mut uids);
        }
        uids.remove(&ROOT_UID);
        uids
    }

    /// Finds the daemons of a job's steps by their titles.
    fn find_daemons(&self, job: &JobId) -> Vec<i32> {
        let titles = self.titles.get_or_init(|| self.read_titles());
        titles.get(job).cloned().unwrap_or_default()
    }

    /// Reads the titles of all step daemons. Any process can have such a title, and a process of a user can be in a
    /// cgroup with such a name; so the cgroup must be one that root has made, as Slurm does.
    fn read_titles(&self) -> BTreeMap<JobId, Vec<i32>> {
        let proc = self.proc();
        let mut titles: BTreeMap<JobId, Vec<i32>> = BTreeMap::new();
        for pid in list_numbers(&proc.at).into_iter().flatten().flatten() {
            let command = read_record(proc.dir(pid).join("cmdline")).unwrap_or_default();
            if let Some(job) = job_of_title(&command).filter(|job| self.is_daemon_of(job, pid)) {
                titles.entry(job).or_default().push(pid);
            }
        }
        titles
    }

    /// Tells whether a process is in the cgroup that Slurm makes for the daemons of this job's steps.
    fn is_daemon_of(&self, job: &JobId, pid: i32) -> bool {
        let text = read(self.proc().dir(pid).join("cgroup")).unwrap_or_default();
        if self.find_named_owner(&text, job).is_some() {
            return true;
        }
        let Some(path) = unified_path(&text).filter(|path| job_of_step_daemon(path).is_some())
        else {
            return false;
        };
        CGROUP_MOUNTS.iter().any(|mount| {
            let dir = self.tree.locate(mount).join(path.trim_start_matches('/'));
            self.is_made_by_root(&dir)
        })
    }

    /// Finds the owner that the paths of cgroup v1 in the text of a process's `cgroup` name for this job. A user may have
    /// made a cgroup with such a name, also in cgroup v2: so only a path counts whose cgroups of the user and the job are
    /// root's, in a hierarchy that Slurm uses.
    fn find_named_owner(&self, text: &str, job: &JobId) -> Option<u32> {
        let membership = Membership::parse(text)?;
        membership.v1_hierarchies().find_map(|(controllers, path)| {
            let is_slurms = |name: &&str| V1_CONTROLLERS.contains(name);
            let controller = controllers.split(',').find(is_slurms)?;
            let (owner, cgroup) = named_owner(path, job)?;
            let mount = self.tree.locate("/sys/fs/cgroup").join(controller);
            let dir = mount.join(cgroup.trim_start_matches('/'));
            let is_made_by_root = self.is_made_by_root(&dir) && self.is_made_by_root(dir.parent()?);
            is_made_by_root.then_some(owner)
        })
    }

    /// Tells whether a cgroup is root's, and nobody else may make cgroups in it.
    fn is_made_by_root(&self, dir: &Path) -> bool {
        fs::metadata(dir).is_ok_and(|status| {
            status.uid() == self.tree.trust().owner() && status.mode() & WRITABLE_BY_OTHERS == 0
        })
    }

    /// Finds the users with a record of this job that leaves its place to Slurm: root's prolog has written it.
    fn find_recorded_owners(&self, job: &JobId) -> Vec<u32> {
        let jobs = self
            .records
            .and_then(|records| records.find_jobs(self.tree.trust(), job).ok());
        let is_slurms = |record: &Record| record.target == LoginTarget::Via(Via::Slurm);
        jobs.into_iter()
            .flatten()
            .filter(|registered| registered.record.as_ref().is_ok_and(is_slurms))
            .map(|registered| registered.uid)
            .collect()
    }

    fn proc(&self) -> Proc {
        Proc::with_root(self.tree.locate("/proc"))
    }
}

/// The path in cgroup v2 of a process, by the text of its `cgroup`.
fn unified_path(text: &str) -> Option<&str> {
    text.lines().find_map(|line| line.strip_prefix("0::"))
}

/// Derives the job's cgroup from that of the daemon of one of its steps, `JOB/step_extern/slurm`; `None` for a daemon
/// that is elsewhere.
fn job_of_step_daemon(path: &str) -> Option<CgroupPath> {
    let (job, step) = path.strip_suffix("/slurm")?.rsplit_once('/')?;
    step.starts_with("step_").then(|| job.parse().ok())?
}

/// Parses the title of a step daemon, `slurmstepd: [7.extern]` (`_set_job_log_prefix` of Slurm's slurmstepd.c, the same
/// from 22.05 to 26.05); `None` for another command.
fn job_of_title(command: &str) -> Option<JobId> {
    let (job, _step) = command.strip_prefix("slurmstepd: [")?.split_once('.')?;
    job.parse().ok()
}

/// Finds the owner that Slurm's path of a job on cgroup v1 names, and the job's own path: `/slurm/uid_1001/job_7` of
/// `/slurm/uid_1001/job_7/step_0`; `None` for another path or another job's.
fn named_owner<'a>(path: &'a str, job: &JobId) -> Option<(u32, &'a str)> {
    let (above, rest) = path.split_once("/uid_")?;
    let mut names = rest.split('/');
    let (uid, name) = (names.next()?, names.next()?);
    if name.strip_prefix("job_")? != job.as_str() {
        return None;
    }
    let cgroup = path.get(..above.len() + "/uid_".len() + uid.len() + 1 + name.len())?;
    // A path out of the hierarchy's root is of another cgroup namespace.
    let is_inside = !cgroup.split('/').any(|part| part == "..");
    is_inside.then_some((uid.parse().ok()?, cgroup))
}

/// The directory of a cgroup at one of the places where cgroup v2 may be mounted.
fn locate_cgroup(tree: &Tree, mount: &str, path: &CgroupPath) -> PathBuf {
    tree.locate(mount).join(path.relative())
}

/// Adds the uids of the processes in a cgroup and below it. Processes that are gone or hidden are passed over.
///
/// # Errors
///
/// As `read(2)` for a cgroup that exists and cannot be read, and [`ErrorKind::Other`] for one with
/// too many processes or cgroups. The uids that were found before are added all the same.
fn add_owners(proc: &Proc, top: &Path, uids: &mut BTreeSet<u32>) -> io::Result<()> {
    let mut dirs = vec![top.to_owned()];
    let mut processes: usize = 0;
    let mut cgroups: usize = 0;
    while let Some(dir) = dirs.pop() {
        let text = match read(dir.join("cgroup.procs")) {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            text => text?,
        };
        for pid in text.lines().filter_map(|line| line.parse().ok()) {
            processes += 1;
            if processes > JOB_PROCESSES_MAX {
                return Err(ErrorKind::Other.into());
            }
            uids.extend(proc.effective_uid(pid));
            // A container without root has other uids. Only root can read whose it is, and only of the node's processes.
            if proc.at == Path::new("/proc") {
                uids.extend(namespace_owner(pid).ok().flatten());
            }
        }
        for entry in fs::read_dir(&dir)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                cgroups += 1;
                dirs.push(entry.path());
            }
        }
        if cgroups > JOB_CGROUPS_MAX {
            return Err(ErrorKind::Other.into());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;
    use std::os::unix::fs::chown;

    const SLURM: &str = "system.slice/slurmstepd.scope/sEKNKTV3WPV500";

    fn job(id: &str) -> JobId {
        id.parse().unwrap()
    }

    fn only(uids: &[u32]) -> PossibleOwners {
        PossibleOwners::Only(uids.iter().copied().collect())
    }

    fn find(tree: &Tree, id: &str, pid: Option<i32>) -> PossibleOwners {
        OwnerSearch::new(tree, None).find(&job(id), pid)
    }

    /// Writes that a process is in this cgroup of a hierarchy, which root has made.
    fn write_v1(scratch: &Scratch, pid: u32, hierarchy: &str, path: &str) {
        let line = format!("2:{hierarchy}:{path}\n0::/\n");
        scratch.file(&format!("proc/{pid}/cgroup"), &line);
        for controller in hierarchy.trim_start_matches("name=").split(',') {
            scratch.dir(&format!("sys/fs/cgroup/{controller}{path}"));
        }
    }

    /// Writes a daemon of job 7 with the title of its extern step, and processes with these uids in a step of the job.
    fn write_job(scratch: &Scratch, uids: &[u32]) -> Tree {
        scratch.file("proc/7/cgroup", &format!("0::/{SLURM}/step_extern/slurm\n"));
        scratch.file("proc/7/cmdline", "slurmstepd: [7.extern]\0");
        let cgroup = |name: &str, pids: &str| {
            scratch.file(&format!("sys/fs/cgroup/{SLURM}/{name}cgroup.procs"), pids);
        };
        let pids: String = (0..uids.len())
            .map(|at| format!("{}\n", 100 + at))
            .collect();
        cgroup("", "");
        cgroup("step_extern/", "");
        cgroup("step_extern/slurm/", "7\n");
        cgroup("step_batch/", "");
        cgroup("step_batch/user/", &format!("{pids}9\n"));
        for (at, uid) in uids.iter().enumerate() {
            let dir = scratch.dir(&format!("proc/{}", 100 + at));
            chown(&dir, Some(*uid), None).unwrap();
        }
        Tree::with_root(scratch.path(), scratch.trust())
    }

    #[test]
    fn path_on_cgroup_v1_names_owner() {
        let scratch = Scratch::new();
        let tree = Tree::with_root(scratch.path(), scratch.trust());
        write_v1(&scratch, 7, "freezer", "/slurm_n1/uid_6/job_7/step_extern");
        assert_eq!(find(&tree, "7", Some(7)), only(&[6]));
        let other = find(&tree, "8", Some(7));
        assert_eq!(other, PossibleOwners::Any, "the path is not that job's");
        let gone = find(&tree, "7", Some(9));
        assert_eq!(gone, PossibleOwners::Any, "the process is gone");
        scratch.file("proc/7/cmdline", "slurmstepd: [7.extern]\0");
        assert_eq!(find(&tree, "7", None), only(&[6]), "by its title");
    }

    #[test]
    fn processes_on_cgroup_v2_show_owners() {
        if !nix::unistd::Uid::effective().is_root() {
            return crate::testing::skip("needs root");
        }
        for (uids, expected) in [
            (&[][..], PossibleOwners::Any),
            (&[0], PossibleOwners::Any),
            (&[0, 6], only(&[6])),
            (&[6, 5, 6], only(&[5, 6])),
        ] {
            let scratch = Scratch::new();
            let tree = write_job(&scratch, uids);
            assert_eq!(find(&tree, "7", Some(7)), expected, "{uids:?}");
            assert_eq!(find(&tree, "7", None), expected, "{uids:?}, by its title");
        }
    }

    /// Its user would be in doubt alone, and could put everybody in doubt by starting so many.
    #[test]
    fn job_with_more_processes_than_are_read_is_not_everybodys() {
        if !nix::unistd::Uid::effective().is_root() {
            return crate::testing::skip("needs root");
        }
        let scratch = Scratch::new();
        let tree = write_job(&scratch, &[6; JOB_PROCESSES_MAX + 1]);
        assert_eq!(find(&tree, "7", Some(7)), only(&[6]));
    }

    /// As in an allocation in which nothing runs.
    #[test]
    fn record_of_prolog_shows_owner_of_job_with_processes_of_root_alone() {
        if !nix::unistd::Uid::effective().is_root() {
            return crate::testing::skip("needs root");
        }
        let scratch = Scratch::new();
        let tree = write_job(&scratch, &[0]);
        let records = Registry::new(&scratch.dir("jobs"));
        let write = |uid: u32, id: &str, place: &str| {
            let text = format!(r#"{{"version":1,"id":"{id}","uid":{uid},{place},"cdi":[]}}"#);
            scratch.file(&format!("jobs/{uid}/{id}.json"), &text);
        };
        let owners = |id: &str| OwnerSearch::new(&tree, Some(&records)).find(&job(id), Some(7));
        write(5, "7", r#""cgroup":"/x""#);
        write(5, "8", r#""via":"slurm""#);
        assert_eq!(owners("7"), PossibleOwners::Any, "another scheduler's job");
        write(6, "7", r#""via":"slurm""#);
        assert_eq!(owners("7"), only(&[6]));
        scratch.dir("proc/100");
        chown(scratch.path().join("proc/100"), Some(5), None).unwrap();
        assert_eq!(owners("7"), only(&[5]), "processes come first");
    }

    /// A user could give bob's job away to alice, and have bob's processes ended.
    #[test]
    fn title_of_a_process_in_a_cgroup_of_a_user_shows_nothing() {
        if !nix::unistd::Uid::effective().is_root() {
            return crate::testing::skip("needs root");
        }
        let scratch = Scratch::new();
        let tree = write_job(&scratch, &[6]);
        let daemons = scratch
            .path()
            .join(format!("sys/fs/cgroup/{SLURM}/step_extern/slurm"));
        chown(&daemons, Some(6), None).unwrap();
        assert_eq!(find(&tree, "7", None), PossibleOwners::Any);
        chown(&daemons, Some(0), None).unwrap();
        for title in [
            "slurmstepd: [70.extern]\0",
            "slurmstepd infinity\0",
            "x: [7.extern]\0",
        ] {
            scratch.file("proc/7/cmdline", title);
            assert_eq!(find(&tree, "7", None), PossibleOwners::Any, "{title}");
        }
        scratch.file("proc/7/cmdline", "slurmstepd: [7.extern stepmgr]\0");
        assert_eq!(find(&tree, "7", None), only(&[6]));
    }

    /// A user who may make cgroups somewhere could give bob's job away to alice, and have bob's processes ended.
    #[test]
    fn path_of_cgroup_v1_shows_nothing_where_slurm_does_not_make_it() {
        if !nix::unistd::Uid::effective().is_root() {
            return crate::testing::skip("needs root");
        }
        const FORGED: &str = "/user.slice/user-8.slice/x/uid_5/job_7/step_extern";
        for hierarchy in ["", "name=systemd", "name=freezer", "perf_event", "freezer"] {
            for (uids, expected) in [(&[0][..], PossibleOwners::Any), (&[6], only(&[6]))] {
                let scratch = Scratch::new();
                let tree = write_job(&scratch, uids);
                write_v1(&scratch, 66, hierarchy, FORGED);
                scratch.file("proc/66/cmdline", "slurmstepd: [7.extern]\0");
                if hierarchy == "freezer" {
                    let dir = format!("sys/fs/cgroup/freezer{FORGED}");
                    for made in Path::new(&dir).ancestors().skip(1).take(2) {
                        chown(scratch.path().join(made), Some(8), None).unwrap();
                    }
                }
                assert_eq!(find(&tree, "7", None), expected, "{hierarchy:?}, {uids:?}");
                assert_eq!(
                    find(&tree, "7", Some(66)),
                    PossibleOwners::Any,
                    "{hierarchy:?}"
                );
            }
        }
    }

    #[test]
    fn cgroup_that_others_may_write_shows_nothing() {
        let scratch = Scratch::new();
        let tree = Tree::with_root(scratch.path(), scratch.trust());
        for controllers in ["freezer", "cpu,cpuacct", "memory"] {
            write_v1(&scratch, 7, controllers, "/slurm/uid_6/job_7/step_0");
            assert_eq!(find(&tree, "7", Some(7)), only(&[6]), "{controllers}");
        }
        for dir in ["uid_6", "uid_6/job_7"] {
            let path = format!("sys/fs/cgroup/memory/slurm/{dir}");
            scratch.mode(&path, 0o777);
            assert_eq!(find(&tree, "7", Some(7)), PossibleOwners::Any, "{dir}");
            scratch.mode(&path, 0o755);
        }
        assert_eq!(find(&tree, "7", Some(7)), only(&[6]));
    }
}
