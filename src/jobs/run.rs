//! `run`: runs a command as a job of a user, without a scheduler.
//!
//! A child is created first and waits at a gate. It is moved into the job's cgroup, the job is
//! registered, and only then does the child become the user and execute the command. So no process of
//! the user ever runs outside of the job.

use super::ending;
use super::limits::{JobLimits, LimitOptions};
use super::record_options::JobOptions;
use super::register::register;
use super::unregister::{EndTimes, unregister};
use clap::Args;
use command::accounts::{self, require_root};
use command::awaited_signals::select_not_ignored;
use command::caller_limits::CallerLimits;
use command::child_process::{QueryError, query_in_clean_environment};
use command::error::Error;
use command::exit_status::{EXIT_NOT_STARTED, signal_status};
use command::options::{Conf, OPERATION_TIMEOUT};
use command::output::Output;
use command::sys::process::{fork_child, mark_descriptors_cloexec, reset_sigchld};
use facts::systemd;
use helper::jobs::records::LoginTarget;
use kernel::cgroup::{self, Dir, MADE_XATTR, Membership, Mount, Stamp, has_mark, set_mark};
use kernel::lock::Lock;
use kernel::proc::{self, Proc};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, User, chdir, initgroups, pipe2, read, setgid, setsid, setuid, write};
use protocol::{CgroupPath, JobId};
use std::ffi::{CString, OsString};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process;
use std::time::{Duration, Instant};

/// Start a command as a job of a user, without a scheduler (root)
#[derive(Debug, Args)]
#[command(after_help = "\
The job ends with the command, or by INT, QUIT, TERM or HUP. The command runs in the user's home directory
without a controlling terminal; script(1) gives it one.
Exit status: that of the command, or 125.")]
pub struct Options {
    /// The owner of the job
    #[arg(long)]
    user: String,
    #[command(flatten)]
    job: JobOptions,
    #[command(flatten)]
    limits: LimitOptions,
    #[command(flatten)]
    conf: Conf,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    words: Vec<OsString>,
}

/// Runs `run`; returns the exit status of the command. A failure of this program itself becomes [`EXIT_NOT_STARTED`],
/// since all other statuses may be the command's.
///
/// # Errors
///
/// [`Error`] with the exit status of the command.
pub fn execute(
    options: &Options,
    caller: CallerLimits,
    output: &mut Output<'_>,
) -> Result<u8, Error> {
    match run_job(options, caller, output) {
        Err(error @ Error::Failed(_)) => {
            output.warn(error);
            Ok(EXIT_NOT_STARTED)
        }
        result => result,
    }
}

/// Runs the command as a job of the user: makes its cgroup, registers it, and unregisters it when the command
/// has ended or a signal ends the job. Returns the exit status of the command. It fails with [`Error`] before
/// the command has started, or if the wait for its end fails; if the job cannot be unregistered, it only
/// warns.
fn run_job(options: &Options, caller: CallerLimits, output: &mut Output<'_>) -> Result<u8, Error> {
    let account = accounts::require_owner(&options.user, "run")?;
    let default_id = format!("run-{}", nix::unistd::getpid());
    let id = options
        .job
        .id
        .clone()
        .map_or_else(|| default_id.parse(), Ok);
    let id: JobId = id.map_err(|error| Error::failed("run", &default_id, error))?;
    // The record is checked before anything is made; its cgroup has a path only after the child was moved.
    let pending = "/pending"
        .parse()
        .map_err(|error| Error::failed("run", &id, error))?;
    let pending = LoginTarget::Cgroup(pending);
    let mut record = options
        .job
        .build_record("run", &id, account.uid.as_raw(), pending)?;
    require_root("run job")?;
    let config = options.conf.read()?;
    let limits = JobLimits::resolve("run", &options.limits)?;
    let command = UserCommand {
        user: &account,
        words: &options.words,
        caller,
    };
    let failed = |step: &'static str| move |errno: Errno| Error::failed(step, "command", errno);
    let before = SigSet::thread_get_mask().map_err(failed("read signal mask of"))?;
    reset_sigchld();
    // From here on signals stay pending, so that none ends this process before the job.
    let own_status = proc::read(Proc::host().at.join("self/status")).unwrap_or_default();
    let signals = select_not_ignored(&own_status, AWAITED)
        .ok_or_else(|| failed("read signals of")(Errno::EIO))?;
    signals.thread_block().map_err(failed("block signals of"))?;
    limits.unpin_this_process()?;

    let mut child = GatedChild::start(&command, &before)?;
    let cgroup = make_cgroup(&id, child.pid, &limits)?;
    record.target = LoginTarget::Cgroup(cgroup.clone());
    let result = limits
        .verify_process(child.pid)
        .and_then(|()| register(record, &limits, &config, output));
    if let Err(error) = result {
        drop(child);
        discard_cgroup(&cgroup);
        return Err(error);
    }
    child.open_gate();
    let status = await_end(child.pid, &signals).map_err(failed("wait for"))?;
    if let Err(error) = unregister(
        &id,
        &config.registry,
        EndTimes::new(&config, None),
        &mut |_| Ok(()),
    ) {
        output.warn(error);
    }
    Ok(status)
}

