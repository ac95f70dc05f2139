//! A job of Flux: the kernel says whose it is, by the processes in its unit.
//!
//! The login goes into a leaf below the unit, where Flux neither waits for it nor ends it: a keeper
//! does that.

use super::keeper::{self, Keep};
use super::leaf::Owner;
use crate::kernel::cgroup::{Dir, Membership, Place};
use crate::kernel::failed::Failed;
use crate::kernel::proc::{Proc, Process};
use crate::kernel::sys::process::pidfd_open;
use crate::kernel::trust::Trust;
use crate::module::Failure;
use crate::module::ruling::Adoption;
use crate::module::undo::Undo;
use crate::protocol::{CgroupPath, Reason, Request};
use crate::schedulers::flux::{self, Shell, unit_at};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// Refuses a path other than that of the plan's job below this account's service manager, and an
/// account that cannot be Flux's.
pub(super) fn require_unit(
    adoption: &Adoption<'_>,
    path: &CgroupPath,
    flux: u32,
) -> Result<(), Failure> {
    let unit = unit_at(path.as_str(), flux);
    let is_jobs = unit.is_some_and(|unit| unit.id == adoption.plan.job.as_str());
    match is_jobs && flux != 0 && flux != adoption.uid() {
        true => Ok(()),
        false => {
            let why = format!("{path} is not the job's unit, if Flux runs as uid {flux}");
            Err(Failure::Why(Reason::AdoptionFailed, why))
        }
    }
}

/// The IMP of this user's job, held by a descriptor that no other process takes over.
#[derive(Debug)]
pub(crate) struct Imp {
    pub(crate) pid: i32,
    pidfd: OwnedFd,
    flux: u32,
    /// Whose shell it has started.
    pub(crate) user: u32,
}

impl Imp {
    /// Finds it in the unit's own cgroup.
    /// Errors: [`Failure::Why`]; [`Failure::Gone`] for a unit that went away.
    pub(super) fn find(unit: &Dir, flux: u32, user: u32) -> Result<Self, Failure> {
        let pid = flux::imp(&processes(unit)?, flux).ok_or_else(ended)?;
        let pidfd = pidfd_open(pid).map_err(|error| match error.raw_os_error() {
            Some(libc::ESRCH) => ended(),
            _ => Failed::new("hold process", pid.to_string(), error).into(),
        })?;
        let imp = Self { pid, pidfd, flux, user };
        // Another process may have the number by now: what counts is seen once it is held.
        imp.look(unit, starting)?;
        Ok(imp)
    }

    /// The text of the unit's file, which names the devices that a unit without a filter should have. The
    /// IMP attaches a filter before it starts the shell. The shell has been seen, so none will come.
    /// Errors: for a file that is not the account's or root's, or no text.
    pub(super) fn unit_text(&self, unit: &Place) -> Result<String, Failure> {
        let run = format!("/run/user/{}", self.flux);
        let (_, name) = unit.dir()?.path().rsplit_once('/').unwrap_or_default();
        let file = format!("{run}/systemd/transient/{name}");
        let trust = Trust::below(Path::new(&run), self.flux).or_owned_by(0);
        let unknown = |why: &dyn fmt::Display| {
            let why = format!("no filter is in force at the job's unit, and its file {why}");
            Failure::Why(Reason::CannotConfine, why)
        };
        let text = trust.read(Path::new(&file), Request::UNIT_MAX as u64);
        let text = text.map_err(|error| unknown(&error))?;
        // A request cannot carry a NUL (RFC 38).
        let text = String::from_utf8(text).ok().filter(|text| !text.contains('\0'));
        text.ok_or_else(|| unknown(&"is no text"))
    }

    /// Requires an IMP in this unit, alive, with a child that is the user's; `childless` is what it
    /// means if there is none.
    fn look(&self, unit: &Dir, childless: fn() -> Failure) -> Result<(), Failure> {
        let is_imp = Proc::here().process(self.pid).is_ok_and(|one| flux::is_imp(&one, self.flux));
        let here = Membership::of(self.pid);
        let here = here.as_ref().is_ok_and(|found| found.unified() == Some(unit.path()));
        let shell = self.shell(unit);
        if !is_imp || !here || !self.is_alive() {
            return Err(ended());
        }
        let why = match shell {
            Shell::Of(uid) if uid == self.user => return Ok(()),
            Shell::None => return Err(childless()),
            Shell::Of(uid) => format!("the job's shell is uid {uid}'s"),
            Shell::Several => "the job's IMP has children of several users'".to_owned(),
        };
        Err(Failure::Why(Reason::AdoptionFailed, why))
    }

    fn shell(&self, unit: &Dir) -> Shell {
        let shell = |all: &[Process]| flux::shell(&Proc::here(), self.pid, all, self.flux);
        match shell(&[]) {
            // Not every kernel lists a process's children.
            Shell::None => shell(&processes(unit).unwrap_or_default()),
            listed => listed,
        }
    }

    /// A pidfd is readable once its process has ended (pidfd_open(2)).
    fn is_alive(&self) -> bool {
        let mut fds = [PollFd::new(self.pidfd.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::ZERO) == Ok(0)
    }
}

impl Owner for Imp {
    fn require(&self, unit: &Dir) -> Result<(), Failure> {
        self.look(unit, ended)
    }

    fn keep(
        &self,
        leaf: &Place,
        adoption: &Adoption<'_>,
        undo: &mut Undo,
    ) -> Result<Option<Keep>, Failure> {
        keeper::ensure(leaf, self, adoption, undo).map(Some)
    }
}

impl AsFd for Imp {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}

/// The first processes right in the unit's cgroup.
fn processes(unit: &Dir) -> crate::kernel::cgroup::Result<Vec<Process>> {
    let text = unit.read("cgroup.procs")?.unwrap_or_default();
    let pids = text.lines().take(flux::LOOKED_AT).filter_map(|pid| pid.parse().ok());
    Ok(pids.filter_map(|pid| Proc::here().process(pid).ok()).collect())
}

/// Why the unit takes no login: it has no shell any more.
fn ended() -> Failure {
    Failure::why(Reason::Ended, "the job's unit has no IMP with a shell any more")
}

/// The same of a unit that has no shell yet.
fn starting() -> Failure {
    Failure::why(Reason::Starting, "the job's IMP has not started its shell yet")
}
