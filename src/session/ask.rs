//! Runs the unprivileged half: one fresh process for one question.

use super::attendant::{Attendant, wait_for};
use super::way_back::Departure;
use super::{Account, Budget, Fault, executable};
use crate::plan::{REPLY_MAX, Reply, Request};
use crate::sys::child::{HelperSpec, Report};
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use nix::sys::wait::WaitStatus;
use nix::unistd::{Pid, pipe2, read, write};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// A question that is being answered. Dropping it ends the processes.
#[derive(Debug)]
pub(super) struct Question {
    attendant: Attendant,
    answer: OwnedFd,
}

impl Question {
    /// Asks. With a departure the attendant will look after the move as well.
    ///
    /// # Errors
    /// A [`Fault`] for a helper that is not fit to be run, or cannot be.
    pub(super) fn put(
        helper: &str,
        account: Option<Account>,
        request: &Request,
        departure: Option<&Departure>,
        budget: &Budget,
    ) -> Result<Self, Fault> {
        let account = account.filter(|account| account.uid != 0 && account.gid != 0);
        let account = account.ok_or(Fault::Account)?;
        let executable = executable::open("helper", helper)?;
        let question = filled_pipe(&request.encode()).map_err(start("write request"))?;
        let (answer, stdout) = pipe2(OFlag::O_CLOEXEC).map_err(start("pipe"))?;
        let null = open("/dev/null", OFlag::O_RDWR | OFlag::O_CLOEXEC, Mode::empty())
            .map_err(start("open /dev/null"))?;
        let helper = HelperSpec {
            executable: executable.as_fd(),
            name: c"resolve",
            stdin: question.as_fd(),
            stdout: stdout.as_fd(),
            stderr: null.as_fd(),
            uid: account.uid,
            gid: account.gid,
        };
        let watch = departure.map(|departure| departure.watch(budget));
        // Our copies of the helper's ends close here, or the end of its answer could not be seen.
        Ok(Self { attendant: Attendant::start(helper, watch)?, answer })
    }

    /// Waits for the answer until the budget is used up. Only one that is whole, and followed by
    /// exit status 0, is believed.
    ///
    /// # Errors
    /// A [`Fault`] for anything but one whole reply of this version.
    pub(super) fn answer(self, budget: &Budget) -> Result<(Reply, Attendant), Fault> {
        let bytes = read_answer(&self.answer, budget)?;
        judge_end(self.attendant.report(budget)?)?;
        let reply = Reply::decode(&bytes).map_err(Fault::Reply)?;
        Ok((reply, self.attendant))
    }
}

fn start(step: &'static str) -> impl Fn(Errno) -> Fault {
    move |errno| Fault::Start { step, source: errno.into() }
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
        wait_for(answer, budget)?;
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

fn judge_end(report: Report) -> Result<(), Fault> {
    let status = match report {
        Report::Ended(status) => status,
        Report::Failed(failure) => {
            let source = io::Error::from_raw_os_error(failure.errno);
            return Err(Fault::Start { step: failure.step, source });
        }
    };
    match WaitStatus::from_raw(Pid::from_raw(0), status) {
        Ok(WaitStatus::Exited(_, 0)) => Ok(()),
        Ok(WaitStatus::Exited(_, code)) => Err(Fault::Ended(format!("exit status {code}"))),
        Ok(WaitStatus::Signaled(_, signal, _)) => Err(Fault::Ended(format!("killed by {signal}"))),
        _ => Err(Fault::Ended(format!("wait status {status}"))),
    }
}
