//! The daemon of a Slurm job's extern step (slurmstepd): where its socket is, who listens there, and
//! the questions it answers. Both halves ask; only the privileged one has it add a process.
//!
//! Nothing but integers of 4 bytes in the machine's own order cross the socket. The numbers are those
//! of `src/common/stepd_api.h` in Slurm's source, the same from Slurm 20.11 to 26.05. Nothing waits
//! past its `deadline`.

use std::fmt;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::time::Instant;

use nix::errno::Errno;
use nix::fcntl::AtFlags;
use nix::sys::socket::sockopt::{PeerCredentials, ReceiveTimeout, SendTimeout};
use nix::sys::socket::{AddressFamily, MsgFlags, SetSockOpt, SockFlag, SockType, UnixAddr};
use nix::sys::socket::{connect, getsockopt, recv, send, setsockopt, socket};
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
    /// The node, as Slurm calls it.
    pub node: NodeName,
    /// The job, in decimal digits.
    pub job: JobId,
}

impl SocketName {
    /// The name for this job; `None` for an id that is no number of Slurm's.
    pub fn new(node: &NodeName, job: &JobId) -> Option<Self> {
        parse_decimal(job.as_str())?;
        Some(Self { node: node.clone(), job: job.clone() })
    }
}

impl fmt::Display for SocketName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}_{}.{EXTERN_STEP}", self.node, self.job)
    }
}

/// The extern step's cgroup, by the cgroup v2 of its daemon, which is `JOB/step_extern/slurm`; `None`
/// for a daemon that is elsewhere. The job's own cgroup may have any name and stand anywhere, but
/// for the root.
pub fn step_of(daemon: &str) -> Option<CgroupPath> {
    job_of(daemon)?;
    daemon.strip_suffix("/slurm")?.parse().ok()
}

/// The job's cgroup, likewise.
pub fn job_of(daemon: &str) -> Option<CgroupPath> {
    daemon.strip_suffix("/step_extern/slurm")?.parse().ok()
}

/// The result of asking a step daemon.
pub type Result<T> = std::result::Result<T, Error>;

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[allow(missing_docs, reason = "each says it")]
pub enum Error {
    /// There is no socket of that name, or nobody listens at it any more: the job is over.
    #[error("nobody listens there: the job is over")]
    Gone,
    /// The name stands for something else than a socket, or one that is not root's.
    #[error("is no socket of root's")]
    NotRoots,
    #[error("who listens there is uid {0}, not root")]
    Peer(u32),
    #[error("{0}: {reason}", reason = .1.desc())]
    System(&'static str, Errno),
    #[error("did not answer in time")]
    Timeout,
    #[error("hung up")]
    Closed,
    #[error("does not talk to this version of its protocol")]
    Refused,
    #[error("gave an answer that has no meaning")]
    Malformed,
    #[error("cannot hand over the job's namespaces")]
    NoNamespace,
    /// It would not take the process; the number is its return code.
    #[error("would not take the login into the job ({0})")]
    NotAdded(i32),
}

/// Whose daemons are believed.
const ROOT: u32 = 0;

/// Our version of the protocol: that of Slurm 26.05. A daemon refuses versions older than the oldest
/// that it knows, and only logs a newer one.
const VERSION: i32 = 45 << 8;
/// `REQUEST_STATE`
const STATE: i32 = 5;
/// `REQUEST_STEP_UID`
const UID: i32 = 20;
/// `REQUEST_ADD_EXTERN_PID`
const ADD_EXTERN_PID: i32 = 22;
/// `REQUEST_X11_DISPLAY`
const X11_DISPLAY: i32 = 23;
/// `REQUEST_GET_NS_FD`, and `REQUEST_GET_NS_FDS` since Slurm 25.11: that answers the other one only where
/// there is a namespace.
const NAMESPACE: i32 = 26;
const NAMESPACES: i32 = 28;
const SINCE: i32 = 44 << 8;
/// Most bytes of the name of a file of keys.
const KEYS_MOST: usize = 1024;

/// Bytes of [`query`].
pub const QUERY_LEN: usize = 12;
/// Bytes of the answer to it.
pub const ANSWER_LEN: usize = 12;

/// What a step is doing (`slurmstepd_state_t` of `stepd_api.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It does not take processes yet.
    Starting,
    /// It takes processes.
    Running,
    /// It takes processes no more.
    Ending,
}

/// What a step daemon says of its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Uid of the job's owner.
    pub uid: u32,
    /// What its step is doing.
    pub state: State,
}

