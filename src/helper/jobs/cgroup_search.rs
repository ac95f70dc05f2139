//! Finds the job of a user that has a given cgroup.

use std::cmp::Reverse;
use std::fs;
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::clock::Deadline;
use crate::jobs::{Job, find_cgroup};
use protocol::JobId;

/// Maximum cgroups searched. Users can create any number of them below a job, and make other hosts
/// ask about them; the search costs time outside the job's own cgroup.
const CGROUPS_MAX: usize = 4_096;

/// The place and the time limit of a search of cgroups.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CgroupSearch<'a> {
    /// The cgroup v2 mount.
    pub(crate) mount: &'a Path,
    /// The uid of Slurm's step daemons, which is root's.
    pub(crate) owner: u32,
    /// When the search must end.
    pub(crate) deadline: Deadline,
}

impl CgroupSearch<'_> {
    /// Finds the job whose cgroup, or one below it, has this id (the inode number of its directory): the id that the
    /// kernel gives for a socket names the cgroup v2 in which it was made. If the cgroup of one job is inside another
    /// one's, the inner job is found. `None` also if the deadline passes or [`CGROUPS_MAX`] cgroups are visited first,
    /// and for a Slurm job on cgroup v1.
    pub(crate) fn find_job(self, jobs: &[Job], cgroup: u64) -> Option<&JobId> {
        self.find_job_within(jobs, cgroup, CGROUPS_MAX)
    }

    /// Finds the job as [`CgroupSearch::find_job`] does, and visits at most `left` cgroups below those of all jobs
    /// together.
    fn find_job_within(self, jobs: &[Job], cgroup: u64, mut left: usize) -> Option<&JobId> {
        let mut cgroups = Vec::new();
        for job in jobs {
            let path = find_cgroup(&job.id, &job.placement, self.owner, self.deadline.instant());
            cgroups.extend(path.map(|path| (path, &job.id)));
        }
        // Of two cgroups inside each other, the inner one has the longer path.
        cgroups.sort_by_key(|(path, _)| Reverse(path.as_str().len()));
        for (path, id) in cgroups {
            let dir = self.mount.join(path.relative());
            if subtree_contains(dir, cgroup, &mut left, self.deadline) {
                return Some(id);
            }
        }
        None
    }
}