/// The signals that end the job, and `SIGCHLD`, which reports its end.
const AWAITED: [Signal; 5] = [
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGCHLD,
];

/// A child that waits at a gate, which is a pipe, before it executes the command. Dropping it before
/// the gate is opened ends the child.
struct GatedChild {
    pid: Pid,
    /// The write end of the pipe.
    gate: Option<OwnedFd>,
}

impl GatedChild {
    /// Forks the child, which waits until the gate is opened. It will execute the command with the signal
    /// mask `signals`. It fails with [`Error::Failed`] if there can be no pipe or no child.
    fn start(command: &UserCommand<'_>, signals: &SigSet) -> Result<Self, Error> {
        let failed = |error: io::Error| Error::failed("fork for", "command", error);
        let (read_end, gate) = pipe2(OFlag::O_CLOEXEC).map_err(|errno| failed(errno.into()))?;
        let mut gate = Some(gate);
        let pid = fork_child(|| {
            // Close our copy of the write end: otherwise the parent's close gives no EOF.
            drop(gate.take());
            command.run(&read_end, signals)
        })
        .map_err(failed)?;
        Ok(Self { pid, gate })
    }

    /// Lets the child execute the command. A child that has died meanwhile is reaped like any other.
    fn open_gate(&mut self) {
        if let Some(gate) = self.gate.take() {
            let _ = write(&gate, b"1");
        }
    }
}

impl Drop for GatedChild {
    fn drop(&mut self) {
        if self.gate.take().is_some() {
            let _ = waitpid(self.pid, None);
        }
    }
}

/// Waits until the command ends, or until a signal requests the job's end; returns the command's exit status, or the
/// one that a command has which this signal ended.
fn await_end(pid: Pid, signals: &SigSet) -> nix::Result<u8> {
    loop {
        let signal = signals.wait()?;
        if signal != Signal::SIGCHLD {
            return Ok(signal_status(signal));
        }
        match waitpid(pid, Some(WaitPidFlag::WNOHANG))? {
            WaitStatus::Exited(_, status) => return Ok(u8::try_from(status).unwrap_or(u8::MAX)),
            WaitStatus::Signaled(_, fatal, _) => return Ok(signal_status(fatal)),
            // It was only stopped or continued.
            _ => {}
        }
    }
}

/// The command's `PATH`, in which a command without a slash is searched.
const COMMAND_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// A command, and the user who runs it.
struct UserCommand<'a> {
    user: &'a User,
    words: &'a [OsString],
    caller: CallerLimits,
}

impl UserCommand<'_> {
    /// Waits at the gate, becomes the user and executes the command. Returns the exit status only if
    /// that fails.
    fn run(&self, gate: &OwnedFd, signals: &SigSet) -> i32 {
        // Without the byte the parent has given up, or has ended.
        if !matches!(read(gate, &mut [0]), Ok(1)) {
            return EXIT_NOT_STARTED.into();
        }
        let [word, arguments @ ..] = self.words else {
            return EXIT_NOT_STARTED.into();
        };
        let (step, error) = match self.become_user(signals) {
            Ok(()) => {
                let mut command = process::Command::new(word);
                (
                    "run",
                    command
                        .args(arguments)
                        .env_clear()
                        .envs(environment(self.user))
                        .exec(),
                )
            }
            Err(failure) => failure,
        };
        // Ignore the error: standard error is the last channel.
        let _ = writeln!(
            io::stderr(),
            "job-adopt: {step} {}: {error}",
            word.to_string_lossy()
        );
        EXIT_NOT_STARTED.into()
    }

    /// Gives up root's identity and restores the caller's settings. In its own session the command has
    /// no controlling terminal, so that it cannot push input into root's terminal (`TIOCSTI` of
    /// ioctl_tty(2)), which root's shell would run.
    fn become_user(&self, signals: &SigSet) -> Result<(), (&'static str, io::Error)> {
        let step = |step: &'static str| move |errno: Errno| (step, io::Error::from(errno));
        let Self { user, .. } = self;
        setsid().map_err(step("start session of"))?;
        mark_descriptors_cloexec().map_err(|error| ("close descriptors of", error))?;
        self.caller.restore().map_err(step("restore limits of"))?;
        signals
            .thread_set_mask()
            .map_err(step("restore signals of"))?;
        let name =
            CString::new(user.name.as_str()).map_err(|_| step("name user of")(Errno::EINVAL))?;
        initgroups(&name, user.gid).map_err(step("set groups of"))?;
        setgid(user.gid).map_err(step("set group of"))?;
        setuid(user.uid).map_err(step("set user of"))?;
        chdir(&user.dir)
            .or_else(|_| chdir("/"))
            .map_err(step("change directory of"))
    }
}

