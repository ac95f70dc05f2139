//! `run`: a command as a job of a user, without a scheduler.
//!
//! The command's process is made first and waits; it is put into the job's cgroup, the job is
//! registered, and only then does the process become the user and the command. So nothing of the
//! user's ever runs outside.

use super::job::JobOptions;
use super::register::register;
use super::unregister::unregister;
use super::{Conf, Error, Output, PATIENCE, accounts, ending, require_root};
use crate::sys::process::{fork_child, mark_descriptors_cloexec, reset_sigchld};
use clap::Args;
use helper::records::LoginTarget;
use keeper::subtree;
use kernel::cgroup::{self, Dir, MADE, Membership, Mount, Stamp, is_marked, mark};
use kernel::proc::{self, Proc};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::resource::{Resource, getrlimit, rlim_t, setrlimit};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::stat::{Mode, umask};
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

/// The command could not be started.
const EXIT_NOT_STARTED: u8 = 125;
/// Start a command as a job of a user, without a scheduler (root)
#[derive(Debug, Args)]
#[command(after_help = "\
The job ends with the command, or by INT, QUIT, TERM or HUP. The command runs in the user's home directory
without a controlling terminal; script(1) gives it one.
Exit status: that of the command, or 125.")]
pub(super) struct Options {
    /// The owner of the job
    #[arg(long)]
    user: String,
    #[command(flatten)]
    job: JobOptions,
    #[command(flatten)]
    conf: Conf,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    words: Vec<OsString>,
}

pub(super) fn execute(
    options: &Options,
    caller: Caller,
    output: &mut Output<'_>,
) -> Result<u8, Error> {
    match start(options, caller, output) {
        Err(error @ Error::Failed(_)) => {
            output.warn(error);
            Ok(EXIT_NOT_STARTED)
        }
        result => result,
    }
}

fn start(options: &Options, caller: Caller, output: &mut Output<'_>) -> Result<u8, Error> {
    let account = accounts::require_owner(&options.user, "run")?;
    let own = format!("run-{}", nix::unistd::getpid());
    let id = options.job.id.clone().map_or_else(|| own.parse(), Ok);
    let id: JobId = id.map_err(|error| Error::failed("run", &own, error))?;
    // Which cgroup it will be is known once the process is there.
    let pending = "/pending".parse().map_err(|error| Error::failed("run", &id, error))?;
    let pending = LoginTarget::Cgroup(pending);
    let mut record = options.job.record("run", &id, account.uid.as_raw(), pending)?;
    require_root("run job")?;
    let config = options.conf.read()?;
    let command = Command { user: &account, words: &options.words, caller };
    let failed = |step: &'static str| move |errno: Errno| Error::failed(step, "command", errno);
    let before = SigSet::thread_get_mask().map_err(failed("read signal mask of"))?;
    reset_sigchld();
    // From here on signals wait until they are asked for, so that none ends us before the job.
    let status = proc::read(Proc::here().at.join("self/status")).unwrap_or_default();
    let signals = awaited(&status).ok_or_else(|| failed("read signals of")(Errno::EIO))?;
    signals.thread_block().map_err(failed("block signals of"))?;

    let mut child = Waiting::start(&command, &before)?;
    let cgroup = make_cgroup(&id, child.pid)?;
    record.target = LoginTarget::Cgroup(cgroup.clone());
    if let Err(error) = register(record, &config, output) {
        drop(child);
        discard(&cgroup);
        return Err(error);
    }
    child.go();
    let status = wait(child.pid, &signals).map_err(failed("wait for"))?;
    if let Err(error) = unregister(&id, &config.registry, PATIENCE, &mut |_| Ok(())) {
        output.warn(error);
    }
    Ok(status)
}

