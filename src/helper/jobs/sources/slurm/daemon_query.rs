//! Queries many step daemons at once, each for a bounded time.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags};
use nix::sys::socket::{MsgFlags, recv, send};

use crate::clock::{Clock, Deadline};
use schedulers::stepd::{
    ANSWER_BYTES, Answer, Connection, Error, Result, connect_to_daemon, encode_query,
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
    /// Tells whether a late daemon, given by its socket's index and its process, may have a job
    /// that is sought. `None` if jobs of all users are sought: then `timeout` limits every query.
    pub(super) may_matter: Option<&'a dyn Fn(usize, Option<i32>) -> bool>,
    /// How long to wait for a daemon while others wait for their turn, or if it does not matter.
    pub(super) timeout: Duration,
    /// Maximum daemons that are queried at the same time.
    pub(super) concurrent_max: usize,
    pub(super) deadline: Deadline,
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
    loop {
        while queries.len() < terms.concurrent_max && !terms.deadline.has_passed() {
            let Some((index, path)) = waiting.next() else {
                break;
            };
            queries.push(DaemonQuery::new(index, path, terms));
        }
        let others_wait = waiting.len() > 0;
        // A query leaves the list with its outcome.
        queries.retain_mut(|query| match query.advance(&terms, others_wait) {
            Some(answer) => {
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
        // Wait only if no other query can begin at once.
        if queries.len() == terms.concurrent_max || waiting.len() == 0 {
            wait_for_progress(&queries, terms.deadline.clock());
        }
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
    /// The daemon may have a job of the user; `None` until it is late.
    may_matter: Option<bool>,
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
            may_matter: None,
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
    fn advance(&mut self, terms: &QueryTerms<'_>, others_wait: bool) -> Option<Result<Answer>> {
        match self.receive_answer(terms.owner, terms.deadline.clock()) {
            Ok(Some(answer)) => Some(Ok(answer)),
            Ok(None) => self.check_timeout(terms, others_wait),
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
    /// late, and then to the deadline if its job may matter and no other socket waits. If jobs of all users are sought,
    /// no daemon is waited for any longer once it is late. Whether its job matters is found out once, when it is late.
    fn check_timeout(
        &mut self,
        terms: &QueryTerms<'_>,
        others_wait: bool,
    ) -> Option<Result<Answer>> {
        let now = terms.deadline.clock().now();
        if now < self.late {
            return None;
        }
        let may_matter = match (self.may_matter, terms.may_matter) {
            (Some(known), _) => known,
            (None, Some(may_matter)) => may_matter(self.index, self.pid),
            (None, None) => true,
        };
        self.may_matter = Some(may_matter);
        let is_over =
            !may_matter || others_wait || terms.may_matter.is_none() || now >= self.deadline;
        is_over.then_some(Err(Error::Timeout))
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
