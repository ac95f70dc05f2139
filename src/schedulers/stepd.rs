//! Speaks to the daemon of a Slurm job's extern step (slurmstepd): finds its socket, checks its peer, and
//! sends requests. Both halves query it; only the privileged half makes it add a process.
//!
//! Requests and answers are integers of 4 bytes in the machine's own order, a path, and descriptors of
//! namespaces. The numbers of requests are those of `src/common/stepd_api.h` in Slurm's source, the same
//! from Slurm 20.11 to 26.05. No function waits past its `deadline`.

use std::fmt;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::time::Instant;

use nix::errno::Errno;
use nix::fcntl::AtFlags;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::sockopt::{PeerCredentials, ReceiveTimeout, SendTimeout};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SetSockOpt, Shutdown, SockFlag, SockType, UnixAddr,
};
use nix::sys::socket::{connect, getsockopt, recv, send, setsockopt, shutdown, socket};
use nix::sys::stat::{SFlag, fstatat};
use nix::sys::time::{TimeVal, TimeValLike};

use kernel::sys;
use kernel::trust::TrustedDir;
use protocol::{CgroupPath, JobId, NodeName, parse_decimal};
use thiserror::Error;

/// Number of the step that a job's logins belong to (`SLURM_EXTERN_CONT` of `slurm.h`).
pub const EXTERN_STEP: u32 = 0xffff_fffc;

/// Name of the socket of a job's extern step: `NODE_JOB.4294967292`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketName {
    /// Name of the node in Slurm's configuration.
    pub node: NodeName,
    /// Id of the job, in decimal digits.
    pub job: JobId,
}

impl SocketName {
    /// Converts node and job; `None` for an id that is no number.
    pub fn from_job(node: &NodeName, job: &JobId) -> Option<Self> {
        parse_decimal(job.as_str())?;
        Some(Self {
            node: node.clone(),
            job: job.clone(),
        })
    }
}

impl fmt::Display for SocketName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}_{}.{EXTERN_STEP}", self.node, self.job)
    }
}

/// Derives the extern step's cgroup from the cgroup v2 of its daemon, `JOB/step_extern/slurm`; `None` for a
/// daemon that is elsewhere. The job's own cgroup may have any name and may be anywhere below the root, but
/// is never the root itself.
pub fn step_of_daemon(daemon: &str) -> Option<CgroupPath> {
    let job = job_of_daemon(daemon)?;
    format!("{job}/step_extern").parse().ok()
}

/// Derives the job's cgroup from the cgroup v2 of the daemon of its extern step; `None` for a
/// daemon that is elsewhere.
pub fn job_of_daemon(daemon: &str) -> Option<CgroupPath> {
    daemon.strip_suffix("/step_extern/slurm")?.parse().ok()
}

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

/// Version of the protocol that we send, from Slurm 26.05. A daemon refuses versions older than the oldest
/// that it knows, and logs a newer version.
const PROTOCOL_VERSION: i32 = 45 << 8;
const REQUEST_STATE: i32 = 5;
const REQUEST_STEP_UID: i32 = 20;
const REQUEST_ADD_EXTERN_PID: i32 = 22;
const REQUEST_X11_DISPLAY: i32 = 23;
/// Asks for the descriptor of one namespace. Daemons since Slurm 25.11 answer it only if the job has one.
const REQUEST_GET_NS_FD: i32 = 26;
/// Asks for the descriptors of all namespaces, since Slurm 25.11.
const REQUEST_GET_NS_FDS: i32 = 28;
/// Maximum namespaces of one job.
const NAMESPACES_MAX: i32 = 8;
/// Maximum bytes of the path of an X11 key file.
const KEY_FILE_BYTES_MAX: usize = 1024;

/// Bytes of a query for owner and state.
pub const QUERY_BYTES: usize = 12;
/// Bytes of the answer to a query for owner and state.
pub const ANSWER_BYTES: usize = 12;

