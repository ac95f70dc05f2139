//! Queries many step daemons at once, each for a bounded time.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags};
use nix::sys::socket::{MsgFlags, recv, send};

use crate::clock::{Clock, Deadline};
use schedulers::stepd::{
    ANSWER_BYTES, Answer, Connection, Error, Result, State, connect_to_daemon, encode_query,
};

/// Maximum daemons that a login queries at the same time: far below the helper's limit of open files, and
/// enough to query the others while a few hang.
pub(super) const CONCURRENT_QUERIES_MAX: usize = 64;

/// Interval between connections to a daemon whose backlog is full: poll(2) cannot wait for space in it
/// (unix(7)).
const RECONNECT_INTERVAL: Duration = Duration::from_millis(2);

/// How long to retry a connection that is denied: a daemon creates its socket and opens it to all users
/// afterwards (`stepd_init` of Slurm), and a login may come in between.
const OPENING_GRACE: Duration = Duration::from_millis(200);

/// For whom daemons are queried, and how long.
#[derive(Clone, Copy)]
pub(super) struct QueryTerms<'a> {
    /// The uid that each daemon must have.
    pub(super) owner: u32,
    /// Finds what the job of a late daemon, given by its socket's index and its process, is to those whose jobs are
    /// sought. `None` if jobs of all users are sought: then `timeout` limits every query.
    pub(super) relevance: Option<&'a dyn Fn(usize, Option<i32>) -> Relevance>,
    /// The user of a login; `None` for a command.
    pub(super) login: Option<u32>,
    /// How long to wait for a daemon while others wait for their turn, or if it does not matter.
    pub(super) timeout: Duration,
    /// Maximum daemons that are queried at the same time.
    pub(super) concurrent_max: usize,
    pub(super) deadline: Deadline,
}

/// What a job is to those whose jobs are sought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Relevance {
    /// Its owner is not sought.
    Foreign,
    /// Nothing shows whose it is. A login that has another job to join does not wait for it: else one user could delay
    /// everybody.
    Unknown,
    /// It may be of somebody who is sought.
    Sought,
}

/// What bears on all queries under way.
#[derive(Clone, Copy)]
struct Progress {
    /// Other sockets wait for their turn.
    others_wait: bool,
    /// A running job of the login's user has answered.
    has_own_job: bool,
}

/// The result of querying one daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct QueryOutcome {
    /// The daemon's process; `None` if it was never connected to.
    pub(super) pid: Option<i32>,
    pub(super) answer: Result<Answer>,
}

/// Queries the daemons of these sockets for owner and state of their jobs. Returns the outcomes in the
/// order of the sockets; `None` for a daemon that there was no time to query.
pub(super) fn query_sockets(sockets: &[&Path], terms: QueryTerms<'_>) -> Vec<Option<QueryOutcome>> {
    let mut outcomes: Vec<Option<QueryOutcome>> = vec![None; sockets.len()];
    let mut waiting = sockets.iter().enumerate();
    let mut queries: Vec<DaemonQuery<'_>> = Vec::new();
    let mut has_own_job = false;
    loop {
        while queries.len() < terms.concurrent_max && !terms.deadline.has_passed() {
            let Some((index, path)) = waiting.next() else {
                break;
            };
            queries.push(DaemonQuery::new(index, path, terms));
        }
        let progress = Progress {
            others_wait: waiting.len() > 0,
            has_own_job,
        };
        // A query leaves the list with its outcome.
        queries.retain_mut(|query| match query.advance(&terms, progress) {
            Some(answer) => {
                has_own_job |= terms.is_own_job(&answer);
                if let Some(slot) = outcomes.get_mut(query.index) {
                    *slot = Some(QueryOutcome {
                        pid: query.pid,
                        answer,
                    });
                }
                false
            }
            None => true,
        });
        if queries.is_empty() && (waiting.len() == 0 || terms.deadline.has_passed()) {
            return outcomes;
        }
        // The first job of the user may end other queries at once.
        let has_news = has_own_job != progress.has_own_job;
        // Wait only if no other query can begin at once.
        if !has_news && (queries.len() == terms.concurrent_max || waiting.len() == 0) {
            wait_for_progress(&queries, terms.deadline.clock());
        }
    }
}

impl QueryTerms<'_> {
    /// Tells whether the answer is of a job that the login can join.
    fn is_own_job(&self, answer: &Result<Answer>) -> bool {
        answer
            .as_ref()
            .is_ok_and(|answer| Some(answer.uid) == self.login && answer.state == State::Running)
    }
}

/// Waits until a daemon answers, a connection can be retried, or a query times out.
fn wait_for_progress(queries: &[DaemonQuery<'_>], clock: Clock) {
    let now = clock.now();
    // The shortest wait of all queries.
    let mut wait: Option<Duration> = None;
    let mut poll_fds = Vec::new();
    for query in queries {
        let left = match &query.socket {
            Some(socket) => {
                poll_fds.push(PollFd::new(socket.as_fd(), PollFlags::POLLIN));
                query.next_deadline(now).saturating_duration_since(now)
            }
            None => RECONNECT_INTERVAL,
        };
        wait = Some(wait.map_or(left, |wait| wait.min(left)));
    }
    // There is at least one query, so the default is not used. Ignore a failure: reading the socket fails again and
    // reports it.
    let _ = clock.poll(&mut poll_fds, wait.unwrap_or_default());
}

/// A query to one daemon under way.
struct DaemonQuery<'a> {
    /// Index of the socket among those that are queried.
    index: usize,
    path: &'a Path,
    began: Instant,
    /// When the daemon is late.
    late: Instant,
    /// When the query ends in any case.
    deadline: Instant,
    /// What its job is to those who are sought; `None` until the daemon is late.
    relevance: Option<Relevance>,
    /// The daemon's process; `None` before the first connection.
    pid: Option<i32>,
    /// The connection over which the query was sent; `None` until there is one.
    socket: Option<OwnedFd>,
    /// The answer, of which the first `filled` bytes have come.
    bytes: [u8; ANSWER_BYTES],
    filled: usize,
    /// The daemon has hung up before.
    is_retry: bool,
}

