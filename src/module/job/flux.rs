//! Checks Flux jobs: the processes in the unit prove who owns the job.
//!
//! The login goes into a leaf below the unit, where Flux neither waits for it nor ends it. A keeper
//! ends it (see the crate `keeper`); [`crate::keeper`] starts it and checks that it runs.

use crate::context::Adoption;
use crate::error::Failure;
use crate::keeper::{KeeperCheck, start_keeper};
use crate::undo::Undo;
use kernel::OperationError;
use kernel::cgroup::{CgroupChain, Dir, Membership};
use kernel::lock::Lock;
use kernel::priority::TaskPriority;
use kernel::proc::{Proc, Process};
use kernel::sys::pidfd::pidfd_open;
use kernel::trust::{Trust, TrustError};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use protocol::{CgroupPath, Reason, Request};
use schedulers::flux::{self, Shell, unit_at};
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// Requires that the path is the unit of the plan's job below the service manager of the account `flux`, and that
/// this account can be the one of Flux. Both come from the helper's reply, so they prove nothing. With uid 0 any process
/// of root's would look like the IMP ([`flux::find_imp`]); with the user's own uid the unit would be in the user's
/// service manager, where the user makes units of any name and starts setuid programs in them.
pub(super) fn require_unit(
    adoption: &Adoption<'_>,
    path: &CgroupPath,
    flux: u32,
) -> Result<(), Failure> {
    let unit = unit_at(path.as_str(), flux);
    let is_unit_of_job = unit.is_some_and(|unit| unit.id == adoption.plan.job.as_str());
    if is_unit_of_job && flux != 0 && flux != adoption.uid() {
        return Ok(());
    }
    let cause = format!("{path} is not the job's unit, if Flux runs as uid {flux}");
    Err(Failure::new(Reason::AdoptionFailed, cause))
}

/// The IMP of this user's job. A pidfd keeps it distinct from a later process with the same number.
#[derive(Debug)]
pub struct Imp {
    /// Its process number in the pid namespace of `/proc`.
    pub pid: i32,
    pidfd: OwnedFd,
    flux: u32,
    /// Uid of the user whose shell it has started.
    pub user: u32,
}

impl Imp {
    /// Finds the IMP in the unit's own cgroup.
    ///
    /// # Errors
    ///
    /// [`Failure::CheckFailed`]: with [`Reason::Ended`] without an IMP, and with [`Reason::Starting`] if it has not started
    /// a shell yet; for another user's shell as [`Imp::require_shell`]. [`Failure::CgroupGone`] if the unit is gone.
    pub(super) fn find(unit: &Dir, flux: u32, user: u32) -> Result<Self, Failure> {
        let pid = flux::find_imp(&read_unit_processes(unit)?, flux).ok_or_else(unit_ended)?;
        let pidfd = pidfd_open(pid).map_err(|error| match error.raw_os_error() {
            Some(libc::ESRCH) => unit_ended(),
            _ => OperationError::new("hold process", pid.to_string(), error).into(),
        })?;
        let imp = Self {
            pid,
            pidfd,
            flux,
            user,
        };
        // Check the process behind the pidfd: another one may have the number by now.
        imp.require_shell(unit, unit_starting)?;
        Ok(imp)
    }

    /// Reads the IMP's OOM score, which its shell and tasks inherit: 200 under systemd's service managers of users
    /// (user@.service), and its nice value. The job's user cannot change those of a process of root. The default counts for
    /// an IMP whose values cannot be read.
    pub(super) fn read_priority(&self) -> TaskPriority {
        TaskPriority::read(self.pid).unwrap_or_default()
    }

    /// Reads the text of the unit's file, which names the devices of the job, for a unit without a filter. The IMP would
    /// have attached one before it started the shell. The shell runs, so none will follow.
    ///
    /// # Errors
    ///
    /// [`Reason::CannotConfine`] if another account than the one of Flux or root can write the
    /// file, if a user's file system may be mounted there, or if it is no text.
    pub(super) fn unit_text(&self, unit: &CgroupChain) -> Result<String, Failure> {
        let (_, name) = unit.dir()?.path().rsplit_once('/').unwrap_or_default();
        let unreadable = |why: &dyn fmt::Display| {
            let cause = format!("no filter is in force at the job's unit, and its file {why}");
            Failure::new(Reason::CannotConfine, cause)
        };
        let text = read_transient_unit(self.flux, Path::new(name));
        let text = text.map_err(|error| unreadable(&error))?;
        // A request cannot carry a NUL (RFC 38).
        let text = String::from_utf8(text)
            .ok()
            .filter(|text| !text.contains('\0'));
        text.ok_or_else(|| unreadable(&"is no text"))
    }

