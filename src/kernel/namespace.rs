//! Joins and leaves the namespaces of a job: namespaces that root made, with this node's own files.
//!
//! The mounts of a namespace decide which files sshd reads as root there. So a login joins no namespace whose
//! mounts a user may change, and none in which a path leads to other files than on the node, except in
//! directories that jobs have to themselves.

use super::OperationError;
use super::mounts::{MountTable, OWN_TABLE, TABLE_BYTES_MAX};
use super::proc::count_threads;
use super::sys::nsfs::{mount_namespace_number, namespace_kind, owning_user_namespace};
use super::trust::{NODE_ROOT, Trust, open_below};
use nix::fcntl::{OFlag, open, openat};
use nix::sched::{CloneFlags, setns};
use nix::sys::stat::{Mode, fstat, stat};
use nix::sys::statfs::{NSFS_MAGIC, fstatfs};
use nix::unistd::{chdir, chroot, fchdir};
use protocol::JobId;
use std::cell::Cell;
use std::fmt::Display;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

/// The directory in which `register` pins mount namespaces of jobs. Only root may search it: whoever opens a pin holds
/// the mounts of the job, however long it has ended.
pub const PIN_DIR: &str = "/run/job-adopt/namespaces";

/// The path of the pin for a job of this owner that its scheduler places. The path has the owner, which the caller
/// knows: whoever only names the job gets no other user's files.
pub fn owner_pin_path(owner: u32, record: &JobId) -> PathBuf {
    owner_pin_dir()
        .join(owner.to_string())
        .join(record.as_str())
}

/// The directory of the owners' pins. No job has this name, so that it stands beside the other pins.
pub fn owner_pin_dir() -> PathBuf {
    Path::new(PIN_DIR).join(".via")
}

/// Comparisons of two tables. The node may mount something after the first table is read.
const COMPARE_TRIES: u32 = 3;
/// Pause between two comparisons.
const COMPARE_INTERVAL: Duration = Duration::from_millis(5);

/// A namespace of mounts or of processes that root made.
#[derive(Debug)]
pub struct Namespace {
    fd: OwnedFd,
    kind: CloneFlags,
    id: u64,
}

/// Describes the failure to join the namespace `object`, for a cause that is no error of the kernel.
fn failed(object: &str, why: impl Display) -> OperationError {
    OperationError::new("join namespace", object, io::Error::other(why.to_string()))
}

/// Returns whether this process has the same mounts as the first one, whose are the node's; also if that cannot be told.
fn has_mounts_of_node() -> bool {
    let number = |process: &str| stat(format!("/proc/{process}/ns/mnt").as_str());
    match (number("self"), number("1")) {
        (Ok(current), Ok(first)) => current.st_ino == first.st_ino,
        _ => true,
    }
}

/// Returns whether the directory of an absolute path is the same here and in the first process's mounts. Only root may be
/// able to change any part of either; `false` if that cannot be told.
fn has_dir_of_node(path: &str) -> bool {
    let Some(dir) = Path::new(path).parent() else {
        return false;
    };
    let on_node = PathBuf::from(format!("{NODE_ROOT}{}", dir.display()));
    let identity = |trust: Trust, folder: &Path| {
        let stat = fstat(&trust.dir(folder).ok()?.dir).ok()?;
        Some((stat.st_dev, stat.st_ino))
    };
    let current = identity(Trust::root(), dir);
    current.is_some() && current == identity(Trust::node(), &on_node)
}

impl Namespace {
    /// Checks that a descriptor is a namespace of this kind, a `CLONE_NEW` number. `object` is for messages.
    ///
    /// # Errors
    ///
    /// A file that is no namespace of mounts or processes, or of another kind; a namespace that belongs to
    /// another user namespace than this process's.
    pub fn from_fd(fd: OwnedFd, kind: i32, object: &str) -> Result<Self, OperationError> {
        Self::check(fd, kind).map_err(|error| OperationError::new("join namespace", object, error))
    }

