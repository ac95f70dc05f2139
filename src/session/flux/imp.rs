//! The IMP of a job's unit, and what its child says.

use super::FluxFailure;
use crate::cgroup::{Dir, Membership};
use crate::failed::Failed;
use crate::flux::{self, Shell};
use crate::proc::{Proc, Process};
use crate::session::Failure;
use crate::sys::process::pidfd_open;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The IMP of a job of this user's, held by a descriptor that no other process takes over.
#[derive(Debug)]
pub(in super::super) struct Imp {
    pid: i32,
    pidfd: OwnedFd,
    flux: u32,
    user: u32,
}

impl Imp {
    /// Finds it in the unit's own cgroup.
    ///
    /// # Errors
    /// [`Failure::Flux`]; [`Failure::Gone`] for a unit that went away.
    pub(in super::super) fn find(unit: &Dir, flux: u32, user: u32) -> Result<Self, Failure> {
        let found = flux::imp(&processes(unit)?, flux).ok_or(FluxFailure::Ended)?;
        let held = pidfd_open(found.pid).map_err(|error| match error.raw_os_error() {
            Some(libc::ESRCH) => FluxFailure::Ended,
            _ => FluxFailure::Process(Failed::new("hold process", found.pid.to_string(), error)),
        })?;
        let imp = Self { pid: found.pid, pidfd: held, flux, user };
        // Another process may have the number by now: what counts is seen once it is held.
        imp.look(unit, FluxFailure::Starting)?;
        Ok(imp)
    }

    /// Looks once more.
    ///
    /// # Errors
    /// [`FluxFailure::Ended`], [`FluxFailure::Owner`].
    pub(in super::super) fn require(&self, unit: &Dir) -> Result<(), FluxFailure> {
        self.look(unit, FluxFailure::Ended)
    }

    /// Requires an IMP in this unit, alive, with a child that is the user's; `childless` is what it
    /// means if there is none.
    fn look(&self, unit: &Dir, childless: FluxFailure) -> Result<(), FluxFailure> {
        let is_imp = Proc::here().process(self.pid).is_ok_and(|one| flux::is_imp(&one, self.flux));
        let here = Membership::of(self.pid);
        let here = here.as_ref().is_ok_and(|found| found.unified() == Some(unit.path()));
        let shell = self.shell(unit);
        if !is_imp || !here || !self.is_alive() {
            return Err(FluxFailure::Ended);
        }
        match shell {
            Shell::Of(uid) if uid == self.user => Ok(()),
            Shell::Of(uid) => Err(FluxFailure::Owner(Some(uid))),
            Shell::Several => Err(FluxFailure::Owner(None)),
            Shell::None => Err(childless),
        }
    }

    fn shell(&self, unit: &Dir) -> Shell {
        let shell = |all: &[Process]| {
            flux::shell(&Proc::here(), flux::Imp { pid: self.pid }, all, self.flux)
        };
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

impl AsFd for Imp {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}

impl fmt::Display for Imp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pid {}, shell of uid {}", self.pid, self.user)
    }
}

/// The processes right in the unit's cgroup.
fn processes(unit: &Dir) -> crate::cgroup::Result<Vec<Process>> {
    let text = unit.read_all("cgroup.procs")?.unwrap_or_default();
    let pids = text.lines().filter_map(|pid| pid.parse().ok());
    Ok(pids.filter_map(|pid| Proc::here().process(pid).ok()).collect())
}