/// The variables that login(1) sets, and `TERM`, since the command uses this terminal.
fn environment(user: &User) -> Vec<(&'static str, OsString)> {
    let mut pairs = vec![
        ("HOME", user.dir.clone().into()),
        ("USER", user.name.clone().into()),
        ("LOGNAME", user.name.clone().into()),
        ("SHELL", user.shell.clone().into()),
        ("PATH", COMMAND_PATH.into()),
    ];
    pairs.extend(std::env::var_os("TERM").map(|term| ("TERM", term)));
    pairs
}

/// The parent of the jobs' cgroups, on a node without systemd.
const JOBS_DIR: &str = "job-adopt.jobs";
/// Maximum tries to create a cgroup while the end of other jobs removes its parent.
const CREATE_TRIES: usize = 8;
/// Number of a scope's properties beside its limits.
const SCOPE_PROPERTIES: usize = 4;
const SCOPE_POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Creates the cgroup of a job with its limits, and moves the child `pid` there; without systemd under the registry's
/// lock. If it fails, it leaves no cgroup: systemd removes a scope when the child has ended.
fn make_cgroup(id: &JobId, pid: Pid, limits: &JobLimits) -> Result<CgroupPath, Error> {
    let mount = Mount::open()?;
    let has_systemd = Path::new("/run/systemd/system").exists();
    if has_systemd && mount.path() == "/sys/fs/cgroup" {
        let path = start_scope(id, pid, limits)?;
        let at = mount.path();
        let scope = mount.open_chain(&path)?;
        limits.verify(&scope, at)?;
        set_mark(scope.dir()?, ending::SCOPE_XATTR)?;
        return Ok(path);
    }
    let path: CgroupPath = format!("/{JOBS_DIR}/{id}")
        .parse()
        .map_err(|error| Error::failed("make cgroup of job", id, error))?;
    // Before the child is in it, the cgroup looks like one that a killed run has left, and which another run removes.
    let _lock = lock_registry()?;
    if let Err(error) = create_directory(mount.root(), id) {
        // This fails while other jobs are in it.
        let _ = mount.root().remove_child(JOBS_DIR);
        return Err(error);
    }
    if let Err(error) = fill_cgroup(mount, &path, pid, limits) {
        remove_cgroup(&path);
        return Err(error);
    }
    Ok(path)
}

/// Takes the lock under which jobs are registered and `run` makes and discards their cgroups. The end of a job removes
/// cgroups without it.
fn lock_registry() -> Result<Lock, Error> {
    let deadline = Instant::now() + OPERATION_TIMEOUT;
    Ok(Lock::take(Lock::REGISTRY_OFFSET, deadline)?)
}

/// Sets the limits of a job's cgroup, and then moves the child there.
fn fill_cgroup(mount: Mount, path: &CgroupPath, pid: Pid, limits: &JobLimits) -> Result<(), Error> {
    let at = mount.path();
    let cgroup = mount.open_chain(path)?;
    limits.set(&cgroup, at)?;
    Ok(cgroup.dir()?.write("cgroup.procs", &pid.to_string())?)
}

/// Removes the cgroup of a job that could not be registered, and whose process has ended. Without the lock it could be
/// the one that another run has made in its place, and not filled yet: it is then left to the next run of that id.
fn discard_cgroup(path: &CgroupPath) {
    if let Ok(_lock) = lock_registry() {
        remove_cgroup(path);
    }
}

/// Removes a job's cgroup under the registry's lock, if no process is in it. systemd removes a scope by itself.
fn remove_cgroup(path: &CgroupPath) {
    if let Ok(place) = Mount::open().and_then(|mount| mount.open_chain(path)) {
        let _ = ending::remove_made_cgroups(&place);
    }
}