/// A release of Slurm, by the version of the protocol that its daemons speak (`slurm_protocol_common.h`). A job's step
/// daemons are of the release of the slurmd that started the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Release(i32);

impl Release {
    /// Slurm 22.05.
    pub const V22_05: Self = Self(38 << 8);
    /// Slurm 23.02.
    pub const V23_02: Self = Self(39 << 8);
    /// Slurm 23.11.
    pub const V23_11: Self = Self(40 << 8);
    /// Slurm 24.11.
    pub const V24_11: Self = Self(42 << 8);
    /// Slurm 25.11, the first one with `REQUEST_GET_NS_FDS`.
    pub const V25_11: Self = Self(44 << 8);
    /// Slurm 26.05.
    pub const V26_05: Self = Self(45 << 8);
    /// Slurm 26.11.
    pub const V26_11: Self = Self(46 << 8);

    /// Parses the version in the first answer of a daemon.
    ///
    /// # Errors
    ///
    /// [`Error::VersionRefused`] for a version below 0.
    pub fn parse(bytes: &[u8; ANSWER_BYTES]) -> Result<Self> {
        let [a, b, c, d, ..] = *bytes;
        match i32::from_ne_bytes([a, b, c, d]) {
            version @ 0.. => Ok(Self(version)),
            _ => Err(Error::VersionRefused),
        }
    }

    /// Finds the release of a program by the version that it reports, such as `22.05.8`; `None` for a version before
    /// 20.11 or after 26.11.
    pub fn from_version(version: &str) -> Option<Self> {
        const RELEASES: [&str; 11] = [
            "20.11.", "21.08.", "22.05.", "23.02.", "23.11.", "24.05.", "24.11.", "25.05.",
            "25.11.", "26.05.", "26.11.",
        ];
        let index = RELEASES
            .iter()
            .position(|release| version.starts_with(release))?;
        let number = i32::try_from(index).ok()? + 36;
        Some(Self(number << 8))
    }

    /// The release after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1 << 8))
    }
}

/// The state of a step (`slurmstepd_state_t` of `stepd_api.h`), from 0 to 4 there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The step does not accept processes yet.
    Starting,
    /// The step accepts processes.
    Running,
    /// The step accepts no processes any more.
    Ending,
}

/// A step daemon's answer about its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Uid of the job's owner.
    pub uid: u32,
    /// State of the step.
    pub state: State,
    /// Release of the daemon.
    pub release: Release,
}

impl Answer {
    /// Parses the answer to [`encode_query`]: version, uid and state.
    ///
    /// # Errors
    ///
    /// [`Error::VersionRefused`] for a version below 0; [`Error::MalformedAnswer`] for an unknown state.
    pub fn parse(bytes: &[u8; ANSWER_BYTES]) -> Result<Self> {
        Self::parse_later(bytes, Release::parse(bytes)?)
    }

    /// Parses an answer that has another number in place of the version, from a daemon of this release.
    fn parse_later(bytes: &[u8; ANSWER_BYTES], release: Release) -> Result<Self> {
        let [_, _, _, _, uid @ .., e, f, g, h] = *bytes;
        let state = match i32::from_ne_bytes([e, f, g, h]) {
            0 | 1 => State::Starting,
            2 => State::Running,
            3 | 4 => State::Ending,
            _ => return Err(Error::MalformedAnswer),
        };
        Ok(Self {
            uid: u32::from_ne_bytes(uid),
            state,
            release,
        })
    }
}

/// Encodes our version and the requests for owner and state. A daemon reads them one by one.
pub fn encode_query() -> [u8; QUERY_BYTES] {
    let mut bytes = [0; QUERY_BYTES];
    let numbers = [PROTOCOL_VERSION, REQUEST_STEP_UID, REQUEST_STATE];
    bytes.copy_from_slice(numbers.map(i32::to_ne_bytes).as_flattened());
    bytes
}

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

