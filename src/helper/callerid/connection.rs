//! The origin's end of a query: one connection, one question, one answer.

use std::io::{self, ErrorKind, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::time::Duration;

use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::AcceptConn;

use super::{Answer, Flow, Network, Query, read_line, unmap_address};
use crate::clock::{Clock, Deadline};
use kernel::OperationError;
use thiserror::Error;

/// A connection on which a question arrives.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    local: SocketAddr,
    peer: SocketAddr,
    clock: Clock,
}

/// Why a descriptor is no connection with a question.
#[derive(Debug, Error)]
pub enum ConnectionError {
    /// The socket listens (listen(2)): the program that started this process did not accept the
    /// connection itself.
    #[error("it waits for connections")]
    ListeningSocket,
    /// The peer has closed the connection already, as a port scanner does.
    #[error("its peer is gone")]
    PeerGone,
    /// The descriptor is no TCP socket, or a system call on it failed.
    #[error("{reason}", reason = .0.source)]
    NotTcp(OperationError),
}

/// How long to wait for the peer.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// Maximum wait for the whole question.
    pub question: Duration,
    /// Maximum wait for a question that will be refused. It is short, since a silent host occupies
    /// one of few places of the service meanwhile; an honest host needs no more.
    pub refused_question: Duration,
    /// Maximum time for the answer, from the arrival of the question.
    pub answer: Duration,
}

impl Timeouts {
    /// Limits that fit a querying host, which sends its question at once and waits for at most 2 s
    /// (`callerid_timeout`).
    pub const DEFAULT: Self = Self {
        question: Duration::from_secs(2),
        refused_question: Duration::from_millis(200),
        answer: Duration::from_secs(2),
    };
}

impl Connection {
    /// Takes the connection of a descriptor.
    ///
    /// # Errors
    ///
    /// [`ConnectionError`] if it is no connected TCP socket.
    pub fn from_socket(socket: OwnedFd) -> Result<Self, ConnectionError> {
        let stream = TcpStream::from(socket);
        let failed = |operation| {
            move |error: io::Error| {
                ConnectionError::NotTcp(OperationError::new(operation, "socket", error))
            }
        };
        // Only TCP sockets have this option.
        stream.nodelay().map_err(failed("getsockopt TCP_NODELAY"))?;
        // If this fails, getpeername(2) below decides: a listening socket has no peer.
        if getsockopt(&stream, AcceptConn).unwrap_or(false) {
            return Err(ConnectionError::ListeningSocket);
        }
        let peer = stream.peer_addr().map_err(|error| match error.kind() {
            ErrorKind::NotConnected => ConnectionError::PeerGone,
            _ => failed("getpeername")(error),
        })?;
        let local = stream.local_addr().map_err(failed("getsockname"))?;
        // Socket timeouts have no effect on a non-blocking socket.
        stream
            .set_nonblocking(false)
            .map_err(failed("ioctl FIONBIO"))?;
        Ok(Self {
            stream,
            local: unmap_address(local),
            peer: unmap_address(peer),
            clock: Clock::System,
        })
    }

    /// Answers one question: a host outside `networks` gets [`Answer::Hidden`], others the result of
    /// `look_up`, which receives a deadline. A question has only two ports: it is about a connection of an ssh client
    /// at this address of this host to sshd at the peer's address.
    ///
    /// Returns the answer; `None` if no question came in time, it was too long, or the answer could
    /// not be sent.
    pub fn answer_query(
        &self,
        networks: &[Network],
        timeouts: Timeouts,
        look_up: &dyn Fn(Flow, Deadline) -> Answer,
    ) -> Option<Answer> {
        let is_allowed = networks
            .iter()
            .any(|network| network.contains(self.peer.ip()));
        let wait = if is_allowed {
            timeouts.question
        } else {
            timeouts.refused_question
        };
        let line = read_line(&self.stream, self.clock.deadline_after(wait)).ok()?;
        // Bytes that came with the line are no part of the question.
        let line = line.split_inclusive(|byte| *byte == b'\n').next()?;
        let deadline = self.clock.deadline_after(timeouts.answer);
        let (query, answer) = match Query::parse(line) {
            None => (Query::NONE, Answer::InvalidPort),
            Some(query) if !is_allowed => (query, Answer::Hidden),
            Some(query) => {
                let mut client = self.local;
                let mut server = self.peer;
                client.set_port(query.local);
                server.set_port(query.foreign);
                (query, look_up(Flow { client, server }, deadline))
            }
        };
        self.write_answer(&answer.to_line(query), deadline).ok()?;
        Some(answer)
    }

