//! Asking the host of an ssh client which job the client runs in (RFC 1413).

use super::{Answer, Flow, PORT, Query, errno, left, line};
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
pub enum AskError {
    /// Nobody listens there, or the host cannot be reached: it has no such service.
    #[error("has no such service ({reason})", reason = .0.desc())]
    Absent(Errno),
    /// There was no answer in time.
    #[error("did not answer in time")]
    Timeout,
    /// It hung up before the line was whole.
    #[error("hung up before it had answered")]
    Closed,
    /// It said more than one line.
    #[error("said more than one line")]
    TooMuch,
    /// The line is not as the protocol has it, or not about this connection.
    #[error("gave an answer that is none to this question")]
    Unreadable,
    /// A system call failed.
    #[error("could not be asked: {0}: {reason}", reason = .1.desc())]
    System(&'static str, Errno),
}

/// Asks the client's host about this connection, from the address that it was made to, so that the
/// host can tell whose connections are asked about. Nothing is waited for past `deadline`.
pub fn ask(flow: Flow, deadline: Instant) -> Result<Answer, AskError> {
    ask_at(flow, PORT, deadline)
}

fn ask_at(flow: Flow, port: u16, deadline: Instant) -> Result<Answer, AskError> {
    let query = Query { local: flow.client.port(), foreign: flow.server.port() };
    let mut stream = called(with_port(flow.server, 0), with_port(flow.client, port), deadline)?;
    let sent = stream.write_all(query.line().as_bytes());
    sent.map_err(|error| failed("send", errno(&error)))?;
    let line = line(&stream, deadline).map_err(|errno| failed("recv", errno))?;
    // One that lost its end may have lost digits of the id; what follows it is about nothing.
    match line.strip_suffix(b"\n") {
        Some(own) if !own.contains(&b'\n') => {
            Answer::parse(&line, query).ok_or(AskError::Unreadable)
        }
        _ => Err(AskError::TooMuch),
    }
}

fn with_port(mut end: SocketAddr, port: u16) -> SocketAddr {
    end.set_port(port);
    end
}

/// A connection from `own` to `other`.
fn called(own: SocketAddr, other: SocketAddr, deadline: Instant) -> Result<TcpStream, AskError> {
    let system = |call| move |errno| AskError::System(call, errno);
    let family = if own.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let socket = socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, SockProtocol::Tcp)
        .map_err(system("socket"))?;
    bind(socket.as_raw_fd(), &SockaddrStorage::from(own)).map_err(system("bind"))?;
    let stream = TcpStream::from(socket);
    // Holds for connect(2) too, which then says that it goes on (socket(7)).
    let left = left(deadline).map_err(|errno| failed("connect", errno))?;
    let limited = stream.set_write_timeout(Some(left));
    limited.map_err(|error| AskError::System("setsockopt", errno(&error)))?;
    match connect(stream.as_raw_fd(), &SockaddrStorage::from(other)) {
        Ok(()) => Ok(stream),
        Err(Errno::EINPROGRESS) => Err(AskError::Timeout),
        Err(errno) => Err(failed("connect", errno)),
    }
}

