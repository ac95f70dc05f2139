//! Runs programs and children of this process, and kills those that take too long.

use crate::sys::process::fork_child;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::signal::{SIGKILL, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Longest run of one child.
pub(super) const CHILD_TIMEOUT: Duration = Duration::from_secs(10);
const CHILD_POLL_INTERVAL: Duration = Duration::from_millis(1);
/// Maximum bytes of output that are read.
const OUTPUT_BYTES_MAX: u64 = 256 * 1024;

/// Runs a program in a clean environment; returns whether it succeeded, and its standard output and error.
///
/// # Errors
///
/// A text, if the program cannot be started or takes too long.
pub(super) fn query_in_clean_environment(command: &mut Command) -> Result<(bool, String), String> {
    query_program(
        command.env_clear().env("PATH", "/usr/bin:/bin"),
        CHILD_TIMEOUT,
    )
}

/// Runs a program with the environment of its command; returns whether it succeeded, and its standard
/// output and error.
///
/// # Errors
///
/// A text, if the program cannot be started or takes longer than `timeout`.
pub(super) fn query_program(
    command: &mut Command,
    timeout: Duration,
) -> Result<(bool, String), String> {
    run(command, timeout).map_err(|error| match error.kind() {
        io::ErrorKind::TimedOut => format!("no answer in {} s", timeout.as_secs()),
        _ => error.to_string(),
    })
}

/// Runs a program with its output in memory, where no full pipe can block it. Returns whether it succeeded, and the
/// first [`OUTPUT_BYTES_MAX`] bytes of its standard output and error. The errors are those of [`await_exit`] and of
/// starting it.
fn run(command: &mut Command, timeout: Duration) -> io::Result<(bool, String)> {
    let mut output = File::from(memfd_create(c"answer", MFdFlags::MFD_CLOEXEC)?);
    command.stdin(Stdio::null());
    let child = command
        .stdout(output.try_clone()?)
        .stderr(output.try_clone()?)
        .spawn()?;
    let pid = i32::try_from(child.id()).map_err(io::Error::other)?;
    let status = await_exit(Pid::from_raw(pid), timeout)?;
    output.rewind()?;
    let mut bytes = Vec::new();
    output.take(OUTPUT_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok((status == 0, String::from_utf8_lossy(&bytes).into_owned()))
}

/// Runs `body` in a child; returns its exit status.
///
/// # Errors
///
/// `EBUSY` if this process has several threads, those of `fork(2)`; [`io::ErrorKind::TimedOut`] after
/// [`CHILD_TIMEOUT`], and [`io::ErrorKind::Interrupted`] if a signal ended the child.
pub(super) fn run_in_child(body: impl FnOnce() -> i32) -> io::Result<i32> {
    await_exit(fork_child(body)?, CHILD_TIMEOUT)
}

/// Waits for a child and returns its exit status. After `timeout` it kills the child and fails with `TimedOut`; if
/// another signal has ended the child, it fails with `Interrupted`.
fn await_exit(child: Pid, timeout: Duration) -> io::Result<i32> {
    let deadline = Instant::now() + timeout;
    loop {
        match waitpid(child, Some(WaitPidFlag::WNOHANG))? {
            WaitStatus::Exited(_, status) => return Ok(status),
            WaitStatus::StillAlive if Instant::now() < deadline => {
                std::thread::sleep(CHILD_POLL_INTERVAL);
            }
            WaitStatus::StillAlive => {
                kill(child, SIGKILL)?;
                waitpid(child, None)?;
                return Err(io::ErrorKind::TimedOut.into());
            }
            _ => return Err(io::ErrorKind::Interrupted.into()),
        }
    }
}