/// The signals that end the job, and the one that says that it ended. What a caller has us ignore,
/// as nohup(1) does, stays ignored: while it is blocked the kernel would keep it for us.
fn awaited(status: &str) -> Option<SigSet> {
    let ignored = u64::from_str_radix(proc::find_field(status, "SigIgn:")?, 16).ok()?;
    let ends = [Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM, Signal::SIGHUP];
    let heeded = ends.into_iter().filter(|signal| ignored >> (*signal as i32 - 1) & 1 == 0);
    Some(heeded.chain([Signal::SIGCHLD]).collect())
}

/// A process that waits to become the command. Dropping it before it may ends it.
struct Waiting {
    pid: Pid,
    gate: Option<OwnedFd>,
}

impl Waiting {
    fn start(command: &Command<'_>, signals: &SigSet) -> Result<Self, Error> {
        let failed = |error: io::Error| Error::failed("fork for", "command", error);
        let (waiting, gate) = pipe2(OFlag::O_CLOEXEC).map_err(|errno| failed(errno.into()))?;
        let mut gate = Some(gate);
        let pid = fork_child(|| {
            // Or the end of the gate in our parent would never be seen.
            drop(gate.take());
            command.run(&waiting, signals)
        })
        .map_err(failed)?;
        Ok(Self { pid, gate })
    }

    /// Lets it become the command. One that is dead by now will be waited for as any other.
    fn go(&mut self) {
        if let Some(gate) = self.gate.take() {
            let _ = write(&gate, b"1");
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if self.gate.take().is_some() {
            let _ = waitpid(self.pid, None);
        }
    }
}

/// Waits for the end of the command, or for a signal that is to end the job.
fn wait(pid: Pid, signals: &SigSet) -> nix::Result<u8> {
    loop {
        let signal = signals.wait()?;
        if signal != Signal::SIGCHLD {
            return Ok(by_signal(signal));
        }
        match waitpid(pid, Some(WaitPidFlag::WNOHANG))? {
            WaitStatus::Exited(_, status) => return Ok(u8::try_from(status).unwrap_or(u8::MAX)),
            WaitStatus::Signaled(_, signal, _) => return Ok(by_signal(signal)),
            _ => {}
        }
    }
}

fn by_signal(signal: Signal) -> u8 {
    u8::try_from(128 + signal as i32).unwrap_or(u8::MAX)
}

/// What was so when this process started.
#[derive(Clone, Copy, Debug)]
pub(super) struct Caller {
    umask: Mode,
    /// Soft and hard limit of descriptors; `None` where they could not be read.
    descriptors: Option<(rlim_t, rlim_t)>,
}

impl Caller {
    /// Notes what is so and sets what we need: the unprivileged half has to read what is made
    /// here, whatever umask a prolog has, and the processes and cgroups of a job are held by
    /// descriptors, for which the usual soft limit is low.
    pub(super) fn replace() -> Self {
        let umask = umask(Mode::from_bits_truncate(0o022));
        let descriptors = getrlimit(Resource::RLIMIT_NOFILE).ok();
        if let Some((_, hard)) = descriptors {
            // With the lower limit there are only fewer of them at a time.
            let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
        }
        Self { umask, descriptors }
    }

    /// Makes it so again, in the process that becomes the command.
    /// Fails: as `setrlimit(2)`.
    pub(super) fn restore(self) -> nix::Result<()> {
        umask(self.umask);
        match self.descriptors {
            Some((soft, hard)) => setrlimit(Resource::RLIMIT_NOFILE, soft, hard),
            None => Ok(()),
        }
    }
}

/// Where a command without a slash is looked for, and the `PATH` that it gets.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// A command, and the user to run it as.
struct Command<'a> {
    user: &'a User,
    words: &'a [OsString],
    caller: Caller,
}

