//! Checks that only accounts of a job have processes in its cgroup.
//!
//! A stamp alone does not prove which job a cgroup belongs to: a scheduler may give the same directory, with
//! the stamp on it, to the next job. Owner and processes of the directory show the change.

use super::dir::{OCCUPANTS_XATTR, read_xattr};
use super::{Dir, Error, MADE_XATTR, Result, has_mark, ignore_gone, list_processes, walk_selected};
use crate::OperationError;
use crate::priority::TaskPriority;
use crate::proc::Proc;
use crate::sys::nsfs::namespace_owner;
use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::{Pid, getpid};
use std::cell::RefCell;
use std::ffi::OsStr;
use std::fmt;
use std::io::{self, ErrorKind};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Maximum processes of one job that are checked.
const PROCESSES_MAX: usize = 65_536;
/// Processes of the user that end a login's search for strangers. They prove nothing: a single one that was left can
/// fork so many. The search ends there for its cost alone.
const EVIDENCE_MAX: usize = 64;
/// Processes of the user whose priority is read: the first ones that the kernel lists, which as a rule are the oldest,
/// and pass on what the scheduler gave them. Each costs six system calls.
const PRIORITIES_MAX: usize = 8;
/// Maximum counts in a row while processes end before they can be looked at. One that forks and exits as fast as it can
/// was missed by one count in five.
const COUNTS_MAX: usize = 16;
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
    /// The accounts of a job of which only its user is known.
    pub fn only(user: u32) -> Self {
        Self {
            user,
            owner: 0,
            accounts: Vec::new(),
        }
    }

    /// Reads which accounts may have processes in the cgroup of a job of `user`, as `register` has recorded
    /// them. A cgroup without the attribute was root's at that time, and its record names no account.
    ///
    /// # Errors
    ///
    /// As `fgetxattr(2)`; [`Error::UnexpectedState`] for an attribute that is not of this form.
    pub fn read(dir: &Dir, user: u32) -> Result<Self> {
        let Some(value) = read_xattr(dir, OCCUPANTS_XATTR)? else {
            return Ok(Self::only(user));
        };
        // A malformed text counts as one without an owner.
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
    /// [`Error::UnexpectedState`] for a cgroup of another account, with a process of another account, with more
    /// processes than are checked, or whose processes all end before they can be looked at;
    /// [`ErrorKind::TimedOut`] at the deadline; as [`Occupants::stranger_uid`].
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
        check_twice(dir, deadline, |_| {
            let mut census = Census::new(self, dir, deadline);
            for pid in list()? {
                census.add(pid)?;
            }
            Ok(census)
        })
        .map(drop)
    }

    /// As [`Occupants::require_no_strangers`], for a login to the job of this cgroup, at a cost that does not grow
    /// with the job: it ends once it has seen 64 processes of the user.
    ///
    /// A user who has so many processes there gains nothing by one more, whoever the others belong to. A leaf that we
    /// have made is left out. Whatever is in there came by our logins, also if they have outlived their job.
    ///
    /// Returns the numbers of the first processes of the user, for [`Occupants::worst_priority`].
    ///
    /// # Errors
    ///
    /// As [`Occupants::require_no_strangers`].
    pub fn require_job_of_user(&self, dir: &Dir, deadline: Instant) -> Result<Vec<i32>> {
        self.require_no_strangers_beside_leaf(dir, deadline, SearchEnd::Evidence)
    }

    /// Reads the worst priority of those of these processes that are the user's. One that another process of the user
    /// has lowered counts as well: a login is no better off than any task of its job, and that costs this user alone.
    /// A process whose number belongs to another account afterwards does not count.
    pub fn worst_priority(&self, pids: &[i32]) -> TaskPriority {
        let mut worst = TaskPriority::default();
        for pid in pids.iter().copied().take(PRIORITIES_MAX) {
            let Ok(priority) = TaskPriority::read(pid) else {
                continue;
            };
            if matches!(self.identify(pid), Ok(Occupant::User)) {
                worst = worst.worst(priority);
            }
        }
        worst
    }

    /// As [`Occupants::require_job_of_user`], but looks at all processes outside of our leaf, however many are the
    /// user's: for a login that changes the job's filter, which stays and would bind the next job.
    ///
    /// # Errors
    ///
    /// As [`Occupants::require_no_strangers`].
    pub fn require_whole_job_of_user(&self, dir: &Dir, deadline: Instant) -> Result<()> {
        self.require_no_strangers_beside_leaf(dir, deadline, SearchEnd::LastProcess)
            .map(drop)
    }

    /// Requires that no stranger has a process outside of our leaf, up to this end of the search. Returns the numbers of
    /// the first processes of the user.
    ///
    /// # Errors
    ///
    /// As [`Occupants::require_no_strangers`].
    fn require_no_strangers_beside_leaf(
        &self,
        dir: &Dir,
        deadline: Instant,
        end: SearchEnd,
    ) -> Result<Vec<i32>> {
        self.require_owner(dir)?;
        check_twice(dir, deadline, |count| {
            // A count that is repeated looks at each process at once: one that forks and exits all the time is gone by
            // the end of a count.
            let root = match (count, end) {
                (Count::First, SearchEnd::Evidence) => RootProcesses::Defer,
                (Count::Repeated, _) | (_, SearchEnd::LastProcess) => RootProcesses::Identify,
            };
            let mut census = Census {
                end,
                root,
                ..Census::new(self, dir, deadline)
            };
            census.add_outside_of_leaf()?;
            census.add_deferred()?;
            Ok(census)
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
        match self.identify(pid)? {
            Occupant::Stranger(uid) => Ok(Some(uid)),
            Occupant::User | Occupant::Admitted | Occupant::Gone => Ok(None),
        }
    }

    /// Finds out whose process this is.
    fn identify(&self, pid: i32) -> io::Result<Occupant> {
        match self.identify_unless_root(pid)? {
            Some(occupant) => Ok(occupant),
            None => self.identify_by_real_uid(pid),
        }
    }

    /// Finds out whose process this is; `None` if it runs as root. The owner of a process costs a fifth of its real uid.
    fn identify_unless_root(&self, pid: i32) -> io::Result<Option<Occupant>> {
        if pid == 0 {
            return Err(io::Error::other("it is in another pid namespace"));
        }
        match Proc::host().effective_uid(pid) {
            Ok(0) => Ok(None),
            Ok(uid) if uid == self.user => Ok(Some(Occupant::User)),
            Ok(_) => self.identify_by_real_uid(pid).map(Some),
            Err(error) => require_gone(pid, error).map(Some),
        }
    }

    /// Finds out whose process this is, from its real uid and the owner of its user namespace. The effective uid does
    /// not tell who runs a set-uid program, which may be all that there is of another user's job.
    fn identify_by_real_uid(&self, pid: i32) -> io::Result<Occupant> {
        let real = match Proc::host().read_process(pid) {
            Ok(process) => process.uids[0],
            Err(error) => return require_gone(pid, error),
        };
        if real == self.user {
            return Ok(Occupant::User);
        }
        if self.is_admitted(real) {
            return Ok(Occupant::Admitted);
        }
        match namespace_owner(pid) {
            Ok(owner) if owner == Some(self.user) => Ok(Occupant::User),
            Ok(_) => Ok(Occupant::Stranger(real)),
            Err(error) => require_gone(pid, error),
        }
    }

    /// Tells whether processes of this account may be in the job.
    pub fn is_admitted(&self, uid: u32) -> bool {
        uid == 0 || uid == self.user || self.accounts.contains(&uid)
    }
}

/// Returns [`Occupant::Gone`] for a process that has ended, and the error for one that lives: a hidden process looks as
/// if it was gone, but takes signals.
fn require_gone(pid: i32, error: io::Error) -> io::Result<Occupant> {
    if kill(Pid::from_raw(pid), None) == Err(Errno::ESRCH) {
        return Ok(Occupant::Gone);
    }
    Err(error)
}

/// The owner of a process in a job's cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Occupant {
    /// The job's user.
    User,
    /// Root or an account of the scheduler, which may have processes in any job. A set-uid program is not theirs.
    Admitted,
    /// The account of this real uid, which may have none here.
    Stranger(u32),
    /// The process has ended.
    Gone,
}

