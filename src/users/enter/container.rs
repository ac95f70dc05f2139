//! Finds the containers in a job by the namespaces of its processes.
//!
//! A container is what a process sees that has another root directory or user namespace than this login.
//! Users make any number of namespaces, and a container's own processes may show what they like, but a
//! process is joined only after the kernel has checked that it is the caller's own.

use super::job_cgroup::JobCgroup;
use helper::jobs::sources::processes;
use kernel::cgroup::Membership;
use kernel::proc::Proc;
use nix::fcntl::{AtFlags, OFlag, open};
use nix::sched::CloneFlags;
use nix::sys::stat::{FileStat, Mode, fstat, fstatat};
use std::cmp::Reverse;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

/// The kinds of namespaces that are joined: the name in `/proc/PID/ns`, and the number of `setns(2)`.
///
/// The cgroup namespace is not among them: it would only change how paths of cgroups are shown, and the login's
/// cgroup is outside of the container's.
const KINDS: [(&str, libc::c_int); 7] = [
    ("user", libc::CLONE_NEWUSER),
    ("mnt", libc::CLONE_NEWNS),
    ("pid", libc::CLONE_NEWPID),
    ("ipc", libc::CLONE_NEWIPC),
    ("uts", libc::CLONE_NEWUTS),
    ("net", libc::CLONE_NEWNET),
    ("time", libc::CLONE_NEWTIME),
];
const USER: usize = 0;
const MOUNT: usize = 1;

/// Device and inode number of a file.
type FileId = (u64, u64);

/// The namespaces of a process, in the order of [`KINDS`]; `None` for a kind that the kernel lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Namespaces([Option<FileId>; KINDS.len()]);

impl Namespaces {
    /// Reads the namespaces of the process whose directory in `/proc` this is.
    ///
    /// # Errors
    ///
    /// `EACCES` for a process that the caller may not trace; `ENOENT` or `ESRCH` if it has ended.
    pub(super) fn read(process: &OwnedFd) -> nix::Result<Self> {
        let mut ids = [None; KINDS.len()];
        for (id, (name, kind)) in ids.iter_mut().zip(KINDS) {
            match fstatat(process, format!("ns/{name}").as_str(), AtFlags::empty()) {
                Ok(status) => *id = Some(file_id(&status)),
                // Linux before 5.6, or one that is built without this kind. All have mount namespaces.
                Err(nix::Error::ENOENT) if kind != libc::CLONE_NEWNS => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Self(ids))
    }

    /// The kinds in which both differ.
    pub(super) fn difference(&self, other: &Self) -> CloneFlags {
        let mut kinds = CloneFlags::empty();
        for ((own, others), (_, kind)) in self.0.iter().zip(other.0).zip(KINDS) {
            if *own != others {
                kinds |= CloneFlags::from_bits_retain(kind);
            }
        }
        kinds
    }

    fn user_and_mount(&self) -> [Option<FileId>; 2] {
        [self.0[USER], self.0[MOUNT]]
    }

    /// Returns the namespaces without the user and the mount namespace, which are `None`.
    fn others(&self) -> [Option<FileId>; KINDS.len()] {
        let mut others = self.0;
        others[USER] = None;
        others[MOUNT] = None;
        others
    }
}

fn file_id(status: &FileStat) -> FileId {
    (status.st_dev, status.st_ino)
}

/// What a process sees: its namespaces and its root directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct View {
    pub(super) namespaces: Namespaces,
    root: FileId,
}

impl View {
    fn read(process: &OwnedFd) -> nix::Result<Self> {
        Ok(Self {
            namespaces: Namespaces::read(process)?,
            root: file_id(&fstatat(process, "root", AtFlags::empty())?),
        })
    }

    /// Reads what this process sees.
    pub(super) fn read_own() -> nix::Result<Self> {
        Self::read(&open_directory("/proc/self")?)
    }

    /// Tells whether this may be a container, for a login that sees `login`: it has a root directory or a user
    /// namespace of its own. A mount namespace alone is none: schedulers make them for a private `/tmp`.
    pub(super) fn is_container(&self, login: &Self) -> bool {
        self.root != login.root
            || !(self.namespaces.difference(&login.namespaces) & CloneFlags::CLONE_NEWUSER)
                .is_empty()
    }

    /// Tells whether two processes are in the same container. Ranks that each made their namespaces from one image
    /// are: they differ in user and mount namespace alone.
    fn is_like(&self, other: &Self) -> bool {
        self.namespaces.user_and_mount() == other.namespaces.user_and_mount()
            || self.root == other.root && self.namespaces.others() == other.namespaces.others()
    }
}