impl Command<'_> {
    /// Waits at the gate, becomes the user and the command. Returns only where that fails: the
    /// status to exit with.
    fn run(&self, gate: &OwnedFd, signals: &SigSet) -> i32 {
        if !matches!(read(gate, &mut [0]), Ok(1)) {
            return EXIT_NOT_STARTED.into();
        }
        let [word, arguments @ ..] = self.words else { return EXIT_NOT_STARTED.into() };
        let (step, error) = match self.become_user(signals) {
            Ok(()) => {
                let mut command = process::Command::new(word);
                ("run", command.args(arguments).env_clear().envs(environment(self.user)).exec())
            }
            Err(failure) => failure,
        };
        // Nobody is left to tell where this fails.
        let _ = writeln!(io::stderr(), "job-adopt: {step} {}: {error}", word.to_string_lossy());
        EXIT_NOT_STARTED.into()
    }

    /// Leaves behind what is root's and gives back what was the caller's. In a session of its own
    /// the command has no controlling terminal, so that it can push no input into root's
    /// (`TIOCSTI` of ioctl_tty(2)) for root's shell to run.
    fn become_user(&self, signals: &SigSet) -> Result<(), (&'static str, io::Error)> {
        let step = |step: &'static str| move |errno: Errno| (step, io::Error::from(errno));
        let Self { user, .. } = self;
        setsid().map_err(step("start session of"))?;
        mark_descriptors_cloexec().map_err(|error| ("close descriptors of", error))?;
        self.caller.restore().map_err(step("restore limits of"))?;
        signals.thread_set_mask().map_err(step("restore signals of"))?;
        let name =
            CString::new(user.name.as_str()).map_err(|_| step("name user of")(Errno::EINVAL))?;
        initgroups(&name, user.gid).map_err(step("set groups of"))?;
        setgid(user.gid).map_err(step("set group of"))?;
        setuid(user.uid).map_err(step("set user of"))?;
        chdir(&user.dir).or_else(|_| chdir("/")).map_err(step("change directory of"))
    }
}

/// What login(1) sets, and the kind of terminal, which the command shares with us.
fn environment(user: &User) -> Vec<(&'static str, OsString)> {
    let mut pairs = vec![
        ("HOME", user.dir.clone().into()),
        ("USER", user.name.clone().into()),
        ("LOGNAME", user.name.clone().into()),
        ("SHELL", user.shell.clone().into()),
        ("PATH", PATH.into()),
    ];
    pairs.extend(std::env::var_os("TERM").map(|term| ("TERM", term)));
    pairs
}

/// The directory of ours that holds those of the jobs.
const JOBS: &str = "job-adopt.jobs";
/// How often a directory that others remove at that moment is met with another try.
const TRIES: usize = 8;
const PAUSE: Duration = Duration::from_millis(5);

/// Makes the cgroup of a job, and moves the process `pid`, a child of ours, there.
/// Fails: [`Error::Failed`]; nothing of it is left then.
fn make_cgroup(id: &JobId, pid: Pid) -> Result<CgroupPath, Error> {
    let mount = Mount::open()?;
    let systemd = Path::new("/run/systemd/system").exists();
    if systemd && mount.path() == "/sys/fs/cgroup" {
        let path = scope(id, pid)?;
        mark(mount.place(&path)?.dir()?, ending::SCOPE)?;
        return Ok(path);
    }
    let path: CgroupPath = format!("/{JOBS}/{id}")
        .parse()
        .map_err(|error| Error::failed("make cgroup of job", id, error))?;
    if let Err(error) = own(mount.root(), id) {
        // Refused while there are other jobs in it.
        let _ = mount.root().remove_child(JOBS);
        return Err(error);
    }
    let place = mount.place(&path);
    if let Err(error) =
        place.and_then(|job| subtree::write(job.dir()?, "cgroup.procs", &pid.to_string()))
    {
        discard(&path);
        return Err(error.into());
    }
    Ok(path)
}

/// Removes it again; its process has to be gone. A scope goes by itself: systemd removes it.
fn discard(path: &CgroupPath) {
    if let Ok(place) = Mount::open().and_then(|mount| mount.place(path)) {
        let _ = ending::remove(&place);
    }
}

