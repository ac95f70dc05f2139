//! The process whose limits are taken: whose it is, and where.

use super::super::Failure;
use super::super::home::Home;
use super::{Limits, LimitsFailure};
use crate::cgroup::Membership;
use crate::failed::Failed;
use crate::plan::ProcessId;
use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::Mode;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;

/// Most bytes of a file of the process's: more than the longest path of a cgroup in every hierarchy.
const FILE_MAX: u64 = 128 * 1024;

/// The limits of that process, which has to be `uid`'s and in the job; `None` where it has ended.
///
/// It is looked at by its directory in `/proc`, opened once: another process of the same number is
/// not to be found by that. Before and after its limits are read it has to be the user's, since a
/// program that is root's for a while, such as sudo(8), may have others then.
///
/// # Errors
/// [`LimitsFailure`] for any other process.
pub(in super::super) fn limits_of(
    pid: ProcessId,
    uid: u32,
    job: &Home,
) -> Result<Option<Limits>, Failure> {
    match Process::open(pid).and_then(|process| process.limits(uid, job)) {
        Ok(limits) => Ok(Some(limits)),
        Err(LimitsFailure::Unread(failed)) if is_gone(&failed.source) => Ok(None),
        Err(failure) => Err(failure.into()),
    }
}

/// `ESRCH` comes from a file that was opened before.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH))
}

/// A process, by its directory.
struct Process {
    pid: i32,
    dir: OwnedFd,
}

impl Process {
    fn open(pid: ProcessId) -> Result<Self, LimitsFailure> {
        let path = format!("/proc/{pid}");
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        match open(path.as_str(), flags, Mode::empty()) {
            Ok(dir) => Ok(Self { pid: pid.number(), dir }),
            Err(errno) => Err(LimitsFailure::Unread(Failed::new("open", path, errno))),
        }
    }

    fn limits(&self, uid: u32, job: &Home) -> Result<Limits, LimitsFailure> {
        self.require(uid, job)?;
        let text = self.read("limits")?;
        self.require(uid, job)?;
        Limits::parse(&text, &self.path("limits"))
    }

    fn require(&self, uid: u32, job: &Home) -> Result<(), LimitsFailure> {
        let status = self.read("status")?;
        let owner = owners(&status).ok_or_else(|| LimitsFailure::Malformed(self.path("status")))?;
        if owner != [uid; 4] {
            return Err(LimitsFailure::Owner(self.pid));
        }
        let cgroups = Membership::parse(&self.read("cgroup")?)
            .ok_or_else(|| LimitsFailure::Malformed(self.path("cgroup")))?;
        if job.has(&cgroups) { Ok(()) } else { Err(LimitsFailure::Outside(self.pid)) }
    }

    fn read(&self, file: &str) -> Result<String, LimitsFailure> {
        let unread = |operation, error: io::Error| {
            LimitsFailure::Unread(Failed::new(operation, self.path(file), error))
        };
        let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let fd = openat(&self.dir, file, flags, Mode::empty())
            .map_err(|errno: Errno| unread("open", errno.into()))?;
        let mut bytes = Vec::new();
        let read = File::from(fd).take(FILE_MAX).read_to_end(&mut bytes);
        read.map_err(|error| unread("read", error))?;
        let whole = (bytes.len() as u64) < FILE_MAX;
        // Names of processes and of cgroups are the user's, and may be any bytes.
        let text = whole.then(|| String::from_utf8_lossy(&bytes).into_owned());
        text.ok_or_else(|| LimitsFailure::Malformed(self.path(file)))
    }

    fn path(&self, file: &str) -> String {
        format!("/proc/{}/{file}", self.pid)
    }
}

/// Real, effective, saved and file system uid (proc_pid_status(5)).
fn owners(status: &str) -> Option<[u32; 4]> {
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    let uids: Option<Vec<u32>> =
        line.split_ascii_whitespace().map(|uid| uid.parse().ok()).collect();
    uids?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::unistd::{getpid, getuid};

    fn own() -> (ProcessId, u32, Home) {
        let path = Membership::own().unwrap().unified().unwrap_or("/none").to_owned();
        (ProcessId::new(getpid().as_raw().into()).unwrap(), getuid().as_raw(), Home::Unified(path))
    }

    #[test]
    fn all_four_uids_count() {
        let status = "Name:\tUid: 5\nUid:\t5\t5\t5\t6\nGid:\t7\t7\t7\t7\n";
        assert_eq!(owners(status), Some([5, 5, 5, 6]));
        for bad in ["", "Uid:\t5\t5\t5\n", "Uid:\t5\t5\t5\t5\t5\n", "Uid:\t5\t5\t5\t-1\n"] {
            assert_eq!(owners(bad), None, "{bad:?}");
        }
        let (pid, uid, home) = own();
        let error = Process::open(pid).unwrap().limits(uid + 1, &home).unwrap_err();
        assert!(matches!(error, LimitsFailure::Owner(_)), "{error}");
    }

    #[test]
    fn a_process_outside_is_refused() {
        let (pid, uid, _) = own();
        let elsewhere = Home::Unified("/no/such/job".into());
        let error = Process::open(pid).unwrap().limits(uid, &elsewhere).unwrap_err();
        assert!(matches!(error, LimitsFailure::Outside(_)), "{error}");
    }

    #[test]
    fn one_that_has_ended_has_none() {
        let (_, uid, home) = own();
        assert!(limits_of(ProcessId::new(4_194_303).unwrap(), uid, &home).unwrap().is_none());
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let process = Process::open(ProcessId::new(child.id().into()).unwrap()).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        match process.limits(uid, &home) {
            Err(LimitsFailure::Unread(failed)) => assert!(is_gone(&failed.source), "{failed}"),
            other => panic!("{other:?}"),
        }
    }
}
