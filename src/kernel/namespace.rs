//! Namespaces of a job that a login joins: those that root made, with this node's own files.
//!
//! Whoever decides what is mounted in one decides which files sshd reads as root there. So a login joins none
//! whose mounts a user may change, and none in which a path leads to other files than on the node, but for
//! the directories that jobs have to themselves.

use super::Failed;
use super::mounts::MountTable;
use super::sys::nsfs::{namespace_kind, owning_user_namespace};
use super::trust::{Trust, open_below};
use nix::fcntl::{OFlag, open, openat};
use nix::sched::{CloneFlags, setns};
use nix::sys::stat::{Mode, fstat, stat};
use nix::sys::statfs::{NSFS_MAGIC, fstatfs};
use nix::unistd::{chdir, chroot, fchdir};
use std::fmt::Display;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

/// Maximum size of a table of mounts, which takes some 100 bytes for each.
const TABLE_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// How often two tables are compared: between reading the one and the other the node may mount something.
const COMPARE_TRIES: u32 = 3;
const COMPARE_PAUSE: Duration = Duration::from_millis(5);

/// A namespace of mounts or of processes that root made.
#[derive(Debug)]
pub struct Namespace {
    fd: OwnedFd,
    kind: CloneFlags,
    id: u64,
}

fn failed(object: &str, why: impl Display) -> Failed {
    Failed::new("join namespace", object, io::Error::other(why.to_string()))
}

impl Namespace {
    /// Looks at what should be one of this kind, by its `CLONE_NEW` number; `object` names it.
    pub fn new(fd: OwnedFd, kind: i32, object: &str) -> Result<Self, Failed> {
        Self::look(fd, kind).map_err(|error| failed(object, error))
    }

    fn look(fd: OwnedFd, kind: i32) -> io::Result<Self> {
        let users = kind == libc::CLONE_NEWUSER;
        let known = users || matches!(kind, libc::CLONE_NEWNS | libc::CLONE_NEWPID);
        let is_one = known && fstatfs(&fd)?.filesystem_type() == NSFS_MAGIC;
        if !is_one || namespace_kind(fd.as_fd())? != kind {
            return Err(io::Error::other("is no namespace of mounts, or of processes, as is due"));
        }
        if users
            || fstat(owning_user_namespace(fd.as_fd())?)?.st_ino
                != stat("/proc/self/ns/user")?.st_ino
        {
            let why = "is a user namespace or in one, whose user may change what is mounted";
            return Err(io::Error::other(why));
        }
        let id = fstat(&fd)?.st_ino;
        Ok(Self { fd, kind: CloneFlags::from_bits_truncate(kind), id })
    }

    /// Opens the mount namespace at a path that only root can change all the way.
    ///
    /// # Errors
    ///
    /// Fails for a path that others can change, and for what is no such namespace.
    pub fn at(path: &str) -> Result<Self, Failed> {
        let name = Path::new(path);
        let dir = Trust::root().dir(name.parent().unwrap_or(name));
        let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
        let file = name.file_name().map_or(name, Path::new);
        let fd = dir.and_then(|dir| open_below(&dir.dir, file, flags, name));
        Self::new(fd.map_err(|error| failed(path, error))?, libc::CLONE_NEWNS, path)
    }

    /// Opens the namespace of a process; `name` is that of its file in `/proc/PID/ns`.
    ///
    /// # Errors
    ///
    /// Fails for a process that is gone, and for a namespace that its user may change.
    pub fn of(process: &str, name: &str, kind: i32) -> Result<Self, Failed> {
        let path = format!("/proc/{process}/ns/{name}");
        let fd = open(path.as_str(), OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty());
        Self::new(fd.map_err(|errno| failed(&path, errno.desc()))?, kind, &path)
    }

    /// Number of its open descriptor.
    pub fn raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    fn enter(&self) -> io::Result<()> {
        Ok(setns(&self.fd, self.kind)?)
    }
}

