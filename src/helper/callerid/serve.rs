//! The origin's end: one connection, one question, one answer.

use std::io::{self, ErrorKind, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::AcceptConn;

use super::{Answer, Flow, Network, Query, left, line, plain};
use kernel::Failed;
use thiserror::Error;

/// A connection that a question comes in on.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    local: SocketAddr,
    peer: SocketAddr,
}

/// Why a descriptor is no connection to answer on.
#[derive(Debug, Error)]
pub enum NoConnection {
    /// It is one that connections are taken from (listen(2)): whoever started this process left that
    /// to it.
    #[error("it waits for connections")]
    Listens,
    /// The peer has taken the connection back already, as anybody can have it.
    #[error("its peer is gone")]
    Gone,
    /// It is no socket of TCP.
    #[error("{reason}", reason = .0.source)]
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
    /// Errors: [`NoConnection`] for what is no connected TCP socket.
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
    /// that is too long, or nobody is left to answer.
    pub fn serve(
        &self,
        networks: &[Network],
        patience: Patience,
        look_up: &dyn Fn(Flow, Instant) -> Answer,
    ) -> Option<Answer> {
        let known = networks.iter().any(|network| network.contains(self.peer.ip()));
        let wait = if known { patience.question } else { patience.idle };
        let line = line(&self.stream, Instant::now() + wait).ok()?;
        let line = line.split_inclusive(|byte| *byte == b'\n').next()?;
        let deadline = Instant::now() + patience.answer;
        let (query, answer) = match Query::parse(line) {
            None => (Query::NONE, Answer::InvalidPort),
            Some(query) if !known => (query, Answer::Hidden),
            Some(query) => {
                let (mut client, mut server) = (self.local, self.peer);
                client.set_port(query.local);
                server.set_port(query.foreign);
                (query, look_up(Flow { client, server }, deadline))
            }
        };
        self.write(&answer.line(query), deadline).ok()?;
        Some(answer)
    }