/// Reads the time at which a socket was created, in seconds since the epoch: that of its last change, since a daemon
/// changes its socket only once, when it opens the new socket to all users.
///
/// # Errors
///
/// [`Error::SocketGone`] without such a file; [`Error::UntrustedSocket`] for a file that is no socket or
/// does not belong to `owner`; [`Error::SystemCall`] as `stat(2)`.
pub fn socket_created_at(spool: &TrustedDir, name: &SocketName, owner: u32) -> Result<i64> {
    let stat = fstatat(
        spool,
        name.to_string().as_str(),
        AtFlags::AT_SYMLINK_NOFOLLOW,
    )
    .map_err(|errno| socket_error("stat", errno))?;
    let is_socket = stat.st_mode & SFlag::S_IFMT.bits() == SFlag::S_IFSOCK.bits();
    if is_socket && stat.st_uid == owner {
        Ok(stat.st_ctime)
    } else {
        Err(Error::UntrustedSocket)
    }
}

/// A connection to a daemon.
#[derive(Debug)]
pub struct Connection {
    /// The connected socket.
    pub socket: OwnedFd,
    /// Process that began to listen at the socket.
    pub pid: i32,
}

/// Connects to the daemon behind a socket, which must run as `owner`. Without a deadline no call blocks, and `None`
/// means that too many connections wait at the socket. With a deadline the kernel waits for its turn until then
/// (socket(7), `SO_SNDTIMEO`), and the result is a connection or an error.
///
/// # Errors
///
/// [`Error::SocketGone`] if no process listens; [`Error::WrongPeerUid`] for a daemon of another account;
/// [`Error::Timeout`] at the deadline; [`Error::SystemCall`].
pub fn connect_to_daemon(
    path: &Path,
    owner: u32,
    deadline: Option<Instant>,
) -> Result<Option<Connection>> {
    let blocking = if deadline.is_some() {
        SockFlag::empty()
    } else {
        SockFlag::SOCK_NONBLOCK
    };
    let socket = socket(
        AddressFamily::Unix,
        SockType::Stream,
        SockFlag::SOCK_CLOEXEC | blocking,
        None,
    )
    .map_err(|errno| Error::SystemCall("socket", errno))?;
    let address = UnixAddr::new(path).map_err(|errno| Error::SystemCall("connect", errno))?;
    loop {
        if let Some(deadline) = deadline {
            set_timeout(&socket, SendTimeout, deadline)?;
        }
        match connect(socket.as_raw_fd(), &address) {
            Ok(()) => break,
            // A signal came in between, or the deadline has passed: `set_timeout` finds out which.
            Err(Errno::EAGAIN | Errno::EINTR) if deadline.is_some() => {}
            Err(Errno::EAGAIN | Errno::EINTR) => return Ok(None),
            Err(errno) => return Err(socket_error("connect", errno)),
        }
    }
    let peer = getsockopt(&socket, PeerCredentials)
        .map_err(|errno| Error::SystemCall("getsockopt SO_PEERCRED", errno))?;
    if peer.uid() != owner {
        return Err(Error::WrongPeerUid(peer.uid()));
    }
    Ok(Some(Connection {
        socket,
        pid: peer.pid(),
    }))
}

/// The error of a call that needs the socket's file or its listener: without either the job is over.
fn socket_error(call: &'static str, errno: Errno) -> Error {
    match errno {
        Errno::ENOENT | Errno::ECONNREFUSED => Error::SocketGone,
        errno => Error::SystemCall(call, errno),
    }
}

/// Sets a timeout of the socket, so that calls wait until `deadline`.
fn set_timeout<O: SetSockOpt<Val = TimeVal>>(
    socket: &OwnedFd,
    option: O,
    deadline: Instant,
) -> Result<()> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(Error::Timeout);
    }
    // Round up: a timeout of 0 would never end.
    let left = TimeVal::microseconds(left.as_micros().try_into().unwrap_or(i64::MAX - 1) + 1);
    setsockopt(socket, option, &left).map_err(|errno| Error::SystemCall("setsockopt", errno))
}

