//! Queries the host of an ssh client for the job that the client runs in (RFC 1413).

use super::{Answer, Flow, IDENT_PORT, Query, errno_of, read_line};
use crate::clock::Deadline;
use nix::errno::Errno;
use nix::poll::PollFlags;
use nix::sys::socket::sockopt::SocketError;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockProtocol, SockType, SockaddrStorage, bind, connect, getsockopt,
    socket,
};
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use thiserror::Error;

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum QueryError {
    /// No service listens on the port, or the host cannot be reached.
    #[error("has no such service ({reason})", reason = .0.desc())]
    NoService(Errno),
    /// No answer arrived in time.
    #[error("did not answer in time")]
    Timeout,
    /// The host closed the connection before the line was complete.
    #[error("hung up before it had answered")]
    ConnectionClosed,
    /// The host sent more than one line, or a line that is too long.
    #[error("said more than one line")]
    TooManyLines,
    /// The line breaks the protocol, or is not about this connection.
    #[error("gave an answer that is none to this question")]
    InvalidAnswer,
    /// A system call failed.
    #[error("could not be asked: {0}: {reason}", reason = .1.desc())]
    SystemCall(&'static str, Errno),
}

/// Asks the client's host for the job of this connection, and returns at `deadline` at the latest.
/// It calls from the server's address of the connection, by which the host knows whose connections
/// the query may be about.
///
/// # Errors
///
/// [`QueryError`] if the host has no service, does not answer in time or sends no valid answer.
pub fn query_origin(flow: Flow, deadline: Deadline) -> Result<Answer, QueryError> {
    query_port(flow, IDENT_PORT, deadline)
}

/// Queries the service at this port of the client's host.
fn query_port(flow: Flow, port: u16, deadline: Deadline) -> Result<Answer, QueryError> {
    let stream = connect_from(
        with_port(flow.server, 0),
        with_port(flow.client, port),
        deadline,
    )?;
    query_stream(flow, &stream, deadline)
}

/// Sends the question on a new connection, and receives the answer.
///
/// # Errors
///
/// [`QueryError::TooManyLines`] unless exactly one whole line comes; [`QueryError::InvalidAnswer`] for a line that is no
/// answer to this question; the errors of [`query_error`].
fn query_stream(
    flow: Flow,
    mut stream: &TcpStream,
    deadline: Deadline,
) -> Result<Answer, QueryError> {
    let query = Query {
        local: flow.client.port(),
        foreign: flow.server.port(),
    };
    // The buffer of a new socket has space for these few bytes.
    let sent = stream.write_all(query.to_line().as_bytes());
    sent.map_err(|error| query_error("send", errno_of(&error)))?;
    let line = read_line(stream, deadline).map_err(|errno| query_error("recv", errno))?;
    // A line without its end may lack digits of the id, and a second line answers no question.
    match line.strip_suffix(b"\n") {
        Some(text) if !text.contains(&b'\n') => {
            Answer::parse(&line, query).ok_or(QueryError::InvalidAnswer)
        }
        _ => Err(QueryError::TooManyLines),
    }
}

/// The address with another port.
fn with_port(mut end: SocketAddr, port: u16) -> SocketAddr {
    end.set_port(port);
    end
}

/// Connects from the address `local` to `remote`, until the deadline at most; returns a non-blocking socket.
fn connect_from(
    local: SocketAddr,
    remote: SocketAddr,
    deadline: Deadline,
) -> Result<TcpStream, QueryError> {
    let system = |call| move |errno| QueryError::SystemCall(call, errno);
    let failed = |errno| query_error("connect", errno);
    let family = if local.is_ipv4() {
        AddressFamily::Inet
    } else {
        AddressFamily::Inet6
    };
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket =
        socket(family, SockType::Stream, flags, SockProtocol::Tcp).map_err(system("socket"))?;
    bind(socket.as_raw_fd(), &SockaddrStorage::from(local)).map_err(system("bind"))?;
    match connect(socket.as_raw_fd(), &SockaddrStorage::from(remote)) {
        Ok(()) | Err(Errno::EINPROGRESS) => {}
        Err(errno) => return Err(failed(errno)),
    }
    deadline
        .wait_until_ready(&socket, PollFlags::POLLOUT)
        .map_err(failed)?;
    // The result of connect(2).
    match getsockopt(&socket, SocketError).map_err(system("getsockopt SO_ERROR"))? {
        0 => Ok(socket.into()),
        error => Err(failed(Errno::from_raw(error))),
    }
}

/// Converts the error of a system call on the connection, or of [`read_line`] and [`Deadline::wait_until_ready`], which
/// use `ETIMEDOUT` for the deadline, `EPIPE` for an early end and `EMSGSIZE` for too long a line. Most of them tell why
/// the host has given no answer.
fn query_error(call: &'static str, errno: Errno) -> QueryError {
    match errno {
        // EAGAIN: the socket takes no more bytes of the question.
        Errno::ETIMEDOUT | Errno::EAGAIN => QueryError::Timeout,
        Errno::ECONNREFUSED | Errno::EHOSTUNREACH | Errno::ENETUNREACH => {
            QueryError::NoService(errno)
        }
        Errno::ECONNRESET | Errno::EPIPE => QueryError::ConnectionClosed,
        Errno::EMSGSIZE => QueryError::TooManyLines,
        errno => QueryError::SystemCall(call, errno),
    }
}

#[cfg(test)]
mod tests {
    // Against a listener of this process in the place of the service.

    use std::io::{BufRead, BufReader, Read};
    use std::net::{Shutdown, TcpListener};
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    use nix::sys::socket::{Backlog, listen};

    use super::*;
    use crate::callerid::LINE_MAX;
    use crate::clock::manual::ManualClock;

    const TIMEOUT: Duration = Duration::from_millis(300);
    const QUESTION: &str = "5000 , 22\r\n";

    /// A connection from port 5000 to port 22.
    fn flow(client: &str, server: &str) -> Flow {
        let end = |ip: &str, port| SocketAddr::new(ip.parse().unwrap(), port);
        Flow {
            client: end(client, 5000),
            server: end(server, 22),
        }
    }

    /// A deadline that only a test that hangs meets.
    fn far_deadline() -> Deadline {
        Deadline::after(Duration::from_secs(60))
    }

    /// Queries a service that sends this text and hangs up.
    fn query_service(
        [client, server]: [&'static str; 2],
        text: &'static [u8],
    ) -> Result<Answer, QueryError> {
        let listener = TcpListener::bind((client, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let service = std::thread::spawn(move || {
            let (mut caller, from) = listener.accept().unwrap();
            assert_eq!(
                from.ip().to_string(),
                server,
                "the address that the login came in on"
            );
            let mut question = String::new();
            BufReader::new(&caller).read_line(&mut question).unwrap();
            assert_eq!(question, QUESTION);
            caller.write_all(text).unwrap();
        });
        let answer = query_port(flow(client, server), port, far_deadline());
        service.join().unwrap();
        answer
    }

    fn query_reply(text: &'static [u8]) -> Result<Answer, QueryError> {
        query_service(["127.0.0.2", "127.0.0.3"], text)
    }

    /// Queries a service that `service` plays on the other end of a connection; returns the answer and how
    /// long it took.
    fn query_on_manual_clock(
        service: impl FnOnce(&'static ManualClock, UnixStream),
    ) -> (Result<Answer, QueryError>, Duration) {
        let clock = ManualClock::new();
        let (own, peer) = UnixStream::pair().unwrap();
        service(clock, peer);
        let stream = TcpStream::from(OwnedFd::from(own));
        let deadline = clock.clock().deadline_after(TIMEOUT);
        let answer = query_stream(flow("127.0.0.2", "127.0.0.3"), &stream, deadline);
        (answer, clock.elapsed())
    }

    #[test]
    fn answer_is_accepted_in_each_address_family() {
        let job = || Ok(Answer::Job("4242".parse().unwrap()));
        for ends in [["127.0.0.2", "127.0.0.3"], ["::1", "::1"]] {
            let answer = query_service(ends, b"5000 , 22 : USERID : OTHER : 4242\r\n");
            assert_eq!(answer, job(), "{ends:?}");
        }
        assert_eq!(query_reply(b"5000,22:USERID:OTHER:4242\n"), job());
        assert_eq!(
            query_reply(b"5000 , 22 : ERROR : NO-USER\r\n"),
            Ok(Answer::NoUser)
        );
        assert_eq!(
            query_reply(b"5000 , 22 : ERROR : HIDDEN-USER\r\n"),
            Ok(Answer::Hidden)
        );
    }

    #[test]
    fn other_replies_are_an_error() {
        for (text, why) in [
            (
                &b"5001 , 22 : USERID : OTHER : 4242\r\n"[..],
                QueryError::InvalidAnswer,
            ),
            (
                b"22 , 5000 : USERID : OTHER : 4242\r\n",
                QueryError::InvalidAnswer,
            ),
            (
                b"5000 , 22 : USERID : UNIX : alice\r\n",
                QueryError::InvalidAnswer,
            ),
            (b"\0\xff\r\n", QueryError::InvalidAnswer),
            (b"\n", QueryError::InvalidAnswer),
            // A part of a line may name another job.
            (
                b"5000 , 22 : USERID : OTHER : 42",
                QueryError::ConnectionClosed,
            ),
            (b"", QueryError::ConnectionClosed),
            (
                b"5000 , 22 : USERID : OTHER : 4242\r\n5000",
                QueryError::TooManyLines,
            ),
            (&[b' '; LINE_MAX + 1], QueryError::TooManyLines),
        ] {
            assert_eq!(query_reply(text), Err(why), "{}", text.escape_ascii());
        }
    }

    #[test]
    fn no_service_holds_a_query_past_the_deadline() {
        let silent = query_on_manual_clock(|clock, peer| {
            clock.run_at(2 * TIMEOUT, move || drop(peer));
        });
        assert_eq!(silent, (Err(QueryError::Timeout), TIMEOUT));
        let half_closed = query_on_manual_clock(|clock, mut peer| {
            clock.run_at(Duration::from_millis(100), move || {
                peer.shutdown(Shutdown::Write).unwrap();
                let mut question = [0; QUESTION.len()];
                peer.read_exact(&mut question).unwrap();
                assert_eq!(question, QUESTION.as_bytes());
            });
        });
        assert_eq!(
            half_closed,
            (
                Err(QueryError::ConnectionClosed),
                Duration::from_millis(100)
            )
        );
        // The deadline is for the whole answer, so single bytes do not extend it.
        let dripping = query_on_manual_clock(|clock, mut peer| {
            let mut drips = b"5000 , 22 : USERID : OTHER : 4242".iter().cycle();
            clock.every(Duration::from_millis(20), move || {
                peer.write_all(&[*drips.next().unwrap()]).unwrap();
            });
        });
        assert_eq!(dripping, (Err(QueryError::Timeout), TIMEOUT));
        let flooding = query_on_manual_clock(|clock, mut peer| {
            peer.write_all(&[b'x'; 4096]).unwrap();
            clock.run_at(2 * TIMEOUT, move || drop(peer));
        });
        assert_eq!(flooding, (Err(QueryError::TooManyLines), Duration::ZERO));
    }

    #[test]
    fn full_backlog_holds_a_query_no_longer_than_the_deadline() {
        let listener = TcpListener::bind(("127.0.0.2", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        listen(&listener, Backlog::new(0).unwrap()).unwrap();
        let _waiting = TcpStream::connect(("127.0.0.2", port)).unwrap();
        let clock = ManualClock::new();
        let query = |deadline| query_port(flow("127.0.0.2", "127.0.0.3"), port, deadline);
        let answer = query(clock.clock().deadline_after(TIMEOUT));
        assert_eq!(
            (answer, clock.elapsed()),
            (Err(QueryError::Timeout), TIMEOUT)
        );
        drop(listener);
        assert_eq!(
            query(far_deadline()),
            Err(QueryError::NoService(Errno::ECONNREFUSED))
        );
    }

    #[test]
    fn host_without_the_service_has_another_error_than_a_failing_one() {
        for errno in [Errno::ECONNREFUSED, Errno::EHOSTUNREACH, Errno::ENETUNREACH] {
            assert_eq!(query_error("connect", errno), QueryError::NoService(errno));
        }
        for errno in [Errno::ECONNRESET, Errno::EPIPE] {
            assert_eq!(
                query_error("recv", errno),
                QueryError::ConnectionClosed,
                "{errno}"
            );
        }
        assert_eq!(
            query_error("connect", Errno::ETIMEDOUT),
            QueryError::Timeout
        );
        assert_eq!(
            query_error("send", Errno::ENOBUFS),
            QueryError::SystemCall("send", Errno::ENOBUFS)
        );
    }

    #[test]
    fn query_from_a_foreign_address_fails() {
        let answer = query_port(flow("127.0.0.2", "192.0.2.1"), 9, far_deadline());
        assert_eq!(
            answer,
            Err(QueryError::SystemCall("bind", Errno::EADDRNOTAVAIL))
        );
        let none = Deadline::after(Duration::ZERO);
        let other_answer = query_port(flow("127.0.0.2", "127.0.0.3"), 9, none);
        assert!(other_answer.is_err(), "no time at all");
    }
}
