//! Queries the host of an ssh client for the job that the client runs in (RFC 1413).

use super::{Answer, Flow, IDENT_PORT, Query, errno_of, read_line, time_left};
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockProtocol, SockType, SockaddrStorage, bind, connect, socket,
};
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::time::Instant;
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
pub fn query_origin(flow: Flow, deadline: Instant) -> Result<Answer, QueryError> {
    query_port(flow, IDENT_PORT, deadline)
}

fn query_port(flow: Flow, port: u16, deadline: Instant) -> Result<Answer, QueryError> {
    let query = Query { local: flow.client.port(), foreign: flow.server.port() };
    let mut stream =
        connect_from(with_port(flow.server, 0), with_port(flow.client, port), deadline)?;
    let sent = stream.write_all(query.to_line().as_bytes());
    sent.map_err(|error| query_error("send", errno_of(&error)))?;
    let line = read_line(&stream, deadline).map_err(|errno| query_error("recv", errno))?;
    // A line without its end may lack digits of the id, and a second line answers no question.
    match line.strip_suffix(b"\n") {
        Some(text) if !text.contains(&b'\n') => {
            Answer::parse(&line, query).ok_or(QueryError::InvalidAnswer)
        }
        _ => Err(QueryError::TooManyLines),
    }
}

fn with_port(mut end: SocketAddr, port: u16) -> SocketAddr {
    end.set_port(port);
    end
}

/// Connects from the address `local` to `remote`.
fn connect_from(
    local: SocketAddr,
    remote: SocketAddr,
    deadline: Instant,
) -> Result<TcpStream, QueryError> {
    let system = |call| move |errno| QueryError::SystemCall(call, errno);
    let family = if local.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let socket = socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, SockProtocol::Tcp)
        .map_err(system("socket"))?;
    bind(socket.as_raw_fd(), &SockaddrStorage::from(local)).map_err(system("bind"))?;
    let stream = TcpStream::from(socket);
    // The limit holds for connect(2) too, which then fails with EINPROGRESS (socket(7)).
    let left = time_left(deadline).map_err(|errno| query_error("connect", errno))?;
    let limited = stream.set_write_timeout(Some(left));
    limited.map_err(|error| QueryError::SystemCall("setsockopt", errno_of(&error)))?;
    match connect(stream.as_raw_fd(), &SockaddrStorage::from(remote)) {
        Ok(()) => Ok(stream),
        Err(Errno::EINPROGRESS) => Err(QueryError::Timeout),
        Err(errno) => Err(query_error("connect", errno)),
    }
}