/// Returns a function that names this deadline until it has passed.
fn until(deadline: Instant) -> impl FnMut() -> Option<Instant> {
    move || (Instant::now() < deadline).then_some(deadline)
}

impl Connection {
    /// Sends requests and receives the answers. The daemon carries out what it has received, whatever becomes
    /// of this call, so all that can fail comes before the requests. `next_deadline` is called before each wait; its
    /// `None` is [`Error::Timeout`].
    fn exchange(
        &self,
        requests: &[u8],
        answers: &mut [u8],
        mut next_deadline: impl FnMut() -> Option<Instant>,
    ) -> Result<()> {
        let deadline = next_deadline().ok_or(Error::Timeout)?;
        set_timeout(&self.socket, ReceiveTimeout, deadline)?;
        self.send(requests, deadline)?;
        self.receive_until_timeout(answers, next_deadline)
    }

    /// Ends the conversation, and waits until the daemon ends it too, since it has carried out every request then, or
    /// until `next_deadline` is `None`.
    fn await_end(&self, mut next_deadline: impl FnMut() -> Option<Instant>) {
        let _ = shutdown(self.socket.as_raw_fd(), Shutdown::Write);
        // The kernel reports the other side's end without being asked.
        let mut poll_fds = [PollFd::new(self.socket.as_fd(), PollFlags::empty())];
        while let Some(deadline) = next_deadline() {
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            if !matches!(poll(&mut poll_fds, timeout), Ok(0) | Err(Errno::EINTR)) {
                break;
            }
        }
    }

    /// Sends all bytes, in as many parts as the socket takes.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`] at the deadline; [`Error::ConnectionClosed`]; [`Error::SystemCall`].
    fn send(&self, mut rest: &[u8], deadline: Instant) -> Result<()> {
        while !rest.is_empty() {
            set_timeout(&self.socket, SendTimeout, deadline)?;
            match send(self.socket.as_raw_fd(), rest, MsgFlags::MSG_NOSIGNAL) {
                Ok(length) => rest = rest.get(length..).unwrap_or_default(),
                Err(Errno::EINTR | Errno::EAGAIN) => {}
                Err(Errno::EPIPE | Errno::ECONNRESET) => return Err(Error::ConnectionClosed),
                Err(errno) => return Err(Error::SystemCall("send", errno)),
            }
        }
        Ok(())
    }

    /// Sends a request and receives a number.
    fn query_number(&self, request: i32, deadline: Instant) -> Result<i32> {
        let mut bytes = [0; 4];
        self.exchange(&request.to_ne_bytes(), &mut bytes, until(deadline))?;
        Ok(i32::from_ne_bytes(bytes))
    }

    /// Receives a number, which is four bytes.
    fn receive_number(&self, deadline: Instant) -> Result<i32> {
        let mut bytes = [0; 4];
        self.receive(&mut bytes, deadline)?;
        Ok(i32::from_ne_bytes(bytes))
    }

    /// Receives a message with one descriptor; one without is [`Error::MalformedAnswer`].
    fn receive_descriptor(&self, deadline: Instant) -> Result<OwnedFd> {
        set_timeout(&self.socket, ReceiveTimeout, deadline)?;
        match sys::socket::receive_fd(self.socket.as_fd()) {
            Ok(descriptor) => descriptor.ok_or(Error::MalformedAnswer),
            // At the deadline `set_timeout` ends the tries.
            Err(Errno::EINTR | Errno::EAGAIN) => self.receive_descriptor(deadline),
            Err(errno) => Err(Error::SystemCall("recvmsg", errno)),
        }
    }

    /// Fills the buffer with received bytes.
    fn receive(&self, buffer: &mut [u8], deadline: Instant) -> Result<()> {
        set_timeout(&self.socket, ReceiveTimeout, deadline)?;
        self.receive_until_timeout(buffer, until(deadline))
    }

