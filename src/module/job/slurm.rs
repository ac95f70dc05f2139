//! A Slurm job. The daemon of its extern step says whose it is, and takes the login in. The daemon's own
//! cgroup tells how the job is laid out; no path is put together from a job's number.
//!
//! On cgroup v2 that is `JOB/step_extern/{slurm,user/task_special,user/task_N}`. The daemon is in
//! `slurm`. Logins go to `task_special`, which the daemon makes for the first of them, and where Slurm
//! accounts by `jobacct_gather/cgroup` at once on to `task_N`, N being the node's number in the job.
//! We make no cgroup there: the daemon cannot remove one that it does not know.

use super::{Job, Joined, frozen, not_frozen, required};
use crate::Failure;
use crate::probe::Tried;
use crate::ruling::Adoption;
use crate::undo::Undo;
use kernel::bpf::{self, Branch, Confinement, Reach};
use kernel::cgroup::{self, Dir, Membership, Mount, Mounted, Place, stands_in, v1};
use kernel::namespace::Namespace;
use kernel::proc::{Proc, Process};
use kernel::trust::{Distrust, Trust, TrustError, TrustedDir};
use protocol::{AbsolutePath, CgroupPath, Containment, NodeName, Reason};
use protocol::{Variable, parse_decimal};
use schedulers::stepd::{self, Daemon, SocketName, State};
use std::fmt::Display;
use std::path::Path;

/// Calls the daemon and looks where it is. The helper's word for whose job it is does not count: the
/// daemon's does, which root alone can have started.
pub(super) fn open(
    adoption: &Adoption<'_>,
    spool: &AbsolutePath,
    node: &NodeName,
) -> Result<Job, Failure> {
    // This exchange asks, and adds nothing: a daemon that is stopped does not answer it, so that none
    // is ever sent an order which it would carry out whenever it goes on, on a process that was
    // refused long ago or on another one of the same number.
    let mut daemon = call(adoption, spool, node)?;
    require(adoption, daemon.last_answer())?;
    numbers_are_ours(daemon.pid())?;
    let place = Membership::of(daemon.pid()).map_err(|error| no_login(Reason::Ended, error))?;
    if let Some(path) = place.unified().and_then(stepd::step_of_daemon) {
        let step = Step::open(&path)?;
        not_frozen(step.levels())?;
        return Ok(Job::Slurm(daemon, step));
    }
    if let Some(job) = v1::Job::of(&place) {
        return Ok(Job::SlurmV1(daemon, StepV1::open(job, &place)?));
    }
    // It is in its step's cgroup for as long as it runs, so it may have ended meanwhile.
    require(adoption, daemon.query_state(adoption.deadline()).map_err(of_daemon)?)?;
    let path = place.unified().or(place.of_controller("freezer")).unwrap_or("/");
    let why = format!(
        "is in {path}, which is no step's cgroup: slurm.conf has to say \
         ProctrackType=proctrack/cgroup"
    );
    Err(no_login(Reason::Configuration, why))
}

/// Has the daemon add the calling process; it must say afterwards that the job is still the user's
/// and takes logins. With no time left nothing is sent.
fn add(daemon: &mut Daemon, adoption: &Adoption<'_>, undo: &mut Undo) -> Result<(), Failure> {
    undo.moved = true;
    let answer = daemon.add_process(nix::unistd::getpid().as_raw(), adoption.deadline());
    require(adoption, answer.map_err(of_daemon)?)
}

/// Has the daemon hand over what a login takes from the job.
fn take(mut joined: Joined, daemon: &Daemon, adoption: &Adoption<'_>) -> Result<Joined, Failure> {
    let (settings, deadline) = (adoption.means.settings, adoption.deadline());
    if settings.join_container {
        for (kind, fd) in daemon.query_namespaces(deadline).map_err(of_daemon)? {
            joined.namespaces.push(Namespace::from_fd(fd, kind, "of the job's step daemon")?);
        }
    }
    if !settings.disable_x11 {
        let (number, keys) = daemon.query_display(deadline).map_err(of_daemon)?;
        joined.display = Variable::from_display(number, &keys);
    }
    Ok(joined)
}

