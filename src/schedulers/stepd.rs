//! Speaks to the daemon of a Slurm job's extern step (slurmstepd): finds its socket, checks its peer, and
//! sends requests. Both halves query it; only the privileged half makes it add a process.
//!
//! Requests and answers are integers of 4 bytes in the machine's own order, a path, and descriptors of
//! namespaces. The numbers of requests are those of `src/common/stepd_api.h` in Slurm's source, the same
//! from Slurm 20.11 to 26.05. No function waits past its `deadline`.

mod connection;
mod messages;
mod socket_name;
mod step_cgroup;

pub use connection::{Connection, connect_to_daemon};
pub use messages::{ANSWER_BYTES, Answer, QUERY_BYTES, Release, State, encode_query};
pub use socket_name::{EXTERN_STEP, SocketName, socket_created_at};
pub use step_cgroup::{job_of_daemon, step_of_daemon};

use connection::until;
use kernel::trust::TrustedDir;
use messages::{
    REQUEST_ADD_EXTERN_PID, REQUEST_GET_NS_FD, REQUEST_GET_NS_FDS, REQUEST_STATE, REQUEST_STEP_UID,
    REQUEST_X11_DISPLAY,
};
use nix::errno::Errno;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::time::Instant;
use thiserror::Error;

/// Result of a request to a step daemon.
pub type Result<T> = std::result::Result<T, Error>;

/// The reason why a request to a step daemon failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[allow(missing_docs, reason = "the message of each variant describes it")]
pub enum Error {
    /// No socket has that name, or no process listens at it: the job is over.
    #[error("nobody listens there: the job is over")]
    SocketGone,
    /// The file of that name is no socket, or belongs to another account than root.
    #[error("is no socket of root's")]
    UntrustedSocket,
    #[error("who listens there is uid {0}, not root")]
    WrongPeerUid(u32),
    #[error("{0}: {reason}", reason = .1.desc())]
    SystemCall(&'static str, Errno),
    #[error("did not answer in time")]
    Timeout,
    #[error("hung up")]
    ConnectionClosed,
    #[error("does not talk to this version of its protocol")]
    VersionRefused,
    #[error("gave an answer that has no meaning")]
    MalformedAnswer,
    #[error("cannot hand over the job's namespaces")]
    NoNamespace,
    /// The daemon refused the process, with this return code.
    #[error("would not take the login into the job ({0})")]
    ProcessRefused(i32),
}

/// Uid of the account whose daemons are trusted.
pub const ROOT_UID: u32 = 0;

/// Maximum namespaces of one job.
const NAMESPACES_MAX: i32 = 8;
/// Maximum bytes of the path of an X11 key file.
const KEY_FILE_BYTES_MAX: usize = 1024;

/// A connection to a step daemon of root that has answered at least once.
#[derive(Debug)]
pub struct Daemon {
    connection: Connection,
    answer: Answer,
}

impl Daemon {
    /// Connects to the daemon behind a socket in `spool`, by the directory's descriptor, and queries owner
    /// and state of its job.
    ///
    /// # Errors
    ///
    /// [`Error::SocketGone`] if the job is over; [`Error::UntrustedSocket`] and [`Error::WrongPeerUid`] for
    /// a socket or daemon of another account than root; [`Error::Timeout`] at the deadline;
    /// [`Error::ConnectionClosed`]; as [`Answer::parse`]; [`Error::SystemCall`].
    pub fn connect(spool: &TrustedDir, name: &SocketName, deadline: Instant) -> Result<Self> {
        socket_created_at(spool, name, ROOT_UID)?;
        let path = format!("/proc/self/fd/{}/{name}", spool.as_fd().as_raw_fd());
        // With a deadline it is never `None`.
        let connection =
            connect_to_daemon(Path::new(&path), ROOT_UID, Some(deadline))?.ok_or(Error::Timeout)?;
        let mut bytes = [0; ANSWER_BYTES];
        connection.exchange(&encode_query(), &mut bytes, until(deadline))?;
        Ok(Self {
            connection,
            answer: Answer::parse(&bytes)?,
        })
    }

    /// The process that began to listen at the socket. As long as it answers, the number is its own.
    pub fn pid(&self) -> i32 {
        self.connection.pid
    }

    /// The last answer about owner and state.
    pub fn last_answer(&self) -> Answer {
        self.answer
    }

    /// Queries owner and state of the job again.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`] at the deadline; [`Error::ConnectionClosed`]; [`Error::MalformedAnswer`];
    /// [`Error::SystemCall`].
    pub fn query_state(&mut self, deadline: Instant) -> Result<Answer> {
        let requests = [REQUEST_STEP_UID, REQUEST_STATE].map(i32::to_ne_bytes);
        let mut bytes = [0; ANSWER_BYTES];
        // A connection has one exchange of versions, which is over by now. Where a first answer has the version, 0
        // stays.
        let [_, _, _, _, uid_and_state @ ..] = &mut bytes;
        self.connection
            .exchange(requests.as_flattened(), uid_and_state, until(deadline))?;
        self.answer = Answer::parse_later(&bytes, self.answer.release)?;
        Ok(self.answer)
    }

