//! `run`: a command as a job of a user, without a scheduler.
//!
//! The command's process is made first and waits; it is put into the job's cgroup, the job is
//! registered, and only then does the process become the user and the command. So nothing of the
//! user's ever runs outside.

mod command;
mod home;

use super::job::JobOptions;
use super::register::register;
use super::unregister::unregister;
use super::{Caller, Conf, Error, Output, people, require_root};
use crate::cli::sys::process::{fork_and, heed_children, is_ignored};
use crate::plan::JobId;
use crate::registry::{Place, Record};
use crate::resolve::Config;
use clap::Args;
use command::Command;
use home::Home;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, pipe2, write};
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// The command could not be started.
const EXIT_NOT_STARTED: u8 = 125;
/// Longest wait for the job's processes to end.
const PATIENCE: Duration = Duration::from_secs(10);

/// Start a command as a job of a user, without a scheduler (root)
#[derive(Debug, Args)]
#[command(after_help = "\
The command has a cgroup and devices of its own, and the job ends with it. It runs in the user's home
directory and has no controlling terminal; script(1) gives it one. INT, QUIT, TERM and HUP end the
job.
Exit status: that of the command, or 125.")]
pub(super) struct Options {
    /// Whose job it is
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

pub(super) fn command(
    options: &Options,
    caller: Caller,
    output: &mut Output<'_>,
) -> Result<u8, Error> {
    match start(options, caller, output) {
        Err(error @ Error::Failed(_)) => {
            output.warn(error.text().unwrap_or_default());
            Ok(EXIT_NOT_STARTED)
        }
        result => result,
    }
}

fn start(options: &Options, caller: Caller, output: &mut Output<'_>) -> Result<u8, Error> {
    let account = people::owning(&options.user, "run")?;
    let id = options.job.id.clone().map_or_else(own_id, Ok)?;
    // Which cgroup it will be is known once the process is there.
    let pending = "/pending".parse().map_err(|error| Error::failed("run", &id, error))?;
    let record = options.job.record("run", &id, account.uid.as_raw(), Place::Cgroup(pending))?;
    require_root("run job")?;
    let config = options.conf.read()?;
    let command = Command::new(&account, &options.words, caller)?;
    run(record, &command, &config, output)
}

fn own_id() -> Result<JobId, Error> {
    let id = format!("run-{}", nix::unistd::getpid());
    id.parse().map_err(|error| Error::failed("run", &id, error))
}

fn run(
    mut record: Record,
    command: &Command,
    config: &Config,
    output: &mut Output<'_>,
) -> Result<u8, Error> {
    let id = record.id.clone();
    let failed = |step: &'static str| move |errno: Errno| Error::failed(step, "command", errno);
    let before = SigSet::thread_get_mask().map_err(failed("read signal mask of"))?;
    heed_children();
    // From here on signals wait until they are asked for, so that none ends us before the job.
    let signals = awaited().map_err(|error| Error::failed("read signals of", "command", error))?;
    signals.thread_block().map_err(failed("block signals of"))?;

    let mut child = Waiting::start(command, &before)?;
    let home = Home::make(&id, child.pid)?;
    record.place = Place::Cgroup(home.path().clone());
    if let Err(error) = register(record, config, output) {
        drop(child);
        home.discard();
        return Err(error);
    }
    child.go();
    let status = wait(child.pid, &signals).map_err(failed("wait for"))?;
    if let Err(error) = unregister(&id, &config.registry, PATIENCE) {
        output.warn(error.text().unwrap_or_default());
    }
    Ok(status)
}

/// The signals that end the job, and the one that says that it ended. What a caller has us ignore,
/// as nohup(1) does, stays ignored: while it is blocked the kernel would keep it for us.
fn awaited() -> std::io::Result<SigSet> {
    let mut signals = SigSet::from(Signal::SIGCHLD);
    for signal in [Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM, Signal::SIGHUP] {
        if !is_ignored(signal as i32)? {
            signals.add(signal);
        }
    }
    Ok(signals)
}

/// A process that waits to become the command. Dropping it before it may ends it.
struct Waiting {
    pid: Pid,
    gate: Option<OwnedFd>,
}

impl Waiting {
    fn start(command: &Command, signals: &SigSet) -> Result<Self, Error> {
        let failed = |error: std::io::Error| Error::failed("fork for", "command", error);
        let (waiting, gate) = pipe2(OFlag::O_CLOEXEC).map_err(|errno| failed(errno.into()))?;
        let mut gate = Some(gate);
        let pid = fork_and(|| {
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
