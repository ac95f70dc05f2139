//! Asking many step daemons at once, each for a bounded time.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, recv, send};

use crate::schedulers::stepd::{ANSWER_LEN, Answer, Connection, Error, Result, State, call, query};

/// How many are asked at the same time: far below what the helper may open, and beside a few that
/// hang there is room for the others.
const AT_ONCE: usize = 64;

/// How long to wait before a daemon that has too many callers is called again: such a socket cannot
/// be polled for room (unix(7)).
const AGAIN: Duration = Duration::from_millis(2);

/// How long one that may not be called is called again: a daemon makes its socket and lets everybody
/// call it afterwards (`stepd_init` of Slurm), and a login may come in between.
const OPENING: Duration = Duration::from_millis(200);

#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    pub(super) owner: u32,
    /// Whose jobs are looked for; everybody's where this is `None`.
    pub(super) whose: Option<u32>,
    /// How long each is waited for, where that is not the last hope: while others wait for their
    /// turn, or when a job has been found.
    pub(super) each: Duration,
    pub(super) deadline: Instant,
}

impl Terms {
    /// Whether nobody is the last hope: others wait for their turn, or the user has a running job.
    fn hurry(self, waiting: usize, answers: &[Option<Result<Answer>>]) -> bool {
        let mut heard = answers.iter().flatten().flatten();
        let found = |uid| heard.any(|answer| answer.uid == uid && answer.state == State::Running);
        waiting > 0 || self.whose.is_none_or(found)
    }
}

/// Asks the daemons behind these sockets for owner and state of their jobs. The answers are in the
/// order of the sockets; `None` where there was no time to ask.
pub(super) fn ask(sockets: &[&Path], terms: Terms) -> Vec<Option<Result<Answer>>> {
    let mut answers: Vec<Option<Result<Answer>>> = vec![None; sockets.len()];
    let mut waiting = sockets.iter().enumerate();
    let mut calls: Vec<Call<'_>> = Vec::new();
    loop {
        let now = Instant::now();
        while calls.len() < AT_ONCE && now < terms.deadline {
            let Some((index, path)) = waiting.next() else { break };
            calls.push(Call::new(index, path, terms));
        }
        let hurry = terms.hurry(waiting.len(), &answers);
        calls.retain_mut(|call| match call.go_on(terms.owner, hurry) {
            Some(answer) => {
                if let Some(place) = answers.get_mut(call.index) {
                    *place = Some(answer);
                }
                false
            }
            None => true,
        });
        if calls.is_empty() && (waiting.len() == 0 || Instant::now() >= terms.deadline) {
            return answers;
        }
        // Where one is through, the next can be called at once.
        if calls.len() == AT_ONCE || waiting.len() == 0 {
            wait(&calls, terms.hurry(waiting.len(), &answers));
        }
    }
}

/// Waits until a daemon has answered, is to be called again, or has had its time.
fn wait(calls: &[Call<'_>], hurry: bool) {
    let now = Instant::now();
    let left = |call: &Call<'_>| match call.socket {
        Some(_) => call.until(hurry).saturating_duration_since(now),
        None => AGAIN,
    };
    let left = calls.iter().map(left).min().unwrap_or_default();
    let sockets = calls.iter().filter_map(|call| call.socket.as_ref());
    let mut polled: Vec<_> =
        sockets.map(|socket| PollFd::new(socket.as_fd(), PollFlags::POLLIN)).collect();
    // Rounded up: with less than a millisecond left poll(2) would not wait at all.
    let timeout = PollTimeout::try_from(left + Duration::from_millis(1));
    // A failure is found again, and told, where the socket is read.
    let _ = poll(&mut polled, timeout.unwrap_or(PollTimeout::MAX));
}

struct Call<'a> {
    index: usize,
    path: &'a Path,
    began: Instant,
    /// Until when it is waited for in a hurry, and at most.
    times: [Instant; 2],
    socket: Option<OwnedFd>,
    bytes: [u8; ANSWER_LEN],
    filled: usize,
    /// Whether it has hung up before.
    again: bool,
}

impl<'a> Call<'a> {
    fn new(index: usize, path: &'a Path, terms: Terms) -> Self {
        let began = Instant::now();
        let times = [terms.deadline.min(began + terms.each), terms.deadline];
        let (bytes, filled) = ([0; ANSWER_LEN], 0);
        Self { index, path, began, times, socket: None, bytes, filled, again: false }
    }

    fn until(&self, hurry: bool) -> Instant {
        let [soon, last] = self.times;
        if hurry { soon } else { last }
    }

    /// Does what can be done without waiting; the outcome, once there is one.
    fn go_on(&mut self, owner: u32, hurry: bool) -> Option<Result<Answer>> {
        match self.step(owner) {
            Ok(Some(answer)) => Some(Ok(answer)),
            Ok(None) => (Instant::now() >= self.until(hurry)).then_some(Err(Error::Timeout)),
            // It may be at its end, and then nobody listens there any more.
            Err(Error::Closed) if !self.again => {
                *self = Self { again: true, socket: None, filled: 0, ..*self };
                None
            }
            Err(error) => Some(Err(error)),
        }
    }

    fn step(&mut self, owner: u32) -> Result<Option<Answer>> {
        if self.socket.is_none() {
            self.socket = match called(self.path, owner) {
                Err(Error::System(_, Errno::EACCES)) if self.began.elapsed() < OPENING => None,
                result => result?,
            };
        }
        let Some(socket) = &self.socket else { return Ok(None) };
        while let Some(room @ [_, ..]) = self.bytes.get_mut(self.filled..) {
            match recv(socket.as_raw_fd(), room, MsgFlags::MSG_DONTWAIT) {
                Ok(0) | Err(Errno::ECONNRESET) => return Err(Error::Closed),
                Ok(length) => self.filled += length,
                Err(Errno::EAGAIN) => return Ok(None),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(Error::System("recv", errno)),
            }
        }
        Answer::read(&self.bytes).map(Some)
    }
}

/// The socket of a daemon that is `owner`'s, with the question in it; `None` while it has too many
/// callers.
fn called(path: &Path, owner: u32) -> Result<Option<OwnedFd>> {
    let Some(Connection { socket, .. }) = call(path, owner, None)? else { return Ok(None) };
    let question = query();
    match send(socket.as_raw_fd(), &question, MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT) {
        Ok(sent) if sent == question.len() => Ok(Some(socket)),
        // A socket that nobody has written to has room for more than a few bytes.
        Ok(_) | Err(Errno::EPIPE | Errno::ECONNRESET) => Err(Error::Closed),
        Err(errno) => Err(Error::System("send", errno)),
    }
}
