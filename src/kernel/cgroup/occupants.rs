//! Checks that only accounts of a job have processes in its cgroup.
//!
//! A stamp alone does not prove which job a cgroup belongs to: a scheduler may give the same directory, with
//! the stamp on it, to the next job. Owner and processes of the directory show the change.

use super::dir::{OCCUPANTS_XATTR, read_xattr};
use super::{Dir, Error, Result, list_processes};
use crate::OperationError;
use crate::proc::Proc;
use crate::sys::nsfs::namespace_owner;
use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::Pid;
use std::fmt;
use std::io::{self, ErrorKind};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Maximum processes of one job that a login checks.
const PROCESSES_MAX: usize = 65_536;
/// Pause before the second check. A setuid program may be in the job for a moment.
const RECHECK_INTERVAL: Duration = Duration::from_millis(100);

/// The accounts that may have processes in a job's cgroup: the job's user, root, and accounts of the scheduler.
/// `register` records the owner and these accounts as `OWNER ACCOUNT...`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Occupants {
    /// Uid of the job's user.
    pub user: u32,
    /// Uid of the directory's owner when the job was registered.
    pub owner: u32,
    /// Uids of the scheduler's accounts, from the record.
    pub accounts: Vec<u32>,
}

impl fmt::Display for Occupants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.owner)?;
        self.accounts.iter().try_for_each(|uid| write!(f, " {uid}"))
    }
}

/// Parses uids with a blank between them; `None` for another text.
fn parse_uids(text: &[u8]) -> Option<Vec<u32>> {
    let text = std::str::from_utf8(text).ok()?;
    text.split(' ').map(|uid| uid.parse().ok()).collect()
}

impl Occupants {
    /// Reads which accounts may have processes in the cgroup of a job of `user`, as `register` has recorded
    /// them. A cgroup without the attribute was root's at that time, and its record names no account.
    ///
    /// # Errors
    ///
    /// As `fgetxattr(2)`; [`Error::UnexpectedState`] for an attribute that is not of this form.
    pub fn read(dir: &Dir, user: u32) -> Result<Self> {
        let Some(value) = read_xattr(dir, OCCUPANTS_XATTR)? else {
            return Ok(Self {
                user,
                owner: 0,
                accounts: Vec::new(),
            });
        };
        let uids = parse_uids(&value).unwrap_or_default();
        let Some((owner, accounts)) = uids.split_first() else {
            return Err(Error::malformed(&format!("accounts of {}", dir.path())));
        };
        Ok(Self {
            user,
            owner: *owner,
            accounts: accounts.to_vec(),
        })
    }

    /// Requires that the directory has not changed its owner, and that no other account has a process in it or
    /// below. A process of another account counts only if a second check finds one, too. A cgroup without
    /// processes passes: an allocation may have none.
    ///
    /// # Errors
    ///
    /// [`Error::UnexpectedState`] for a cgroup of another account, with a process of another account, or with
    /// more processes than one login checks; [`ErrorKind::TimedOut`] at the deadline; as
    /// [`Occupants::stranger_uid`].
    pub fn require_no_strangers(&self, dir: &Dir, deadline: Instant) -> Result<()> {
        self.require_no_strangers_among(dir, deadline, || list_processes(dir, deadline).complete())
    }

    /// As [`Occupants::require_no_strangers`], for the processes that `list` finds in the cgroup.
    ///
    /// # Errors
    ///
    /// As [`Occupants::require_no_strangers`], and those of `list`.
    pub fn require_no_strangers_among(
        &self,
        dir: &Dir,
        deadline: Instant,
        list: impl Fn() -> Result<Vec<i32>>,
    ) -> Result<()> {
        self.require_owner(dir)?;
        let check = || self.check_processes(dir, &list()?, deadline);
        check().or_else(|_| {
            sleep(RECHECK_INTERVAL.min(deadline.saturating_duration_since(Instant::now())));
            check()
        })
    }

    /// Requires that the directory belongs to the account that owned it when the job was registered, or to the
    /// job's user.
    ///
    /// # Errors
    ///
    /// [`Error::UnexpectedState`] for a cgroup of another account; as [`Dir::owner`].
    pub fn require_owner(&self, dir: &Dir) -> Result<()> {
        let owner = dir.owner()?;
        if owner != self.owner && owner != self.user {
            let why = format!("belongs to uid {owner} now: a scheduler has used it again");
            return Err(Error::unfit(dir.path(), &why));
        }
        Ok(())
    }