impl Answer {
    /// Reads the answer to [`query`]: version, uid and state. A version below 0 is a refusal.
    pub fn read(bytes: &[u8; ANSWER_LEN]) -> Result<Self> {
        let [a, b, c, d, uid @ .., e, f, g, h] = *bytes;
        if i32::from_ne_bytes([a, b, c, d]) < 0 {
            return Err(Error::Refused);
        }
        let state = match i32::from_ne_bytes([e, f, g, h]) {
            0 | 1 => State::Starting,
            2 => State::Running,
            3 | 4 => State::Ending,
            _ => return Err(Error::Malformed),
        };
        Ok(Self { uid: u32::from_ne_bytes(uid), state })
    }
}

/// Greeting and the two questions about owner and state; a daemon reads them one by one.
pub fn query() -> [u8; QUERY_LEN] {
    let mut bytes = [0; QUERY_LEN];
    bytes.copy_from_slice([VERSION, UID, STATE].map(i32::to_ne_bytes).as_flattened());
    bytes
}

/// A step daemon that has answered, and that is root's.
#[derive(Debug)]
pub struct Daemon {
    connection: Connection,
    /// Of the protocol that it talks.
    version: i32,
    answer: Answer,
}

impl Daemon {
    /// Calls the daemon behind a socket in `spool`, by the directory's descriptor, and asks who owns
    /// its job and what it does.
    pub fn call(spool: &TrustedDir, name: &SocketName, deadline: Instant) -> Result<Self> {
        made(spool, name, ROOT)?;
        let path = format!("/proc/self/fd/{}/{name}", spool.as_fd().as_raw_fd());
        let connection = call(Path::new(&path), ROOT, Some(deadline))?.ok_or(Error::Timeout)?;
        let mut bytes = [0; ANSWER_LEN];
        connection.send(&query(), deadline)?;
        connection.receive(&mut bytes, deadline)?;
        let [a, b, c, d, ..] = bytes;
        let version = i32::from_ne_bytes([a, b, c, d]);
        Ok(Self { connection, version, answer: Answer::read(&bytes)? })
    }

    /// Its process, as the kernel knows it from when it began to listen. While it answers, the
    /// number is still its own.
    pub fn pid(&self) -> i32 {
        self.connection.pid
    }

    /// What it said last.
    pub fn answer(&self) -> Answer {
        self.answer
    }

    /// Asks again who owns the job and what it does.
    pub fn ask_again(&mut self, deadline: Instant) -> Result<Answer> {
        self.then_ask(&[], &mut [], deadline)
    }

    /// Has it take a process into its step, and asks again afterwards. It answers that it did even
    /// where its own move failed, so where the process is afterwards must be looked at; past
    /// `deadline` it may still do so.
    pub fn add(&mut self, pid: i32, deadline: Instant) -> Result<Answer> {
        let mut code = [0; 4];
        let answer = self.then_ask(&[ADD_EXTERN_PID, pid], &mut code, deadline);
        match i32::from_ne_bytes(code) {
            0 => answer,
            code => Err(Error::NotAdded(code)),
        }
    }

    /// Asks for the job's namespaces: each by its `CLONE_NEW` number and a descriptor.
    pub fn namespaces(&self, deadline: Instant) -> Result<Vec<(i32, OwnedFd)>> {
        let several = self.version >= SINCE;
        let order = if several { NAMESPACES } else { NAMESPACE };
        // Before, this was the daemon's own number of the descriptor.
        let count = match self.connection.ask(order, deadline)? {
            1.. if !several => 1,
            count @ 0..=8 => count,
            _ => return Err(Error::NoNamespace),
        };
        let one = |_| {
            let kind = if several { self.connection.number(deadline)? } else { libc::CLONE_NEWNS };
            Ok((kind, self.connection.descriptor(deadline)?))
        };
        (0..count).map(one).collect()
    }

    /// Asks for the job's X11 display and the file with the keys to it: 0 and nothing without one.
    pub fn display(&self, deadline: Instant) -> Result<(i32, String)> {
        let number = self.connection.ask(X11_DISPLAY, deadline)?;
        let length = usize::try_from(self.connection.number(deadline)?);
        let length = length.ok().filter(|length| *length <= KEYS_MOST).ok_or(Error::Malformed)?;
        let mut keys = vec![0; length];
        self.connection.receive(&mut keys, deadline)?;
        match (keys.pop(), String::from_utf8(keys)) {
            (None | Some(0), Ok(keys)) => Ok((number, keys)),
            _ => Err(Error::Malformed),
        }
    }