    /// Makes the checks of [`Namespace::from_fd`]; its errors do not name the object.
    fn check(fd: OwnedFd, kind: i32) -> io::Result<Self> {
        // No login joins a user namespace, which Slurm's namespace/linux may pass. It passes the first check for the
        // sake of the second one's message.
        let is_user = kind == libc::CLONE_NEWUSER;
        let is_known = is_user || matches!(kind, libc::CLONE_NEWNS | libc::CLONE_NEWPID);
        let is_namespace = is_known && fstatfs(&fd)?.filesystem_type() == NSFS_MAGIC;
        if !is_namespace || namespace_kind(fd.as_fd())? != kind {
            return Err(io::Error::other(
                "is no namespace of mounts or of processes, or one of the wrong kind",
            ));
        }
        if is_user
            || fstat(owning_user_namespace(fd.as_fd())?)?.st_ino
                != stat("/proc/self/ns/user")?.st_ino
        {
            let why = "is a user namespace or in one, whose user may change what is mounted";
            return Err(io::Error::other(why));
        }
        let id = fstat(&fd)?.st_ino;
        Ok(Self {
            fd,
            kind: CloneFlags::from_bits_truncate(kind),
            id,
        })
    }

    /// Opens the mount namespace at a path. Only root may be able to change any part of the path.
    ///
    /// # Errors
    ///
    /// A path that others can change; as [`Namespace::from_fd`].
    pub fn open(path: &str) -> Result<Self, OperationError> {
        Self::open_trusted(path, &Trust::root())
    }

    /// Opens the mount namespace at a path of the node, as [`Namespace::open`] does, also if this process has other
    /// mounts than the node: another module may have given the login mounts of its own (pam_namespace(8)), and the
    /// kernel leaves out each file of a mount namespace when it copies mounts (`CL_COPY_MNT_NS_FILE`). The first
    /// process's mounts are then the node's if they have the same directory at the path. In a pod with the processes of
    /// its host they are the host's, and have another directory there, perhaps with a namespace of another job.
    ///
    /// # Errors
    ///
    /// As [`Namespace::open`].
    pub fn open_on_node(path: &str) -> Result<Self, OperationError> {
        match Self::open(path) {
            Err(_) if !has_mounts_of_node() && has_dir_of_node(path) => {
                Self::open_trusted(&format!("{NODE_ROOT}{path}"), &Trust::node())
            }
            result => result,
        }
    }

    /// Opens the mount namespace at a path that is trusted so.
    fn open_trusted(path: &str, trust: &Trust) -> Result<Self, OperationError> {
        let name = Path::new(path);
        // Only `/` has neither parent nor name; it opens, and is no namespace.
        let dir = trust.dir(name.parent().unwrap_or(name));
        let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
        let file = name.file_name().map_or(name, Path::new);
        let fd = dir.and_then(|dir| open_below(&dir.dir, file, flags, name));
        Self::from_fd(
            fd.map_err(|error| failed(path, error))?,
            libc::CLONE_NEWNS,
            path,
        )
    }

    /// Opens the namespace of a process, which is a number or `self`. `name` is the name of its file in `/proc/PID/ns`.
    ///
    /// # Errors
    ///
    /// A process that is gone; as [`Namespace::from_fd`].
    pub fn open_of_process(process: &str, name: &str, kind: i32) -> Result<Self, OperationError> {
        let path = format!("/proc/{process}/ns/{name}");
        let fd = open(
            path.as_str(),
            OFlag::O_RDONLY | OFlag::O_CLOEXEC,
            Mode::empty(),
        );
        Self::from_fd(
            fd.map_err(|errno| failed(&path, errno.desc()))?,
            kind,
            &path,
        )
    }

