//! Namespaces of a job that a login joins: those that root made, with this node's own files.
//!
//! Whoever decides what is mounted in one decides which files sshd reads as root there. So none is joined
//! whose mounts a user may change, nor one where sshd and PAM would find other programs and settings than
//! the node's.

use super::Failed;
use super::cgroup::Membership;
use super::sys::process as sys;
use super::trust::{Trust, open_below};
use nix::fcntl::{OFlag, open};
use nix::sched::{CloneFlags, setns};
use nix::sys::stat::{Mode, fstat, stat};
use nix::sys::statfs::{NSFS_MAGIC, fstatfs};
use nix::unistd::{chdir, chroot, fchdir};
use protocol::{decimal, is_within};
use std::fmt::Display;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

/// What must be the node's own in a namespace as well.
const NODE: [&str; 6] = ["/", "/etc", "/lib", "/lib64", "/run", "/usr"];

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
        if !is_one || sys::kind(fd.as_fd())? != kind {
            return Err(io::Error::other("is no namespace of mounts, or of processes, as is due"));
        }
        if users || fstat(sys::owner(fd.as_fd())?)?.st_ino != stat("/proc/self/ns/user")?.st_ino {
            let why = "is a user namespace or in one, whose user may change what is mounted";
            return Err(io::Error::other(why));
        }
        let id = fstat(&fd)?.st_ino;
        Ok(Self { fd, kind: CloneFlags::from_bits_truncate(kind), id })
    }

    /// The one of mounts that root named: by a process in the cgroup `job` or below it, or by a file in a
    /// directory that is root's all the way.
    pub fn named(name: &str, job: &str) -> Result<Self, Failed> {
        let Some(pid) = decimal(name) else {
            let path = Path::new(name);
            let dir = Trust::root().dir(path.parent().unwrap_or(path));
            let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
            let file = path.file_name().map_or(path, Path::new);
            let fd = dir.and_then(|dir| open_below(&dir.dir, file, flags, path));
            return Self::new(fd.map_err(|error| failed(name, error))?, libc::CLONE_NEWNS, name);
        };
        let found = Self::of(&pid.to_string(), "mnt", libc::CLONE_NEWNS)?;
        let place = i32::try_from(pid).map(Membership::of).map_err(|error| failed(name, error))?;
        match place.map_err(|error| failed(name, error))?.unified() {
            Some(path) if is_within(path, job) => Ok(found),
            _ => Err(failed(name, "that process is not in the job")),
        }
    }

    fn of(process: &str, name: &str, kind: i32) -> Result<Self, Failed> {
        let path = format!("/proc/{process}/ns/{name}");
        let fd = open(path.as_str(), OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty());
        Self::new(fd.map_err(|errno| failed(&path, errno.desc()))?, kind, &path)
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
    node: [Option<(u64, u64)>; NODE.len()],
}

/// The files of the node, as this process sees them.
fn node() -> [Option<(u64, u64)>; NODE.len()] {
    NODE.map(|path| stat(path).ok().map(|stat| (stat.st_dev, stat.st_ino)))
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
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let root = open("/", flags, Mode::empty());
        Ok(Self {
            own: inside.iter().map(own).collect::<Result<_, _>>()?,
            root: root.map_err(|errno| Failed::new("open", "/", errno))?,
            path: std::env::current_dir().map_err(|error| Failed::new("find", ".", error))?,
            node: node(),
        })
    }

    /// Joins those that are not this process's own, with root and working directory of the same names.
    /// Errors: `EINVAL` for a process with threads; another root, directory or file than the node's.
    pub fn enter(&self, inside: &[Namespace]) -> Result<(), Failed> {
        let enter = || {
            let mut new = self.own.iter().zip(inside).filter(|(own, one)| own.id != one.id);
            new.try_for_each(|(_, one)| one.enter())?;
            chdir(&self.path)?;
            let now = node();
            match NODE.iter().zip(self.node.iter().zip(&now)).find(|(_, (own, now))| own != now) {
                None => Ok(()),
                Some((path, _)) => Err(io::Error::other(format!("{path} is not the node's there"))),
            }
        };
        enter().map_err(|error| Failed::new("join", "the job's namespaces", error))
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