    /// Sends an order and the questions behind it, so that the daemon wakes up once for all. On one
    /// connection there is one greeting, and one version in answer to it.
    fn then_ask(&mut self, order: &[i32], answer: &mut [u8], deadline: Instant) -> Result<Answer> {
        let mut question = order.to_vec();
        question.extend([UID, STATE]);
        let question: Vec<u8> = question.into_iter().flat_map(i32::to_ne_bytes).collect();
        self.connection.send(&question, deadline)?;
        self.connection.receive(answer, deadline)?;
        let mut bytes = [0; ANSWER_LEN];
        let [_, _, _, _, room @ ..] = &mut bytes;
        self.connection.receive(room, deadline)?;
        self.answer = Answer::read(&bytes)?;
        Ok(self.answer)
    }
}

/// When a socket was made, in seconds since the epoch; [`Error::NotRoots`] for what has a socket's
/// name and is none, or is not `owner`'s.
pub fn made(spool: &TrustedDir, name: &SocketName, owner: u32) -> Result<i64> {
    let stat = fstatat(spool, name.to_string().as_str(), AtFlags::AT_SYMLINK_NOFOLLOW)
        .map_err(|errno| missing("stat", errno))?;
    let is_socket = stat.st_mode & SFlag::S_IFMT.bits() == SFlag::S_IFSOCK.bits();
    if is_socket && stat.st_uid == owner { Ok(stat.st_ctime) } else { Err(Error::NotRoots) }
}

/// A connection to a daemon.
#[derive(Debug)]
pub struct Connection {
    /// The socket.
    pub socket: OwnedFd,
    /// Who listens there, as the kernel knows it from when it began to.
    pub pid: i32,
}

/// Calls the daemon behind a socket, which must be `owner`'s; `None` while it has too many callers.
/// Nothing blocks, unless there is a deadline: then this waits for it, as the kernel does where a
/// socket has a timeout (socket(7)).
pub fn call(path: &Path, owner: u32, deadline: Option<Instant>) -> Result<Option<Connection>> {
    let blocks = if deadline.is_some() { SockFlag::empty() } else { SockFlag::SOCK_NONBLOCK };
    let socket =
        socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC | blocks, None)
            .map_err(|errno| Error::System("socket", errno))?;
    let address = UnixAddr::new(path).map_err(|errno| Error::System("connect", errno))?;
    loop {
        if let Some(deadline) = deadline {
            limit(&socket, SendTimeout, deadline)?;
        }
        match connect(socket.as_raw_fd(), &address) {
            Ok(()) => break,
            // A signal came in between, or the deadline has passed.
            Err(Errno::EAGAIN | Errno::EINTR) if deadline.is_some() => {}
            Err(Errno::EAGAIN | Errno::EINTR) => return Ok(None),
            Err(errno) => return Err(missing("connect", errno)),
        }
    }
    let peer = getsockopt(&socket, PeerCredentials)
        .map_err(|errno| Error::System("getsockopt SO_PEERCRED", errno))?;
    if peer.uid() != owner {
        return Err(Error::Peer(peer.uid()));
    }
    Ok(Some(Connection { socket, pid: peer.pid() }))
}

fn missing(call: &'static str, errno: Errno) -> Error {
    match errno {
        Errno::ENOENT | Errno::ECONNREFUSED => Error::Gone,
        errno => Error::System(call, errno),
    }
}

/// Lets what waits on the socket wait until `deadline`.
fn limit<O: SetSockOpt<Val = TimeVal>>(socket: &OwnedFd, what: O, deadline: Instant) -> Result<()> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(Error::Timeout);
    }
    // Rounded up: none would be for ever.
    let left = TimeVal::microseconds(left.as_micros().try_into().unwrap_or(i64::MAX - 1) + 1);
    setsockopt(socket, what, &left).map_err(|errno| Error::System("setsockopt", errno))
}

impl Connection {
    fn send(&self, mut rest: &[u8], deadline: Instant) -> Result<()> {
        while !rest.is_empty() {
            limit(&self.socket, SendTimeout, deadline)?;
            match send(self.socket.as_raw_fd(), rest, MsgFlags::MSG_NOSIGNAL) {
                Ok(sent) => rest = rest.get(sent..).unwrap_or_default(),
                Err(Errno::EINTR | Errno::EAGAIN) => {}
                Err(Errno::EPIPE | Errno::ECONNRESET) => return Err(Error::Closed),
                Err(errno) => return Err(Error::System("send", errno)),
            }
        }
        Ok(())
    }

