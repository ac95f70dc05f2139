//! Which of a user's jobs has a cgroup.

use std::fs;
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::cgroup::Membership;
use crate::plan::{CgroupPath, JobId, Placement};
use crate::source::Job;
use crate::stepd::{SocketName, job_of, pid_of};

/// Most cgroups that are looked at: a user may make any number of them below a job's, and have every
/// host that they can reach ask about them. The time for that is spent outside of the job's own
/// cgroup.
const CGROUPS_MAX: usize = 4_096;

/// Where the cgroups of jobs are looked at.
#[derive(Clone, Copy, Debug)]
pub struct Ground<'a> {
    /// The cgroup v2 mount.
    pub mount: &'a Path,
    /// The uid of the daemons of Slurm's steps: root's.
    pub owner: u32,
    /// When all has to be over.
    pub deadline: Instant,
}

/// The job whose cgroup, or one below it, has this id: the inode number of its directory. Where one
/// job is inside another's cgroup, the inner one. A job of Slurm's on cgroup v1 has none that a
/// socket could be in.
#[must_use]
pub fn holder<'a>(jobs: &'a [Job], cgroup: u64, ground: Ground<'_>) -> Option<&'a JobId> {
    among(jobs, cgroup, ground, CGROUPS_MAX)
}

/// The same, by looking at no more than so many cgroups.
fn among<'a>(
    jobs: &'a [Job],
    cgroup: u64,
    ground: Ground<'_>,
    mut left: usize,
) -> Option<&'a JobId> {
    let place = |job: &'a Job| Some((placed(job, ground)?, &job.id));
    let mut places: Vec<(CgroupPath, &JobId)> = jobs.iter().filter_map(place).collect();
    places.sort_by_key(|(path, _)| std::cmp::Reverse(path.as_str().len()));
    let mut has = |path: &CgroupPath| {
        contains(ground.mount.join(path.relative()), cgroup, &mut left, ground.deadline)
    };
    places.iter().find(|(path, _)| has(path)).map(|(_, id)| *id)
}

/// The job's cgroup, on cgroup v2.
fn placed(job: &Job, ground: Ground<'_>) -> Option<CgroupPath> {
    match &job.placement {
        Placement::Cgroup { path, .. } | Placement::Unit { path, .. } => Some(path.clone()),
        Placement::Extern { spool, node } => {
            let socket = SocketName::new(node, &job.id)?.to_string();
            let socket = Path::new(spool.as_str()).join(socket);
            let pid = pid_of(&socket, ground.owner, ground.deadline).ok()?;
            job_of(Membership::of(pid).ok()?.unified()?)
        }
    }
}

/// Whether a cgroup or one below it has this id. What cannot be read, since it is gone or too deep,
/// has it not.
fn contains(cgroup: PathBuf, id: u64, left: &mut usize, deadline: Instant) -> bool {
    if fs::symlink_metadata(&cgroup).is_ok_and(|meta| meta.is_dir() && meta.ino() == id) {
        return true;
    }
    let mut dirs = vec![cgroup];
    while let Some(dir) = dirs.pop() {
        if Instant::now() >= deadline {
            return false;
        }
        let Ok(entries) = fs::read_dir(&dir) else { continue };
        let below = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|t| t.is_dir()));
        for entry in below {
            if entry.ino() == id {
                return true;
            }
            let Some(less) = left.checked_sub(1) else { return false };
            *left = less;
            dirs.push(entry.path());
        }
    }
    false
}

#[cfg(test)]
mod tests;
