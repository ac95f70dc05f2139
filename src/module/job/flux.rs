//! A job of Flux: the kernel says whose it is, by the processes in its unit.
//!
//! The login goes into a leaf below the unit, where Flux neither waits for it nor ends it: a keeper
//! does that.

use super::keeper::{self, Keep};
use super::leaf::Owner;
use crate::kernel::cgroup::{Dir, Leaf, Membership, Place};
use crate::kernel::failed::Failed;
use crate::kernel::proc::{Proc, Process};
use crate::kernel::sys::process::pidfd_open;
use crate::kernel::trust::{Trust, TrustError};
use crate::module::Failure;
use crate::module::ruling::Adoption;
use crate::module::undo::Undo;
use crate::protocol::{CgroupPath, Reason, Request};
use crate::schedulers::flux::{self, Shell, unit_at};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// Refuses a path that is not that of the plan's job in the service manager of this account, and an
/// account that can be none of Flux.
pub(super) fn require_unit(
    adoption: &Adoption<'_>,
    path: &CgroupPath,
    flux: u32,
) -> Result<(), FluxFailure> {
    let unit = unit_at(path.as_str(), flux);
    let is_jobs = unit.is_some_and(|unit| unit.id.to_string() == adoption.plan.job.as_str());
    match is_jobs && flux != 0 && flux != adoption.login.uid {
        true => Ok(()),
        false => Err(FluxFailure::Unit(path.clone(), flux)),
    }
}

/// The IMP of a job of this user's, held by a descriptor that no other process takes over.
#[derive(Debug)]
pub(in crate::module) struct Imp {
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
    pub(super) fn find(unit: &Dir, flux: u32, user: u32) -> Result<Self, Failure> {
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

    /// The text of the unit's file, which says what devices a unit without a filter should have. The
    /// IMP attaches its filter before it starts the shell, which has been seen: so none will come.
    ///
    /// # Errors
    /// [`FluxFailure::Policy`] and [`FluxFailure::Text`].
    pub(super) fn unit_text(&self, unit: &Place) -> Result<String, Failure> {
        let run = format!("/run/user/{}", self.flux);
        let (_, name) = unit.dir()?.path().rsplit_once('/').unwrap_or_default();
        let file = format!("{run}/systemd/transient/{name}");
        let trust = Trust::below(Path::new(&run), self.flux).or_owned_by(0);
        let text =
            trust.read(Path::new(&file), Request::UNIT_MAX as u64).map_err(FluxFailure::Policy)?;
        // A request cannot carry a NUL (RFC 38).
        let text = String::from_utf8(text).ok().filter(|text| !text.contains('\0'));
        Ok(text.ok_or(FluxFailure::Text)?)
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

impl Owner for Imp {
    fn require(&self, unit: &Dir) -> Result<(), Failure> {
        Ok(self.look(unit, FluxFailure::Ended)?)
    }

    fn explain(&self, failure: Failure, unit: &Dir) -> Failure {
        match self.look(unit, FluxFailure::Ended) {
            Err(over @ FluxFailure::Ended) => over.into(),
            _ => failure,
        }
    }

    fn keep(
        &self,
        leaf: &Leaf,
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

impl fmt::Display for Imp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pid {}, shell of uid {}", self.pid, self.user)
    }
}

/// The processes right in the unit's cgroup.
fn processes(unit: &Dir) -> crate::kernel::cgroup::Result<Vec<Process>> {
    let text = unit.read_all("cgroup.procs")?.unwrap_or_default();
    let pids = text.lines().filter_map(|pid| pid.parse().ok());
    Ok(pids.filter_map(|pid| Proc::here().process(pid).ok()).collect())
}

/// What stands in the way.
#[derive(Debug)]
pub enum FluxFailure {
    /// The path is not that of a unit in which this account runs the plan's job for the user.
    Unit(CgroupPath, u32),
    /// The unit has no IMP, or it has no child any more.
    Ended,
    /// The IMP has no child yet.
    Starting,
    /// The IMP's child is this uid's; of several users' none is known.
    Owner(Option<u32>),
    /// A process of the unit cannot be looked at.
    Process(Failed),
    /// The unit has no filter, and what it should have cannot be read.
    Policy(TrustError),
    /// The same, since the file is no text.
    Text,
    /// The helper's second answer is about another job.
    Changed,
    /// The keeper was not started.
    Keeper(Failed),
    /// No keeper lives, after one was started or found.
    NoKeeper,
    /// The keepers' locks cannot be used.
    Lock(Failed),
}

impl FluxFailure {
    /// The code that the user reads.
    #[must_use]
    pub fn reason(&self) -> Reason {
        match self {
            Self::Ended => Reason::Ended,
            Self::Starting => Reason::Starting,
            Self::Policy(_) | Self::Text => Reason::CannotConfine,
            Self::Lock(failed) if failed.timed_out() => Reason::Timeout,
            Self::Unit(..)
            | Self::Owner(_)
            | Self::Process(_)
            | Self::Changed
            | Self::Keeper(_)
            | Self::NoKeeper
            | Self::Lock(_) => Reason::AdoptionFailed,
        }
    }
}

impl fmt::Display for FluxFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unit(path, flux) => {
                write!(f, "{path} is not the job's unit, if Flux runs as uid {flux}")
            }
            Self::Ended => f.write_str("the job's unit has no IMP with a shell any more"),
            Self::Starting => f.write_str("the job's IMP has not started its shell yet"),
            Self::Owner(Some(uid)) => write!(f, "the job's shell is uid {uid}'s"),
            Self::Owner(None) => f.write_str("the job's IMP has children of several users'"),
            Self::Process(failed) | Self::Keeper(failed) => failed.fmt(f),
            Self::Policy(error) => {
                write!(f, "no filter is in force at the job's unit, and its file {error}")
            }
            Self::Text => f.write_str("no filter is in force at the job's unit, and its file is no text"),
            Self::Changed => f.write_str("the helper's second answer is about another job"),
            Self::NoKeeper => f.write_str(
                "no keeper lives that would end the login with its job; its last words are in the log",
            ),
            Self::Lock(error) => error.fmt(f),
        }
    }
}

impl From<Failed> for FluxFailure {
    fn from(error: Failed) -> Self {
        Self::Lock(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::errno::Errno;

    #[test]
    fn every_failure_has_the_code_that_says_what_to_do() {
        let failed = || Failed::new("a", "b", Errno::EIO);
        for (failure, reason) in [
            (FluxFailure::Unit("/a".parse().unwrap(), 1), Reason::AdoptionFailed),
            (FluxFailure::Ended, Reason::Ended),
            (FluxFailure::Starting, Reason::Starting),
            (FluxFailure::Owner(None), Reason::AdoptionFailed),
            (FluxFailure::Process(failed()), Reason::AdoptionFailed),
            (FluxFailure::Text, Reason::CannotConfine),
            (FluxFailure::Changed, Reason::AdoptionFailed),
            (FluxFailure::Keeper(failed()), Reason::AdoptionFailed),
            (FluxFailure::NoKeeper, Reason::AdoptionFailed),
            (
                FluxFailure::Lock(Failed::new("lock", "x", std::io::ErrorKind::TimedOut)),
                Reason::Timeout,
            ),
        ] {
            assert_eq!(failure.reason(), reason, "{failure}");
        }
    }
}