/// Opens a directory to look files up in it.
///
/// # Errors
///
/// As `open(2)`.
pub(super) fn open_directory(path: impl AsRef<Path>) -> nix::Result<OwnedFd> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    open(path.as_ref(), flags, Mode::empty())
}

/// A process of a job, with what it sees. Number and start time identify it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct JobProcess {
    pub(super) pid: i32,
    parent: i32,
    start: u64,
    /// The file of its program; `None` if that cannot be read.
    program: Option<FileId>,
    /// The name that it gave itself.
    pub(super) name: String,
    pub(super) view: View,
}

impl JobProcess {
    /// Reads a process; `None` if it is not in the job.
    ///
    /// # Errors
    ///
    /// `EACCES` for a process that the caller may not trace; `ENOENT` or `ESRCH` if it has ended.
    pub(super) fn read(pid: i32, job: &JobCgroup) -> io::Result<Option<Self>> {
        match Membership::read(pid) {
            Ok(membership) if job.contains(&membership) => {}
            Ok(_) => return Ok(None),
            Err(error) => {
                let errno = error.errno().unwrap_or(libc::EIO);
                return Err(io::Error::from_raw_os_error(errno));
            }
        }
        let proc = Proc::host();
        let stat = processes::read_stat(&proc, pid)?;
        let dir = open_directory(proc.dir(pid))?;
        Ok(Some(Self {
            pid,
            parent: stat.parent,
            start: stat.start,
            program: fstatat(&dir, "exe", AtFlags::empty())
                .ok()
                .map(|status| file_id(&status)),
            name: stat.name,
            view: View::read(&dir)?,
        }))
    }

    /// Tells whether both are one process that sees the same as before, with `root` as its root directory. It may have
    /// another name.
    pub(super) fn is_unchanged(&self, now: &Self, root: &OwnedFd) -> bool {
        (self.pid, self.start, self.view) == (now.pid, now.start, now.view)
            && fstat(root).is_ok_and(|status| file_id(&status) == now.view.root)
    }

    /// Replaces the start time.
    #[cfg(test)]
    pub(super) fn with_start(self, start: u64) -> Self {
        Self { start, ..self }
    }

    /// Tells whether this is a process of the runtime that made its container: it runs the program of its parent
    /// outside, and so has the variables from there. bubblewrap and Apptainer have such a process as number 1.
    fn is_of_runtime(&self, all: &[Self]) -> bool {
        let mut parents = all.iter().filter(|process| process.pid == self.parent);
        parents.any(|parent| {
            parent.view != self.view && parent.program.is_some() && parent.program == self.program
        })
    }
}

/// Processes that see the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Container {
    /// The oldest of those that have most namespaces of the container, but for the runtime's own.
    pub(super) first: JobProcess,
    /// Number of its processes.
    pub(super) count: usize,
}

/// Finds the containers of a job: those of the most namespaces first, and of equals the oldest. It leaves out processes
/// that the caller may not trace, such as root's and those of sshd.
///
/// # Errors
///
/// As `opendir(3)` for `/proc`.
pub(super) fn find_containers(job: &JobCgroup, login: &View) -> io::Result<Vec<Container>> {
    let mut all = Vec::new();
    for pid in processes::list_numbers::<i32>(Path::new("/proc"))?.flatten() {
        all.extend(JobProcess::read(pid, job).ok().flatten());
    }
    Ok(group(&all, login))
}

