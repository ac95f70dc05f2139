//! Joins Slurm jobs. The daemon of the extern step reports the job's user and adds the login. The
//! daemon's own cgroup shows the job's layout; no path is made from a job's number.

mod priority;
mod step;
mod step_v1;

pub(super) use step::ExternStep;
pub(super) use step_v1::ExternStepV1;

use super::add_queue::AddQueue;
use super::join_result::JoinResult;
use super::recorded_namespace::open_recorded_namespace;
use super::requirements::require_not_frozen;
use crate::context::Adoption;
use crate::error::Failure;
use crate::undo::Undo;
use kernel::cgroup::{Dir, Membership, v1};
use kernel::namespace::Namespace;
use kernel::proc::{Proc, Process};
use kernel::trust::{Distrust, Trust, TrustError, TrustedDir};
use protocol::{AbsolutePath, NodeName, Reason, Variable};
use schedulers::stepd::{self, Daemon, SocketName, State};
use std::fmt::Display;
use std::path::Path;

/// A running job of Slurm's that the user owns: the daemon of its extern step, and the step's cgroups.
pub(super) enum SlurmJob {
    /// On cgroup v2.
    V2(Daemon, ExternStep),
    /// On cgroup v1.
    V1(Daemon, ExternStepV1),
}

/// Connects to the daemon and opens the cgroups of its job. Whose job it is the daemon reports, which only root can have
/// started; the helper's reply is no proof.
///
/// # Errors
///
/// [`Reason::Ended`] and [`Reason::Starting`] for a job that is over or not there yet; [`Reason::AdoptionFailed`] for
/// another user's job; [`Reason::Configuration`] for a socket that cannot be trusted, a daemon in another pid
/// namespace, or one outside of a step's cgroup; [`Reason::Suspended`] for a frozen job; as [`Daemon::connect`] and
/// `open` of the step's cgroups.
pub(super) fn open(
    adoption: &Adoption<'_>,
    spool: &AbsolutePath,
    node: &NodeName,
) -> Result<SlurmJob, Failure> {
    // Query the daemon before any request to add a process. A stopped daemon does not answer, so it
    // never gets a request that it would carry out later, on a process that was refused long ago or
    // on another one with the same number.
    let mut daemon = connect_to_daemon(adoption, spool, node)?;
    require_running(adoption, daemon.last_answer())?;
    require_shared_pid_namespace(daemon.pid())?;
    let cgroups = Membership::read(daemon.pid()).map_err(|error| {
        let errno = error.errno();
        Failure::with_errno(Reason::Ended, format_args!("{DAEMON_TEXT}: {error}"), errno)
    })?;
    if let Some(path) = cgroups.unified().and_then(stepd::step_of_daemon) {
        let step = ExternStep::open(&path)?;
        require_not_frozen(step.levels())?;
        return Ok(SlurmJob::V2(daemon, step));
    }
    if let Some(job) = v1::JobCgroups::from_daemon(&cgroups) {
        return Ok(SlurmJob::V1(daemon, ExternStepV1::open(job, &cgroups)?));
    }
    // A daemon is in its step's cgroup as long as it runs, so it may have ended meanwhile.
    let answer = daemon
        .query_state(adoption.deadline())
        .map_err(stepd_failure)?;
    require_running(adoption, answer)?;
    let path = cgroups
        .unified()
        .or(cgroups.path_of_controller("freezer"))
        .unwrap_or("/");
    let cause = format!(
        "is in {path}, which is no step's cgroup: slurm.conf has to say \
         ProctrackType=proctrack/cgroup"
    );
    Err(daemon_failure(Reason::Configuration, cause))
}

/// Asks the daemon to add the calling process to the step, and waits in the daemon's queue. Its answer must show that
/// the job is still the user's and runs. With no time left it sends nothing.
fn add_login(
    daemon: &mut Daemon,
    step: &Dir,
    adoption: &Adoption<'_>,
    undo: &mut Undo,
) -> Result<(), Failure> {
    // Once the daemon has the request, it may move the login at any time.
    undo.moved = true;
    let budget = adoption.context.budget;
    let mut queue = AddQueue::enter(step, budget);
    let answer = daemon.add_process(nix::unistd::getpid().as_raw(), || queue.next_deadline());
    let answer = answer.map_err(stepd_failure)?;
    // The time in the queue does not count.
    budget.extend(queue.entered.elapsed());
    require_running(adoption, answer)?;
    // Ignore the error: it only makes those behind this login wait for a shorter time.
    let _ = step.touch();
    Ok(())
}

/// Queries the daemon for the job's namespaces and display, and adds them to the result. Without any, those of the job's
/// record count. `join_container=false` leaves the namespaces out, `disable_x11=1` the display.
fn query_namespaces_and_display(
    mut joined: JoinResult,
    daemon: &Daemon,
    adoption: &Adoption<'_>,
) -> Result<JoinResult, Failure> {
    let settings = adoption.context.settings;
    let deadline = adoption.deadline();
    if settings.join_container {
        for (kind, fd) in daemon.query_namespaces(deadline).map_err(stepd_failure)? {
            joined
                .namespaces
                .push(Namespace::from_fd(fd, kind, "of the job's step daemon")?);
        }
        if joined.namespaces.is_empty() {
            joined.namespaces.extend(open_recorded_namespace(adoption)?);
        }
    }
    if !settings.disable_x11 {
        let (number, keys) = daemon.query_display(deadline).map_err(stepd_failure)?;
        joined.display = Variable::from_display(number, &keys);
    }
    Ok(joined)
}