    /// Receives until the buffer is full. The caller has set the timeout of the socket for the first wait;
    /// `next_deadline` ends each further one.
    fn receive_until_timeout(
        &self,
        mut buffer: &mut [u8],
        mut next_deadline: impl FnMut() -> Option<Instant>,
    ) -> Result<()> {
        while !buffer.is_empty() {
            match recv(self.socket.as_raw_fd(), buffer, MsgFlags::MSG_WAITALL) {
                Ok(0) | Err(Errno::ECONNRESET) => return Err(Error::ConnectionClosed),
                Ok(length) => buffer = buffer.get_mut(length..).unwrap_or_default(),
                Err(Errno::EINTR | Errno::EAGAIN) => {}
                Err(errno) => return Err(Error::SystemCall("recv", errno)),
            }
            // A timeout counts anew for each call, and a part of the time is over.
            if !buffer.is_empty() {
                let deadline = next_deadline().ok_or(Error::Timeout)?;
                set_timeout(&self.socket, ReceiveTimeout, deadline)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::fs::symlink;
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::time::Duration;

    use nix::sys::socket::{Backlog, bind, listen};

    use super::*;
    use crate::testing::Scratch;

    fn parse_answer(numbers: [i32; 3]) -> Result<Answer> {
        let mut bytes = [0; ANSWER_BYTES];
        bytes.copy_from_slice(numbers.map(i32::to_ne_bytes).as_flattened());
        Answer::parse(&bytes)
    }

    #[test]
    fn answer_is_version_uid_and_state() {
        let running = Answer {
            uid: 1001,
            state: State::Running,
            release: Release::V22_05,
        };
        assert_eq!(parse_answer([38 << 8, 1001, 2]), Ok(running));
        assert_eq!(parse_answer([0, -2, 2]).unwrap().uid, 4_294_967_294);
        assert_eq!(parse_answer([1, 2, 5]), Err(Error::MalformedAnswer));
        assert_eq!(parse_answer([1, 2, -1]), Err(Error::MalformedAnswer));
        assert_eq!(parse_answer([-1, 2, 2]), Err(Error::VersionRefused));
    }

    #[test]
    fn version_of_a_program_names_its_release() {
        for (version, release) in [
            ("22.05.8", Some(Release::V22_05)),
            ("23.11.0-0rc1", Some(Release::V23_11)),
            ("26.11.0", Some(Release::V26_11)),
            ("26.11", None),
            ("19.05.1", None),
            ("", None),
        ] {
            assert_eq!(Release::from_version(version), release, "{version:?}");
        }
    }

    #[test]
    fn every_state_of_slurm_is_known() {
        use State::{Ending, Running, Starting};
        for (number, state) in [
            (0, Starting),
            (1, Starting),
            (2, Running),
            (3, Ending),
            (4, Ending),
        ] {
            assert_eq!(
                parse_answer([0, 0, number]).unwrap().state,
                state,
                "{number}"
            );
        }
    }

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

    fn own_uid() -> u32 {
        nix::unistd::Uid::effective().as_raw()
    }

    /// Makes a socket whose owner accepts no connections, and as many connections as may wait there.
    fn fill_backlog(path: &Path) -> (UnixListener, Vec<Connection>) {
        let flags = SockFlag::SOCK_CLOEXEC;
        let listener = socket(AddressFamily::Unix, SockType::Stream, flags, None).unwrap();
        bind(listener.as_raw_fd(), &UnixAddr::new(path).unwrap()).unwrap();
        listen(&listener, Backlog::new(1).unwrap()).unwrap();
        let mut connections = Vec::new();
        while let Some(connection) = connect_to_daemon(path, own_uid(), None).unwrap() {
            connections.push(connection);
        }
        (listener.into(), connections)
    }

    #[test]
    fn connection_has_pid_of_listener_and_refuses_other_uid() {
        let scratch = Scratch::new();
        let path = scratch.path().join("socket");
        let connect_as = |uid| connect_to_daemon(&path, uid, None);
        assert_eq!(connect_as(own_uid()).unwrap_err(), Error::SocketGone);
        let listener = UnixListener::bind(&path).unwrap();
        let connection = connect_as(own_uid()).unwrap().unwrap();
        assert_eq!(connection.pid, nix::unistd::getpid().as_raw());
        assert_eq!(
            connect_as(own_uid() + 1).unwrap_err(),
            Error::WrongPeerUid(own_uid())
        );
        drop(listener);
        assert_eq!(
            connect_as(own_uid()).unwrap_err(),
            Error::SocketGone,
            "the listener is gone"
        );
    }

    #[test]
    fn full_backlog_does_not_block_connecting_without_deadline() {
        let scratch = Scratch::new();
        let (_listener, connections) = fill_backlog(&scratch.path().join("socket"));
        assert!(!connections.is_empty());
    }

    #[test]
    fn only_socket_of_expected_owner_is_trusted() {
        let scratch = Scratch::new();
        let spool = scratch.trust().dir(scratch.path()).unwrap();
        let name = SocketName::from_job(&"n".parse().unwrap(), &"1".parse().unwrap()).unwrap();
        let path = scratch.path().join(name.to_string());
        let created_at = |owner| socket_created_at(&spool, &name, owner);
        assert_eq!(created_at(own_uid()), Err(Error::SocketGone));
        let _listener = UnixListener::bind(&path).unwrap();
        assert!(created_at(own_uid()).unwrap() > 0);
        assert_eq!(created_at(own_uid() + 1), Err(Error::UntrustedSocket));
        std::fs::rename(&path, scratch.path().join("real")).unwrap();
        symlink("real", &path).unwrap();
        assert_eq!(created_at(own_uid()), Err(Error::UntrustedSocket), "a link");
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "").unwrap();
        assert_eq!(created_at(own_uid()), Err(Error::UntrustedSocket), "a file");
    }

    #[test]
    fn connecting_waits_for_backlog_until_deadline() {
        let scratch = Scratch::new();
        let path = scratch.path().join("socket");
        let (listener, connections) = fill_backlog(&path);
        let connect = &|millis| {
            let deadline = Instant::now() + Duration::from_millis(millis);
            connect_to_daemon(&path, own_uid(), Some(deadline)).map(drop)
        };
        assert_eq!(connect(5), Err(Error::Timeout));
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let thread = scope.spawn(move || {
                sender.send(nix::unistd::gettid()).unwrap();
                connect(60_000)
            });
            let stat = format!("/proc/self/task/{}/stat", receiver.recv().unwrap());
            // The thread has nothing to wait for but the connection.
            while !std::fs::read_to_string(&stat).unwrap().contains(") S ") {
                assert!(!thread.is_finished());
                std::thread::yield_now();
            }
            connections
                .iter()
                .for_each(|_| drop(listener.accept().unwrap()));
            assert_eq!(thread.join().unwrap(), Ok(()));
        });
    }

    #[test]
    fn job_and_step_follow_from_cgroup_of_daemon() {
        for job in [
            "/system.slice/slurmstepd.scope/job_4242",
            "/system.slice/gpu017_slurmstepd.scope/job_4242",
            "/site.slice/slurmstepd.scope/sEKNKTV3WPV500",
            "/a",
        ] {
            let daemon = format!("{job}/step_extern/slurm");
            assert_eq!(
                step_of_daemon(&daemon).unwrap().as_str(),
                format!("{job}/step_extern")
            );
            assert_eq!(job_of_daemon(&daemon).unwrap().as_str(), job);
        }
    }

    #[test]
    fn daemon_elsewhere_has_neither_job_nor_step() {
        for path in [
            "/",
            "/step_extern/slurm",
            "/system.slice/slurmstepd.scope/system",
            "/system.slice/slurmd.service",
            "/a/job_1/step_batch/slurm",
            "/a/job_1/step_extern",
            "/a/job_1/step_extern/slurm (deleted)",
            "/a/job_1/step_extern/user/task_special",
            "/../job_1/step_extern/slurm",
        ] {
            assert_eq!(
                (step_of_daemon(path), job_of_daemon(path)),
                (None, None),
                "{path}"
            );
        }
    }
}
