//! A job of Slurm: the daemon of its extern step says whose it is, and takes the login in. Where the
//! daemon's own process stands tells how the job is laid out; no path is put together from a job's
//! number.
//!
//! On cgroup v2 that is `JOB/step_extern/{slurm,user/task_special,user/task_N}`. The daemon is in
//! `slurm`. Logins go to `task_special`, which the daemon makes for the first of them, and where Slurm
//! accounts by `jobacct_gather/cgroup` at once on to `task_N`, N being the node's number in the job.
//! Nothing of ours is made there: what the daemon does not know of, it cannot remove.

use super::{Job, Joined, name, not_frozen, slurm_v1};
use crate::kernel::bpf::{self, Branch, Confinement, Obstacle, Outcome, Reach};
use crate::kernel::cgroup::{self, Dir, Membership, Mount, Place, stands_in, v1};
use crate::kernel::proc::{Proc, Process};
use crate::kernel::trust::{Distrust, Trust, TrustError, TrustedDir};
use crate::module::Failure;
use crate::module::probe::Tried;
use crate::module::ruling::Adoption;
use crate::module::undo::Undo;
use crate::protocol::{AbsolutePath, CgroupPath, JobId, NodeName, Reason, decimal};
use crate::schedulers::stepd::{self, Daemon, SocketName, State};
use std::path::Path;
use thiserror::Error;

/// Calls the daemon and looks where it is. The helper's word for whose job it is does not count: the
/// daemon's does, which root alone can have started.
///
/// # Errors
/// [`Failure::Slurm`], [`Failure::Frozen`], or [`Failure::Cgroup`] for cgroups that cannot be opened.
pub(super) fn open(
    adoption: &Adoption<'_>,
    spool: &AbsolutePath,
    node: &NodeName,
) -> Result<Job, Failure> {
    // This exchange asks, and adds nothing: a daemon that is stopped does not answer it, so that none
    // is ever sent an order which it would carry out whenever it goes on, on a process that was
    // refused long ago or on another one of the same number.
    let mut daemon = call(adoption, spool, node)?;
    require(adoption, daemon.answer())?;
    numbers_are_ours(daemon.pid())?;
    let place = Membership::of(daemon.pid()).map_err(SlurmFailure::Lost)?;
    if let Some(path) = place.unified().and_then(stepd::step_of) {
        let step = Step::open(&path)?;
        not_frozen(step.levels())?;
        return Ok(Job::Slurm(daemon, step));
    }
    if let Some(job) = v1::Job::of(&place) {
        return Ok(Job::SlurmV1(daemon, slurm_v1::Step::open(job)?));
    }
    // It is in its step's cgroup for as long as it runs, so it may have ended meanwhile.
    let answer = daemon.ask_again(adoption.budget.deadline()).map_err(SlurmFailure::Daemon)?;
    require(adoption, answer)?;
    let path = place.unified().or(place.of_controller("freezer"));
    Err(SlurmFailure::Nowhere(path.unwrap_or("/").to_owned()).into())
}

/// Has the daemon add the calling process; it must say afterwards that the job is still the user's
/// and takes logins. With no time left nothing is sent.
pub(super) fn add(
    daemon: &mut Daemon,
    adoption: &Adoption<'_>,
    undo: &mut Undo,
) -> Result<(), Failure> {
    undo.moving();
    let answer = daemon.add(nix::unistd::getpid().as_raw(), adoption.budget.deadline());
    Ok(require(adoption, answer.map_err(SlurmFailure::Daemon)?)?)
}

/// Why a login was not taken in, as another look at the job says: it may be frozen, and its daemon
/// with it, or over.
pub(super) fn explain(
    failure: Failure,
    adoption: &Adoption<'_>,
    frozen: Result<(), Failure>,
) -> Failure {
    use SlurmFailure::{Daemon, Ended, Ending};
    match (failure, frozen) {
        (stuck @ Failure::Stuck(..), _) => stuck,
        // Frozen with its job, the daemon does not answer.
        (_, Err(frozen @ Failure::Frozen(_))) => frozen,
        (failure, _) => match (Job::open(adoption), failure) {
            (Err(Failure::Slurm(Daemon(stepd::Error::Gone) | Ending)), failure) => {
                Ended(failure.to_string()).into()
            }
            (_, Failure::Gone(error)) => Failure::LeafVanished(error),
            (_, failure) => failure,
        },
    }
}