/// Connects to the daemon of the plan's job.
///
/// # Errors
///
/// [`Reason::Configuration`] for an id that is no number, and for a spool directory that is not trusted; as
/// [`Daemon::connect`].
fn connect_to_daemon(
    adoption: &Adoption<'_>,
    spool: &AbsolutePath,
    node: &NodeName,
) -> Result<Daemon, Failure> {
    let job = &adoption.plan.job;
    let misconfigured = |cause: String| Failure::new(Reason::Configuration, cause);
    let name = SocketName::from_job(node, job);
    let name =
        name.ok_or_else(|| misconfigured(format!("{job} is no number of a job of Slurm's")))?;
    let spool = open_spool(adoption, Path::new(spool.as_str()));
    let spool = spool.map_err(|error| misconfigured(format!("Slurm's spool directory {error}")))?;
    Daemon::connect(&spool, &name, adoption.deadline()).map_err(stepd_failure)
}

/// Opens the directory of the sockets. Root or the account `slurm` must own each directory of the
/// path; the account is looked up only if root does not own one. No link is followed: the helper
/// must give the real path.
fn open_spool(adoption: &Adoption<'_>, path: &Path) -> Result<TrustedDir, TrustError> {
    match Trust::root().dir(path) {
        Err(error) if matches!(error.cause(), Distrust::WrongOwner(_)) => {
            let slurm = (adoption.context.find_slurm_user)().ok_or(error)?;
            Trust::root().or_owned_by(slurm).dir(path)
        }
        result => result,
    }
}

/// Requires that the job is the user's and accepts logins: a running step does.
///
/// # Errors
///
/// [`Reason::AdoptionFailed`] for another user's job; [`Reason::Starting`] or [`Reason::Ended`] for a step that
/// starts or ends.
fn require_running(adoption: &Adoption<'_>, answer: stepd::Answer) -> Result<(), Failure> {
    let uid = answer.uid;
    if uid != adoption.uid() {
        let cause = format!("the job is uid {uid}'s");
        return Err(daemon_failure(Reason::AdoptionFailed, cause));
    }
    match answer.state {
        State::Starting => Err(daemon_failure(Reason::Starting, "the step is starting")),
        State::Running => Ok(()),
        State::Ending => Err(daemon_failure(Reason::Ended, "the step is ending")),
    }
}

/// Requires that the daemon and this process are in the pid namespace of `/proc`: the daemon adds
/// the login by its process number. `NSpid` has one number for each namespace from the one of
/// `/proc` downwards (proc_pid_status(5)).
fn require_shared_pid_namespace(pid: i32) -> Result<(), Failure> {
    let proc = Proc::host();
    if pid > 0 && has_one_number(proc.read_current()) && has_one_number(proc.read_process(pid)) {
        return Ok(());
    }
    Err(daemon_failure(
        Reason::Configuration,
        "is in another process namespace than this",
    ))
}

/// Tells whether a process could be read and has one number only: it is in the pid namespace of `/proc` itself.
fn has_one_number(process: std::io::Result<Process>) -> bool {
    process.is_ok_and(|process| process.namespaces == 1)
}

/// Beginning of the causes that are about the daemon.
const DAEMON_TEXT: &str = "the job's step daemon";

/// Returns the failure for a daemon that adds no login.
fn daemon_failure(reason: Reason, cause: impl Display) -> Failure {
    Failure::new(reason, format_args!("{DAEMON_TEXT}: {cause}"))
}

/// Converts an error of a query to the daemon.
fn stepd_failure(error: stepd::Error) -> Failure {
    use stepd::Error;
    let reason = match error {
        Error::SocketGone => Reason::Ended,
        Error::Timeout => Reason::Timeout,
        Error::UntrustedSocket | Error::WrongPeerUid(_) | Error::VersionRefused => {
            Reason::Configuration
        }
        _ => Reason::AdoptionFailed,
    };
    daemon_failure(reason, error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_of_the_daemon_has_its_code() {
        use stepd::Error;
        for (error, reason) in [
            (Error::SocketGone, Reason::Ended),
            (Error::Timeout, Reason::Timeout),
            (Error::UntrustedSocket, Reason::Configuration),
            (Error::WrongPeerUid(1), Reason::Configuration),
            (Error::VersionRefused, Reason::Configuration),
            (
                Error::SystemCall("recv", nix::errno::Errno::EIO),
                Reason::AdoptionFailed,
            ),
            (Error::ConnectionClosed, Reason::AdoptionFailed),
            (Error::MalformedAnswer, Reason::AdoptionFailed),
            (Error::ProcessRefused(-1), Reason::AdoptionFailed),
        ] {
            assert_eq!(stepd_failure(error.clone()).reason(), reason, "{error}");
        }
    }
}