/// Where a search for strangers ends, if it finds none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SearchEnd {
    /// After [`EVIDENCE_MAX`] processes of the user.
    Evidence,
    /// After all processes.
    LastProcess,
}

/// What a count does with a process that runs as root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RootProcesses {
    /// Finds out at once whose it is.
    Identify,
    /// Looks at it last, and only without enough processes of the user.
    Defer,
}

/// Which count of a cgroup's processes this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Count {
    First,
    /// A count before it met a stranger, or processes that ended too early.
    Repeated,
}

/// Counts the processes in a job's cgroup by their owners. There is no stranger among them: the first one is an error.
struct Census<'a> {
    occupants: &'a Occupants,
    top: &'a Dir,
    deadline: Instant,
    /// Number of this process, which is no stranger: a login looks once more after it has entered the job.
    own: i32,
    end: SearchEnd,
    root: RootProcesses,
    /// All processes.
    total: usize,
    /// Processes of the job's user.
    of_user: usize,
    /// The numbers of the first ones of these.
    first_of_user: Vec<i32>,
    /// The processes that [`RootProcesses::Defer`] has left for later.
    deferred: Vec<i32>,
    /// Processes that ended before it was known whose they were.
    gone: usize,
}

impl<'a> Census<'a> {
    /// A count for the job's cgroup `top`, before its first process. Adding a process fails after the deadline.
    fn new(occupants: &'a Occupants, top: &'a Dir, deadline: Instant) -> Self {
        Self {
            occupants,
            top,
            deadline,
            own: getpid().as_raw(),
            end: SearchEnd::Evidence,
            root: RootProcesses::Identify,
            total: 0,
            of_user: 0,
            first_of_user: Vec::new(),
            deferred: Vec::new(),
            gone: 0,
        }
    }

