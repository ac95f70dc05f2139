//! A job of Slurm's: the daemon of its extern step says whose it is, and takes the login in.
//!
//! Where the daemon's own process stands tells how the job is laid out: [`unified`] on cgroup v2,
//! [`legacy`] on cgroup v1. No path is put together from a job's number.

mod error;
mod join;
mod layout;
mod legacy;
mod unified;

pub use error::SlurmFailure;
pub(super) use join::adopt;

use super::target::Foreseen;
use super::{Failure, Visit};
use crate::bpf::Level;
use crate::cgroup::Membership;
use crate::plan::{AbsolutePath, NodeName};
use crate::proc::{Proc, Process};
use crate::stepd::{self, Daemon, SocketName, State};
use crate::trust::{Distrust, Trust, TrustedDir};
use layout::Layout;
use std::path::Path;

/// A job of the user's, with a daemon that takes logins.
#[derive(Debug)]
pub struct Job {
    daemon: Daemon,
    layout: Layout,
}

impl Job {
    /// Calls the daemon and looks where it is. The helper's word for whose job it is does not
    /// count: the daemon's does, which root alone can have started.
    ///
    /// # Errors
    /// [`Failure::Slurm`], [`Failure::Frozen`], or [`Failure::Cgroup`] for cgroups that cannot be
    /// opened.
    pub(super) fn open(
        visit: &Visit<'_>,
        spool: &AbsolutePath,
        node: &NodeName,
    ) -> Result<Self, Failure> {
        let mut daemon = call(visit, spool, node)?;
        require(visit, daemon.answer())?;
        numbers_are_ours(daemon.pid())?;
        let place = Membership::of(daemon.pid()).map_err(SlurmFailure::Lost)?;
        let layout = Layout::open(&place);
        if matches!(layout, Err(Failure::Slurm(SlurmFailure::Nowhere(_)))) {
            // It is in its step's cgroup for as long as it runs, so it may have ended meanwhile.
            let answer = daemon.ask_again(visit.budget.deadline()).map_err(SlurmFailure::Daemon)?;
            require(visit, answer)?;
        }
        let layout = layout?;
        layout.not_frozen()?;
        Ok(Self { daemon, layout })
    }

    /// As [`super::Target::foresee`].
    pub(super) fn foresee(self, visit: &Visit<'_>) -> Result<Foreseen, Failure> {
        Ok(Foreseen { containment: self.layout.foresee(visit)?, cgroup: self.layout.leaf() })
    }

    /// What the daemon says, for people.
    pub(super) fn shown(&self) -> String {
        format!("pid {}, uid {}, running", self.daemon.pid(), self.daemon.answer().uid)
    }

    /// As [`super::Target::leaf`].
    pub(super) fn leaf(&self) -> String {
        self.layout.leaf()
    }

    /// As [`super::Target::filters`].
    pub(super) fn filters(&self) -> Result<Vec<(String, Level)>, Failure> {
        self.layout.filters()
    }
}

/// Calls the daemon of the plan's job.
fn call(visit: &Visit<'_>, spool: &AbsolutePath, node: &NodeName) -> Result<Daemon, SlurmFailure> {
    let job = &visit.plan.job;
    let name = SocketName::new(node, job).ok_or_else(|| SlurmFailure::Number(job.clone()))?;
    let spool = open_spool(visit, Path::new(spool.as_str()))?;
    Ok(Daemon::call(&spool, &name, visit.budget.deadline())?)
}

/// Opens the directory of the sockets. Every directory on the way has to be root's, or the account
/// `slurm`'s, which is looked up only where one is not root's. No link is followed: the helper has
/// to name the directory by its real path.
fn open_spool(visit: &Visit<'_>, path: &Path) -> Result<TrustedDir, SlurmFailure> {
    match Trust::root().dir(path) {
        Err(error) if matches!(error.cause(), Distrust::Owner(_)) => match (visit.slurm_user)() {
            Some(uid) => Ok(Trust::root().or_owned_by(uid).dir(path)?),
            None => Err(error.into()),
        },
        result => Ok(result?),
    }
}

/// Refuses a job that is another user's, or takes no logins now.
fn require(visit: &Visit<'_>, answer: stepd::Answer) -> Result<(), SlurmFailure> {
    match answer.state {
        _ if answer.uid != visit.login.uid => Err(SlurmFailure::Owner(answer.uid)),
        State::Starting => Err(SlurmFailure::Starting),
        State::Running => Ok(()),
        State::Ending => Err(SlurmFailure::Ending),
    }
}

/// Refuses a daemon to which a process number of ours means another process, or none: the login is
/// added by number. `NSpid` has one number for each namespace from that of `/proc` downwards
/// (proc_pid_status(5)).
fn numbers_are_ours(pid: i32) -> Result<(), SlurmFailure> {
    let proc = Proc::here();
    let single = |found: std::io::Result<Process>| found.is_ok_and(|one| one.namespaces == 1);
    match pid > 0 && single(proc.own()) && single(proc.process(pid)) {
        true => Ok(()),
        false => Err(SlurmFailure::Abroad),
    }
}