    /// Ends the connection for both ends, also if this process has other descriptors of it.
    pub fn close(self) {
        // Ignore the error: the peer has ended it first.
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    /// Sends the line of the answer, until the deadline at most.
    fn write_answer(&self, line: &str, deadline: Deadline) -> io::Result<()> {
        // If no time is left, this fails: the standard library refuses a timeout of 0.
        self.stream.set_write_timeout(Some(deadline.remaining()))?;
        (&self.stream).write_all(line.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::io::Read;
    use std::net::{TcpListener, UdpSocket};
    use std::os::unix::net::UnixStream;

    use nix::fcntl::{FcntlArg, OFlag, fcntl};

    use super::*;
    use crate::callerid::LINE_MAX;
    use crate::clock::manual::ManualClock;

    const SHORT: Timeouts = Timeouts {
        question: Duration::from_millis(300),
        refused_question: Duration::from_millis(300),
        answer: Duration::from_millis(300),
    };

    /// Both ends of a connection whose clock is a test's.
    fn pair_on_manual_clock() -> (UnixStream, Connection, &'static ManualClock) {
        let clock = ManualClock::new();
        let (client, server) = UnixStream::pair().unwrap();
        let [local, peer] = ["127.0.0.1:113", "127.0.0.1:4000"].map(|end| end.parse().unwrap());
        let stream = TcpStream::from(OwnedFd::from(server));
        (
            client,
            Connection {
                stream,
                local,
                peer,
                clock: clock.clock(),
            },
            clock,
        )
    }

    /// Both ends of a connection to a listener at that address.
    fn connect_pair(listen: &str, call: &str) -> (TcpStream, Connection) {
        let listener = TcpListener::bind((listen, 0)).unwrap();
        let client = TcpStream::connect((call, listener.local_addr().unwrap().port())).unwrap();
        client
            .set_read_timeout(Some(Duration::from_secs(5)))
            .unwrap();
        let (server, _) = listener.accept().unwrap();
        (client, Connection::from_socket(server.into()).unwrap())
    }

    fn networks(text: &str) -> Vec<Network> {
        text.split(',')
            .map(|network| network.parse().unwrap())
            .collect()
    }

    fn job() -> Answer {
        Answer::Job("4242".parse().unwrap())
    }

    /// Sends a question; returns what the client reads, and the connections that were looked up.
    fn send_query(call: &str, own: &str, question: &[u8]) -> (String, Vec<Flow>) {
        let listen = if call.contains(':') { "::1" } else { "0.0.0.0" };
        let (mut client, connection) = connect_pair(listen, call);
        client.write_all(question).unwrap();
        let flows = RefCell::new(Vec::new());
        connection.answer_query(&networks(own), SHORT, &|flow, _| {
            flows.borrow_mut().push(flow);
            job()
        });
        drop(connection);
        let mut answer = String::new();
        // Unread input resets the connection after the answer.
        let _ = client.read_to_string(&mut answer);
        (answer, flows.into_inner())
    }

    #[test]
    fn question_is_about_the_two_hosts_of_the_connection() {
        let (answer, flows) = send_query("127.0.0.2", "127.0.0.1", b"41000 , 22\r\n");
        assert_eq!(answer, "41000 , 22 : USERID : OTHER : 4242\r\n");
        let flow = |client: &str, server: &str| {
            [Flow {
                client: client.parse().unwrap(),
                server: server.parse().unwrap(),
            }]
        };
        assert_eq!(flows, flow("127.0.0.2:41000", "127.0.0.1:22"));
        let (other_answer, other_flows) = send_query("::1", "10.0.0.0/8,::1", b"1,2\n");
        assert_eq!(other_answer, "1 , 2 : USERID : OTHER : 4242\r\n");
        assert_eq!(other_flows, flow("[::1]:1", "[::1]:2"));
    }

    #[test]
    fn mapped_peer_is_an_ipv4_host() {
        let (mut client, connection) = connect_pair("::", "127.0.0.1");
        client.write_all(b"1,2\r\n").unwrap();
        let answered = connection.answer_query(&networks("127.0.0.1"), SHORT, &|flow, _| {
            assert!(flow.client.is_ipv4() && flow.server.is_ipv4(), "{flow:?}");
            job()
        });
        assert_eq!(answered, Some(job()));
    }

    #[test]
    fn host_outside_the_networks_gets_hidden_without_a_look_up() {
        for own in ["10.0.0.0/8", "127.0.0.2", "::/0"] {
            let (answer, flows) = send_query("127.0.0.1", own, b"41000 , 22\r\n");
            assert_eq!(
                (&*answer, flows),
                ("41000 , 22 : ERROR : HIDDEN-USER\r\n", vec![]),
                "{own}"
            );
        }
        let (_client, connection) = connect_pair("127.0.0.1", "127.0.0.1");
        (&_client).write_all(b"1,2\r\n").unwrap();
        let answered = connection.answer_query(&[], SHORT, &|_, _| panic!("looked up"));
        assert_eq!(answered, Some(Answer::Hidden));
    }

    /// The service has few places, and any process of the origin can call it.
    #[test]
    fn host_outside_the_networks_is_waited_for_briefly() {
        let (_client, connection, clock) = pair_on_manual_clock();
        let never = |_, _| panic!("looked up");
        let timeouts = Timeouts::DEFAULT;
        assert_eq!(
            connection.answer_query(&networks("10.0.0.0/8"), timeouts, &never),
            None
        );
        assert_eq!(clock.elapsed(), timeouts.refused_question);
        assert!(
            timeouts.refused_question * 10 <= timeouts.question
                && timeouts.question <= Duration::from_secs(2)
        );
    }

    #[test]
    fn invalid_question_gets_invalid_port() {
        for question in [
            "\r\n",
            "GET / HTTP/1.0\r\n",
            "0,22\r\n",
            "1,65536\r\n",
            "a\0b\n",
            "1,2,3\n",
        ] {
            let (answer, flows) = send_query("127.0.0.1", "0.0.0.0/0", question.as_bytes());
            assert_eq!(
                (&*answer, flows),
                ("0 , 0 : ERROR : INVALID-PORT\r\n", vec![]),
                "{question:?}"
            );
        }
    }

    #[test]
    fn two_questions_get_at_most_one_answer() {
        let (answer, flows) = send_query("127.0.0.1", "0.0.0.0/0", b"1,2\r\n3,4\r\n");
        assert!(answer.matches("USERID").count() <= 1, "{answer}");
        assert_eq!(flows.len(), 1);
    }

    #[test]
    fn line_longer_than_the_maximum_gets_no_answer() {
        let blanks = |count| format!("1,{}2\r\n", " ".repeat(count)).into_bytes();
        let (_, flows) = send_query("127.0.0.1", "0.0.0.0/0", &blanks(LINE_MAX - 5));
        assert_eq!(flows.len(), 1, "the longest");
        let (answer, other_flows) = send_query("127.0.0.1", "0.0.0.0/0", &blanks(LINE_MAX - 4));
        assert_eq!((&*answer, other_flows), ("", vec![]));
    }

    /// Serves a client that gets no answer; returns how long that took.
    fn time_with_client(client: impl FnOnce(&'static ManualClock, UnixStream)) -> Duration {
        let (stream, connection, clock) = pair_on_manual_clock();
        client(clock, stream);
        let never = |_, _| panic!("looked up");
        assert_eq!(
            connection.answer_query(&networks("0.0.0.0/0"), SHORT, &never),
            None
        );
        clock.elapsed()
    }

    #[test]
    fn no_client_holds_the_service_past_its_timeouts() {
        let silent =
            |clock: &ManualClock, client| clock.run_at(2 * SHORT.question, move || drop(client));
        assert_eq!(time_with_client(silent), SHORT.question);
        // The deadline is for the whole question, so single bytes do not extend it.
        let slow = |clock: &ManualClock, mut client: UnixStream| {
            clock.every(Duration::from_millis(20), move || {
                client.write_all(b"1").unwrap()
            });
        };
        assert_eq!(time_with_client(slow), SHORT.question);
        assert_eq!(time_with_client(|_, client| drop(client)), Duration::ZERO);
        let half = |_: &ManualClock, mut client: UnixStream| client.write_all(b"1,2").unwrap();
        assert_eq!(
            time_with_client(half),
            Duration::ZERO,
            "half a question is none"
        );
    }

    #[test]
    fn answer_after_the_deadline_is_not_sent() {
        let (mut client, connection, clock) = pair_on_manual_clock();
        client.write_all(b"1,2\r\n").unwrap();
        let answered = connection.answer_query(&networks("127.0.0.1"), SHORT, &|_, deadline| {
            assert_eq!(deadline.remaining(), SHORT.answer);
            clock.advance(SHORT.answer);
            job()
        });
        assert_eq!(answered, None);
        drop(connection);
        assert_eq!(client.read(&mut [0; 9]).unwrap(), 0);
    }

    #[test]
    fn only_connected_tcp_sockets_are_accepted() {
        let refused = |socket: OwnedFd, call: &str| match Connection::from_socket(socket) {
            Err(ConnectionError::NotTcp(failed)) => assert_eq!(failed.operation, call, "{failed}"),
            other => panic!("{other:?}"),
        };
        refused(
            std::fs::File::open("/dev/null").unwrap().into(),
            "getsockopt TCP_NODELAY",
        );
        refused(
            UnixStream::pair().unwrap().0.into(),
            "getsockopt TCP_NODELAY",
        );
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        udp.connect(udp.local_addr().unwrap()).unwrap();
        refused(udp.into(), "getsockopt TCP_NODELAY");
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(matches!(
            Connection::from_socket(listener.into()),
            Err(ConnectionError::ListeningSocket)
        ));
    }

    /// A port scanner does this.
    #[test]
    fn connection_that_the_peer_closed_is_reported_as_gone() {
        let (client, connection) = connect_pair("127.0.0.1", "127.0.0.1");
        (&connection.stream).write_all(b"unread").unwrap();
        client.peek(&mut [0]).unwrap();
        drop(client);
        let gone = Connection::from_socket(connection.stream.into());
        assert!(matches!(gone, Err(ConnectionError::PeerGone)), "{gone:?}");
    }

    /// Some inetd passes non-blocking sockets.
    #[test]
    fn non_blocking_socket_is_waited_for() {
        let (client, connection, clock) = pair_on_manual_clock();
        connection.stream.set_nonblocking(true).unwrap();
        let late = Duration::from_millis(50);
        let mut sender = client.try_clone().unwrap();
        clock.run_at(late, move || sender.write_all(b"1,2\r\n").unwrap());
        let answered = connection.answer_query(&networks("0.0.0.0/0"), SHORT, &|_, _| job());
        assert_eq!((answered, clock.elapsed()), (Some(job()), late));
    }

    #[test]
    fn non_blocking_socket_becomes_blocking() {
        let (_client, connection) = connect_pair("127.0.0.1", "127.0.0.1");
        connection.stream.set_nonblocking(true).unwrap();
        let connection = Connection::from_socket(connection.stream.into()).unwrap();
        let flags = fcntl(&connection.stream, FcntlArg::F_GETFL).unwrap();
        assert!(!OFlag::from_bits_retain(flags).contains(OFlag::O_NONBLOCK));
    }
}
