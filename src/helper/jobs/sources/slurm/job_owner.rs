//! Finds the owner of a job whose daemon does not answer, as far as the kernel shows it.
//!
//! The result determines how long a login waits, never which job it joins. If something cannot be
//! read, the job counts as possibly the user's.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::node::Tree;
use kernel::proc::{Proc, read};
use protocol::{CgroupPath, JobId};
use schedulers::stepd::job_of_daemon;

/// Maximum processes and cgroups of a job that are read.
const JOB_PROCESSES_MAX: usize = 1024;
const JOB_CGROUPS_MAX: usize = 256;
/// Mounts of cgroup version 2: unified and hybrid.
const CGROUP_MOUNTS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
/// Uid of Slurm's own processes in a job.
const ROOT_UID: u32 = 0;

/// Tells whether the job of the daemon `pid` may be this user's: `false` only if the cgroup that
/// Slurm made for it names another user, or other users have processes in it and this one has none. A daemon that was
/// never connected to has the number 0, and may be of this user's job.
pub(super) fn can_be_owned_by(tree: &Tree, uid: u32, job: &JobId, pid: i32) -> bool {
    let proc = Proc::with_root(tree.locate("/proc"));
    let Ok(text) = read(proc.dir(pid).join("cgroup")) else {
        return true;
    };
    // The paths of cgroup v1 name the owner.
    let mut paths = text.lines().filter_map(|line| line.splitn(3, ':').nth(2));
    if let Some(owner) = paths.find_map(|path| named_owner(path, job)) {
        return owner == uid;
    }
    let unified = text.lines().find_map(|line| line.strip_prefix("0::"));
    let Some(path) = unified.and_then(job_of_daemon) else {
        return true;
    };
    // At a mount point without cgroup v2 no process is found, which rules nobody out.
    let dirs = CGROUP_MOUNTS.map(|mount| locate_cgroup(tree, mount, &path));
    dirs.iter()
        .all(|dir| has_own_or_none(&proc, dir, uid).unwrap_or(true))
}

/// Finds the owner that Slurm's path of a job on cgroup v1 names: `/slurm/uid_1001/job_7`; `None` for another path or
/// another job's.
fn named_owner(path: &str, job: &JobId) -> Option<u32> {
    let mut names = path.split('/').skip_while(|name| !name.starts_with("uid_"));
    let owner = names.next()?.strip_prefix("uid_")?.parse().ok()?;
    (names.next()?.strip_prefix("job_")? == job.as_str()).then_some(owner)
}

/// The directory of a cgroup at one of the places where cgroup v2 may be mounted.
fn locate_cgroup(tree: &Tree, mount: &str, path: &CgroupPath) -> PathBuf {
    tree.locate(mount).join(path.relative())
}

/// Tells whether the user has a process in a cgroup or below, or no user but root has. Processes that are gone or
/// hidden are passed over.
///
/// # Errors
///
/// As `read(2)` for a cgroup that exists and cannot be read, and [`ErrorKind::Other`] for one with
/// too many processes or cgroups.
fn has_own_or_none(proc: &Proc, top: &Path, uid: u32) -> io::Result<bool> {
    let mut dirs = vec![top.to_owned()];
    let mut owners = Vec::new();
    let mut processes: usize = 0;
    let mut cgroups: usize = 0;
    while let Some(dir) = dirs.pop() {
        let text = match read(dir.join("cgroup.procs")) {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            text => text?,
        };
        for pid in text.lines().filter_map(|line| line.parse().ok()) {
            processes += 1;
            // The effective user owns the directory; root does if that user may not trace the process.
            owners.extend(fs::metadata(proc.dir(pid)).map(|status| status.uid()));
        }
        for entry in fs::read_dir(&dir)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                cgroups += 1;
                dirs.push(entry.path());
            }
        }
        if processes > JOB_PROCESSES_MAX || cgroups > JOB_CGROUPS_MAX {
            return Err(ErrorKind::Other.into());
        }
    }
    Ok(owners.contains(&uid) || owners.iter().all(|owner| *owner == ROOT_UID))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;
    use std::os::unix::fs::chown;

    fn job(id: &str) -> JobId {
        id.parse().unwrap()
    }

    #[test]
    fn path_on_cgroup_v1_names_owner() {
        let scratch = Scratch::new();
        let tree = Tree::with_root(scratch.path(), scratch.trust());
        scratch.file(
            "proc/7/cgroup",
            "3:cpu:/\n2:freezer:/slurm_n1/uid_6/job_7/step_extern\n0::/user.slice\n",
        );
        assert!(can_be_owned_by(&tree, 6, &job("7"), 7));
        assert!(!can_be_owned_by(&tree, 5, &job("7"), 7));
        assert!(
            can_be_owned_by(&tree, 5, &job("8"), 7),
            "the path is not that job's"
        );
        assert!(
            can_be_owned_by(&tree, 5, &job("7"), 9),
            "the process is gone"
        );
    }

    #[test]
    fn processes_on_cgroup_v2_show_owner() {
        let scratch = Scratch::new();
        let tree = Tree::with_root(scratch.path(), scratch.trust());
        let slurm = "system.slice/slurmstepd.scope/sEKNKTV3WPV500";
        scratch.file("proc/7/cgroup", &format!("0::/{slurm}/step_extern/slurm\n"));
        let cgroup = |name: &str, pids: &str| {
            scratch.file(&format!("sys/fs/cgroup/{slurm}/{name}cgroup.procs"), pids);
        };
        assert!(
            can_be_owned_by(&tree, 5, &job("7"), 7),
            "there is no such cgroup"
        );
        cgroup("", "");
        cgroup("step_extern/", "");
        cgroup("step_extern/slurm/", "7\n");
        if !nix::unistd::Uid::effective().is_root() {
            return crate::testing::skip("needs root");
        }
        assert!(
            can_be_owned_by(&tree, 5, &job("7"), 7),
            "it has only Slurm's processes"
        );
        let process = |pid: &str, uid: u32| {
            let dir = scratch.dir(&format!("proc/{pid}"));
            chown(&dir, Some(uid), None).unwrap();
        };
        process("8", 6);
        cgroup("step_batch/", "");
        cgroup("step_batch/user/", "8\n9\n");
        assert!(!can_be_owned_by(&tree, 5, &job("7"), 7));
        assert!(can_be_owned_by(&tree, 6, &job("7"), 7));
        process("9", 5);
        assert!(
            can_be_owned_by(&tree, 5, &job("7"), 7),
            "one of several is the user's"
        );
        process("9", 6);
        let many: String = (0..=JOB_PROCESSES_MAX).map(|_| "8\n").collect();
        cgroup("step_batch/user/", &many);
        assert!(
            can_be_owned_by(&tree, 5, &job("7"), 7),
            "there are too many to look at"
        );
    }
}