/// Why a login was not taken in, as another look at the job says: it may be frozen, and its daemon
/// with it, or over.
pub(super) fn explain(
    failure: Failure,
    adoption: &Adoption<'_>,
    frozen: Result<(), Failure>,
) -> Failure {
    match (failure, frozen) {
        (stuck @ Failure::Stuck(..), _) => stuck,
        // Frozen with its job, the daemon does not answer.
        (_, Err(frozen @ Failure::Why(Reason::Suspended, _))) => frozen,
        (failure, _) => match (Job::open(adoption), failure) {
            (Err(Failure::Why(Reason::Ended, _)), failure) => {
                Failure::Why(Reason::Ended, format!("the job is over: {failure}"))
            }
            (_, Failure::Gone(error)) => Failure::why(Reason::AdoptionFailed, error),
            (_, failure) => failure,
        },
    }
}

/// Calls the daemon of the plan's job.
fn call(adoption: &Adoption<'_>, spool: &AbsolutePath, node: &NodeName) -> Result<Daemon, Failure> {
    let job = &adoption.plan.job;
    let wrong = |why: String| Failure::Why(Reason::Configuration, why);
    let name = SocketName::from_job(node, job);
    let name = name.ok_or_else(|| wrong(format!("{job} is no number of a job of Slurm's")))?;
    let spool = open_spool(adoption, Path::new(spool.as_str()));
    let spool = spool.map_err(|error| wrong(format!("Slurm's spool directory {error}")))?;
    Daemon::connect(&spool, &name, adoption.deadline()).map_err(of_daemon)
}

/// Opens the directory of the sockets. Every directory on the way has to be root's, or the account
/// `slurm`'s, which is looked up only where one is not root's. No link is followed: the helper has
/// to name the directory by its real path.
fn open_spool(adoption: &Adoption<'_>, path: &Path) -> Result<TrustedDir, TrustError> {
    match Trust::root().dir(path) {
        Err(error) if matches!(error.cause(), Distrust::WrongOwner(_)) => {
            let slurm = (adoption.means.slurm_user)().ok_or(error)?;
            Trust::root().or_owned_by(slurm).dir(path)
        }
        result => result,
    }
}

/// Refuses a job that is another user's, or takes no logins now.
fn require(adoption: &Adoption<'_>, answer: stepd::Answer) -> Result<(), Failure> {
    let uid = answer.uid;
    match answer.state {
        _ if uid != adoption.uid() => {
            Err(no_login(Reason::AdoptionFailed, format_args!("the job is uid {uid}'s")))
        }
        State::Starting => Err(no_login(Reason::Starting, "the step is starting")),
        State::Running => Ok(()),
        State::Ending => Err(no_login(Reason::Ended, "the step is ending")),
    }
}