impl<'a> DaemonQuery<'a> {
    /// Starts a query whose socket is not connected yet. Its times count from now.
    fn new(index: usize, path: &'a Path, terms: QueryTerms<'_>) -> Self {
        Self {
            index,
            path,
            began: terms.deadline.clock().now(),
            late: terms.deadline.within(terms.timeout).instant(),
            deadline: terms.deadline.instant(),
            relevance: None,
            pid: None,
            socket: None,
            bytes: [0; ANSWER_BYTES],
            filled: 0,
            is_retry: false,
        }
    }

    /// Finds when the query changes even without an answer.
    fn next_deadline(&self, now: Instant) -> Instant {
        if now < self.late {
            self.late
        } else {
            self.deadline
        }
    }

    /// Does all that is possible without waiting; returns the outcome once there is one.
    fn advance(&mut self, terms: &QueryTerms<'_>, progress: Progress) -> Option<Result<Answer>> {
        match self.receive_answer(terms.owner, terms.deadline.clock()) {
            Ok(Some(answer)) => Some(Ok(answer)),
            Ok(None) => self.check_timeout(terms, progress),
            // The daemon may be exiting; then the next connection finds no listener.
            Err(Error::ConnectionClosed) if !self.is_retry => {
                *self = Self {
                    is_retry: true,
                    socket: None,
                    filled: 0,
                    ..*self
                };
                None
            }
            Err(error) => Some(Err(error)),
        }
    }

    /// Decides the outcome for a daemon without an answer; `None` while waiting is worthwhile: until the daemon is
    /// late, and then to the deadline if its job may be sought and no other socket waits; if nothing shows whose it is,
    /// only until a login's user has a job to join. If jobs of all users are sought, no daemon is waited for any longer
    /// once it is late. What its job is to them is found out once, when it is late.
    fn check_timeout(
        &mut self,
        terms: &QueryTerms<'_>,
        progress: Progress,
    ) -> Option<Result<Answer>> {
        let now = terms.deadline.clock().now();
        if now < self.late {
            return None;
        }
        if progress.others_wait || now >= self.deadline {
            return Some(Err(Error::Timeout));
        }
        let is_awaited = match self.find_relevance(terms) {
            None | Some(Relevance::Foreign) => false,
            Some(Relevance::Unknown) => !progress.has_own_job,
            Some(Relevance::Sought) => true,
        };
        (!is_awaited).then_some(Err(Error::Timeout))
    }

    /// Finds out once what the daemon's job is to those who are sought; `None` if everybody is.
    fn find_relevance(&mut self, terms: &QueryTerms<'_>) -> Option<Relevance> {
        if self.relevance.is_none() {
            self.relevance = terms.relevance.map(|find| find(self.index, self.pid));
        }
        self.relevance
    }

    /// Connects if necessary and reads the answer; `None` while it is incomplete.
    fn receive_answer(&mut self, owner: u32, clock: Clock) -> Result<Option<Answer>> {
        if self.socket.is_none() {
            match connect_and_query(self.path, owner) {
                // The daemon has not opened its new socket to all users yet.
                Err(Error::SystemCall(_, Errno::EACCES))
                    if clock.now() - self.began < OPENING_GRACE => {}
                result => {
                    if let Some(Connection { socket, pid }) = result? {
                        (self.socket, self.pid) = (Some(socket), Some(pid));
                    }
                }
            }
            // The answer takes a while: the next call reads it.
            return Ok(None);
        }
        let Some(socket) = &self.socket else {
            return Ok(None);
        };
        let buffer = self.bytes.get_mut(self.filled..).unwrap_or_default();
        match recv(socket.as_raw_fd(), buffer, MsgFlags::MSG_DONTWAIT) {
            Ok(0) | Err(Errno::ECONNRESET) => return Err(Error::ConnectionClosed),
            Ok(length) => self.filled += length,
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            Err(errno) => return Err(Error::SystemCall("recv", errno)),
        }
        if self.filled < ANSWER_BYTES {
            return Ok(None);
        }
        Answer::parse(&self.bytes).map(Some)
    }
}

/// Connects to a daemon that runs as `owner`, and sends the query; `None` while its backlog is full.
fn connect_and_query(path: &Path, owner: u32) -> Result<Option<Connection>> {
    let Some(connection) = connect_to_daemon(path, owner, None)? else {
        return Ok(None);
    };
    let request = encode_query();
    let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
    match send(connection.socket.as_raw_fd(), &request, flags) {
        Ok(sent) if sent == request.len() => Ok(Some(connection)),
        // A new socket takes these few bytes as a whole, so that a part of them does not occur.
        Ok(_) | Err(Errno::EPIPE | Errno::ECONNRESET) => Err(Error::ConnectionClosed),
        Err(errno) => Err(Error::SystemCall("send", errno)),
    }
}
