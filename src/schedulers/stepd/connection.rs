//! A connection to a step daemon. No call waits past its deadline.

use super::{Error, Result};
use kernel::sys;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::sockopt::{PeerCredentials, ReceiveTimeout, SendTimeout};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SetSockOpt, Shutdown, SockFlag, SockType, UnixAddr,
};
use nix::sys::socket::{connect, getsockopt, recv, send, setsockopt, shutdown, socket};
use nix::sys::time::{TimeVal, TimeValLike};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::time::Instant;

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
pub(super) fn socket_error(call: &'static str, errno: Errno) -> Error {
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
pub(super) fn until(deadline: Instant) -> impl FnMut() -> Option<Instant> {
    move || (Instant::now() < deadline).then_some(deadline)
}

impl Connection {
    /// Sends requests and receives the answers. The daemon carries out what it has received, whatever becomes
    /// of this call, so all that can fail comes before the requests. `next_deadline` is called before each wait; its
    /// `None` is [`Error::Timeout`].
    pub(super) fn exchange(
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
    pub(super) fn await_end(&self, mut next_deadline: impl FnMut() -> Option<Instant>) {
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
    pub(super) fn query_number(&self, request: i32, deadline: Instant) -> Result<i32> {
        let mut bytes = [0; 4];
        self.exchange(&request.to_ne_bytes(), &mut bytes, until(deadline))?;
        Ok(i32::from_ne_bytes(bytes))
    }

    /// Receives a number, which is four bytes.
    pub(super) fn receive_number(&self, deadline: Instant) -> Result<i32> {
        let mut bytes = [0; 4];
        self.receive(&mut bytes, deadline)?;
        Ok(i32::from_ne_bytes(bytes))
    }

    /// Receives a message with one descriptor; one without is [`Error::MalformedAnswer`].
    pub(super) fn receive_descriptor(&self, deadline: Instant) -> Result<OwnedFd> {
        set_timeout(&self.socket, ReceiveTimeout, deadline)?;
        match sys::socket::receive_fd(self.socket.as_fd()) {
            Ok(descriptor) => descriptor.ok_or(Error::MalformedAnswer),
            // At the deadline `set_timeout` ends the tries.
            Err(Errno::EINTR | Errno::EAGAIN) => self.receive_descriptor(deadline),
            Err(errno) => Err(Error::SystemCall("recvmsg", errno)),
        }
    }

    /// Fills the buffer with received bytes.
    pub(super) fn receive(&self, buffer: &mut [u8], deadline: Instant) -> Result<()> {
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
    use super::*;
    use crate::testing::Scratch;
    use nix::sys::socket::{Backlog, bind, listen};
    use std::os::unix::net::UnixListener;
    use std::time::Duration;

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
}