    /// Opens the mount namespace of a process if anything is mounted on `dir` there: Slurm mounts a job's IMEX channels
    /// in the namespaces of its steps and does not hand these over. `process` is the process's directory in `/proc`,
    /// which stands for no later process with that number. Any failure is `None`, as is a namespace that belongs to
    /// another user namespace than ours: the caller asks the next process.
    pub fn open_with_mount(process: &OwnedFd, dir: &str) -> Option<Self> {
        let open = |name: &str| {
            openat(
                process,
                name,
                OFlag::O_RDONLY | OFlag::O_CLOEXEC,
                Mode::empty(),
            )
        };
        let table = read_mounts(&File::from(open("mountinfo").ok()?)).ok()?;
        if !table.has_mount_at(dir) {
            return None;
        }
        Self::from_fd(open("ns/mnt").ok()?, libc::CLONE_NEWNS, "of a process").ok()
    }

    /// The number of the open descriptor.
    pub fn raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Tells whether both are the same namespace: the kernel gives no number twice while one is open.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.id == other.id
    }

    /// Tells whether the kernel lets this process bind this mount namespace to a file (`mnt_ns_loop`): its number must be
    /// above that of the process's own. `true` for a kernel that does not tell the numbers.
    pub fn can_be_bound(&self) -> bool {
        let current =
            File::open("/proc/self/ns/mnt").and_then(|file| mount_namespace_number(file.as_fd()));
        match (current, mount_namespace_number(self.fd.as_fd())) {
            (Ok(current), Ok(number)) => current < number,
            _ => true,
        }
    }

    /// Joins this namespace; for a namespace of processes, only the children of this process that start later are in
    /// it (setns(2)).
    fn enter(&self) -> io::Result<()> {
        Ok(setns(&self.fd, self.kind)?)
    }
}

/// The state to which a process returns when it leaves a job's namespaces: its own namespaces, its root and
/// its working directory.
#[derive(Debug)]
pub struct NamespaceOrigin {
    /// The process's own namespace for each of the job's, in the same order.
    current: Vec<Namespace>,
    root: OwnedFd,
    /// The working directory.
    path: PathBuf,
    proc: OwnedFd,
    /// Table of the mounts in the process's own namespace.
    mounts: File,
    /// Number of the job's namespaces that the process may have joined and not left.
    joined: Cell<usize>,
}

/// Opens the table of the mounts that this process sees now, by the `/proc` behind the descriptor `proc`. The open
/// file keeps showing this namespace's mounts after the process has joined another.
fn open_mounts(proc: &OwnedFd) -> io::Result<File> {
    let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
    Ok(File::from(openat(
        proc,
        "self/mountinfo",
        flags,
        Mode::empty(),
    )?))
}

/// Reads a table in its present state. The file shows the mounts of the namespace in which it was opened.
///
/// # Errors
///
/// As `read(2)`; a table that is malformed or longer than `TABLE_BYTES_MAX`.
fn read_mounts(mut file: &File) -> io::Result<MountTable> {
    let mut table = Vec::new();
    file.rewind()?;
    file.take(TABLE_BYTES_MAX + 1).read_to_end(&mut table)?;
    if table.len() as u64 > TABLE_BYTES_MAX {
        return Err(io::Error::other("too many mounts to compare"));
    }
    MountTable::parse(&table).ok_or_else(|| io::Error::other("mountinfo is malformed"))
}

/// Requires that this process has one thread: others share its root and working directory, and the kernel lets it join
/// no mounts (setns(2)).
///
/// # Errors
///
/// The number of threads; as for reading `/proc/self/status`.
fn require_single_thread() -> io::Result<()> {
    let threads = count_threads()?;
    if threads == 1 {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "this process has {threads} threads, and no process with threads can join them: another module of the PAM stack has \
         started one, as those written in Go do"
    )))
}