/// Calls the daemon of the plan's job.
fn call(
    adoption: &Adoption<'_>,
    spool: &AbsolutePath,
    node: &NodeName,
) -> Result<Daemon, SlurmFailure> {
    let job = &adoption.plan.job;
    let name = SocketName::new(node, job).ok_or_else(|| SlurmFailure::Number(job.clone()))?;
    let spool = open_spool(adoption, Path::new(spool.as_str()))?;
    Ok(Daemon::call(&spool, &name, adoption.budget.deadline())?)
}

/// Opens the directory of the sockets. Every directory on the way has to be root's, or the account
/// `slurm`'s, which is looked up only where one is not root's. No link is followed: the helper has
/// to name the directory by its real path.
fn open_spool(adoption: &Adoption<'_>, path: &Path) -> Result<TrustedDir, SlurmFailure> {
    match Trust::root().dir(path) {
        Err(error) if matches!(error.cause(), Distrust::Owner(_)) => {
            match (adoption.slurm_user)() {
                Some(uid) => Ok(Trust::root().or_owned_by(uid).dir(path)?),
                None => Err(error.into()),
            }
        }
        result => Ok(result?),
    }
}

/// Refuses a job that is another user's, or takes no logins now.
fn require(adoption: &Adoption<'_>, answer: stepd::Answer) -> Result<(), SlurmFailure> {
    match answer.state {
        _ if answer.uid != adoption.login.uid => Err(SlurmFailure::Owner(answer.uid)),
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

/// The way from the step to its logins.
const WAY: [&str; 2] = ["user", "task_special"];
/// What the leaf of its accounting is called, but for the number.
const ACCOUNTED: &str = "task_";
/// Index of the job's own cgroup, counted from `task_special`.
const JOB: usize = 3;

/// Name of the leaf that a login is in, where that is one of these below `user`.
fn leaf_of<'a>(path: &'a str, user: &str) -> Option<&'a str> {
    let name = path.strip_prefix(user)?.strip_prefix('/')?;
    let numbered = name.strip_prefix(ACCOUNTED).is_some_and(|number| decimal(number).is_some());
    let [_, special] = WAY;
    (name == special || numbered).then_some(name)
}

/// An extern step's cgroup and those above it, and those below it that logins are in.
#[derive(Debug)]
pub(crate) struct Step {
    /// The step's path.
    path: String,
    /// `task_special`, `user` and the step, as far as they are there, and every level above.
    place: Place,
    /// How many of `user` and `task_special` are not there: before the first login.
    missing: usize,
}

impl Step {
    /// Opens them.
    ///
    /// # Errors
    /// [`Failure::Gone`] for a step that ended meanwhile.
    pub(super) fn open(step: &CgroupPath) -> Result<Self, Failure> {
        let mut place = Mount::open()?.place(step)?;
        let mut missing = WAY.len();
        for name in WAY {
            match place.dir()?.child(name) {
                Ok(dir) => place = place.below(dir),
                Err(error) if error.is_gone() => break,
                Err(error) => return Err(error.into()),
            }
            missing -= 1;
        }
        Ok(Self { path: step.as_str().to_owned(), place, missing })
    }

    /// Where the login will be.
    pub(crate) fn leaf(&self) -> String {
        let [user, leaf] = WAY;
        format!("{}/{user}/{leaf}", self.path)
    }

