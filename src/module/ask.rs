//! Runs the unprivileged half, one fresh process for each request.

use crate::budget::Budget;
use crate::error::Failure;
use kernel::sys::child::{Helper, HelperExit, HelperSpec};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl, open};
use nix::sys::stat::{Mode, SFlag, fstat, stat};
use nix::unistd::{pipe2, read, write};
use protocol::{DecodeError, REPLY_BYTES_MAX, Reason, Reply, Request};
use std::fmt::Display;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

/// Uid and gid of the helper's account, as libpam looks it up by name. [`ask_helper`] refuses a 0 in either.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Account {
    /// Numeric user id (passwd(5)).
    pub uid: u32,
    /// Numeric id of the primary group (passwd(5)).
    pub gid: u32,
}

/// Interval between two reads of the reply's pipe. A usual reply fits into the pipe and is read
/// once, after the helper's end; a longer one is read in parts.
const PIPE_READ_INTERVAL: Duration = Duration::from_millis(100);
/// Maximum bytes of a usual reply, which is read in one part.
const USUAL_REPLY_BYTES_MAX: usize = 4096;

/// Runs the helper with a request, and waits for the reply until the budget is used up. Accepts a
/// complete reply if the helper exited with status 0, or if sshd reaped it first. The helper has
/// then ended or is killed, also after a failure.
///
/// # Errors
///
/// [`Reason::Timeout`] if the budget is used up; [`Failure::OtherVersion`] if the helper has another
/// version; [`Reason::Configuration`] if the executable is not trusted or cannot be run, and for all
/// but one complete reply.
pub fn ask_helper(
    helper: &str,
    account: Option<Account>,
    request: &Request,
    budget: &Budget,
) -> Result<Reply, Failure> {
    let account = account.filter(|account| account.uid != 0 && account.gid != 0);
    let account = account.ok_or_else(|| {
        configuration_failure(
            "the system user job-adopt does not exist, or has root's uid or gid: create it",
        )
    })?;
    let program = open_trusted_executable("helper", helper)?;
    let request = make_filled_pipe(&request.encode()).map_err(start_failure("write request"))?;
    let (reply, stdout) = pipe2(OFlag::O_CLOEXEC).map_err(start_failure("pipe"))?;
    // Only this end does not block: the helper may wait for space in the pipe.
    fcntl(&reply, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).map_err(start_failure("fcntl"))?;
    let null = open("/dev/null", OFlag::O_RDWR | OFlag::O_CLOEXEC, Mode::empty())
        .map_err(start_failure("open /dev/null"))?;
    let spec = HelperSpec {
        fds: [
            request.as_fd(),
            stdout.as_fd(),
            null.as_fd(),
            program.as_fd(),
        ],
        name: c"helper",
        uid: account.uid,
        gid: account.gid,
        time_limit: budget.remaining(),
    };
    let process =
        Helper::start(&spec).map_err(|failure| start_failure(failure.step)(failure.errno))?;
    // Close our copy of the write end: otherwise the helper's end gives no EOF.
    drop(stdout);
    await_reply(process, &reply, budget)
}

/// Reads the reply until the helper has ended or the budget is used up. The errors are those of [`ask_helper`].
fn await_reply(mut helper: Helper, pipe: &OwnedFd, budget: &Budget) -> Result<Reply, Failure> {
    // A buffer for the longest reply would be 16 pages that the kernel has to provide.
    let mut bytes = Vec::new();
    let mut part = [0; USUAL_REPLY_BYTES_MAX];
    loop {
        let until = budget.deadline().min(Instant::now() + PIPE_READ_INTERVAL);
        let end = helper.wait(Some(pipe.as_fd()), until);
        // Read all that is in the pipe now: a part that is not filled is the last.
        loop {
            let length = match read(pipe, &mut part) {
                Err(Errno::EAGAIN | Errno::EINTR) => 0,
                length => length.map_err(start_failure("read answer"))?,
            };
            bytes.extend_from_slice(part.get(..length).unwrap_or_default());
            if bytes.len() > REPLY_BYTES_MAX {
                return Err(configuration_failure(
                    "the helper's answer is longer than 64 KiB",
                ));
            }
            if length < part.len() {
                break;
            }
        }
        if let Some(end) = end {
            require_success(end, budget)?;
            return Reply::decode(&bytes).map_err(decode_failure);
        }
        if budget.remaining().is_zero() {
            return Err(timeout_failure("the helper"));
        }
    }
}

/// Returns the failure for a fault of the node or of the installation.
fn configuration_failure(cause: impl Display) -> Failure {
    Failure::new(Reason::Configuration, cause)
}