    fn write(&self, line: &str, deadline: Instant) -> io::Result<()> {
        self.stream.set_write_timeout(Some(left(deadline)?))?;
        (&self.stream).write_all(line.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::io::Read;
    use std::net::{Shutdown, TcpListener, UdpSocket};
    use std::os::unix::net::UnixStream;
    use std::thread;

    use super::*;
    use crate::callerid::LINE_MAX;

    const SHORT: Patience = Patience {
        question: Duration::from_millis(300),
        idle: Duration::from_millis(300),
        answer: Duration::from_millis(300),
    };

    /// Both ends of a connection to a listener at that address.
    fn connected(listen: &str, call: &str) -> (TcpStream, Connection) {
        let listener = TcpListener::bind((listen, 0)).unwrap();
        let client = TcpStream::connect((call, listener.local_addr().unwrap().port())).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let (server, _) = listener.accept().unwrap();
        (client, Connection::of(server.into()).unwrap())
    }

    fn networks(text: &str) -> Vec<Network> {
        text.split(',').map(|network| network.parse().unwrap()).collect()
    }

    fn job() -> Answer {
        Answer::Job("4242".parse().unwrap())
    }

    /// What the client reads, and which connections were looked up.
    fn asked(call: &str, own: &str, question: &[u8]) -> (String, Vec<Flow>) {
        let listen = if call.contains(':') { "::1" } else { "0.0.0.0" };
        let (mut client, connection) = connected(listen, call);
        client.write_all(question).unwrap();
        let flows = RefCell::new(Vec::new());
        connection.serve(&networks(own), SHORT, &|flow, _| {
            flows.borrow_mut().push(flow);
            job()
        });
        drop(connection);
        let mut answer = String::new();
        // What was not read resets the connection, behind the answer.
        let _ = client.read_to_string(&mut answer);
        (answer, flows.into_inner())
    }

    #[test]
    fn a_question_is_about_the_two_hosts_that_talk() {
        let (answer, flows) = asked("127.0.0.2", "127.0.0.1", b"41000 , 22\r\n");
        assert_eq!(answer, "41000 , 22 : USERID : OTHER : 4242\r\n");
        let flow = |client: &str, server: &str| {
            [Flow { client: client.parse().unwrap(), server: server.parse().unwrap() }]
        };
        assert_eq!(flows, flow("127.0.0.2:41000", "127.0.0.1:22"));
        let (answer, flows) = asked("::1", "10.0.0.0/8,::1", b"1,2\n");
        assert_eq!(answer, "1 , 2 : USERID : OTHER : 4242\r\n");
        assert_eq!(flows, flow("[::1]:1", "[::1]:2"));
    }

    #[test]
    fn a_mapped_host_is_one_of_ipv4() {
        let (mut client, connection) = connected("::", "127.0.0.1");
        client.write_all(b"1,2\r\n").unwrap();
        let answered = connection.serve(&networks("127.0.0.1"), SHORT, &|flow, _| {
            assert!(flow.client.is_ipv4() && flow.server.is_ipv4(), "{flow:?}");
            job()
        });
        assert_eq!(answered, Some(job()));
    }

    #[test]
    fn others_are_told_nothing_and_nothing_is_looked_up() {
        for own in ["10.0.0.0/8", "127.0.0.2", "::/0"] {
            let (answer, flows) = asked("127.0.0.1", own, b"41000 , 22\r\n");
            assert_eq!(
                (&*answer, flows),
                ("41000 , 22 : ERROR : HIDDEN-USER\r\n", vec![]),
                "{own}"
            );
        }
        let (_client, connection) = connected("127.0.0.1", "127.0.0.1");
        (&_client).write_all(b"1,2\r\n").unwrap();
        let answered = connection.serve(&[], SHORT, &|_, _| panic!("looked up"));
        assert_eq!(answered, Some(Answer::Hidden));
    }

    /// Places at the service are few, and any process of the origin's own can call it.
    #[test]
    fn others_are_waited_for_less() {
        let (_client, connection) = connected("127.0.0.1", "127.0.0.1");
        let patience = Patience { question: Duration::from_secs(60), ..SHORT };
        let began = Instant::now();
        let never = |_, _| panic!("looked up");
        assert_eq!(connection.serve(&networks("10.0.0.0/8"), patience, &never), None);
        assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
        let usual = Patience::USUAL;
        assert!(usual.idle * 10 <= usual.question && usual.question <= Duration::from_secs(2));
    }

    #[test]
    fn what_is_no_question_is_answered_as_such() {
        for question in
            ["\r\n", "GET / HTTP/1.0\r\n", "0,22\r\n", "1,65536\r\n", "a\0b\n", "1,2,3\n"]
        {
            let (answer, flows) = asked("127.0.0.1", "0.0.0.0/0", question.as_bytes());
            assert_eq!(
                (&*answer, flows),
                ("0 , 0 : ERROR : INVALID-PORT\r\n", vec![]),
                "{question:?}"
            );
        }
    }

    #[test]
    fn there_is_one_answer() {
        let (answer, flows) = asked("127.0.0.1", "0.0.0.0/0", b"1,2\r\n3,4\r\n");
        assert!(answer.matches("USERID").count() <= 1, "{answer}");
        assert_eq!(flows.len(), 1);
    }

    #[test]
    fn a_line_is_short() {
        let blanks = |count| format!("1,{}2\r\n", " ".repeat(count)).into_bytes();
        let (_, flows) = asked("127.0.0.1", "0.0.0.0/0", &blanks(LINE_MAX - 5));
        assert_eq!(flows.len(), 1, "the longest");
        let (answer, flows) = asked("127.0.0.1", "0.0.0.0/0", &blanks(LINE_MAX - 4));
        assert_eq!((&*answer, flows), ("", vec![]));
    }

    /// Serves a client that this does not end well, and gives how long that took.
    fn endured(client: impl FnOnce(TcpStream) + Send + 'static) -> Duration {
        let (stream, connection) = connected("127.0.0.1", "127.0.0.1");
        let client = thread::spawn(move || client(stream));
        let began = Instant::now();
        let never = |_, _| panic!("looked up");
        assert_eq!(connection.serve(&networks("0.0.0.0/0"), SHORT, &never), None);
        let took = began.elapsed();
        drop(connection);
        client.join().unwrap();
        took
    }

    #[test]
    fn nobody_keeps_it_waiting() {
        let margin = Duration::from_secs(2);
        let silent = |mut client: TcpStream| drop(client.read(&mut [0; 9]));
        assert!((SHORT.question..margin).contains(&endured(silent)));
        // A byte now and then: the deadline is that of the whole question.
        let slow = |mut client: TcpStream| {
            while client.write_all(b"1").is_ok() {
                thread::sleep(Duration::from_millis(20));
            }
        };
        assert!((SHORT.question..margin).contains(&endured(slow)));
        assert!(endured(drop) < SHORT.question);
        let half = |mut client: TcpStream| {
            client.write_all(b"1,2").unwrap();
            client.shutdown(Shutdown::Write).unwrap();
            assert_eq!(client.read(&mut [0; 9]).unwrap(), 0, "half a question is none");
        };
        assert!(endured(half) < SHORT.question);
    }

    #[test]
    fn an_answer_that_comes_too_late_is_none() {
        let (mut client, connection) = connected("127.0.0.1", "127.0.0.1");
        client.write_all(b"1,2\r\n").unwrap();
        let began = Instant::now();
        let answered = connection.serve(&networks("127.0.0.1"), SHORT, &|_, deadline| {
            assert!(deadline <= Instant::now() + SHORT.answer && deadline >= began + SHORT.answer);
            thread::sleep(SHORT.answer + Duration::from_millis(10));
            job()
        });
        assert_eq!(answered, None);
        drop(connection);
        assert_eq!(client.read(&mut [0; 9]).unwrap(), 0);
    }

    #[test]
    fn only_a_connection_of_tcp_is_served() {
        let refused = |socket: OwnedFd, call: &str| match Connection::of(socket) {
            Err(NoConnection::Other(failed)) => assert_eq!(failed.operation, call, "{failed}"),
            other => panic!("{other:?}"),
        };
        refused(std::fs::File::open("/dev/null").unwrap().into(), "getsockopt TCP_NODELAY");
        refused(UnixStream::pair().unwrap().0.into(), "getsockopt TCP_NODELAY");
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        udp.connect(udp.local_addr().unwrap()).unwrap();
        refused(udp.into(), "getsockopt TCP_NODELAY");
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(matches!(Connection::of(listener.into()), Err(NoConnection::Listens)));
    }

    /// As by a scan of ports.
    #[test]
    fn a_connection_that_was_taken_back_is_gone() {
        let (client, connection) = connected("127.0.0.1", "127.0.0.1");
        (&connection.stream).write_all(b"unread").unwrap();
        client.peek(&mut [0]).unwrap();
        drop(client);
        let gone = Connection::of(connection.stream.into());
        assert!(matches!(gone, Err(NoConnection::Gone)), "{gone:?}");
    }

    /// As from an inetd whose sockets do not block.
    #[test]
    fn a_socket_that_does_not_block_is_waited_for() {
        let (mut client, connection) = connected("127.0.0.1", "127.0.0.1");
        connection.stream.set_nonblocking(true).unwrap();
        let connection = Connection::of(connection.stream.into()).unwrap();
        let asking = thread::spawn(move || {
            thread::sleep(Duration::from_millis(50));
            client.write_all(b"1,2\r\n").unwrap();
            client
        });
        assert_eq!(connection.serve(&networks("0.0.0.0/0"), SHORT, &|_, _| job()), Some(job()));
        drop(asking.join().unwrap());
    }
}