fn failed(call: &'static str, errno: Errno) -> AskError {
    match errno {
        Errno::ETIMEDOUT | Errno::EAGAIN => AskError::Timeout,
        Errno::ECONNREFUSED | Errno::EHOSTUNREACH | Errno::ENETUNREACH => AskError::Absent(errno),
        Errno::ECONNRESET | Errno::EPIPE => AskError::Closed,
        Errno::EMSGSIZE => AskError::TooMuch,
        errno => AskError::System(call, errno),
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

    const TIME: Duration = Duration::from_millis(300);
    /// What a busy machine may take beside that.
    const MARGIN: Duration = Duration::from_secs(1);

    /// A connection of ports 5000 and 22.
    fn flow(client: &str, server: &str) -> Flow {
        let end = |ip: &str, port| SocketAddr::new(ip.parse().unwrap(), port);
        Flow { client: end(client, 5000), server: end(server, 22) }
    }

    /// Asks a service that meets its one caller like this.
    fn served(
        [client, server]: [&'static str; 2],
        manner: impl FnOnce(TcpStream) + Send + 'static,
    ) -> Result<Answer, AskError> {
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
        let answer = ask_at(flow(client, server), port, began + TIME);
        assert!(began.elapsed() < TIME + MARGIN, "{:?}", began.elapsed());
        service.join().unwrap();
        answer
    }

    fn says(text: &'static [u8]) -> Result<Answer, AskError> {
        served(["127.0.0.2", "127.0.0.3"], move |mut caller| caller.write_all(text).unwrap())
    }

    #[test]
    fn an_answer_is_taken_in_each_family() {
        let job = || Ok(Answer::Job("4242".parse().unwrap()));
        for ends in [["127.0.0.2", "127.0.0.3"], ["::1", "::1"]] {
            let answer = served(ends, |mut caller| {
                caller.write_all(b"5000 , 22 : USERID : OTHER : 4242\r\n").unwrap();
            });
            assert_eq!(answer, job(), "{ends:?}");
        }
        assert_eq!(says(b"5000,22:USERID:OTHER:4242\n"), job());
        assert_eq!(says(b"5000 , 22 : ERROR : NO-USER\r\n"), Ok(Answer::NoUser));
        assert_eq!(says(b"5000 , 22 : ERROR : HIDDEN-USER\r\n"), Ok(Answer::Hidden));
    }

    #[test]
    fn anything_else_is_none() {
        for (text, why) in [
            (&b"5001 , 22 : USERID : OTHER : 4242\r\n"[..], AskError::Unreadable),
            (b"22 , 5000 : USERID : OTHER : 4242\r\n", AskError::Unreadable),
            (b"5000 , 22 : USERID : UNIX : alice\r\n", AskError::Unreadable),
            (b"\0\xff\r\n", AskError::Unreadable),
            (b"\n", AskError::Unreadable),
            // Half of a line may name another job.
            (b"5000 , 22 : USERID : OTHER : 42", AskError::Closed),
            (b"", AskError::Closed),
            (b"5000 , 22 : USERID : OTHER : 4242\r\n5000", AskError::TooMuch),
            (&[b' '; LINE_MAX + 1], AskError::TooMuch),
        ] {
            assert_eq!(says(text), Err(why), "{}", text.escape_ascii());
        }
    }

    #[test]
    fn nothing_keeps_it_past_the_deadline() {
        let ends = ["127.0.0.2", "127.0.0.3"];
        // Each gives up when its caller does.
        let silent = served(ends, |caller| {
            assert_eq!(BufReader::new(&caller).fill_buf().unwrap_or_default(), b"");
        });
        assert_eq!(silent, Err(AskError::Timeout));
        let half_closed = served(ends, |caller| {
            caller.shutdown(std::net::Shutdown::Write).unwrap();
        });
        assert_eq!(half_closed, Err(AskError::Closed));
        let dripping = served(ends, |mut caller| {
            let drips = b"5000 , 22 : USERID : OTHER : 4242".iter().cycle();
            for drip in drips.take(200) {
                if caller.write_all(&[*drip]).is_err() {
                    return;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            panic!("the caller is still there");
        });
        assert_eq!(dripping, Err(AskError::Timeout));
        let flooding = served(ends, |mut caller| {
            for _ in 0..100_000 {
                if caller.write_all(&[b'x'; 4096]).is_err() {
                    return;
                }
            }
            panic!("the caller is still there");
        });
        assert_eq!(flooding, Err(AskError::TooMuch));
    }

    #[test]
    fn who_does_not_take_the_call_keeps_it_no_longer() {
        let listener = TcpListener::bind(("127.0.0.2", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        nix::sys::socket::listen(&listener, nix::sys::socket::Backlog::new(0).unwrap()).unwrap();
        let waiting: Vec<_> = (0..2)
            .map(|_| {
                let (own, other) = ("127.0.0.3:0".parse().unwrap(), ([127, 0, 0, 2], port).into());
                called(own, other, Instant::now() + Duration::from_millis(100))
            })
            .collect();
        let began = Instant::now();
        let answer = ask_at(flow("127.0.0.2", "127.0.0.3"), port, began + TIME);
        assert_eq!(answer, Err(AskError::Timeout), "{waiting:?}");
        assert!(began.elapsed() < TIME + MARGIN, "{:?}", began.elapsed());
        drop(listener);
        let answer = ask_at(flow("127.0.0.2", "127.0.0.3"), port, Instant::now() + TIME);
        assert_eq!(answer, Err(AskError::Absent(Errno::ECONNREFUSED)));
    }

    #[test]
    fn a_host_without_the_service_is_told_from_one_that_fails() {
        for errno in [Errno::ECONNREFUSED, Errno::EHOSTUNREACH, Errno::ENETUNREACH] {
            assert_eq!(failed("connect", errno), AskError::Absent(errno));
        }
        for errno in [Errno::ECONNRESET, Errno::EPIPE] {
            assert_eq!(failed("recv", errno), AskError::Closed, "{errno}");
        }
        assert_eq!(failed("connect", Errno::ETIMEDOUT), AskError::Timeout);
        assert_eq!(failed("send", Errno::ENOBUFS), AskError::System("send", Errno::ENOBUFS));
    }

    #[test]
    fn an_address_of_others_is_not_asked_from() {
        let answer = ask_at(flow("127.0.0.2", "192.0.2.1"), 9, Instant::now() + TIME);
        assert_eq!(answer, Err(AskError::System("bind", Errno::EADDRNOTAVAIL)));
        let answer = ask_at(flow("127.0.0.2", "127.0.0.3"), 9, Instant::now());
        assert!(answer.is_err(), "no time at all");
    }
}
