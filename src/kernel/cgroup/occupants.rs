//! The accounts that may have processes in a job's cgroup.
//!
//! A stamp alone does not prove whose a cgroup is: a scheduler may give the same directory, with the stamp
//! on it, to the next job. Owner and processes of the directory show the change.

use super::dir::{OCCUPANTS, get};
use super::{Dir, Error, Result, own_processes, walk};
use crate::Failed;
use crate::proc::Proc;
use crate::sys::nsfs::namespace_owner;
use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::Pid;
use std::fmt;
use std::io::{self, ErrorKind};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Maximum processes of one job that a login looks at.
const PROCESSES_MAX: usize = 65_536;
/// Pause before the second look. A setuid program may be in the job for a moment.
const PAUSE: Duration = Duration::from_millis(100);

/// The accounts that `register` has noted for a job, as `OWNER ACCOUNT...`: they and root may have
/// processes in its cgroup beside the job's user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Occupants {
    /// The job's user.
    pub user: u32,
    /// The directory's owner when the job was registered.
    pub owner: u32,
    /// Accounts of the scheduler, as the record names them.
    pub accounts: Vec<u32>,
}

impl fmt::Display for Occupants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.owner)?;
        self.accounts.iter().try_for_each(|uid| write!(f, " {uid}"))
    }
}

impl Occupants {
    /// Reads what was noted for the job of `user`. Without a note the directory was root's, and the
    /// record names no account.
    ///
    /// # Errors
    ///
    /// As `fgetxattr(2)`; [`Error::Wrong`] for a note that is not of that form.
    pub fn read(dir: &Dir, user: u32) -> Result<Self> {
        let Some(value) = get(dir, OCCUPANTS)? else {
            return Ok(Self { user, owner: 0, accounts: Vec::new() });
        };
        let uids = std::str::from_utf8(&value).ok().and_then(|text| {
            text.split(' ').map(|uid| uid.parse().ok()).collect::<Option<Vec<u32>>>()
        });
        match uids.as_deref() {
            Some([owner, accounts @ ..]) => {
                Ok(Self { user, owner: *owner, accounts: accounts.to_vec() })
            }
            _ => Err(Error::malformed(&format!("accounts of {}", dir.path()))),
        }
    }

    /// Requires that the directory has not changed its owner, and that no other account has a process
    /// in it or below. What is found there must be there a moment later, too. A cgroup without
    /// processes passes: an allocation may have none.
    ///
    /// # Errors
    ///
    /// [`Error::Wrong`] for a cgroup that is another account's, with more processes than one login
    /// looks at, or with a process outside of this pid namespace; [`ErrorKind::TimedOut`] at the
    /// deadline; what the kernel answers for a process that cannot be looked at.
    pub fn require(&self, dir: &Dir, deadline: Instant) -> Result<()> {
        let owner = dir.owner()?;
        if owner != self.owner && owner != self.user {
            let why = format!("belongs to uid {owner} now: a scheduler has used it again");
            return Err(Error::unfit(dir.path(), &why));
        }
        self.look(dir, deadline).or_else(|_| {
            sleep(PAUSE.min(deadline.saturating_duration_since(Instant::now())));
            self.look(dir, deadline)
        })
    }

    fn look(&self, top: &Dir, deadline: Instant) -> Result<()> {
        let mut count = 0;
        walk(top, deadline, |dir| {
            for pid in own_processes(dir)? {
                count += 1;
                if count > PROCESSES_MAX {
                    return Err(Error::unfit(top.path(), "has more processes than are looked at"));
                }
                if Instant::now() >= deadline {
                    return Err(top.failed("look at processes in", "", ErrorKind::TimedOut));
                }
                let stranger = self.stranger(pid);
                let failed = |error| Failed::new("look at process", pid.to_string(), error);
                if let Some(uid) = stranger.map_err(failed)? {
                    let why = format!("has process {pid} of uid {uid}, which does not own the job");
                    return Err(Error::unfit(top.path(), &why));
                }
            }
            Ok(())
        })
    }

    /// Returns the real uid of a process that may not be in the job; `None` for any other one, and for
    /// one that is gone. A setuid program of a user's keeps the real uid; what root runs as another
    /// account does too. Processes of a container that the user runs without root have uids of their own,
    /// in a user namespace of the user's.
    ///
    /// # Errors
    ///
    /// As `stat(2)` of the process, and as for reading its `status` and user namespace.
    pub fn stranger(&self, pid: i32) -> io::Result<Option<u32>> {
        if pid == 0 {
            return Err(io::Error::other("it is in another pid namespace"));
        }
        let find = || {
            let uid = Proc::here().effective_uid(pid)?;
            if self.admits(uid) {
                return Ok(None);
            }
            let [real, ..] = Proc::here().process(pid)?.uids;
            if self.admits(real) || namespace_owner(pid)? == Some(self.user) {
                return Ok(None);
            }
            Ok(Some(real))
        };
        match find() {
            // Only signals tell a process that is gone from one that is hidden.
            Err(_) if kill(Pid::from_raw(pid), None) == Err(Errno::ESRCH) => Ok(None),
            result => result,
        }
    }

    /// Returns whether processes of this account may be in the job.
    pub fn admits(&self, uid: u32) -> bool {
        uid == 0 || uid == self.user || self.accounts.contains(&uid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn job_of(user: u32) -> Occupants {
        Occupants { user, owner: 0, accounts: Vec::new() }
    }

    #[test]
    fn process_is_a_strangers_unless_its_account_is_admitted() {
        let (own, uid) = (nix::unistd::getpid().as_raw(), nix::unistd::getuid().as_raw());
        assert_eq!(job_of(uid).stranger(own).unwrap(), None);
        let other = job_of(uid + 1).stranger(own).unwrap();
        assert_eq!(other, (uid != 0).then_some(uid));
        let named = Occupants { accounts: vec![uid], ..job_of(uid + 1) };
        assert_eq!(named.stranger(own).unwrap(), None);
    }

    #[test]
    fn process_that_is_gone_is_none_and_one_of_another_namespace_is_an_error() {
        let mut child = Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        assert_eq!(job_of(5).stranger(child.id().cast_signed()).unwrap(), None);
        assert!(job_of(5).stranger(0).is_err());
    }

    #[test]
    fn note_has_the_owner_first() {
        let noted = Occupants { user: 5, owner: 7, accounts: vec![101, 64] };
        assert_eq!(noted.to_string(), "7 101 64");
        assert_eq!(job_of(5).to_string(), "0");
    }
}