/// Groups the processes that see something else than the login does into containers.
///
/// The helpers of a container's runtime have namespaces in which they see the node's own root directory (podman's
/// conmon and pause process): they count only if there is nothing else. The order of the processes decides which is
/// the first of its container, and so is entered.
fn group(all: &[JobProcess], login: &View) -> Vec<Container> {
    let mut processes = all.to_vec();
    processes.retain(|process| process.view.is_container(login));
    if processes
        .iter()
        .any(|process| process.view.root != login.root)
    {
        processes.retain(|process| process.view.root != login.root);
    }
    processes.sort_by_key(|process| {
        let kinds = process.view.namespaces.difference(&login.namespaces);
        let depth = Reverse(kinds.bits().count_ones());
        (
            process.is_of_runtime(all),
            depth,
            process.start,
            process.pid,
        )
    });
    let mut containers: Vec<Container> = Vec::new();
    for process in processes {
        let known = containers
            .iter_mut()
            .find(|container| container.first.view.is_like(&process.view));
        match known {
            Some(container) => container.count += 1,
            None => containers.push(Container {
                first: process,
                count: 1,
            }),
        }
    }
    containers
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process whose namespaces have these numbers, in the order of [`KINDS`].
    fn process(pid: i32, root: u64, numbers: [u64; KINDS.len()]) -> JobProcess {
        let namespaces = Namespaces(numbers.map(|number| Some((4, number))));
        JobProcess {
            pid,
            parent: 0,
            start: pid.unsigned_abs().into(),
            program: None,
            name: String::new(),
            view: View {
                namespaces,
                root: (1, root),
            },
        }
    }

    const NODE: [u64; KINDS.len()] = [1; KINDS.len()];

    fn groups(processes: &[JobProcess]) -> Vec<(i32, usize)> {
        let login = process(1, 1, NODE).view;
        let containers = group(processes, &login);
        containers
            .iter()
            .map(|container| (container.first.pid, container.count))
            .collect()
    }

    #[test]
    fn processes_of_one_container_are_one_group_and_its_oldest_is_first() {
        let podman = [2, 3, 4, 5, 6, 7, 1];
        let processes = [process(30, 9, podman), process(20, 9, podman)];
        assert_eq!(groups(&processes), [(20, 2)]);
    }

    #[test]
    fn containers_of_one_image_differ_by_their_process_numbers() {
        let processes = [
            process(20, 9, [2, 3, 4, 5, 6, 7, 1]),
            process(30, 9, [2, 8, 9, 5, 6, 7, 1]),
        ];
        assert_eq!(groups(&processes), [(20, 1), (30, 1)]);
    }

    #[test]
    fn ranks_of_one_image_are_one_group() {
        let processes = [
            process(20, 9, [2, 3, 1, 1, 1, 1, 1]),
            process(30, 9, [4, 5, 1, 1, 1, 1, 1]),
            process(40, 8, [6, 7, 1, 1, 1, 1, 1]),
        ];
        assert_eq!(groups(&processes), [(20, 2), (40, 1)]);
    }

    /// A daemon that changed its root directory is no other container.
    #[test]
    fn process_with_other_root_in_same_namespaces_is_in_the_same_group() {
        let podman = [2, 3, 4, 5, 6, 7, 1];
        let processes = [process(20, 9, podman), process(30, 8, podman)];
        assert_eq!(groups(&processes), [(20, 2)]);
    }

    #[test]
    fn helpers_of_a_runtime_count_only_without_a_container() {
        let pause = process(20, 1, [2, 3, 1, 1, 1, 1, 1]);
        let container = process(30, 9, [2, 4, 5, 6, 7, 8, 1]);
        assert_eq!(groups(&[pause.clone(), container]), [(30, 1)]);
        assert_eq!(groups(&[pause]), [(20, 1)]);
    }

    /// Its variables are those from before the container was made.
    #[test]
    fn process_of_the_runtime_is_taken_only_without_another() {
        let bwrap = [2, 3, 4, 5, 6, 7, 1];
        let running = |parent, program, process| JobProcess {
            parent,
            program: Some((1, program)),
            ..process
        };
        let outer = running(1, 5, process(10, 1, NODE));
        let inner = running(10, 5, process(11, 9, bwrap));
        let command = running(11, 6, process(12, 9, bwrap));
        let fork = running(12, 6, process(13, 9, bwrap));
        let all = [outer.clone(), inner.clone(), command, fork];
        assert_eq!(groups(&all), [(12, 3)]);
        assert_eq!(groups(&[outer, inner]), [(11, 1)]);
    }

    /// unshare(1) makes namespaces of processes for its child alone.
    #[test]
    fn process_with_most_namespaces_is_first() {
        let unshare = process(20, 1, [2, 3, 1, 5, 1, 1, 1]);
        let child = process(30, 1, [2, 3, 4, 5, 1, 1, 1]);
        assert_eq!(groups(&[unshare, child]), [(30, 2)]);
    }

    #[test]
    fn private_mounts_of_a_scheduler_are_no_container() {
        let private = process(20, 1, [1, 2, 1, 1, 1, 1, 1]);
        assert!(groups(&[private, process(30, 1, NODE)]).is_empty());
    }

    #[test]
    fn own_view_has_all_kinds_and_differs_in_none() {
        let own = View::read_own().unwrap();
        assert!(own.namespaces.user_and_mount().iter().all(Option::is_some));
        assert!(own.namespaces.difference(&own.namespaces).is_empty());
        let other = process(1, 1, NODE).view;
        let kinds = own.namespaces.difference(&other.namespaces);
        assert!(kinds.contains(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWPID));
        assert!(own.is_container(&other) && !own.is_container(&own));
    }
}
