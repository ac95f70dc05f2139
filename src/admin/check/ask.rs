//! Programs that are asked, and children that try something, if they answer in time.

use crate::sys::process::fork_and;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::signal::{SIGKILL, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long one answer may take.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(1);
/// Most bytes of an answer that count.
const ANSWER_MAX: u64 = 256 * 1024;

/// Whether the program succeeded, and what it said, on standard error as well.
/// Fails: a text, where it cannot be started or takes too long.
pub(super) fn ask(command: &mut Command) -> Result<(bool, String), String> {
    run(command).map_err(|error| match error.kind() {
        io::ErrorKind::TimedOut => format!("no answer in {} s", PATIENCE.as_secs()),
        _ => error.to_string(),
    })
}

/// What it writes goes to memory, where no full pipe holds it up.
fn run(command: &mut Command) -> io::Result<(bool, String)> {
    let mut said = File::from(memfd_create(c"answer", MFdFlags::MFD_CLOEXEC)?);
    command.env_clear().env("PATH", "/usr/bin:/bin").stdin(Stdio::null());
    let child = command.stdout(said.try_clone()?).stderr(said.try_clone()?).spawn()?;
    let pid = i32::try_from(child.id()).map_err(io::Error::other)?;
    let status = end(Pid::from_raw(pid))?;
    said.rewind()?;
    let mut bytes = Vec::new();
    said.take(ANSWER_MAX).read_to_end(&mut bytes)?;
    Ok((status == 0, String::from_utf8_lossy(&bytes).into_owned()))
}

/// The exit status of a child that runs this.
pub(super) fn in_a_child(body: impl FnOnce() -> i32) -> io::Result<i32> {
    end(fork_and(body)?)
}

/// The exit status of a child, which is killed after a while.
fn end(child: Pid) -> io::Result<i32> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match waitpid(child, Some(WaitPidFlag::WNOHANG))? {
            WaitStatus::Exited(_, status) => return Ok(status),
            WaitStatus::StillAlive if Instant::now() < deadline => std::thread::sleep(PAUSE),
            WaitStatus::StillAlive => {
                kill(child, SIGKILL)?;
                waitpid(child, None)?;
                return Err(io::ErrorKind::TimedOut.into());
            }
            _ => return Err(io::ErrorKind::Interrupted.into()),
        }
    }
}
