//! Runs the unprivileged half: one fresh process for one question.

use super::{Account, Budget, Fault};
use crate::plan::{REPLY_MAX, Reply, Request};
use crate::sys::child::{Child, HelperSpec, SpawnFailure, spawn_helper};
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::{Mode, SFlag, fstat, stat};
use nix::sys::wait::WaitStatus;
use nix::unistd::{pipe2, read, write};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// A question that is being answered. Dropping it ends the process.
#[derive(Debug)]
pub(super) struct Question {
    child: Child,
    answer: OwnedFd,
    /// What the process says if it cannot even start.
    status: OwnedFd,
}

impl Question {
    /// Asks.
    ///
    /// # Errors
    /// A [`Fault`] for a helper that is not fit to be run, or cannot be.
    pub(super) fn put(
        helper: &str,
        account: Option<Account>,
        request: &Request,
    ) -> Result<Self, Fault> {
        let account = account.filter(|account| account.uid != 0).ok_or(Fault::Account)?;
        let executable = open_executable(helper)?;
        let question = filled_pipe(&request.encode()).map_err(start("write request"))?;
        let (answer, stdout) = pipe2(OFlag::O_CLOEXEC).map_err(start("pipe"))?;
        let (status, status_end) =
            pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK).map_err(start("pipe"))?;
        let null = open("/dev/null", OFlag::O_RDWR | OFlag::O_CLOEXEC, Mode::empty())
            .map_err(start("open /dev/null"))?;
        let child = spawn_helper(&HelperSpec {
            executable: executable.as_fd(),
            name: c"resolve",
            stdin: question.as_fd(),
            stdout: stdout.as_fd(),
            stderr: null.as_fd(),
            status: status_end.as_fd(),
            uid: account.uid,
            gid: account.gid,
        })
        .map_err(|source| Fault::Start { step: "clone", source })?;
        // Our copies of the helper's ends close here, or the end of its answer could not be seen.
        Ok(Self { child, answer, status })
    }

    /// Waits for the answer until the budget is used up.
    ///
    /// # Errors
    /// A [`Fault`] for anything but one whole reply of this version, followed by exit status 0.
    /// The process is gone in every case.
    pub(super) fn answer(self, budget: &Budget) -> Result<Reply, Fault> {
        let bytes = read_answer(&self.answer, budget)?;
        finish(self.child, &self.status)?;
        Reply::decode(&bytes).map_err(Fault::Reply)
    }
}

fn start(step: &'static str) -> impl Fn(Errno) -> Fault {
    move |errno| Fault::Start { step, source: errno.into() }
}

/// Opens the executable and looks at what was opened: nobody but root may have put it there.
fn open_executable(path: &str) -> Result<OwnedFd, Fault> {
    let fault = |why: String| Fault::Executable { path: path.to_owned(), why };
    let failed = |errno: Errno| fault(io::Error::from(errno).to_string());
    for folder in Path::new(path).ancestors().skip(1) {
        let stat = stat(folder).map_err(failed)?;
        if stat.st_uid != 0 || stat.st_mode & 0o022 != 0 {
            return Err(fault(format!("{} is writable by others than root", folder.display())));
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
    Err(fault(why.to_owned()))
}

/// A pipe that holds `bytes` and has no writer any more. Written while we hold the reading end,
/// so that no `SIGPIPE` can reach the application; a request fits the pipe's buffer.
fn filled_pipe(bytes: &[u8]) -> nix::Result<OwnedFd> {
    if bytes.len() > Request::MAX {
        return Err(Errno::E2BIG);
    }
    let (reader, writer) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
    if write(&writer, bytes)? == bytes.len() { Ok(reader) } else { Err(Errno::EMSGSIZE) }
}

/// Everything up to the end of the answer.
fn read_answer(answer: &OwnedFd, budget: &Budget) -> Result<Vec<u8>, Fault> {
    let mut bytes = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        let left = budget.left();
        if left.is_zero() {
            return Err(Fault::Timeout);
        }
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        let mut wait = [PollFd::new(answer.as_fd(), PollFlags::POLLIN)];
        match poll(&mut wait, timeout) {
            Ok(0) | Err(Errno::EINTR) => continue,
            Ok(_) => {}
            Err(errno) => return Err(start("poll")(errno)),
        }
        match read(answer, &mut chunk) {
            Ok(0) => return Ok(bytes),
            Ok(length) => bytes.extend_from_slice(chunk.get(..length).unwrap_or_default()),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(start("read answer")(errno)),
        }
        if bytes.len() > REPLY_MAX {
            return Err(Fault::TooLong);
        }
    }
}

/// The answer has ended, so the helper has exited or closed its output. Either way it is ended
/// now; only one that was exiting by itself, with status 0, is believed.
fn finish(child: Child, status: &OwnedFd) -> Result<(), Fault> {
    let ended = child.end().map_err(|source| Fault::Start { step: "wait", source })?;
    let mut note = [0; 5];
    if let Ok(length) = read(status, &mut note) {
        if let Some(failure) = SpawnFailure::decode(note.get(..length).unwrap_or_default()) {
            let source = io::Error::from_raw_os_error(failure.errno);
            return Err(Fault::Start { step: failure.step, source });
        }
    }
    match ended {
        WaitStatus::Exited(_, 0) => Ok(()),
        WaitStatus::Exited(_, code) => Err(Fault::Ended(format!("exit status {code}"))),
        WaitStatus::Signaled(_, signal, _) => Err(Fault::Ended(format!("killed by {signal}"))),
        other => Err(Fault::Ended(format!("{other:?}"))),
    }
}