/// Refuses a daemon to which a process number of ours means another process, or none: the login is
/// added by number. `NSpid` has one number for each namespace from that of `/proc` downwards
/// (proc_pid_status(5)).
fn numbers_are_ours(pid: i32) -> Result<(), Failure> {
    let proc = Proc::here();
    let single = |found: std::io::Result<Process>| found.is_ok_and(|one| one.namespaces == 1);
    match pid > 0 && single(proc.own()) && single(proc.process(pid)) {
        true => Ok(()),
        false => Err(no_login(Reason::Configuration, "is in another process namespace than this")),
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
    let numbered =
        name.strip_prefix(ACCOUNTED).is_some_and(|number| parse_decimal(number).is_some());
    let [_, special] = WAY;
    (name == special || numbered).then_some(name)
}

/// An extern step's cgroup and those above it, and those below it that logins are in.
#[derive(Debug)]
pub struct Step {
    /// The step's path.
    path: String,
    /// The step, and every level above.
    step: Place,
    /// `task_special`, `user` and the step, as far as they are there, and every level above.
    place: Place,
    /// How many of `user` and `task_special` are not there: before the first login.
    missing: usize,
}

impl Step {
    /// Opens them.
    /// Errors: [`Failure::Gone`] for a step that ended meanwhile.
    fn open(step: &CgroupPath) -> Result<Self, Failure> {
        let path = step.as_str().to_owned();
        let mut place = Mount::open()?.place(step)?;
        let (step, mut missing) = (place.try_clone()?, WAY.len());
        for name in WAY {
            match place.dir()?.child(name) {
                Ok(dir) => place = place.below(dir),
                Err(error) if error.is_gone() => break,
                Err(error) => return Err(error.into()),
            }
            missing -= 1;
        }
        Ok(Self { path, step, place, missing })
    }

    /// Where the login will be.
    pub fn leaf(&self) -> String {
        let [user, leaf] = WAY;
        format!("{}/{user}/{leaf}", self.path)
    }

    /// Errors: as [`Job::foresee`].
    pub(super) fn foresee(&self, adoption: &Adoption<'_>) -> Result<&'static str, Failure> {
        let job = JOB - self.missing;
        let branch = Branch { levels: self.place.levels(), job, reach: Reach::Leaf };
        Ok(bpf::foresee(branch, self.missing, &adoption.plan.containment)?)
    }

    /// The step's cgroup, those above it, and as many of those below as exist.
    pub fn levels(&self) -> &[Dir] {
        self.place.levels()
    }

    /// Has the daemon take the calling process in, makes the containment hold where it is then, and
    /// looks at all of it once more.
    /// Errors: any [`Failure`]; undoing is the caller's.
    pub(super) fn join(
        &self,
        daemon: &mut Daemon,
        adoption: &Adoption<'_>,
        undo: &mut Undo,
    ) -> Result<Joined, Failure> {
        // A login that cannot be confined is not moved.
        required(self.foresee(adoption)?, adoption)?;
        add(daemon, adoption, undo)?;
        let (place, confinement) = self.confined(adoption)?;
        let containment = required(confinement.name, adoption)?;
        let tried = Tried::of(&adoption.plan.probes);
        confinement.verify(place.dir()?)?;
        stands_in(place.dir()?, place.root()?)?;
        let cgroup = place.dir()?.path().to_owned();
        let joined = Joined { cgroup, containment, tried, ..Joined::default() };
        take(joined, daemon, adoption)
    }

    /// Reads back that the login is in the leaf, and makes the containment hold there, which is to
    /// be verified.
    /// Errors: for a login that is elsewhere: the daemon says that it added one even where its own move
    /// failed.
    fn confined(&self, adoption: &Adoption<'_>) -> Result<(Place, Confinement), Failure> {
        let [user, special] = WAY;
        let found = Membership::own()?.unified().unwrap_or_default().to_owned();
        let Some(name) = leaf_of(&found, &format!("{}/{user}", self.path)) else {
            return Err(cgroup::Error::elsewhere(&self.leaf(), &found).into());
        };
        let place = self.way_down([user, name])?;
        // Whatever outlives its login is added anew by the daemon, and on its way to a leaf of the
        // accounting is in `task_special` for a moment: so the filters are put above both.
        let point = place.levels().get(usize::from(name != special)..).unwrap_or_default();
        let job = JOB - usize::from(name != special);
        let branch = Branch { levels: point, job, reach: Reach::Leaf };
        let (containment, deadline) = (&adoption.plan.containment, adoption.deadline());
        let confinement = bpf::confine(branch, containment, !adoption.is_carried(), deadline)?;
        Ok((place, confinement))
    }

    /// The leaf and all above it, opened below the very step that was looked at before the login
    /// went in.
    fn way_down(&self, way: [&str; 2]) -> Result<Place, Failure> {
        let mut place = self.step.try_clone()?;
        for name in way {
            let dir = place.dir()?.child(name)?;
            place = place.below(dir);
        }
        Ok(place)
    }
}

/// The cgroups of an extern step, and of its job, on cgroup v1: one in each hierarchy that Slurm uses.
///
/// No filter can be attached there. The lines of `devices.list` tell little, since Slurm denies the
/// devices of other jobs and the kernel shows no list of denials. So the login must be where the job is,
/// and the module tries which devices it can open.
#[derive(Debug)]
pub struct StepV1 {
    job: v1::Job,
    /// Its cgroups in the hierarchy of the freezer.
    freezers: Vec<Dir>,
    mounts: Vec<Mounted>,
}

impl StepV1 {
    /// Opens them.
    /// Errors: [`Failure::Gone`] for a step that ended meanwhile; where the freezer is not mounted; for a
    /// frozen job.
    fn open(mut job: v1::Job, daemon: &Membership) -> Result<Self, Failure> {
        let mounts = Mounted::all()?;
        job.add_limits(daemon, &mounts)?;
        let step = Self { freezers: job.freezers(&mounts)?, job, mounts };
        step.not_frozen()?;
        Ok(step)
    }

    /// Where the login will be, in every hierarchy.
    pub fn leaf(&self) -> String {
        self.job.step()
    }

    /// As `not_frozen` of cgroup v2.
    pub(super) fn not_frozen(&self) -> Result<(), Failure> {
        v1::frozen_level(&self.freezers)?.map_or(Ok(()), |dir| Err(frozen(dir)))
    }

    /// What would hold for the login.
    /// Errors: where a list is to be enforced, and for a job without a cgroup for its devices.
    pub(super) fn foresee(&self, adoption: &Adoption<'_>) -> Result<&'static str, Failure> {
        let containment = &adoption.plan.containment;
        let why = match containment {
            Containment::Inherit if !self.job.holds_devices() => {
                "Slurm was to constrain the job's devices, and has made no devices cgroup for it"
            }
            Containment::Enforce(_) | Containment::InheritAndEnforce(_) => {
                "a list of devices cannot be enforced on cgroup v1, where filters are not to be had"
            }
            Containment::None | Containment::Inherit => return Ok(containment.as_str()),
        };
        Err(Failure::why(Reason::CannotConfine, why))
    }

    /// Has the daemon take the calling process in, and looks at it afterwards.
    /// Errors: for a login that is elsewhere, be it in a single hierarchy, for a hierarchy in which there is
    /// no way back, and where devices cannot be tried: what a login can open is all there is to see.
    pub(super) fn join(
        &self,
        daemon: &mut Daemon,
        adoption: &Adoption<'_>,
        undo: &mut Undo,
    ) -> Result<Joined, Failure> {
        let containment = required(self.foresee(adoption)?, adoption)?;
        undo.origin.require(&self.job.hierarchies, &self.mounts)?;
        add(daemon, adoption, undo)?;
        self.job.require(&Membership::own()?)?;
        let mut tried = Tried::of(&adoption.plan.probes);
        if let Some(trouble) = tried.trouble.take() {
            return Err(Failure::why(Reason::CannotConfine, trouble));
        }
        self.job.require(&Membership::own()?)?;
        let joined = Joined { cgroup: self.leaf(), containment, tried, ..Joined::default() };
        take(joined, daemon, adoption)
    }
}

/// Why the daemon takes no login.
fn no_login(reason: Reason, why: impl Display) -> Failure {
    Failure::Why(reason, format!("the job's step daemon: {why}"))
}

fn of_daemon(error: stepd::Error) -> Failure {
    use stepd::Error;
    let reason = match error {
        Error::SocketGone => Reason::Ended,
        Error::Timeout => Reason::Timeout,
        Error::UntrustedSocket | Error::WrongPeerUid(_) | Error::VersionRefused => {
            Reason::Configuration
        }
        _ => Reason::AdoptionFailed,
    };
    no_login(reason, error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_failure_has_the_code_that_says_what_to_do() {
        use stepd::Error;
        for (error, reason) in [
            (Error::SocketGone, Reason::Ended),
            (Error::Timeout, Reason::Timeout),
            (Error::UntrustedSocket, Reason::Configuration),
            (Error::WrongPeerUid(1), Reason::Configuration),
            (Error::VersionRefused, Reason::Configuration),
            (Error::SystemCall("recv", nix::errno::Errno::EIO), Reason::AdoptionFailed),
            (Error::ConnectionClosed, Reason::AdoptionFailed),
            (Error::MalformedAnswer, Reason::AdoptionFailed),
            (Error::ProcessRefused(-1), Reason::AdoptionFailed),
        ] {
            assert_eq!(of_daemon(error.clone()).reason(), reason, "{error}");
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
