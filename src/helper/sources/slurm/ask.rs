//! Asking many step daemons at once, each for a bounded time.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, recv, send};

use schedulers::stepd::{ANSWER_LEN, Answer, Connection, Error, Result, call, query};

/// How many are asked at the same time: far below what the helper may open, and beside a few that
/// hang there is room for the others.
const AT_ONCE: usize = 64;

/// How long to wait before a daemon that has too many callers is called again: such a socket cannot
/// be polled for room (unix(7)).
const AGAIN: Duration = Duration::from_millis(2);

/// How long one that may not be called is called again: a daemon makes its socket and lets everybody
/// call it afterwards (`stepd_init` of Slurm), and a login may come in between.
const OPENING: Duration = Duration::from_millis(200);

/// For whom daemons are asked, and how long.
#[derive(Clone, Copy)]
pub(super) struct Terms<'a> {
    pub(super) owner: u32,
    /// Returns whether a late daemon, given by its socket's index and its process, may be of a job
    /// that is looked for. `None` if jobs of all users are: then no daemon is worth more than `each`.
    pub(super) may_matter: Option<&'a dyn Fn(usize, i32) -> bool>,
    /// How long a daemon is waited for while others wait for their turn, or if it does not matter.
    pub(super) each: Duration,
    pub(super) deadline: Instant,
}

/// What became of asking one daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It answered, or cannot be asked.
    Done(Result<Answer>),
    /// It is late, and its job is not one that is looked for.
    Irrelevant,
}

/// Asks the daemons behind these sockets for owner and state of their jobs. The outcomes are in the
/// order of the sockets; `None` if there was no time to ask.
pub(super) fn ask(sockets: &[&Path], terms: Terms<'_>) -> Vec<Option<Outcome>> {
    let mut answers: Vec<Option<Outcome>> = vec![None; sockets.len()];
    let mut waiting = sockets.iter().enumerate();
    let mut calls: Vec<Call<'_>> = Vec::new();
    loop {
        let now = Instant::now();
        while calls.len() < AT_ONCE && now < terms.deadline {
            let Some((index, path)) = waiting.next() else { break };
            calls.push(Call::new(index, path, terms));
        }
        let others_wait = waiting.len() > 0;
        calls.retain_mut(|call| match call.go_on(&terms, others_wait) {
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
            wait(&calls);
        }
    }
}

/// Waits until a daemon has answered, is to be called again, or has had its time.
fn wait(calls: &[Call<'_>]) {
    let now = Instant::now();
    let left = |call: &Call<'_>| match call.socket {
        Some(_) => call.next_look(now).saturating_duration_since(now),
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
    /// From when on the daemon is late, and until when it is waited for at most.
    late: Instant,
    last: Instant,
    /// Whether it may matter, once it was late.
    may_matter: Option<bool>,
    /// The daemon's process; 0 before the first connection.
    pid: i32,
    socket: Option<OwnedFd>,
    bytes: [u8; ANSWER_LEN],
    filled: usize,
    /// Whether it has hung up before.
    again: bool,
}

impl<'a> Call<'a> {
    fn new(index: usize, path: &'a Path, terms: Terms<'_>) -> Self {
        let began = Instant::now();
        let (late, last) = (terms.deadline.min(began + terms.each), terms.deadline);
        let (bytes, filled) = ([0; ANSWER_LEN], 0);
        let (may_matter, pid, socket, again) = (None, 0, None, false);
        Self { index, path, began, late, last, may_matter, pid, socket, bytes, filled, again }
    }

    /// When it is to be looked at again without an answer.
    fn next_look(&self, now: Instant) -> Instant {
        if now < self.late { self.late } else { self.last }
    }

    /// Does what can be done without waiting; the outcome, once there is one.
    fn go_on(&mut self, terms: &Terms<'_>, others_wait: bool) -> Option<Outcome> {
        match self.step(terms.owner) {
            Ok(Some(answer)) => Some(Outcome::Done(Ok(answer))),
            Ok(None) => self.give_up(terms, others_wait),
            // It may be at its end, and then nobody listens there any more.
            Err(Error::Closed) if !self.again => {
                *self = Self { again: true, socket: None, filled: 0, ..*self };
                None
            }
            Err(error) => Some(Outcome::Done(Err(error))),
        }
    }

    /// The outcome for a daemon without an answer; `None` while it is worth waiting for.
    fn give_up(&mut self, terms: &Terms<'_>, others_wait: bool) -> Option<Outcome> {
        let now = Instant::now();
        if now < self.late {
            return None;
        }
        let (index, pid) = (self.index, self.pid);
        let look = || terms.may_matter.is_none_or(|may_matter| may_matter(index, pid));
        if !*self.may_matter.get_or_insert_with(look) {
            return Some(Outcome::Irrelevant);
        }
        let is_over = others_wait || terms.may_matter.is_none() || now >= self.last;
        is_over.then_some(Outcome::Done(Err(Error::Timeout)))
    }

    fn step(&mut self, owner: u32) -> Result<Option<Answer>> {
        if self.socket.is_none() {
            match called(self.path, owner) {
                Err(Error::System(_, Errno::EACCES)) if self.began.elapsed() < OPENING => {}
                result => {
                    if let Some(Connection { socket, pid }) = result? {
                        (self.socket, self.pid) = (Some(socket), pid);
                    }
                }
            }
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

/// The connection to a daemon that is `owner`'s, with the question in it; `None` while it has too
/// many callers.
fn called(path: &Path, owner: u32) -> Result<Option<Connection>> {
    let Some(connection) = call(path, owner, None)? else { return Ok(None) };
    let (question, socket) = (query(), connection.socket.as_raw_fd());
    match send(socket, &question, MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT) {
        Ok(sent) if sent == question.len() => Ok(Some(connection)),
        // A socket that nobody has written to has room for more than a few bytes.
        Ok(_) | Err(Errno::EPIPE | Errno::ECONNRESET) => Err(Error::Closed),
        Err(errno) => Err(Error::System("send", errno)),
    }
}