/// Makes our own directory for a job.
fn own(root: &Dir, id: &JobId) -> Result<(), Error> {
    for _ in 0..TRIES {
        match try_own(root, id.as_str()) {
            Ok(true) => return Ok(()),
            Ok(false) => break,
            // The end of another job has just removed the directory above.
            Err(error) if error.is_gone() => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(Error::failed("make cgroup of job", id, "there is one of this name already"))
}

fn try_own(root: &Dir, id: &str) -> cgroup::Result<bool> {
    if root.make_child(JOBS)? {
        mark(&root.child(JOBS)?, MADE)?;
    }
    let jobs = root.child(JOBS)?;
    while !jobs.make_child(id)? {
        // One that a run left behind which was killed before it registered its job.
        let left = jobs.child(id)?;
        if !is_marked(&left, MADE)? || Stamp::read(&left)?.is_some() {
            return Ok(false);
        }
        jobs.remove_child(id)?;
    }
    mark(&jobs.child(id)?, MADE)?;
    Ok(true)
}

/// Has systemd make a scope with the process in it (org.freedesktop.systemd1(5)).
fn scope(id: &JobId, pid: Pid) -> Result<CgroupPath, Error> {
    let unit = unit_name(id);
    let failed = |cause: String| Error::failed("start scope", &unit, cause);
    let called = process::Command::new("busctl")
        .args(["--system", "--quiet", "call", "org.freedesktop.systemd1"])
        .args(["/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager"])
        .args(["StartTransientUnit", "ssa(sv)a(sa(sv))", &unit, "fail", "4"])
        .args(["PIDs", "au", "1", &pid.to_string()])
        .args(["Delegate", "b", "true"])
        .args(["CollectMode", "s", "inactive-or-failed"])
        .args(["Description", "s", &format!("Job {id} of job-adopt run"), "0"])
        .stdin(process::Stdio::null())
        .stdout(process::Stdio::null())
        .output()
        .map_err(|error| failed(format!("busctl: {error}")))?;
    if !called.status.success() {
        return Err(failed(String::from_utf8_lossy(&called.stderr).trim().to_owned()));
    }
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        let membership = Membership::of(pid.as_raw()).ok();
        let path = membership.and_then(|found| found.unified()?.parse::<CgroupPath>().ok());
        if let Some(path) = path {
            if path.as_str().rsplit('/').next() == Some(unit.as_str()) {
                return Ok(path);
            }
        }
        std::thread::sleep(PAUSE);
    }
    Err(failed("systemd did not move the process in time".into()))
}

/// Of the characters of an id, a unit's name takes all but `+`, which is written as systemd does
/// (systemd.unit(5), "String Escaping for Inclusion in Unit Names").
fn unit_name(id: &JobId) -> String {
    format!("job-adopt-{}.scope", id.as_str().replace('+', "\\x2b"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_is_the_users() {
        let root = User::from_name("root").unwrap().unwrap();
        let environment = environment(&root);
        for (name, value) in [("USER", "root"), ("LOGNAME", "root"), ("PATH", PATH)] {
            assert!(environment.contains(&(name, value.into())), "{name}");
        }
        assert!(environment.len() <= 6);
    }

    #[test]
    fn what_the_caller_ignores_ends_no_job() {
        let all = awaited("SigIgn:\t0000000000001000\n").unwrap();
        assert!(all.contains(Signal::SIGHUP) && all.contains(Signal::SIGCHLD));
        let without = awaited("SigIgn:\t0000000000001001\n").unwrap();
        assert!(!without.contains(Signal::SIGHUP) && without.contains(Signal::SIGTERM));
        assert!(awaited("").is_none() && awaited("SigIgn:\tx\n").is_none());
    }

    #[test]
    fn every_id_makes_a_unit_name() {
        let unit = unit_name(&"a.b_c+d-1".parse().unwrap());
        assert_eq!(unit, "job-adopt-a.b_c\\x2bd-1.scope");
    }
}
