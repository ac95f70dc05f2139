//! Runs programs and children of this process, and kills those that take too long.

use crate::sys::process::fork_child;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::signal::{SIGKILL, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::fmt;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Longest run of one child.
pub const CHILD_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest wait for a child that was killed.
const KILL_TIMEOUT: Duration = Duration::from_secs(1);
const CHILD_POLL_INTERVAL: Duration = Duration::from_millis(1);
/// Maximum bytes of output that are read.
const OUTPUT_BYTES_MAX: u64 = 256 * 1024;

/// Start of the loader's message about a library of `/etc/ld.so.preload` that cannot be loaded. It precedes the messages of
/// every program of the node (`do_preload` in glibc's `elf/rtld.c`).
const LOADER_PREFIX: &str = "ERROR: ld.so: ";

/// Why a program gave no answer.
#[derive(Debug, PartialEq, Eq)]
pub enum QueryError {
    /// It ran, and failed.
    Failed {
        /// Its standard output.
        output: String,
        /// Its standard error, without the loader's messages.
        complaint: String,
    },
    /// It could not be started, or took too long.
    Unanswered(String),
}

impl fmt::Display for QueryError {
    /// Writes the complaint, or else the output, without blanks around it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::Failed { output, complaint } if complaint.trim().is_empty() => output,
            Self::Failed { complaint, .. } => complaint,
            Self::Unanswered(why) => why,
        };
        match text.trim() {
            "" => f.write_str("it fails without a message"),
            text => f.write_str(text),
        }
    }
}

/// Runs a program in a clean environment; returns its standard output. Messages on standard error are no answer, whoever
/// writes them.
///
/// # Errors
///
/// [`QueryError`] if the program cannot be started, takes too long or does not succeed.
pub fn query_in_clean_environment(command: &mut Command) -> Result<String, QueryError> {
    query_program(
        command.env_clear().env("PATH", "/usr/bin:/bin"),
        CHILD_TIMEOUT,
    )
}

/// Runs a program with the environment of its command; returns its standard output, as
/// [`query_in_clean_environment`] does.
///
/// # Errors
///
/// [`QueryError`] if the program cannot be started, takes longer than `timeout` or does not succeed.
pub fn query_program(command: &mut Command, timeout: Duration) -> Result<String, QueryError> {
    let (status, output, complaint) = run(command, timeout).map_err(|error| {
        QueryError::Unanswered(match error.kind() {
            io::ErrorKind::TimedOut => format!("no answer in {} s", timeout.as_secs()),
            _ => error.to_string(),
        })
    })?;
    if status == 0 {
        return Ok(output);
    }
    let complaint = complaint
        .lines()
        .filter(|line| !line.starts_with(LOADER_PREFIX))
        .collect::<Vec<_>>()
        .join("\n");
    Err(QueryError::Failed { output, complaint })
}

/// Runs a program with its output in memory, where no full pipe can block it. Returns its exit status, and the first
/// [`OUTPUT_BYTES_MAX`] bytes of its standard output and of its standard error. The errors are those of [`await_exit`] and
/// of starting it.
fn run(command: &mut Command, timeout: Duration) -> io::Result<(i32, String, String)> {
    let output = File::from(memfd_create(c"answer", MFdFlags::MFD_CLOEXEC)?);
    let complaint = File::from(memfd_create(c"complaint", MFdFlags::MFD_CLOEXEC)?);
    command.stdin(Stdio::null());
    let child = command
        .stdout(output.try_clone()?)
        .stderr(complaint.try_clone()?)
        .spawn()?;
    let pid = i32::try_from(child.id()).map_err(io::Error::other)?;
    let status = await_exit(Pid::from_raw(pid), timeout)?;
    Ok((status, read_text(output)?, read_text(complaint)?))
}

