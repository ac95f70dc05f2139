//! The process of a container that a login joins, held so that no other process can take its place.

use super::container::{JobProcess, Namespaces, open_directory};
use super::credentials::Credentials;
use super::job_cgroup::JobCgroup;
use command::error::Error;
use kernel::proc::Proc;
use kernel::sys::file::read_to_end;
use kernel::sys::pidfd::{pidfd_open, pidfd_send_signal};
use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sched::{CloneFlags, setns};
use nix::sys::prctl::set_dumpable;
use nix::sys::stat::Mode;
use nix::unistd::{chdir, chroot, fchdir};
use std::fmt::Display;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Maximum bytes of a process's variables; a program can be given 6 MiB (execve(2)).
const ENVIRON_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// A process of a container, with all that a login takes from it.
#[derive(Debug)]
pub(super) struct Target {
    process: JobProcess,
    pidfd: OwnedFd,
    root: OwnedFd,
    /// The working directory; `None` if it cannot be opened.
    working_dir: Option<OwnedFd>,
    pub(super) credentials: Credentials,
    /// Its directory in `/proc`, which stands for no later process with that number.
    dir: OwnedFd,
}

/// What a process has that has joined a container.
#[derive(Debug)]
pub(super) struct Joined {
    /// True if it has all capabilities of the container's user namespace.
    pub(super) is_privileged: bool,
    /// The variables of the container's process, as `/proc/PID/environ` has them.
    pub(super) environ: Vec<u8>,
}

impl Target {
    /// Opens a process, which must still be the one that was found and see the same.
    ///
    /// The descriptor is opened first. While its process is alive no other one has the number, so all that is
    /// read before it is last seen alive is of that process.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] for a process that has ended or changed, or that the caller may not trace.
    pub(super) fn open(found: &JobProcess, job: &JobCgroup) -> Result<Self, Error> {
        let pid = found.pid;
        let failed = |error: io::Error| Error::failed("open process", pid, explain(&error));
        let pidfd = pidfd_open(pid).map_err(failed)?;
        let now = JobProcess::read(pid, job).map_err(failed)?;
        let path = Proc::host().dir(pid);
        let dir = open_directory(&path).map_err(|errno| failed(errno.into()))?;
        let root = open_directory(path.join("root")).map_err(|errno| failed(errno.into()))?;
        let working_dir = open_directory(path.join("cwd")).ok();
        let credentials = Credentials::read(pid).map_err(failed)?;
        pidfd_send_signal(pidfd.as_fd(), 0).map_err(failed)?;
        match now {
            Some(process) if found.is_unchanged(&process, &root) => Ok(Self {
                process,
                pidfd,
                root,
                working_dir,
                credentials,
                dir,
            }),
            _ => Err(Error::failed(
                "enter container of process",
                pid,
                "it has changed in this moment; try again",
            )),
        }
    }

    /// Joins the namespaces in which the process differs from `login`, and takes its root and working directory.
    /// The pid namespace becomes that of children. Reads the variables from inside: if the process is another user of
    /// the container, they are closed to the login.
    ///
    /// From here on this process is in a user namespace of the container. It is not dumpable, and so no process
    /// in there can trace it, read its memory or open its descriptors (`__ptrace_may_access` in
    /// kernel/ptrace.c): the terminal and the variables of the login stay its own.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`], which says what the kernel refused and why.
    pub(super) fn join(&self, login: &Namespaces) -> Result<Joined, Error> {
        let pid = self.process.pid;
        let enter_failed =
            |cause: &dyn Display| Error::failed("enter container of process", pid, cause);
        let kinds = self.process.view.namespaces.difference(login);
        // After the join `/proc` is the container's.
        let own = open_directory("/proc/self").map_err(|errno| enter_failed(&errno.desc()))?;
        set_dumpable(false).map_err(|errno| enter_failed(&errno.desc()))?;
        setns(&self.pidfd, kinds)
            .map_err(|errno| enter_failed(&explain_refused_join(errno, kinds)))?;
        let joined = Namespaces::read(&own).map_err(|errno| enter_failed(&errno.desc()))?;
        let not_joined = joined.difference(&self.process.view.namespaces);
        // This process itself never joins the pid namespace.
        if !(not_joined - CloneFlags::CLONE_NEWPID).is_empty() {
            return Err(enter_failed(&"it has changed in this moment; try again"));
        }
        fchdir(&self.root)
            .and_then(|()| chroot("."))
            .map_err(|errno| enter_failed(&format!("its root directory: {}", errno.desc())))?;
        self.working_dir
            .as_ref()
            .map_or(Err(Errno::ENOENT), fchdir)
            .or_else(|_| chdir("/"))
            .map_err(|errno| enter_failed(&format!("its working directory: {}", errno.desc())))?;
        let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
        let environ = openat(&self.dir, "environ", flags, Mode::empty())
            .map_err(io::Error::from)
            .and_then(|file| read_to_end(file, ENVIRON_BYTES_MAX))
            .map_err(|error| enter_failed(&format!("its variables: {}", explain(&error))))?;
        Ok(Joined {
            is_privileged: kinds.contains(CloneFlags::CLONE_NEWUSER),
            environ,
        })
    }
}

