//! Which of a user's jobs has a cgroup.

use std::fs;
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::Node;
use crate::sources::Job;
use kernel::cgroup::Membership;
use protocol::{CgroupPath, JobId, Placement};
use schedulers::stepd::{SocketName, call, job_of};

/// Most cgroups that are looked at: a user may make any number of them below a job's, and have every
/// host that they can reach ask about them. The time for that is spent outside of the job's own
/// cgroup.
const CGROUPS_MAX: usize = 4_096;

/// Where the cgroups of jobs are looked at.
#[derive(Clone, Copy, Debug)]
struct Ground<'a> {
    /// The cgroup v2 mount.
    mount: &'a Path,
    /// The uid of the daemons of Slurm's steps: root's.
    owner: u32,
    /// When all has to be over.
    deadline: Instant,
}

impl Node {
    /// The one of these jobs whose cgroup, or one below it, has this id: the inode number of its
    /// directory. Where one job is inside another's cgroup, the inner one. A job of Slurm's on cgroup v1
    /// has none that a socket could be in. `None` also where that cannot be told until `deadline`.
    pub fn holder<'a>(&self, jobs: &'a [Job], cgroup: u64, deadline: Instant) -> Option<&'a JobId> {
        let mount = self.cgroup_mount().ok()?;
        let ground = Ground { mount: &mount, owner: self.trust.owner(), deadline };
        among(jobs, cgroup, ground, CGROUPS_MAX)
    }
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
            let pid = call(&socket, ground.owner, Some(ground.deadline)).ok()??.pid;
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
mod tests {
    use std::time::Duration;

    use nix::fcntl::{OFlag, openat};
    use nix::sys::stat::{Mode, mkdirat};

    use super::*;
    use crate::testing::Scratch;

    fn job(id: &str, path: &str) -> Job {
        let placement = Placement::Cgroup { path: path.parse().unwrap(), leaf: None };
        Job { id: id.parse().unwrap(), started: 0, ends: None, placement, record: None }
    }

    fn inode(scratch: &Scratch, path: &str) -> u64 {
        fs::metadata(scratch.dir(path)).unwrap().ino()
    }

    fn held<'a>(scratch: &Scratch, jobs: &'a [Job], cgroup: u64) -> Option<&'a str> {
        let deadline = Instant::now() + Duration::from_secs(5);
        let owner = nix::unistd::geteuid().as_raw();
        let ground = Ground { mount: scratch.path(), owner, deadline };
        among(jobs, cgroup, ground, CGROUPS_MAX).map(JobId::as_str)
    }

    #[test]
    fn a_cgroup_and_all_below_it_are_the_jobs() {
        let scratch = Scratch::new();
        let jobs = [job("1", "/a"), job("2", "/s/b"), job("3", "/gone")];
        let below = inode(&scratch, "a/x/y/z");
        let (own, other) = (inode(&scratch, "s/b"), inode(&scratch, "s/c"));
        scratch.dir("a/x/w");
        assert_eq!(held(&scratch, &jobs, below), Some("1"));
        assert_eq!(held(&scratch, &jobs, own), Some("2"));
        for (what, id) in [("a sibling", other), ("above", inode(&scratch, "s")), ("none", 0)] {
            assert_eq!(held(&scratch, &jobs, id), None, "{what}");
        }
        assert_eq!(held(&scratch, &[], own), None);
    }

    #[test]
    fn the_inner_one_of_nested_jobs_has_it() {
        let scratch = Scratch::new();
        let (inner, outer) = (inode(&scratch, "a/b"), inode(&scratch, "a/c"));
        for jobs in [[job("1", "/a"), job("2", "/a/b")], [job("2", "/a/b"), job("1", "/a")]] {
            assert_eq!(held(&scratch, &jobs, inner), Some("2"));
            assert_eq!(held(&scratch, &jobs, outer), Some("1"));
        }
    }

    #[test]
    fn neither_a_file_nor_a_link_is_a_cgroup() {
        let scratch = Scratch::new();
        scratch.file("a/file", "");
        let file = fs::metadata(scratch.path().join("a/file")).unwrap().ino();
        let elsewhere = inode(&scratch, "elsewhere/x");
        std::os::unix::fs::symlink("../elsewhere", scratch.path().join("a/link")).unwrap();
        let jobs = [job("1", "/a"), job("2", "/a/file")];
        assert_eq!(held(&scratch, &jobs, file), None);
        assert_eq!(held(&scratch, &jobs, elsewhere), None);
    }

    #[test]
    fn the_look_is_bounded() {
        let scratch = Scratch::new();
        for n in 0..9 {
            scratch.dir(&format!("a/{n}"));
        }
        let path = scratch.path().join("a");
        let soon = Instant::now() + Duration::from_secs(5);
        let contains = |mut left, deadline| contains(path.clone(), 0, &mut left, deadline);
        assert!(!contains(3, soon));
        let last = inode(&scratch, "a/8/x");
        let found = |mut left, deadline| super::contains(path.clone(), last, &mut left, deadline);
        assert!(found(9, soon));
        assert!(!found(3, soon), "too many");
        assert!(!found(9, Instant::now()), "too late");
    }

    /// In whatever order they are looked at.
    #[test]
    fn what_is_too_deep_to_be_read_hides_nothing_else() {
        let scratch = Scratch::new();
        let jobs = [job("1", "/a")];
        let found: Vec<u64> = (0..4).map(|n| inode(&scratch, &format!("a/x{n}/y/z"))).collect();
        for n in 0..4 {
            let mut dir = fs::File::open(scratch.dir(&format!("a/deep{n}"))).unwrap();
            let name = "d".repeat(200);
            // Longer than PATH_MAX.
            for _ in 0..21 {
                mkdirat(&dir, name.as_str(), Mode::S_IRWXU).unwrap();
                let below = openat(&dir, name.as_str(), OFlag::O_DIRECTORY, Mode::empty());
                dir = below.unwrap().into();
            }
        }
        for id in found {
            assert_eq!(held(&scratch, &jobs, id), Some("1"));
        }
    }

    /// However many jobs there are, and whatever their users made in them.
    #[test]
    fn all_jobs_share_one_bound() {
        let scratch = Scratch::new();
        for n in 0..9 {
            scratch.dir(&format!("many/{n}"));
        }
        let below = inode(&scratch, "b/x/y");
        let jobs = [job("1", "/many"), job("2", "/b")];
        let deadline = Instant::now() + Duration::from_secs(5);
        let ground = Ground { mount: scratch.path(), owner: 0, deadline };
        let found = |bound| among(&jobs, below, ground, bound).map(JobId::as_str);
        assert_eq!((found(10), found(9)), (Some("2"), None), "the last one that is looked at");
    }

    #[test]
    fn a_daemon_that_is_in_no_step_tells_of_no_job() {
        let scratch = Scratch::new();
        let spool = scratch.path().to_str().unwrap().parse().unwrap();
        let path = scratch.path().join("n1_7.4294967292");
        let placement = Placement::Extern { spool, node: "n1".parse().unwrap() };
        let jobs = [Job { placement, ..job("7", "/a") }];
        assert_eq!(held(&scratch, &jobs, 1), None, "nobody listens");
        let _listener = std::os::unix::net::UnixListener::bind(path).unwrap();
        assert_eq!(held(&scratch, &jobs, 1), None);
    }
}