/// Returns the failure for a process that did not answer within the budget.
pub(super) fn timeout_failure(process: &str) -> Failure {
    Failure::new(
        Reason::Timeout,
        format_args!("{process} did not answer in time"),
    )
}

/// Returns the failure for a reply that is malformed or has another version.
fn decode_failure(error: DecodeError) -> Failure {
    match error {
        DecodeError::WrongVersion(_) => Failure::OtherVersion(error),
        _ => configuration_failure(format_args!("the helper's answer: {error}")),
    }
}

/// Returns a function that makes the failure of a step of the helper's start, with the usual cause.
fn start_failure(step: &str) -> impl Fn(Errno) -> Failure {
    move |errno| {
        let hint = match errno {
            Errno::EAGAIN => {
                ": the limit on processes (nproc) in force here is used up, and without \
                 CAP_SYS_RESOURCE it cannot be raised"
            }
            _ => "",
        };
        let cause = format!("start helper: {step}: {}{hint}", io::Error::from(errno));
        Failure::with_errno(Reason::Configuration, cause, Some(errno as i32))
    }
}

/// Makes a pipe that contains `bytes` and has no writer any more. This process holds the reading
/// end while it writes, so that no `SIGPIPE` can reach the application; a request fits into the
/// pipe.
fn make_filled_pipe(bytes: &[u8]) -> nix::Result<OwnedFd> {
    if bytes.len() > Request::BYTES_MAX {
        return Err(Errno::E2BIG);
    }
    let (reader, writer) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
    if write(&writer, bytes)? == bytes.len() {
        Ok(reader)
    } else {
        Err(Errno::EMSGSIZE)
    }
}

/// Requires exit status 0. If the application has reaped the helper first, the status is unknown
/// and the reply alone counts: a part of a reply cannot be decoded.
fn require_success(end: HelperExit, budget: &Budget) -> Result<(), Failure> {
    let ended = "the helper ended without an answer:";
    match end {
        // Killed by the timer or the limit of CPU time with which it was started, both of the budget's length.
        HelperExit::Killed(libc::SIGKILL) if budget.remaining().is_zero() => {
            Err(timeout_failure("the helper"))
        }
        HelperExit::Exited(0) | HelperExit::Unknown => Ok(()),
        HelperExit::Exited(code) => Err(configuration_failure(format_args!(
            "{ended} exit status {code}"
        ))),
        HelperExit::Killed(signal) => Err(configuration_failure(format_args!(
            "{ended} killed by signal {signal}"
        ))),
    }
}

/// Opens an executable and checks the opened file and its directories: only root may be able to
/// replace it. `role` names it in messages.
pub(super) fn open_trusted_executable(role: &str, path: &str) -> Result<OwnedFd, Failure> {
    let untrusted = |why: &str| configuration_failure(format_args!("{role} {path}: {why}"));
    let failed = |errno: Errno| {
        let cause = format!("{role} {path}: {}", io::Error::from(errno));
        Failure::with_errno(Reason::Configuration, cause, Some(errno as i32))
    };
    for folder in Path::new(path).ancestors().skip(1) {
        let stat = stat(folder).map_err(failed)?;
        if stat.st_uid != 0 || stat.st_mode & 0o022 != 0 {
            return Err(untrusted(&format!(
                "{} is writable by others than root",
                folder.display()
            )));
        }
    }
    let flags = OFlag::O_RDONLY
        | OFlag::O_CLOEXEC
        | OFlag::O_NOFOLLOW
        | OFlag::O_NONBLOCK
        | OFlag::O_NOCTTY;
    let file = open(path, flags, Mode::empty()).map_err(failed)?;
    let stat = fstat(&file).map_err(failed)?;
    let kind = SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits());
    let why = if kind != SFlag::S_IFREG {
        "is no regular file"
    } else if stat.st_uid != 0 {
        "does not belong to root"
    } else if stat.st_mode & 0o022 != 0 {
        "is writable by others than root"
    } else if stat.st_mode & 0o6000 != 0 {
        "is set-user-ID or set-group-ID"
    } else if stat.st_mode & 0o111 == 0 {
        "is not executable"
    } else {
        return Ok(file);
    };
    Err(untrusted(why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_system_calls_keep_their_error_numbers() {
        let missing = open_trusted_executable("helper", "/nowhere/helper").unwrap_err();
        assert_eq!(missing.errno(), Some(libc::ENOENT), "{missing}");
        assert_eq!(
            start_failure("exec")(Errno::EACCES).errno(),
            Some(libc::EACCES)
        );
        let no_file = open_trusted_executable("helper", "/").unwrap_err();
        assert_eq!(no_file.errno(), None, "{no_file}");
    }
}