impl NamespaceOrigin {
    /// Opens what [`NamespaceOrigin::leave`] returns to: this process's namespaces of the same kinds as the
    /// job's, its root and its working directory, which is kept by its path, since the login has the same path in
    /// the job. Opens also what [`NamespaceOrigin::enter`] compares the job's mounts with: the node's `/proc` and table
    /// of mounts.
    ///
    /// # Errors
    ///
    /// As `open(2)` and `getcwd(2)`; as [`Namespace::from_fd`].
    pub fn open(job: &[Namespace]) -> Result<Self, OperationError> {
        let open_current = |namespace: &Namespace| {
            if namespace.kind == CloneFlags::CLONE_NEWPID {
                // A process never leaves its own: setns(2) changes that of its children.
                Namespace::open_of_process("self", "pid_for_children", libc::CLONE_NEWPID)
            } else {
                Namespace::open_of_process("self", "mnt", libc::CLONE_NEWNS)
            }
        };
        let open_dir = |path: &str| {
            let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
            open(path, flags, Mode::empty())
                .map_err(|errno| OperationError::new("open", path, errno))
        };
        let proc = open_dir("/proc")?;
        let mounts =
            open_mounts(&proc).map_err(|error| OperationError::new("open", OWN_TABLE, error))?;
        let path = std::env::current_dir()
            .map_err(|error| OperationError::new("find", "working directory", error))?;
        Ok(Self {
            current: job.iter().map(open_current).collect::<Result<_, _>>()?,
            root: open_dir("/")?,
            path,
            mounts,
            proc,
            joined: Cell::new(0),
        })
    }

    /// Joins the job's namespaces, and compares their mounts with the node's. Namespaces that are this
    /// process's own are left out. Root and working directory keep their names. Jobs may have the `private`
    /// directories to themselves.
    ///
    /// # Errors
    ///
    /// A path that leads to other files than on the node ([`MountTable::difference`]); as [`NamespaceOrigin::join`].
    pub fn enter(&self, job: &[Namespace], private: &[String]) -> Result<(), OperationError> {
        let enter = || {
            self.join(job)?;
            self.require_same_files(private)
        };
        enter().map_err(|error| OperationError::new("join", "the job's namespaces", error))
    }

    /// Joins the job's namespaces without comparing their mounts.
    ///
    /// # Errors
    ///
    /// A process with threads, which has then joined none; as `setns(2)` and `chdir(2)`.
    pub fn join(&self, job: &[Namespace]) -> io::Result<()> {
        require_single_thread()?;
        for (index, (current, new)) in self.current.iter().zip(job).enumerate() {
            if !current.is_same(new) {
                new.enter()?;
                self.joined.set(index + 1);
            }
        }
        Ok(chdir(&self.path)?)
    }

    /// Requires that each path outside of the `private` directories leads to the same files in the namespace that the
    /// process has joined as on the node. It compares the tables up to three times: the node may mount something
    /// between the reading of the two.
    ///
    /// # Errors
    ///
    /// The first path that leads to other files; as [`read_mounts`].
    fn require_same_files(&self, private: &[String]) -> io::Result<()> {
        // Use our own /proc: the job's may belong to a pid namespace in which this process has no number.
        let job = open_mounts(&self.proc)?;
        for tries in 1.. {
            let node = read_mounts(&self.mounts)?;
            let job = read_mounts(&job)?;
            match node.difference(&job, private) {
                None => break,
                Some(_) if tries < COMPARE_TRIES => sleep(COMPARE_INTERVAL),
                Some(path) => {
                    return Err(io::Error::other(format!("{path} is not the node's there")));
                }
            }
        }
        Ok(())
    }

    /// Leaves the job's namespaces that the process has joined, and restores root and working directory; without one it
    /// changes nothing. It tries twice: modules that run after it work as root where it leaves them.
    ///
    /// # Errors
    ///
    /// As `setns(2)`, `chroot(2)` and `chdir(2)`.
    pub fn leave(&self) -> Result<(), OperationError> {
        self.try_leave().or_else(|_| self.try_leave())
    }

    /// Joins the process's own namespaces, and restores root and working directory, once. An error leaves the process
    /// where the failed step has put it.
    fn try_leave(&self) -> Result<(), OperationError> {
        let leave = || {
            let joined = self.joined.get();
            if joined == 0 {
                return Ok(());
            }
            let mut current = self.current.iter().take(joined);
            current.try_for_each(Namespace::enter)?;
            fchdir(&self.root)?;
            chroot(".")?;
            chdir(&self.path)?;
            self.joined.set(0);
            Ok(())
        };
        leave()
            .map_err(|error: io::Error| OperationError::new("leave", "the job's namespaces", error))
    }
}