/// Explains why a process cannot be opened.
pub(super) fn explain(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::ESRCH | libc::ENOENT) => "it has ended".to_owned(),
        Some(libc::EACCES | libc::EPERM) => {
            "the kernel does not let you read it: it is not yours, or does not let itself be traced; \
             another process of the container may work (--pid)"
                .to_owned()
        }
        Some(libc::ENOSYS) => "the kernel is older than Linux 5.8".to_owned(),
        _ if error.kind() == io::ErrorKind::InvalidData => {
            "its container has no number for its user or group; start another shell in it by the \
             program that made it"
                .to_owned()
        }
        _ => error.to_string(),
    }
}

/// Explains why the kernel refused to join namespaces of these kinds.
fn explain_refused_join(errno: Errno, kinds: CloneFlags) -> String {
    match errno {
        Errno::EPERM if !kinds.contains(CloneFlags::CLONE_NEWUSER) => {
            "root made it, without a user namespace, and only root may enter it; start another \
             shell in it by the program that made it, in this login (Apptainer: apptainer shell \
             IMAGE or instance://NAME)"
                .to_owned()
        }
        Errno::EPERM => "the kernel refuses: its namespaces are not all yours; you can enter only \
                         containers of your own"
            .to_owned(),
        Errno::EINVAL => "the kernel refuses; this needs Linux 5.8 or later".to_owned(),
        Errno::ESRCH => "it has ended".to_owned(),
        _ => errno.desc().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn refused_join_is_explained() {
        let mounts = CloneFlags::CLONE_NEWNS;
        let both = mounts | CloneFlags::CLONE_NEWUSER;
        for (errno, kinds, expected) in [
            (Errno::EPERM, mounts, "root made it"),
            (Errno::EPERM, both, "not all yours"),
            (Errno::EINVAL, both, "Linux 5.8"),
            (Errno::ESRCH, both, "it has ended"),
            (Errno::ENOMEM, both, "memory"),
        ] {
            let text = explain_refused_join(errno, kinds);
            assert!(text.contains(expected), "{text}");
        }
    }

    #[test]
    fn number_that_passed_to_another_process_is_refused() {
        let job = JobCgroup::of_all_processes();
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let found = JobProcess::read(pid, &job).unwrap().unwrap();
        let opened = Target::open(&found, &job).map(drop);
        let other = Target::open(&found.clone().with_start(1), &job).map(drop);
        child.kill().unwrap();
        child.wait().unwrap();
        let ended = Target::open(&found, &job).map(drop);
        assert!(opened.is_ok(), "{opened:?}");
        assert!(other.unwrap_err().to_string().contains("has changed"));
        assert!(ended.unwrap_err().to_string().contains("has ended"));
    }

    /// The process may change its root directory after it was looked at, and before that is opened.
    #[test]
    fn other_root_directory_than_the_one_seen_is_refused() {
        let job = JobCgroup::of_all_processes();
        let own = nix::unistd::getpid().as_raw();
        let process = JobProcess::read(own, &job).unwrap().unwrap();
        for (path, expected) in [("/", true), ("/proc", false)] {
            let root = open_directory(path).unwrap();
            assert_eq!(process.is_unchanged(&process, &root), expected, "{path}");
        }
    }

    #[test]
    fn process_that_cannot_be_opened_is_explained() {
        for (errno, expected) in [
            (libc::ESRCH, "it has ended"),
            (libc::ENOENT, "it has ended"),
            (libc::EACCES, "not yours"),
            (libc::ENOSYS, "Linux 5.8"),
        ] {
            let text = explain(&io::Error::from_raw_os_error(errno));
            assert!(text.contains(expected), "{text}");
        }
    }
}