/// Reads the first [`OUTPUT_BYTES_MAX`] bytes of a file from its start.
fn read_text(mut file: File) -> io::Result<String> {
    file.rewind()?;
    let mut bytes = Vec::new();
    file.take(OUTPUT_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Runs `body` in a child; returns its exit status.
///
/// # Errors
///
/// `EBUSY` if this process has several threads, those of `fork(2)`; [`io::ErrorKind::TimedOut`] after
/// [`CHILD_TIMEOUT`], and [`io::ErrorKind::Interrupted`] if a signal ended the child.
pub fn run_in_child(body: impl FnOnce() -> i32) -> io::Result<i32> {
    await_exit(fork_child(body)?, CHILD_TIMEOUT)
}

/// Waits for a child and returns its exit status. After `timeout` it kills the child and fails with `TimedOut`; if
/// another signal has ended the child, it fails with `Interrupted`.
fn await_exit(child: Pid, timeout: Duration) -> io::Result<i32> {
    if let Some(end) = await_end(child, timeout)? {
        return match end {
            WaitStatus::Exited(_, status) => Ok(status),
            _ => Err(io::ErrorKind::Interrupted.into()),
        };
    }
    kill(child, SIGKILL)?;
    // One that does not end, in a frozen cgroup v1 or at a file server that is down, is left: init reaps it.
    await_end(child, KILL_TIMEOUT)?;
    Err(io::ErrorKind::TimedOut.into())
}

/// Waits until a child ends, and reaps it; `None` if it has not ended after `timeout`.
fn await_end(child: Pid, timeout: Duration) -> io::Result<Option<WaitStatus>> {
    let deadline = Instant::now() + timeout;
    loop {
        match waitpid(child, Some(WaitPidFlag::WNOHANG))? {
            WaitStatus::StillAlive if Instant::now() >= deadline => return Ok(None),
            WaitStatus::StillAlive => std::thread::sleep(CHILD_POLL_INTERVAL),
            end => return Ok(Some(end)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    fn query(script: &str) -> Result<String, QueryError> {
        query_in_clean_environment(Command::new("sh").args(["-c", script]))
    }

    /// With a broken `/etc/ld.so.preload` the loader writes before each program does.
    const LOADER: &str = "echo \"ERROR: ld.so: object 'x.so' from /etc/ld.so.preload cannot be preloaded \
                          (cannot open shared object file): ignored.\" >&2";

    #[test]
    fn message_of_the_loader_is_no_answer() {
        assert_eq!(query(LOADER), Ok(String::new()));
        assert_eq!(
            query(&format!("{LOADER}; echo yes; echo no >&2")),
            Ok("yes\n".to_owned())
        );
    }

    #[test]
    fn failure_is_explained_by_the_program_alone() {
        for (script, why) in [
            ("echo denied >&2; exit 1", "denied"),
            ("echo part; echo ' denied' >&2; exit 1", "denied"),
            ("echo on output; exit 1", "on output"),
            ("exit 1", "it fails without a message"),
        ] {
            let error = query(&format!("{LOADER}; {script}")).unwrap_err();
            assert_eq!(error.to_string(), why, "{script}");
        }
        let missing = Command::new("/none/such").env_clear().spawn().unwrap_err();
        assert_eq!(
            query_in_clean_environment(&mut Command::new("/none/such")),
            Err(QueryError::Unanswered(missing.to_string()))
        );
    }

    /// A signal reaches it only once it is thawed. A frozen cgroup v2 lets it end.
    #[test]
    fn killed_child_in_frozen_cgroup_is_not_awaited_for_long() {
        if !nix::unistd::Uid::effective().is_root() {
            return crate::testing::skip("needs root");
        }
        let name = format!("job-adopt-test-{}", std::process::id());
        let dir = Path::new("/sys/fs/cgroup/freezer").join(name);
        if fs::create_dir(&dir).is_err() {
            println!("there is no freezer of cgroup v1 here: skipped");
            return;
        }
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
        let state = dir.join("freezer.state");
        fs::write(dir.join("cgroup.procs"), pid.to_string()).unwrap();
        fs::write(&state, "FROZEN").unwrap();
        while fs::read_to_string(&state).unwrap().trim() != "FROZEN" {
            std::thread::yield_now();
        }
        let began = Instant::now();
        let result = await_exit(pid, Duration::from_millis(50));
        let took = began.elapsed();
        fs::write(&state, "THAWED").unwrap();
        child.wait().unwrap();
        while fs::remove_dir(&dir).is_err() {
            std::thread::yield_now();
        }
        assert_eq!(result.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(took >= KILL_TIMEOUT && took < 10 * KILL_TIMEOUT, "{took:?}");
    }
}