/// Creates the cgroup of a job below [`JOBS_DIR`]. It fails with [`Error::Failed`] if the name is in use, or if the
/// end of other jobs removes the parent each time.
fn create_directory(root: &Dir, id: &JobId) -> Result<(), Error> {
    for _ in 0..CREATE_TRIES {
        match try_create_directory(root, id.as_str()) {
            Ok(true) => return Ok(()),
            Ok(false) => {
                let cause = "there is one of this name already";
                return Err(Error::failed("make cgroup of job", id, cause));
            }
            // The end of a job removes cgroups without the registry's lock, and may just have removed the parent.
            Err(error) if error.is_gone() => {}
            Err(error) => return Err(error.into()),
        }
    }
    let cause = "the end of other jobs removed the cgroup above each time: try again";
    Err(Error::failed("make cgroup of job", id, cause))
}

/// Creates parent and cgroup; returns false if the name is in use.
fn try_create_directory(root: &Dir, id: &str) -> cgroup::Result<bool> {
    if root.make_child(JOBS_DIR)? {
        set_mark(&root.child(JOBS_DIR)?, MADE_XATTR)?;
    }
    let jobs = root.child(JOBS_DIR)?;
    while !jobs.make_child(id)? {
        // A run that was killed before it registered its job leaves an unstamped cgroup.
        let existing = jobs.child(id)?;
        if !has_mark(&existing, MADE_XATTR)? || Stamp::read(&existing)?.is_some() {
            return Ok(false);
        }
        jobs.remove_child(id)?;
    }
    set_mark(&jobs.child(id)?, MADE_XATTR)?;
    Ok(true)
}

/// Starts a systemd scope with the process in it and these limits (org.freedesktop.systemd1(5)), and waits until
/// systemd has moved the process; returns the scope's cgroup. It fails with [`Error::Failed`] if systemd refuses, or
/// does not move the process in [`OPERATION_TIMEOUT`].
fn start_scope(id: &JobId, pid: Pid, limits: &JobLimits) -> Result<CgroupPath, Error> {
    let unit = unit_name(id);
    let failed = |cause: String| Error::failed("start scope", &unit, cause);
    let limits = limits.unit_properties();
    let count = SCOPE_PROPERTIES + limits.len();
    let arguments = ["ssa(sv)a(sa(sv))", &unit, "fail", &count.to_string()];
    let mut call = systemd::manager_call("StartTransientUnit", &arguments);
    call.args(["PIDs", "au", "1", &pid.to_string()])
        .args(["Delegate", "b", "true"])
        .args(["CollectMode", "s", "inactive-or-failed"])
        .args(["Description", "s", &format!("Job {id} of job-adopt run")])
        .args(limits.concat())
        .arg("0");
    query_in_clean_environment(&mut call).map_err(|error| {
        failed(match error {
            QueryError::Unanswered(why) => format!("busctl: {why}"),
            failure @ QueryError::Failed { .. } => failure.to_string(),
        })
    })?;
    let deadline = Instant::now() + OPERATION_TIMEOUT;
    while Instant::now() < deadline {
        let membership = Membership::read(pid.as_raw()).ok();
        let path = membership.and_then(|own| own.unified()?.parse::<CgroupPath>().ok());
        if let Some(path) = path {
            if path.as_str().rsplit('/').next() == Some(unit.as_str()) {
                return Ok(path);
            }
        }
        std::thread::sleep(SCOPE_POLL_INTERVAL);
    }
    Err(failed("systemd did not move the process in time".into()))
}

/// The name of a job's scope. It escapes `+`, the only character of ids that units do not take
/// (systemd.unit(5), "String Escaping for Inclusion in Unit Names").
fn unit_name(id: &JobId) -> String {
    format!("job-adopt-{}.scope", id.as_str().replace('+', "\\x2b"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn environment_belongs_to_user() {
        let root = User::from_name("root").unwrap().unwrap();
        let environment = environment(&root);
        for (name, value) in [
            ("USER", "root"),
            ("LOGNAME", "root"),
            ("PATH", COMMAND_PATH),
        ] {
            assert!(environment.contains(&(name, value.into())), "{name}");
        }
        assert!(environment.len() <= 6);
    }

    #[test]
    fn plus_of_id_is_escaped_in_unit_name() {
        let unit = unit_name(&"a.b_c+d-1".parse().unwrap());
        assert_eq!(unit, "job-adopt-a.b_c\\x2bd-1.scope");
    }
}