    /// Sends an order and reads the number in answer.
    fn ask(&self, order: i32, deadline: Instant) -> Result<i32> {
        self.send(&order.to_ne_bytes(), deadline)?;
        self.number(deadline)
    }

    fn number(&self, deadline: Instant) -> Result<i32> {
        let mut bytes = [0; 4];
        self.receive(&mut bytes, deadline)?;
        Ok(i32::from_ne_bytes(bytes))
    }

    fn descriptor(&self, deadline: Instant) -> Result<OwnedFd> {
        limit(&self.socket, ReceiveTimeout, deadline)?;
        match sys::process::receive(self.socket.as_fd()) {
            Ok(found) => found.ok_or(Error::Malformed),
            Err(Errno::EINTR | Errno::EAGAIN) => self.descriptor(deadline),
            Err(errno) => Err(Error::System("recvmsg", errno)),
        }
    }

    /// Reads in full what belongs there.
    fn receive(&self, mut room: &mut [u8], deadline: Instant) -> Result<()> {
        while !room.is_empty() {
            limit(&self.socket, ReceiveTimeout, deadline)?;
            match recv(self.socket.as_raw_fd(), room, MsgFlags::MSG_WAITALL) {
                Ok(0) | Err(Errno::ECONNRESET) => return Err(Error::Closed),
                Ok(length) => room = room.get_mut(length..).unwrap_or_default(),
                Err(Errno::EINTR | Errno::EAGAIN) => {}
                Err(errno) => return Err(Error::System("recv", errno)),
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

    fn answer(numbers: [i32; 3]) -> Result<Answer> {
        let mut bytes = [0; ANSWER_LEN];
        bytes.copy_from_slice(numbers.map(i32::to_ne_bytes).as_flattened());
        Answer::read(&bytes)
    }

    #[test]
    fn answers() {
        let running = Answer { uid: 1001, state: State::Running };
        assert_eq!(answer([38 << 8, 1001, 2]), Ok(running));
        assert_eq!(answer([0, -2, 2]).unwrap().uid, 4_294_967_294);
        assert_eq!(answer([1, 2, 5]), Err(Error::Malformed));
        assert_eq!(answer([1, 2, -1]), Err(Error::Malformed));
        assert_eq!(answer([-1, 2, 2]), Err(Error::Refused));
    }

    #[test]
    fn every_state_has_its_meaning() {
        use State::{Ending, Running, Starting};
        for (number, state) in
            [(0, Starting), (1, Starting), (2, Running), (3, Ending), (4, Ending)]
        {
            assert_eq!(answer([0, 0, number]).unwrap().state, state, "{number}");
        }
    }

    /// What is sent, integer by integer, and what is made of answers, on one connection.
    #[test]
    fn what_is_asked_later_has_no_greeting() {
        let (socket, mut peer) = UnixStream::pair().unwrap();
        let connection = Connection { socket: socket.into(), pid: 7 };
        let before = Answer { uid: 9, state: State::Running };
        let mut daemon = Daemon { connection, version: 38 << 8, answer: before };
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut say = |numbers: &[i32]| {
            numbers.iter().for_each(|number| peer.write_all(&number.to_ne_bytes()).unwrap());
        };
        say(&[1001, 3]);
        let now = Answer { uid: 1001, state: State::Ending };
        let running = Answer { uid: 1001, state: State::Running };
        assert_eq!(daemon.ask_again(deadline), Ok(now));
        assert_eq!(daemon.answer(), now);
        say(&[0, 1001, 2, -1, 1001, 2, 1001, 5]);
        assert_eq!(daemon.add(4711, deadline), Ok(running));
        assert_eq!(daemon.add(4711, deadline), Err(Error::NotAdded(-1)));
        assert_eq!(daemon.ask_again(deadline), Err(Error::Malformed));
        assert_eq!(daemon.answer(), running);
        let soon = Instant::now() + Duration::from_millis(20);
        assert_eq!(daemon.add(1, soon), Err(Error::Timeout));
        let mut asked = Vec::new();
        drop(daemon);
        peer.read_to_end(&mut asked).unwrap();
        let added = [22, 4711, UID, STATE];
        let numbers =
            [&[UID, STATE][..], &added, &added, &[UID, STATE, 22, 1, UID, STATE]].concat();
        let numbers: Vec<u8> = numbers.into_iter().flat_map(i32::to_ne_bytes).collect();
        assert_eq!(asked, numbers);
        assert_eq!(query(), [45 << 8, 20, 5].map(i32::to_ne_bytes).as_flattened());
    }

    fn own_uid() -> u32 {
        nix::unistd::Uid::effective().as_raw()
    }

    /// A socket whose owner takes no calls, and as many callers as it lets wait.
    fn crowded(path: &Path) -> (UnixListener, Vec<Connection>) {
        let flags = SockFlag::SOCK_CLOEXEC;
        let listener = socket(AddressFamily::Unix, SockType::Stream, flags, None).unwrap();
        bind(listener.as_raw_fd(), &UnixAddr::new(path).unwrap()).unwrap();
        listen(&listener, Backlog::new(1).unwrap()).unwrap();
        let mut callers = Vec::new();
        while let Some(connection) = call(path, own_uid(), None).unwrap() {
            callers.push(connection);
        }
        (listener.into(), callers)
    }

    #[test]
    fn who_listens_is_told_and_nobody_else_is_spoken_to() {
        let scratch = Scratch::new();
        let path = scratch.path().join("socket");
        assert_eq!(call(&path, own_uid(), None).unwrap_err(), Error::Gone);
        let listener = UnixListener::bind(&path).unwrap();
        let connection = call(&path, own_uid(), None).unwrap().unwrap();
        assert_eq!(connection.pid, nix::unistd::getpid().as_raw());
        assert_eq!(call(&path, own_uid() + 1, None).unwrap_err(), Error::Peer(own_uid()));
        drop(listener);
        assert_eq!(call(&path, own_uid(), None).unwrap_err(), Error::Gone, "nobody listens");
    }

    #[test]
    fn one_that_has_too_many_callers_does_not_hold_up_another() {
        let scratch = Scratch::new();
        let (_listener, callers) = crowded(&scratch.path().join("socket"));
        assert!(!callers.is_empty());
    }

    #[test]
    fn only_a_socket_of_its_owner_is_one() {
        let scratch = Scratch::new();
        let spool = scratch.trust().dir(scratch.path()).unwrap();
        let name = SocketName::new(&"n".parse().unwrap(), &"1".parse().unwrap()).unwrap();
        let path = scratch.path().join(name.to_string());
        assert_eq!(made(&spool, &name, own_uid()), Err(Error::Gone));
        let _listener = UnixListener::bind(&path).unwrap();
        assert!(made(&spool, &name, own_uid()).unwrap() > 0);
        assert_eq!(made(&spool, &name, own_uid() + 1), Err(Error::NotRoots));
        std::fs::rename(&path, scratch.path().join("real")).unwrap();
        symlink("real", &path).unwrap();
        assert_eq!(made(&spool, &name, own_uid()), Err(Error::NotRoots), "a link");
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "").unwrap();
        assert_eq!(made(&spool, &name, own_uid()), Err(Error::NotRoots), "a file");
    }

    #[test]
    fn a_daemon_with_too_many_callers_is_called_until_it_has_room_or_time_is_up() {
        let scratch = Scratch::new();
        let path = scratch.path().join("socket");
        let (listener, callers) = crowded(&path);
        let connect = |millis| {
            let deadline = Instant::now() + Duration::from_millis(millis);
            call(&path, own_uid(), Some(deadline)).map(drop)
        };
        assert_eq!(connect(50), Err(Error::Timeout));
        std::thread::scope(|scope| {
            let caller = scope.spawn(|| connect(5000));
            std::thread::sleep(Duration::from_millis(50));
            assert!(!caller.is_finished());
            callers.iter().for_each(|_| drop(listener.accept().unwrap()));
            assert_eq!(caller.join().unwrap(), Ok(()));
        });
    }

    #[test]
    fn job_and_step_are_told_by_where_the_daemon_is() {
        for job in [
            "/system.slice/slurmstepd.scope/job_4242",
            "/system.slice/gpu017_slurmstepd.scope/job_4242",
            "/site.slice/slurmstepd.scope/sEKNKTV3WPV500",
            "/a",
        ] {
            let daemon = format!("{job}/step_extern/slurm");
            assert_eq!(step_of(&daemon).unwrap().as_str(), format!("{job}/step_extern"));
            assert_eq!(job_of(&daemon).unwrap().as_str(), job);
        }
    }

    #[test]
    fn elsewhere_is_no_step() {
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
            assert_eq!((step_of(path), job_of(path)), (None, None), "{path}");
        }
    }
}