    /// Requires that the IMP is alive, with the user's shell.
    pub(super) fn require(&self, unit: &Dir) -> Result<(), Failure> {
        self.require_shell(unit, unit_ended)
    }

    /// Requires a living IMP in this unit, with the user's shell as its child; `no_shell` makes the
    /// failure for an IMP without a child.
    fn require_shell(&self, unit: &Dir, no_shell: fn() -> Failure) -> Result<(), Failure> {
        let process = Proc::host().read_process(self.pid);
        let is_imp = process.is_ok_and(|process| flux::is_imp(&process, self.flux));
        let cgroups = Membership::read(self.pid);
        let is_in_unit = cgroups
            .as_ref()
            .is_ok_and(|cgroups| cgroups.unified() == Some(unit.path()));
        let shell = self.find_shell(unit);
        // If the process lives now, all that was read by its number was its own.
        if !is_imp || !is_in_unit || !self.is_alive() {
            return Err(unit_ended());
        }
        let cause = match shell {
            Shell::Of(uid) if uid == self.user => return Ok(()),
            Shell::None => return Err(no_shell()),
            Shell::Of(uid) => format!("the job's shell is uid {uid}'s"),
            Shell::Several => "the job's IMP has children of several users'".to_owned(),
        };
        Err(Failure::new(Reason::AdoptionFailed, cause))
    }

    /// Finds the shell among the IMP's children; on a kernel that does not list these, among the processes of the
    /// unit.
    fn find_shell(&self, unit: &Dir) -> Shell {
        let find = |all: &[Process]| flux::find_shell(&Proc::host(), self.pid, all, self.flux);
        match find(&[]) {
            // Some kernels do not list a process's children. In a unit that cannot be read there is no shell.
            Shell::None => find(&read_unit_processes(unit).unwrap_or_default()),
            listed => listed,
        }
    }

    /// Returns whether the IMP runs. A pidfd is readable once its process has ended
    /// (pidfd_open(2)).
    fn is_alive(&self) -> bool {
        let mut fds = [PollFd::new(self.pidfd.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::ZERO) == Ok(0)
    }
}

impl AsFd for Imp {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}

/// Reads the file of a unit that the service manager of this account has made for as long as it runs.
fn read_transient_unit(uid: u32, name: &Path) -> Result<Vec<u8>, TrustError> {
    let users = Trust::root().dir(Path::new("/run/user"))?;
    let units = users
        .dir_of_account(uid)?
        .dir(Path::new("systemd"))?
        .dir(Path::new("transient"))?;
    units.read(name, Request::UNIT_BYTES_MAX as u64)
}

/// Reads the first processes in the unit's own cgroup, at most [`flux::UNIT_PROCESSES_MAX`]. One that ends meanwhile
/// is left out.
fn read_unit_processes(unit: &Dir) -> kernel::cgroup::Result<Vec<Process>> {
    let text = unit.read("cgroup.procs")?.unwrap_or_default();
    let pids = text
        .lines()
        .take(flux::UNIT_PROCESSES_MAX)
        .filter_map(|pid| pid.parse().ok());
    Ok(pids
        .filter_map(|pid| Proc::host().read_process(pid).ok())
        .collect())
}

/// Returns the failure for a unit that has no shell any more.
fn unit_ended() -> Failure {
    Failure::new(
        Reason::Ended,
        "the job's unit has no IMP with a shell any more",
    )
}

/// Returns the failure for a unit that has no shell yet.
fn unit_starting() -> Failure {
    Failure::new(
        Reason::Starting,
        "the job's IMP has not started its shell yet",
    )
}

/// Starts a keeper unless the leaf has one. `undo` then has the new keeper, which ends if the login is rolled back.
///
/// # Errors
///
/// The executable is not trusted, the keeper ends at once, or the budget is used up.
pub(super) fn ensure_keeper(
    leaf: &CgroupChain,
    imp: &Imp,
    adoption: &Adoption<'_>,
    undo: &mut Undo,
) -> Result<KeeperCheck, Failure> {
    let check = KeeperCheck::open(leaf)?;
    if check.has_keeper()? {
        return Ok(check);
    }
    // All logins of the job take this lock. No lock of filters has its number: such a lock has the
    // inode of a job's own cgroup.
    let _lock = Lock::take(check.leaf, adoption.deadline())?;
    if !check.has_keeper()? {
        undo.keeper = Some(start_keeper(leaf, imp.as_fd(), adoption)?);
    }
    Ok(check)
}