    /// # Errors
    /// As [`Job::foresee`].
    pub(super) fn foresee(&self, adoption: &Adoption<'_>) -> Result<&'static str, Failure> {
        let job = JOB - self.missing;
        let branch = Branch { levels: self.place.levels(), job, reach: Reach::Leaf };
        name(bpf::foresee(branch, self.missing, &adoption.plan.containment)?, adoption)
    }

    /// The step's cgroup and those above it, and what is there of those below.
    pub(crate) fn levels(&self) -> &[Dir] {
        self.place.levels()
    }

    /// Has the daemon take the calling process in, makes the containment hold where it is then, and
    /// looks at all of it once more.
    ///
    /// # Errors
    /// Any [`Failure`]; undoing is the caller's.
    pub(super) fn join(
        &self,
        daemon: &mut Daemon,
        adoption: &Adoption<'_>,
        undo: &mut Undo,
    ) -> Result<Joined, Failure> {
        // What cannot be confined is not moved either.
        self.foresee(adoption)?;
        add(daemon, adoption, undo)?;
        let (place, confinement) = self.confined(adoption)?;
        if confinement == Confinement::None && adoption.require_devices {
            return Err(Failure::Uncontained);
        }
        let tried = Tried::of(&adoption.plan.probes);
        confinement.verify(place.dir()?)?;
        stands_in(place.dir()?, place.root()?)?;
        Ok(Joined { cgroup: place.dir()?.path().to_owned(), confinement, tried })
    }

    /// Reads back that the login is in the leaf, and makes the containment hold there, which is to
    /// be verified.
    ///
    /// # Errors
    /// [`Failure::Cgroup`] for a login that is elsewhere: the daemon says that it added one even
    /// where its own move failed. [`Failure::Bpf`].
    fn confined(&self, adoption: &Adoption<'_>) -> Result<(Place, Confinement), Failure> {
        let [user, special] = WAY;
        let found = Membership::own()?.unified().unwrap_or_default().to_owned();
        let Some(name) = leaf_of(&found, &format!("{}/{user}", self.path)) else {
            let wanted = self.leaf();
            return Err(Failure::Cgroup(cgroup::Error::Elsewhere { wanted, found }));
        };
        let place = self.way_down([user, name])?;
        // Whatever outlives its login is added anew by the daemon, and on its way to a leaf of the
        // accounting is in `task_special` for a moment: so the filters are put above both.
        let point = place.levels().get(usize::from(name != special)..).unwrap_or_default();
        let job = JOB - usize::from(name != special);
        let branch = Branch { levels: point, job, reach: Reach::Leaf };
        let (containment, deadline) = (&adoption.plan.containment, adoption.budget.deadline());
        match bpf::confine(branch, containment, !adoption.carried, deadline)? {
            Outcome::Holds(confinement) => Ok((place, confinement)),
            // Not with this reach.
            Outcome::NeedChild => {
                let why = Obstacle::LeafOverridden;
                Err(bpf::Error::Obstacle { object: found, why }.into())
            }
        }
    }

    /// The leaf and all above it, opened below the very step that was looked at before the login
    /// went in.
    fn way_down(&self, way: [&str; 2]) -> Result<Place, Failure> {
        let mut place = self.place.try_clone()?;
        for _ in self.missing..WAY.len() {
            place = place.above();
        }
        for name in way {
            let dir = place.dir()?.child(name)?;
            place = place.below(dir);
        }
        Ok(place)
    }
}

/// What stands in the way.
#[derive(Debug, Error)]
pub enum SlurmFailure {
    /// The directory of the sockets is not believed.
    #[error("Slurm's spool directory {0}")]
    Spool(#[from] TrustError),
    /// The id is no number of Slurm's.
    #[error("{0} is no number of a job of Slurm's")]
    Number(JobId),
    /// The daemon was not asked, or its answer is none.
    #[error("the job's step daemon: {0}")]
    Daemon(#[from] stepd::Error),
    /// The daemon's job is this uid's.
    #[error("the job's step daemon: the job is uid {0}'s")]
    Owner(u32),
    /// The step does not take logins yet.
    #[error("the job's step daemon: the step is starting")]
    Starting,
    /// The step takes no logins any more.
    #[error("the job's step daemon: the step is ending")]
    Ending,
    /// The job was over when this went wrong.
    #[error("the job is over: {0}")]
    Ended(String),
    /// The daemon's process cannot be looked at.
    #[error("the job's step daemon: {0}")]
    Lost(cgroup::Error),
    /// The daemon numbers processes otherwise than we do.
    #[error("the job's step daemon is in another process namespace than this")]
    Abroad,
    /// The daemon says that it runs, and is in no cgroup of a step.
    #[error(
        "the job's step daemon is in {0}, which is no step's cgroup: slurm.conf has to say \
         ProctrackType=proctrack/cgroup"
    )]
    Nowhere(String),
    /// A list of devices cannot be enforced on cgroup v1.
    #[error("a list of devices cannot be enforced on cgroup v1, where filters are not to be had")]
    NoLists,
    /// Slurm was to constrain the job's devices, and has no cgroup for that on cgroup v1.
    #[error("Slurm was to constrain the job's devices, and has made no devices cgroup for it")]
    Unconstrained,
}

impl SlurmFailure {
    /// The code that the user reads.
    #[must_use]
    pub fn reason(&self) -> Reason {
        match self {
            Self::Daemon(error) => of_daemon(error),
            Self::Spool(_) | Self::Number(_) | Self::Abroad | Self::Nowhere(_) => {
                Reason::Configuration
            }
            Self::Starting => Reason::Starting,
            Self::Ending | Self::Ended(_) | Self::Lost(_) => Reason::Ended,
            Self::Owner(_) => Reason::AdoptionFailed,
            Self::NoLists | Self::Unconstrained => Reason::CannotConfine,
        }
    }
}

fn of_daemon(error: &stepd::Error) -> Reason {
    use stepd::Error;
    match error {
        Error::Gone => Reason::Ended,
        Error::Timeout => Reason::Timeout,
        Error::NotRoots | Error::Peer(_) | Error::Refused => Reason::Configuration,
        Error::System(..) | Error::Closed | Error::Malformed | Error::NotAdded(_) => {
            Reason::AdoptionFailed
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_failure_has_the_code_that_says_what_to_do() {
        use stepd::Error;
        for (error, reason) in [
            (Error::Gone, Reason::Ended),
            (Error::Timeout, Reason::Timeout),
            (Error::NotRoots, Reason::Configuration),
            (Error::Peer(1), Reason::Configuration),
            (Error::Refused, Reason::Configuration),
            (Error::System("recv", nix::errno::Errno::EIO), Reason::AdoptionFailed),
            (Error::Closed, Reason::AdoptionFailed),
            (Error::Malformed, Reason::AdoptionFailed),
            (Error::NotAdded(-1), Reason::AdoptionFailed),
        ] {
            assert_eq!(SlurmFailure::Daemon(error.clone()).reason(), reason, "{error}");
        }
        for (failure, reason) in [
            (SlurmFailure::Number("x".parse().unwrap()), Reason::Configuration),
            (SlurmFailure::Abroad, Reason::Configuration),
            (SlurmFailure::Starting, Reason::Starting),
            (SlurmFailure::Ending, Reason::Ended),
            (SlurmFailure::Ended("x".into()), Reason::Ended),
            (SlurmFailure::Owner(1), Reason::AdoptionFailed),
            (SlurmFailure::NoLists, Reason::CannotConfine),
            (SlurmFailure::Unconstrained, Reason::CannotConfine),
        ] {
            assert_eq!(failure.reason(), reason, "{failure}");
        }
    }

    #[test]
    fn a_login_is_in_task_special_or_where_the_accounting_puts_it() {
        for name in ["task_special", "task_0", "task_17"] {
            assert_eq!(leaf_of(&format!("/job_1/step_extern/user/{name}"), USER), Some(name));
        }
        for path in [
            USER,
            "/job_1/step_extern/user/",
            "/job_1/step_extern/user/task_",
            "/job_1/step_extern/user/task_01",
            "/job_1/step_extern/user/task_0/a",
            "/job_1/step_extern/user/task_special (deleted)",
            "/job_1/step_extern/user2/task_0",
            "/job_2/step_extern/user/task_0",
        ] {
            assert_eq!(leaf_of(path, USER), None, "{path}");
        }
    }

    const USER: &str = "/job_1/step_extern/user";
}