    /// Asks the daemon to add `pid`, then queries owner and state, in one message, so that the daemon wakes up
    /// once.
    ///
    /// The daemon reports success even if its own move failed: the caller must check where the process is. On
    /// an error the daemon adds no process after this call, unless it did not answer in time.
    ///
    /// The daemon adds one process after the other. `next_deadline` tells how long to wait before it is called again;
    /// with `None` the time is over.
    ///
    /// # Errors
    ///
    /// [`Error::ProcessRefused`] with the daemon's return code; as [`Daemon::query_state`].
    pub fn add_process(
        &mut self,
        pid: i32,
        mut next_deadline: impl FnMut() -> Option<Instant>,
    ) -> Result<Answer> {
        let requests =
            [REQUEST_ADD_EXTERN_PID, pid, REQUEST_STEP_UID, REQUEST_STATE].map(i32::to_ne_bytes);
        // The return code is where a first answer has the version.
        let mut bytes = [0; ANSWER_BYTES];
        let result =
            self.connection
                .exchange(requests.as_flattened(), &mut bytes, &mut next_deadline);
        if result.is_err() {
            self.connection.await_end(next_deadline);
        }
        let [a, b, c, d, ..] = bytes;
        match i32::from_ne_bytes([a, b, c, d]) {
            // Also if no return code has come: then `result` is the error.
            0 => result?,
            code => return Err(Error::ProcessRefused(code)),
        }
        self.answer = Answer::parse_later(&bytes, self.answer.release)?;
        Ok(self.answer)
    }

    /// Queries the job's namespaces: the `CLONE_NEW` number and a descriptor of each; empty if it has none.
    ///
    /// # Errors
    ///
    /// [`Error::NoNamespace`] for an error of the daemon or more than 8 namespaces;
    /// [`Error::MalformedAnswer`] for a message without exactly one descriptor; [`Error::Timeout`] at the
    /// deadline; [`Error::ConnectionClosed`]; [`Error::SystemCall`].
    pub fn query_namespaces(&self, deadline: Instant) -> Result<Vec<(i32, OwnedFd)>> {
        let has_list = self.answer.release >= Release::V25_11;
        let request = if has_list {
            REQUEST_GET_NS_FDS
        } else {
            REQUEST_GET_NS_FD
        };
        let answer = self.connection.query_number(request, deadline)?;
        let count = match answer {
            0..=NAMESPACES_MAX if has_list => answer,
            // An older daemon sends 0 for no namespace, else the number that the descriptor has in its own process.
            0.. if !has_list => i32::from(answer > 0),
            _ => return Err(Error::NoNamespace),
        };
        let mut namespaces = Vec::new();
        for _ in 0..count {
            let kind = if has_list {
                self.connection.receive_number(deadline)?
            } else {
                libc::CLONE_NEWNS
            };
            namespaces.push((kind, self.connection.receive_descriptor(deadline)?));
        }
        Ok(namespaces)
    }

    /// Queries the job's X11 display and its key file: 0 and an empty text if the job has none.
    ///
    /// # Errors
    ///
    /// [`Error::MalformedAnswer`] for a path that is too long, not UTF-8 or without its NUL;
    /// [`Error::Timeout`] at the deadline; [`Error::ConnectionClosed`]; [`Error::SystemCall`].
    pub fn query_display(&self, deadline: Instant) -> Result<(i32, String)> {
        let number = self
            .connection
            .query_number(REQUEST_X11_DISPLAY, deadline)?;
        let length = usize::try_from(self.connection.receive_number(deadline)?)
            .map_err(|_| Error::MalformedAnswer)?;
        if length > KEY_FILE_BYTES_MAX {
            return Err(Error::MalformedAnswer);
        }
        let mut key_file = vec![0; length];
        self.connection.receive(&mut key_file, deadline)?;
        // The path ends with a NUL; without a path there is none.
        let end = key_file.pop();
        match (end, String::from_utf8(key_file)) {
            (None | Some(0), Ok(key_file)) => Ok((number, key_file)),
            _ => Err(Error::MalformedAnswer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    #[test]
    fn later_request_sends_no_version() {
        let (socket, mut peer) = UnixStream::pair().unwrap();
        let connection = Connection {
            socket: socket.into(),
            pid: 7,
        };
        let before = Answer {
            uid: 9,
            state: State::Running,
            release: Release::V22_05,
        };
        let mut daemon = Daemon {
            connection,
            answer: before,
        };
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut reply = |numbers: &[i32]| {
            numbers
                .iter()
                .for_each(|number| peer.write_all(&number.to_ne_bytes()).unwrap());
        };
        reply(&[1001, 3]);
        let ending = Answer {
            uid: 1001,
            state: State::Ending,
            release: Release::V22_05,
        };
        let running = Answer {
            uid: 1001,
            state: State::Running,
            release: Release::V22_05,
        };
        assert_eq!(daemon.query_state(deadline), Ok(ending));
        assert_eq!(daemon.last_answer(), ending);
        reply(&[0, 1001, 2, -1, 1001, 2, 1001, 5]);
        assert_eq!(daemon.add_process(4711, until(deadline)), Ok(running));
        assert_eq!(
            daemon.add_process(4711, until(deadline)),
            Err(Error::ProcessRefused(-1))
        );
        assert_eq!(daemon.query_state(deadline), Err(Error::MalformedAnswer));
        assert_eq!(daemon.last_answer(), running);
        let soon = Instant::now() + Duration::from_millis(20);
        assert_eq!(daemon.add_process(1, until(soon)), Err(Error::Timeout));
        let mut requests = Vec::new();
        drop(daemon);
        peer.read_to_end(&mut requests).unwrap();
        let query = [20, 5];
        let add = |pid| [22, pid, 20, 5];
        let numbers = [&query[..], &add(4711), &add(4711), &query, &add(1)].concat();
        let numbers: Vec<u8> = numbers.into_iter().flat_map(i32::to_ne_bytes).collect();
        assert_eq!(requests, numbers);
        assert_eq!(
            encode_query(),
            [45 << 8, 20, 5].map(i32::to_ne_bytes).as_flattened()
        );
    }
}