    /// Requires that none of these processes is a stranger's, as [`Occupants::stranger_uid`] finds it. `top` is the
    /// job's cgroup, for messages.
    ///
    /// # Errors
    ///
    /// [`Error::UnexpectedState`] for the first stranger's process or for more than `PROCESSES_MAX` of them;
    /// [`ErrorKind::TimedOut`] at the deadline; as [`Occupants::stranger_uid`].
    fn check_processes(&self, top: &Dir, pids: &[i32], deadline: Instant) -> Result<()> {
        if pids.len() > PROCESSES_MAX {
            return Err(Error::unfit(
                top.path(),
                "has more processes than are looked at",
            ));
        }
        for &pid in pids {
            if Instant::now() >= deadline {
                return Err(top.failed("look at processes in", "", ErrorKind::TimedOut));
            }
            let stranger_uid = self.stranger_uid(pid);
            let failed = |error| OperationError::new("look at process", pid.to_string(), error);
            if let Some(uid) = stranger_uid.map_err(failed)? {
                let why = format!("has process {pid} of uid {uid}, which does not own the job");
                return Err(Error::unfit(top.path(), &why));
            }
        }
        Ok(())
    }

    /// The real uid of a process that may not be in the job; `None` for a process that may, or that is
    /// gone. A setuid program keeps the real uid of its user, and so does a program that root runs with another
    /// effective uid. A container that the user runs without root has other uids, in a user namespace that the
    /// user owns.
    ///
    /// # Errors
    ///
    /// A process outside of this pid namespace; as `stat(2)` of the process, and as for reading its `status` and
    /// user namespace.
    pub fn stranger_uid(&self, pid: i32) -> io::Result<Option<u32>> {
        if pid == 0 {
            return Err(io::Error::other("it is in another pid namespace"));
        }
        let find = || {
            let uid = Proc::host().effective_uid(pid)?;
            if self.is_admitted(uid) {
                return Ok(None);
            }
            let [real, ..] = Proc::host().read_process(pid)?.uids;
            if self.is_admitted(real) || namespace_owner(pid)? == Some(self.user) {
                return Ok(None);
            }
            Ok(Some(real))
        };
        match find() {
            // A hidden process looks as if it was gone, but takes signals.
            Err(_) if kill(Pid::from_raw(pid), None) == Err(Errno::ESRCH) => Ok(None),
            result => result,
        }
    }

    /// Tells whether processes of this account may be in the job.
    pub fn is_admitted(&self, uid: u32) -> bool {
        uid == 0 || uid == self.user || self.accounts.contains(&uid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn job_of(user: u32) -> Occupants {
        Occupants {
            user,
            owner: 0,
            accounts: Vec::new(),
        }
    }

    #[test]
    fn process_of_account_without_admission_is_stranger() {
        let pid = nix::unistd::getpid().as_raw();
        let uid = nix::unistd::getuid().as_raw();
        assert_eq!(job_of(uid).stranger_uid(pid).unwrap(), None);
        let other = job_of(uid + 1).stranger_uid(pid).unwrap();
        assert_eq!(other, (uid != 0).then_some(uid));
        let named = Occupants {
            accounts: vec![uid],
            ..job_of(uid + 1)
        };
        assert_eq!(named.stranger_uid(pid).unwrap(), None);
    }

    #[test]
    fn gone_process_is_no_stranger_and_process_of_other_namespace_fails() {
        let mut child = Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        assert_eq!(
            job_of(5)
                .stranger_uid(i32::try_from(child.id()).unwrap())
                .unwrap(),
            None
        );
        assert!(job_of(5).stranger_uid(0).is_err());
    }

    #[test]
    fn attribute_has_owner_first() {
        let occupants = Occupants {
            user: 5,
            owner: 7,
            accounts: vec![101, 64],
        };
        assert_eq!(occupants.to_string(), "7 101 64");
        assert_eq!(job_of(5).to_string(), "0");
    }
}