/// Tells whether a cgroup or one below it has this id, an inode number. `left` counts down for each cgroup below; at
/// 0, and at the deadline, the answer is `false`. Directories that cannot be read, because they are gone or too deep,
/// are passed over.
fn subtree_contains(cgroup: PathBuf, id: u64, left: &mut usize, deadline: Deadline) -> bool {
    if fs::symlink_metadata(&cgroup).is_ok_and(|meta| meta.is_dir() && meta.ino() == id) {
        return true;
    }
    let mut dirs = vec![cgroup];
    while let Some(dir) = dirs.pop() {
        if deadline.has_passed() {
            return false;
        }
        let Ok(entries) = fs::read_dir(&dir) else {
            continue;
        };
        let below = entries
            .flatten()
            .filter(|entry| entry.file_type().is_ok_and(|t| t.is_dir()));
        for entry in below {
            if entry.ino() == id {
                return true;
            }
            let Some(less) = left.checked_sub(1) else {
                return false;
            };
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
    use protocol::Placement;

    fn job(id: &str, path: &str) -> Job {
        let placement = Placement::Cgroup {
            path: path.parse().unwrap(),
            leaf: None,
        };
        Job {
            id: id.parse().unwrap(),
            started: 0,
            ends: None,
            placement,
            slurm: None,
            record: None,
        }
    }

    fn inode(scratch: &Scratch, path: &str) -> u64 {
        fs::metadata(scratch.dir(path)).unwrap().ino()
    }

    fn lookup<'a>(scratch: &Scratch, jobs: &'a [Job], cgroup: u64) -> Option<&'a str> {
        let deadline = Deadline::after(Duration::from_secs(60));
        let owner = nix::unistd::geteuid().as_raw();
        let search = CgroupSearch {
            mount: scratch.path(),
            owner,
            deadline,
        };
        search.find_job(jobs, cgroup).map(JobId::as_str)
    }

    #[test]
    fn cgroup_of_a_job_and_its_descendants_belong_to_the_job() {
        let scratch = Scratch::new();
        let jobs = [job("1", "/a"), job("2", "/s/b"), job("3", "/gone")];
        let below = inode(&scratch, "a/x/y/z");
        let own = inode(&scratch, "s/b");
        let other = inode(&scratch, "s/c");
        scratch.dir("a/x/w");
        assert_eq!(lookup(&scratch, &jobs, below), Some("1"));
        assert_eq!(lookup(&scratch, &jobs, own), Some("2"));
        for (what, id) in [
            ("a sibling", other),
            ("above", inode(&scratch, "s")),
            ("none", 0),
        ] {
            assert_eq!(lookup(&scratch, &jobs, id), None, "{what}");
        }
        assert_eq!(lookup(&scratch, &[], own), None);
    }

    #[test]
    fn inner_one_of_nested_jobs_wins() {
        let scratch = Scratch::new();
        let inner = inode(&scratch, "a/b");
        let outer = inode(&scratch, "a/c");
        for jobs in [
            [job("1", "/a"), job("2", "/a/b")],
            [job("2", "/a/b"), job("1", "/a")],
        ] {
            assert_eq!(lookup(&scratch, &jobs, inner), Some("2"));
            assert_eq!(lookup(&scratch, &jobs, outer), Some("1"));
        }
    }

    #[test]
    fn files_and_links_are_no_cgroups() {
        let scratch = Scratch::new();
        scratch.file("a/file", "");
        let file = fs::metadata(scratch.path().join("a/file")).unwrap().ino();
        let elsewhere = inode(&scratch, "elsewhere/x");
        std::os::unix::fs::symlink("../elsewhere", scratch.path().join("a/link")).unwrap();
        let jobs = [job("1", "/a"), job("2", "/a/file")];
        assert_eq!(lookup(&scratch, &jobs, file), None);
        assert_eq!(lookup(&scratch, &jobs, elsewhere), None);
    }

    #[test]
    fn search_is_bounded_in_cgroups_and_time() {
        let scratch = Scratch::new();
        for n in 0..9 {
            scratch.dir(&format!("a/{n}"));
        }
        let path = scratch.path().join("a");
        let soon = Deadline::after(Duration::from_secs(60));
        let contains = |mut left, deadline| subtree_contains(path.clone(), 0, &mut left, deadline);
        assert!(!contains(3, soon));
        let last = inode(&scratch, "a/8/x");
        let found = |mut left, deadline| subtree_contains(path.clone(), last, &mut left, deadline);
        assert!(found(9, soon));
        assert!(!found(3, soon), "too many");
        assert!(!found(9, Deadline::after(Duration::ZERO)), "too late");
    }

    /// The result must not depend on the order of the search.
    #[test]
    fn unreadable_deep_directory_hides_no_other_cgroup() {
        let scratch = Scratch::new();
        let jobs = [job("1", "/a")];
        let found: Vec<u64> = (0..4)
            .map(|n| inode(&scratch, &format!("a/x{n}/y/z")))
            .collect();
        for n in 0..4 {
            let mut dir = fs::File::open(scratch.dir(&format!("a/deep{n}"))).unwrap();
            let name = "d".repeat(200);
            // Make a path longer than PATH_MAX.
            for _ in 0..21 {
                mkdirat(&dir, name.as_str(), Mode::S_IRWXU).unwrap();
                let below = openat(&dir, name.as_str(), OFlag::O_DIRECTORY, Mode::empty());
                dir = below.unwrap().into();
            }
        }
        for id in found {
            assert_eq!(lookup(&scratch, &jobs, id), Some("1"));
        }
    }

    /// The bound must hold for any number of jobs with any cgroups in them.
    #[test]
    fn all_jobs_share_one_bound() {
        let scratch = Scratch::new();
        for n in 0..9 {
            scratch.dir(&format!("many/{n}"));
        }
        let below = inode(&scratch, "b/x/y");
        let jobs = [job("1", "/many"), job("2", "/b")];
        let deadline = Deadline::after(Duration::from_secs(60));
        let search = CgroupSearch {
            mount: scratch.path(),
            owner: 0,
            deadline,
        };
        let found = |bound| {
            search
                .find_job_within(&jobs, below, bound)
                .map(JobId::as_str)
        };
        assert_eq!(
            (found(10), found(9)),
            (Some("2"), None),
            "the last one that is looked at"
        );
    }

    #[test]
    fn step_daemon_outside_of_a_step_gives_no_job() {
        let scratch = Scratch::new();
        let spool = scratch.path().to_str().unwrap().parse().unwrap();
        let path = scratch.path().join("n1_7.4294967292");
        let placement = Placement::Extern {
            spool,
            node: "n1".parse().unwrap(),
        };
        let jobs = [Job {
            placement,
            ..job("7", "/a")
        }];
        assert_eq!(lookup(&scratch, &jobs, 1), None, "nobody listens");
        let _listener = std::os::unix::net::UnixListener::bind(path).unwrap();
        assert_eq!(lookup(&scratch, &jobs, 1), None);
    }
}