/// Where a process is before it joins namespaces: its own ones, its root and its working directory.
#[derive(Debug)]
pub struct Outside {
    own: Vec<Namespace>,
    root: OwnedFd,
    path: PathBuf,
    proc: OwnedFd,
    /// The table of its own mounts.
    mounts: File,
}

fn open_mounts(proc: &OwnedFd) -> io::Result<File> {
    let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
    Ok(File::from(openat(proc, "self/mountinfo", flags, Mode::empty())?))
}

/// Reads a table as it is now; the file shows the mounts of the namespace in which it was opened.
fn read_mounts(mut file: &File) -> io::Result<MountTable> {
    let mut table = Vec::new();
    file.rewind()?;
    file.take(TABLE_BYTES_MAX + 1).read_to_end(&mut table)?;
    if table.len() as u64 > TABLE_BYTES_MAX {
        return Err(io::Error::other("too many mounts to compare"));
    }
    MountTable::parse(&table).ok_or_else(|| io::Error::other("mountinfo is malformed"))
}

impl Outside {
    /// Where this process is before it joins `inside`.
    pub fn open(inside: &[Namespace]) -> Result<Self, Failed> {
        let own = |one: &Namespace| match one.kind {
            CloneFlags::CLONE_NEWPID => {
                Namespace::of("self", "pid_for_children", libc::CLONE_NEWPID)
            }
            _ => Namespace::of("self", "mnt", libc::CLONE_NEWNS),
        };
        let dir = |path: &str| {
            let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
            open(path, flags, Mode::empty()).map_err(|errno| Failed::new("open", path, errno))
        };
        let proc = dir("/proc")?;
        let mounts = open_mounts(&proc);
        Ok(Self {
            own: inside.iter().map(own).collect::<Result<_, _>>()?,
            root: dir("/")?,
            path: std::env::current_dir().map_err(|error| Failed::new("find", ".", error))?,
            mounts: mounts.map_err(|error| Failed::new("open", "/proc/self/mountinfo", error))?,
            proc,
        })
    }

    /// Joins those that are not this process's own, with root and working directory of the same names.
    /// Jobs may have the `private` directories to themselves.
    ///
    /// # Errors
    ///
    /// Fails with `EINVAL` for a process with threads, and for a path that leads to other files than on
    /// the node ([`MountTable::difference`]).
    pub fn enter(&self, inside: &[Namespace], private: &[String]) -> Result<(), Failed> {
        let enter = || {
            self.join(inside)?;
            self.compare(private)
        };
        enter().map_err(|error| Failed::new("join", "the job's namespaces", error))
    }

    /// Joins them without comparing their mounts.
    ///
    /// # Errors
    ///
    /// Fails as `setns(2)` and `chdir(2)` do.
    pub fn join(&self, inside: &[Namespace]) -> io::Result<()> {
        let mut new = self.own.iter().zip(inside).filter(|(own, one)| own.id != one.id);
        new.try_for_each(|(_, one)| one.enter())?;
        Ok(chdir(&self.path)?)
    }

    fn compare(&self, private: &[String]) -> io::Result<()> {
        // The job's /proc may be that of a process namespace in which this process has no number.
        let job = open_mounts(&self.proc)?;
        for tries in 1.. {
            let (node, job) = (read_mounts(&self.mounts)?, read_mounts(&job)?);
            match node.difference(&job, private) {
                None => break,
                Some(_) if tries < COMPARE_TRIES => sleep(COMPARE_PAUSE),
                Some(path) => {
                    return Err(io::Error::other(format!("{path} is not the node's there")));
                }
            }
        }
        Ok(())
    }

    /// Goes back.
    pub fn back(&self) -> Result<(), Failed> {
        let back = || {
            self.own.iter().try_for_each(Namespace::enter)?;
            fchdir(&self.root)?;
            chroot(".")?;
            Ok(chdir(&self.path)?)
        };
        back().map_err(|error: io::Error| Failed::new("leave", "the job's namespaces", error))
    }
}
