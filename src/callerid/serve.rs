//! The origin's end: one connection, one question, one answer.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::AcceptConn;

use super::{Answer, Flow, LINE_MAX, Networks, Query, plain};
use crate::failed::Failed;

/// A connection that a question comes in on.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    local: SocketAddr,
    peer: SocketAddr,
}

/// Why a descriptor is no connection to answer on.
#[derive(Debug)]
pub enum NoConnection {
    /// It is one that connections are taken from (listen(2)): whoever started this process left that
    /// to it.
    Listens,
    /// The peer has taken the connection back already, as anybody can have it.
    Gone,
    /// It is no socket of TCP.
    Other(Failed),
}

/// How long the two ends are waited for.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// For the whole question, from when it is waited for.
    pub question: Duration,
    /// The same where it will not be answered: as little as an honest host needs. Whoever is silent
    /// takes one of a number of places meanwhile.
    pub idle: Duration,
    /// For the answer, from when the question is there.
    pub answer: Duration,
}

impl Patience {
    /// An asker puts its question at once, and waits for no more than 2 s (`callerid_timeout`).
    pub const USUAL: Self = Self {
        question: Duration::from_secs(2),
        idle: Duration::from_millis(200),
        answer: Duration::from_secs(2),
    };
}

impl Connection {
    /// The connection behind a descriptor.
    ///
    /// # Errors
    /// [`NoConnection`] for what is no connected TCP socket.
    pub fn of(socket: OwnedFd) -> Result<Self, NoConnection> {
        let stream = TcpStream::from(socket);
        let failed = |operation| {
            move |error: io::Error| NoConnection::Other(Failed::new(operation, "socket", error))
        };
        // An option that sockets of TCP have, and nothing else has.
        stream.nodelay().map_err(failed("getsockopt TCP_NODELAY"))?;
        if getsockopt(&stream, AcceptConn).unwrap_or(false) {
            return Err(NoConnection::Listens);
        }
        let peer = stream.peer_addr().map_err(|error| match error.kind() {
            ErrorKind::NotConnected => NoConnection::Gone,
            _ => failed("getpeername")(error),
        })?;
        let local = stream.local_addr().map_err(failed("getsockname"))?;
        // Time limits are those of a socket that blocks.
        stream.set_nonblocking(false).map_err(failed("ioctl FIONBIO"))?;
        Ok(Self { stream, local: plain(local), peer: plain(peer) })
    }

    /// Answers one question: a host outside `networks` is told nothing, others what `look_up` says
    /// until its deadline. It is asked only about connections between this address of this host and
    /// the host that asks. Gives what was answered; `None` where no question came in time, or one
    /// that is longer than [`LINE_MAX`], or nobody is left to answer.
    pub fn serve(
        &self,
        networks: &Networks,
        patience: Patience,
        look_up: &dyn Fn(Flow, Instant) -> Answer,
    ) -> Option<Answer> {
        let known = networks.contain(self.peer.ip());
        let wait = if known { patience.question } else { patience.idle };
        let line = self.line(Instant::now() + wait)?;
        let deadline = Instant::now() + patience.answer;
        let (query, answer) = match Query::parse(&line) {
            Err(_) => (Query::NONE, Answer::InvalidPort),
            Ok(query) if !known => (query, Answer::Hidden),
            Ok(query) => (query, look_up(self.flow(query), deadline)),
        };
        self.write(&answer.line(query), deadline).ok()?;
        Some(answer)
    }

    fn flow(&self, query: Query) -> Flow {
        let (mut client, mut server) = (self.local, self.peer);
        client.set_port(query.local);
        server.set_port(query.foreign);
        Flow { client, server }
    }

    /// The first line, with its end.
    fn line(&self, deadline: Instant) -> Option<Vec<u8>> {
        let (mut line, mut buffer) = (Vec::new(), [0; LINE_MAX]);
        while line.len() < LINE_MAX {
            self.stream.set_read_timeout(Some(left(deadline)?)).ok()?;
            let room = buffer.get_mut(line.len()..)?;
            match (&self.stream).read(room) {
                Ok(0) => return None,
                Ok(length) => line.extend(room.get(..length)?),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return None,
            }
            if let Some(end) = line.iter().position(|&byte| byte == b'\n') {
                line.truncate(end + 1);
                return Some(line);
            }
        }
        None
    }

    fn write(&self, line: &str, deadline: Instant) -> io::Result<()> {
        let left = left(deadline).ok_or(ErrorKind::TimedOut)?;
        self.stream.set_write_timeout(Some(left))?;
        (&self.stream).write_all(line.as_bytes())
    }
}

impl fmt::Display for NoConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listens => f.write_str("it waits for connections"),
            Self::Gone => f.write_str("its peer is gone"),
            Self::Other(failed) => failed.source.fmt(f),
        }
    }
}

impl std::error::Error for NoConnection {}

fn left(deadline: Instant) -> Option<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    (!left.is_zero()).then_some(left)
}

#[cfg(test)]
mod tests;