    /// Returns whether there are enough processes of the user to end the search.
    fn has_evidence(&self) -> bool {
        match self.end {
            SearchEnd::Evidence => self.of_user >= EVIDENCE_MAX,
            SearchEnd::LastProcess => false,
        }
    }

    /// Requires that the deadline has not passed.
    fn require_time(&self) -> Result<()> {
        if Instant::now() >= self.deadline {
            let operation = "look at processes in";
            return Err(self.top.failed(operation, "", ErrorKind::TimedOut));
        }
        Ok(())
    }

    /// Adds the processes of the job's cgroup and of those below it, but for those in our leaf, until there are enough of
    /// the user.
    ///
    /// # Errors
    ///
    /// As [`Census::add_processes`], [`Census::open_child`] and [`walk_selected`].
    fn add_outside_of_leaf(&mut self) -> Result<()> {
        let top = self.top;
        let deadline = self.deadline;
        // Both parts of the walk need the census, in turns.
        let census = RefCell::new(self);
        walk_selected(
            top,
            deadline,
            |parent, name| census.borrow().open_child(parent, name),
            |cgroup| census.borrow_mut().add_processes(cgroup),
        )
    }

    /// Opens a cgroup to add its processes; `None` for our leaf, and for any once there are enough processes of the user.
    ///
    /// # Errors
    ///
    /// As [`Dir::child`] and [`has_mark`].
    fn open_child(&self, parent: &Dir, name: &OsStr) -> Result<Option<Dir>> {
        if self.has_evidence() {
            return Ok(None);
        }
        let child = parent.child(name)?;
        if parent.path() == self.top.path() && has_mark(&child, MADE_XATTR)? {
            return Ok(None);
        }
        Ok(Some(child))
    }

    /// Adds the processes right in a cgroup, until there are enough of the user. A cgroup that is gone or threaded adds
    /// none.
    ///
    /// # Errors
    ///
    /// As [`Census::add`]; the list of processes cannot be read.
    fn add_processes(&mut self, cgroup: &Dir) -> Result<()> {
        let Some(mut list) = ignore_gone(cgroup.open_process_list())? else {
            return Ok(());
        };
        while !self.has_evidence() {
            let pids = match ignore_gone(list.read_part()) {
                // A threaded cgroup: its processes are in the list of its domain, further up.
                Err(error) if error.errno() == Some(libc::EOPNOTSUPP) => return Ok(()),
                pids => pids?.unwrap_or_default(),
            };
            if pids.is_empty() {
                return Ok(());
            }
            for pid in pids {
                if self.has_evidence() {
                    break;
                }
                self.add(pid)?;
            }
        }
        Ok(())
    }