fn query_error(call: &'static str, errno: Errno) -> QueryError {
    match errno {
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

    use std::io::{BufRead, BufReader};
    use std::net::TcpListener;
    use std::time::Duration;

    use super::*;
    use crate::callerid::LINE_MAX;

    const TIMEOUT: Duration = Duration::from_millis(300);
    /// Time that a busy machine may take in addition.
    const LOAD_MARGIN: Duration = Duration::from_secs(1);

    /// Returns a connection from port 5000 to port 22.
    fn flow(client: &str, server: &str) -> Flow {
        let end = |ip: &str, port| SocketAddr::new(ip.parse().unwrap(), port);
        Flow { client: end(client, 5000), server: end(server, 22) }
    }

    /// Queries a service that handles its one caller with `manner`.
    fn query_service(
        [client, server]: [&'static str; 2],
        manner: impl FnOnce(TcpStream) + Send + 'static,
    ) -> Result<Answer, QueryError> {
        let listener = TcpListener::bind((client, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let service = std::thread::spawn(move || {
            let (caller, from) = listener.accept().unwrap();
            assert_eq!(from.ip().to_string(), server, "the address that the login came in on");
            let mut question = String::new();
            BufReader::new(&caller).read_line(&mut question).unwrap();
            assert_eq!(question, "5000 , 22\r\n");
            manner(caller);
        });
        let began = Instant::now();
        let answer = query_port(flow(client, server), port, began + TIMEOUT);
        assert!(began.elapsed() < TIMEOUT + LOAD_MARGIN, "{:?}", began.elapsed());
        service.join().unwrap();
        answer
    }

    fn query_reply(text: &'static [u8]) -> Result<Answer, QueryError> {
        query_service(["127.0.0.2", "127.0.0.3"], move |mut caller| caller.write_all(text).unwrap())
    }

    #[test]
    fn answer_is_accepted_in_each_address_family() {
        let job = || Ok(Answer::Job("4242".parse().unwrap()));
        for ends in [["127.0.0.2", "127.0.0.3"], ["::1", "::1"]] {
            let answer = query_service(ends, |mut caller| {
                caller.write_all(b"5000 , 22 : USERID : OTHER : 4242\r\n").unwrap();
            });
            assert_eq!(answer, job(), "{ends:?}");
        }
        assert_eq!(query_reply(b"5000,22:USERID:OTHER:4242\n"), job());
        assert_eq!(query_reply(b"5000 , 22 : ERROR : NO-USER\r\n"), Ok(Answer::NoUser));
        assert_eq!(query_reply(b"5000 , 22 : ERROR : HIDDEN-USER\r\n"), Ok(Answer::Hidden));
    }

    #[test]
    fn other_replies_are_an_error() {
        for (text, why) in [
            (&b"5001 , 22 : USERID : OTHER : 4242\r\n"[..], QueryError::InvalidAnswer),
            (b"22 , 5000 : USERID : OTHER : 4242\r\n", QueryError::InvalidAnswer),
            (b"5000 , 22 : USERID : UNIX : alice\r\n", QueryError::InvalidAnswer),
            (b"\0\xff\r\n", QueryError::InvalidAnswer),
            (b"\n", QueryError::InvalidAnswer),
            // A part of a line may name another job.
            (b"5000 , 22 : USERID : OTHER : 42", QueryError::ConnectionClosed),
            (b"", QueryError::ConnectionClosed),
            (b"5000 , 22 : USERID : OTHER : 4242\r\n5000", QueryError::TooManyLines),
            (&[b' '; LINE_MAX + 1], QueryError::TooManyLines),
        ] {
            assert_eq!(query_reply(text), Err(why), "{}", text.escape_ascii());
        }
    }

    #[test]
    fn no_service_holds_a_query_past_the_deadline() {
        let ends = ["127.0.0.2", "127.0.0.3"];
        // Each service ends with its caller.
        let silent = query_service(ends, |caller| {
            assert_eq!(BufReader::new(&caller).fill_buf().unwrap_or_default(), b"");
        });
        assert_eq!(silent, Err(QueryError::Timeout));
        let half_closed = query_service(ends, |caller| {
            caller.shutdown(std::net::Shutdown::Write).unwrap();
        });
        assert_eq!(half_closed, Err(QueryError::ConnectionClosed));
        let dripping = query_service(ends, |mut caller| {
            let drips = b"5000 , 22 : USERID : OTHER : 4242".iter().cycle();
            for drip in drips.take(200) {
                if caller.write_all(&[*drip]).is_err() {
                    return;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            panic!("the caller is still there");
        });
        assert_eq!(dripping, Err(QueryError::Timeout));
        let flooding = query_service(ends, |mut caller| {
            for _ in 0..100_000 {
                if caller.write_all(&[b'x'; 4096]).is_err() {
                    return;
                }
            }
            panic!("the caller is still there");
        });
        assert_eq!(flooding, Err(QueryError::TooManyLines));
    }

    #[test]
    fn full_backlog_holds_a_query_no_longer_than_the_deadline() {
        let listener = TcpListener::bind(("127.0.0.2", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        nix::sys::socket::listen(&listener, nix::sys::socket::Backlog::new(0).unwrap()).unwrap();
        let waiting: Vec<_> = (0..2)
            .map(|_| {
                let (own, other) = ("127.0.0.3:0".parse().unwrap(), ([127, 0, 0, 2], port).into());
                connect_from(own, other, Instant::now() + Duration::from_millis(100))
            })
            .collect();
        let began = Instant::now();
        let answer = query_port(flow("127.0.0.2", "127.0.0.3"), port, began + TIMEOUT);
        assert_eq!(answer, Err(QueryError::Timeout), "{waiting:?}");
        assert!(began.elapsed() < TIMEOUT + LOAD_MARGIN, "{:?}", began.elapsed());
        drop(listener);
        let answer = query_port(flow("127.0.0.2", "127.0.0.3"), port, Instant::now() + TIMEOUT);
        assert_eq!(answer, Err(QueryError::NoService(Errno::ECONNREFUSED)));
    }

    #[test]
    fn host_without_the_service_has_another_error_than_a_failing_one() {
        for errno in [Errno::ECONNREFUSED, Errno::EHOSTUNREACH, Errno::ENETUNREACH] {
            assert_eq!(query_error("connect", errno), QueryError::NoService(errno));
        }
        for errno in [Errno::ECONNRESET, Errno::EPIPE] {
            assert_eq!(query_error("recv", errno), QueryError::ConnectionClosed, "{errno}");
        }
        assert_eq!(query_error("connect", Errno::ETIMEDOUT), QueryError::Timeout);
        assert_eq!(
            query_error("send", Errno::ENOBUFS),
            QueryError::SystemCall("send", Errno::ENOBUFS)
        );
    }

    #[test]
    fn query_from_a_foreign_address_fails() {
        let answer = query_port(flow("127.0.0.2", "192.0.2.1"), 9, Instant::now() + TIMEOUT);
        assert_eq!(answer, Err(QueryError::SystemCall("bind", Errno::EADDRNOTAVAIL)));
        let answer = query_port(flow("127.0.0.2", "127.0.0.3"), 9, Instant::now());
        assert!(answer.is_err(), "no time at all");
    }
}
