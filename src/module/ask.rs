//! Runs the unprivileged half: one fresh process for one question.

use super::{Budget, Failure};
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

/// Uid and gid of an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Account {
    /// Numeric user id.
    pub uid: u32,
    /// Numeric primary group id.
    pub gid: u32,
}

/// How long an answer is left in its pipe: it fits, and is read when the helper has ended. One that
/// does not fit is read piece by piece.
const LOOK: Duration = Duration::from_millis(100);

/// Asks, and waits for the answer until the budget is used up. Only one that is whole, and followed
/// by exit status 0, is believed. Whatever comes of it, the helper is then gone, or killed.
/// Errors: for a helper that is not fit to be run, or cannot be, and for anything but one whole
/// reply of this version.
pub fn ask(
    helper: &str,
    account: Option<Account>,
    request: &Request,
    budget: &Budget,
) -> Result<Reply, Failure> {
    let account = account.filter(|account| account.uid != 0 && account.gid != 0);
    let account = account.ok_or_else(|| {
        fault("the system user job-adopt does not exist, or has root's uid or gid: create it")
    })?;
    let program = executable("helper", helper)?;
    let question = filled_pipe(&request.encode()).map_err(start("write request"))?;
    let (answer, stdout) = pipe2(OFlag::O_CLOEXEC).map_err(start("pipe"))?;
    // Ours alone: the helper may wait for room, we do not wait for it.
    fcntl(&answer, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).map_err(start("fcntl"))?;
    let null = open("/dev/null", OFlag::O_RDWR | OFlag::O_CLOEXEC, Mode::empty())
        .map_err(start("open /dev/null"))?;
    let spec = HelperSpec {
        fds: [question.as_fd(), stdout.as_fd(), null.as_fd(), program.as_fd()],
        name: c"resolve",
        uid: account.uid,
        gid: account.gid,
        time_limit: budget.left(),
    };
    let helper = Helper::start(&spec).map_err(|failure| start(failure.step)(failure.errno))?;
    // With our copy open the end of the answer could not be seen.
    drop(stdout);
    heard(helper, &answer, budget)
}

fn heard(mut helper: Helper, answer: &OwnedFd, budget: &Budget) -> Result<Reply, Failure> {
    let mut buffer = vec![0; REPLY_BYTES_MAX + 1];
    let mut length = 0;
    loop {
        let until = budget.deadline().min(Instant::now() + LOOK);
        let end = helper.wait(Some(answer.as_fd()), until);
        length += match read(answer, buffer.get_mut(length..).unwrap_or_default()) {
            Ok(more) => more,
            Err(Errno::EAGAIN | Errno::EINTR) => 0,
            Err(errno) => return Err(start("read answer")(errno)),
        };
        if length > REPLY_BYTES_MAX {
            return Err(fault("the helper's answer is longer than 64 KiB"));
        }
        if let Some(end) = end {
            judge_end(end, budget)?;
            return Reply::decode(buffer.get(..length).unwrap_or_default()).map_err(unreadable);
        }
        if budget.left().is_zero() {
            return Err(none_in_time("the helper"));
        }
    }
}

/// The node is at fault, or the installation.
fn fault(why: impl Display) -> Failure {
    Failure::why(Reason::Configuration, why)
}

/// This process has not answered by the end of the budget.
pub(super) fn none_in_time(who: &str) -> Failure {
    Failure::Why(Reason::Timeout, format!("{who} did not answer in time"))
}

/// An answer that is not in the protocol, or of another version.
fn unreadable(error: DecodeError) -> Failure {
    let other_version = matches!(error, DecodeError::WrongVersion(_));
    let reason = if other_version { Reason::Timeout } else { Reason::Configuration };
    Failure::Why(reason, format!("the helper's answer: {error}"))
}

/// That this step of starting the helper failed, and what the usual cause is.
fn start(step: &str) -> impl Fn(Errno) -> Failure {
    move |errno| {
        let hint = match errno {
            Errno::EAGAIN => {
                ": the limit on processes (nproc) in force here is used up, and without \
                 CAP_SYS_RESOURCE it cannot be raised"
            }
            _ => "",
        };
        fault(format_args!("start helper: {step}: {}{hint}", io::Error::from(errno)))
    }
}

/// A pipe that holds `bytes` and has no writer any more. Written while we hold the reading end,
/// so that no `SIGPIPE` can reach the application; a request fits the pipe's buffer.
fn filled_pipe(bytes: &[u8]) -> nix::Result<OwnedFd> {
    if bytes.len() > Request::BYTES_MAX {
        return Err(Errno::E2BIG);
    }
    let (reader, writer) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
    if write(&writer, bytes)? == bytes.len() { Ok(reader) } else { Err(Errno::EMSGSIZE) }
}

/// Where the application has reaped the helper before us nothing is known, and the answer has to
/// speak for itself: no part of one is a reply.
fn judge_end(end: HelperExit, budget: &Budget) -> Result<(), Failure> {
    let ended = "the helper ended without an answer:";
    match end {
        HelperExit::Killed(libc::SIGKILL) if budget.left().is_zero() => {
            Err(none_in_time("the helper"))
        }
        HelperExit::Exited(0) | HelperExit::Unknown => Ok(()),
        HelperExit::Exited(code) => Err(fault(format_args!("{ended} exit status {code}"))),
        HelperExit::Killed(signal) => Err(fault(format_args!("{ended} killed by signal {signal}"))),
    }
}

/// Opens an executable and looks at what was opened: nobody but root may have put it there. `what` it
/// is stands in the message.
pub(super) fn executable(what: &str, path: &str) -> Result<OwnedFd, Failure> {
    let unfit = |why: &str| fault(format_args!("{what} {path}: {why}"));
    let failed = |errno: Errno| unfit(&io::Error::from(errno).to_string());
    for folder in Path::new(path).ancestors().skip(1) {
        let stat = stat(folder).map_err(failed)?;
        if stat.st_uid != 0 || stat.st_mode & 0o022 != 0 {
            return Err(unfit(&format!("{} is writable by others than root", folder.display())));
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
    let why = match stat.st_mode {
        _ if kind != SFlag::S_IFREG => "is no regular file",
        _ if stat.st_uid != 0 => "does not belong to root",
        mode if mode & 0o022 != 0 => "is writable by others than root",
        mode if mode & 0o6000 != 0 => "is set-user-ID or set-group-ID",
        mode if mode & 0o111 == 0 => "is not executable",
        _ => return Ok(file),
    };
    Err(unfit(why))
}