    /// Counts a process by its owner.
    ///
    /// # Errors
    ///
    /// [`Error::UnexpectedState`] for a stranger, and for more than [`PROCESSES_MAX`] processes; a process cannot be
    /// identified; the deadline has passed.
    fn add(&mut self, pid: i32) -> Result<()> {
        self.total += 1;
        if self.total > PROCESSES_MAX {
            let why = "has more processes than are looked at";
            return Err(Error::unfit(self.top.path(), why));
        }
        self.require_time()?;
        if pid == self.own {
            return Ok(());
        }
        let found = match self.root {
            RootProcesses::Identify => self.occupants.identify(pid),
            RootProcesses::Defer => match self.occupants.identify_unless_root(pid) {
                Ok(Some(occupant)) => Ok(occupant),
                Ok(None) => {
                    self.deferred.push(pid);
                    return Ok(());
                }
                Err(error) => Err(error),
            },
        };
        self.add_occupant(pid, found)
    }

    /// Counts the processes that were deferred, until there are enough of the user.
    ///
    /// # Errors
    ///
    /// As [`Census::add`].
    fn add_deferred(&mut self) -> Result<()> {
        for pid in std::mem::take(&mut self.deferred) {
            if self.has_evidence() {
                break;
            }
            self.require_time()?;
            let occupant = self.occupants.identify_by_real_uid(pid);
            self.add_occupant(pid, occupant)?;
        }
        Ok(())
    }

    /// Counts an occupant, by what was found out about its process.
    fn add_occupant(&mut self, pid: i32, found: io::Result<Occupant>) -> Result<()> {
        let failed = |error| OperationError::new("look at process", pid.to_string(), error);
        match found.map_err(failed)? {
            Occupant::User => {
                self.of_user += 1;
                if self.first_of_user.len() < PRIORITIES_MAX {
                    self.first_of_user.push(pid);
                }
            }
            Occupant::Admitted => {}
            Occupant::Gone => self.gone += 1,
            Occupant::Stranger(uid) => {
                let why = format!("has process {pid} of uid {uid}, which does not own the job");
                return Err(Error::unfit(self.top.path(), &why));
            }
        }
        Ok(())
    }
}

/// Requires that `count`, which fails for a stranger, succeeds for the cgroup. After a failure it counts once more, and
/// that result holds: a setuid program may be in the job for a moment. Returns the first processes of the user.
fn check_twice<'a>(
    dir: &Dir,
    deadline: Instant,
    count: impl Fn(Count) -> Result<Census<'a>>,
) -> Result<Vec<i32>> {
    if let Ok(pids) = check_living(dir, Count::First, &count) {
        return Ok(pids);
    }
    sleep(RECHECK_INTERVAL.min(deadline.saturating_duration_since(Instant::now())));
    check_living(dir, Count::Repeated, &count)
}

/// Requires that `count` succeeds, and counts again while processes end before it is known whose they are: another
/// account's job may be a single program that goes on as its own child all the time. If only some of them end so fast,
/// those of the user that stay are sufficient. `first` says whether a count came before this call's first one.
fn check_living<'a>(
    dir: &Dir,
    first: Count,
    count: impl Fn(Count) -> Result<Census<'a>>,
) -> Result<Vec<i32>> {
    let mut of_user = Vec::new();
    let counts = std::iter::once(first).chain(std::iter::repeat(Count::Repeated));
    for which in counts.take(COUNTS_MAX) {
        let census = count(which)?;
        if census.gone == 0 || census.has_evidence() {
            return Ok(census.first_of_user);
        }
        if !census.first_of_user.is_empty() {
            of_user = census.first_of_user;
        }
    }
    if !of_user.is_empty() {
        return Ok(of_user);
    }
    let why = "has only processes that end before they can be looked at";
    Err(Error::unfit(dir.path(), why))
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
