//! Asking the host of an ssh client which job the client runs in (RFC 1413).

use std::fmt;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Instant;

use nix::errno::Errno;
use nix::poll::PollFlags;
use nix::sys::socket::sockopt::SocketError;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrStorage, bind, connect,
    getsockopt, recv, send, socket,
};

use super::wait::wait;
use super::{Answer, Flow, LINE_MAX, PORT, Query};

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AskError {
    /// Nobody listens there, or the host cannot be reached: it has no such service.
    Absent(Errno),
    /// There was no answer in time.
    Timeout,
    /// It hung up before the line was whole.
    Closed,
    /// It said more than one line.
    TooMuch,
    /// The line is not as the protocol has it, or not about this connection.
    Unreadable,
    /// A system call failed.
    System(&'static str, Errno),
}

/// Asks the client's host about this connection, from the address that it was made to, so that the
/// host can tell whose connections are asked about. Nothing is waited for past `deadline`.
///
/// # Errors
/// [`AskError`].
pub fn ask(flow: Flow, deadline: Instant) -> Result<Answer, AskError> {
    ask_at(flow, PORT, deadline)
}

fn ask_at(flow: Flow, port: u16, deadline: Instant) -> Result<Answer, AskError> {
    let query = Query { local: flow.client.port(), foreign: flow.server.port() };
    let socket = called(with_port(flow.server, 0), with_port(flow.client, port), deadline)?;
    put(&socket, query.line().as_bytes())?;
    let line = line(&socket, deadline)?;
    Answer::parse(&line, query).map_err(|_| AskError::Unreadable)
}

fn with_port(mut end: SocketAddr, port: u16) -> SocketAddr {
    end.set_port(port);
    end
}

/// A connection from `own` to `other`, which never blocks.
fn called(own: SocketAddr, other: SocketAddr, deadline: Instant) -> Result<OwnedFd, AskError> {
    let family = if own.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(family, SockType::Stream, flags, SockProtocol::Tcp)
        .map_err(|errno| AskError::System("socket", errno))?;
    bind(socket.as_raw_fd(), &SockaddrStorage::from(own))
        .map_err(|errno| AskError::System("bind", errno))?;
    match connect(socket.as_raw_fd(), &SockaddrStorage::from(other)) {
        Ok(()) => return Ok(socket),
        Err(Errno::EINPROGRESS | Errno::EINTR) => {}
        Err(errno) => return Err(failed("connect", errno)),
    }
    wait(&socket, PollFlags::POLLOUT, deadline).map_err(|errno| failed("connect", errno))?;
    match getsockopt(&socket, SocketError).map(Errno::from_raw) {
        Ok(errno) if errno as i32 == 0 => Ok(socket),
        Ok(errno) | Err(errno) => Err(failed("connect", errno)),
    }
}

/// Writes the question, for which a socket that nothing was written to has room.
fn put(socket: &OwnedFd, question: &[u8]) -> Result<(), AskError> {
    match send(socket.as_raw_fd(), question, MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT) {
        Ok(sent) if sent == question.len() => Ok(()),
        Ok(_) => Err(AskError::Closed),
        Err(errno) => Err(failed("send", errno)),
    }
}

/// One line with its end. One that lost its end may have lost digits of the id.
fn line(socket: &OwnedFd, deadline: Instant) -> Result<Vec<u8>, AskError> {
    let mut bytes = [0; LINE_MAX];
    let mut filled = 0;
    loop {
        wait(socket, PollFlags::POLLIN, deadline).map_err(|errno| failed("recv", errno))?;
        let room = bytes.get_mut(filled..).filter(|room| !room.is_empty());
        let room = room.ok_or(AskError::TooMuch)?;
        match recv(socket.as_raw_fd(), room, MsgFlags::MSG_DONTWAIT) {
            Ok(0) => return Err(AskError::Closed),
            Ok(length) => filled += length,
            Err(Errno::EAGAIN | Errno::EINTR) => continue,
            Err(errno) => return Err(failed("recv", errno)),
        }
        let line = bytes.get(..filled).unwrap_or_default();
        match line.iter().position(|&byte| byte == b'\n') {
            Some(end) if end + 1 == filled => return Ok(line.to_vec()),
            Some(_) => return Err(AskError::TooMuch),
            None => {}
        }
    }
}

fn failed(call: &'static str, errno: Errno) -> AskError {
    match errno {
        Errno::ETIMEDOUT => AskError::Timeout,
        Errno::ECONNREFUSED | Errno::EHOSTUNREACH | Errno::ENETUNREACH => AskError::Absent(errno),
        Errno::ECONNRESET | Errno::EPIPE => AskError::Closed,
        errno => AskError::System(call, errno),
    }
}

impl fmt::Display for AskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent(errno) => write!(f, "has no such service ({})", errno.desc()),
            Self::Timeout => f.write_str("did not answer in time"),
            Self::Closed => f.write_str("hung up before it had answered"),
            Self::TooMuch => f.write_str("said more than one line"),
            Self::Unreadable => f.write_str("gave an answer that is none to this question"),
            Self::System(call, errno) => {
                write!(f, "could not be asked: {call}: {}", errno.desc())
            }
        }
    }
}

impl std::error::Error for AskError {}

#[cfg(test)]
mod tests;
