//! Against a listener of this process in the place of the service.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use super::*;

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
