//! Against sockets of this process.

use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;

use super::*;
use kernel::cgroup::{Membership, Mount};

/// A listener, and a client and a server that are connected.
struct Connected {
    listener: TcpListener,
    client: TcpStream,
    server: TcpStream,
}

impl Connected {
    fn new(listen: &str, call: &str) -> Self {
        let listener = TcpListener::bind((listen, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let client = TcpStream::connect((call, port)).unwrap();
        let (server, _) = listener.accept().unwrap();
        Self { listener, client, server }
    }

    fn ends(&self) -> (SocketAddr, SocketAddr) {
        (self.client.local_addr().unwrap(), self.client.peer_addr().unwrap())
    }
}

/// What the kernel has to say of sockets that this process makes.
fn own() -> Option<Owner> {
    let membership = Membership::own().unwrap();
    let path = membership.unified().unwrap().trim_start_matches('/').to_owned();
    let mount = Mount::open().unwrap().path();
    let cgroup = std::fs::metadata(std::path::Path::new(mount).join(path)).unwrap().ino();
    Some(Owner { uid: nix::unistd::geteuid().as_raw(), cgroup })
}

#[test]
fn both_ends_are_found_in_each_family() {
    for (listen, call) in [("127.0.0.1", "127.0.0.1"), ("::1", "::1"), ("::", "127.0.0.1")] {
        let connected = Connected::new(listen, call);
        let (client, server) = connected.ends();
        assert_eq!(owner(client, server), Ok(own()), "{listen}");
        assert_eq!(owner(server, client), Ok(own()), "{listen}: the accepted end");
        let (local, peer) =
            (connected.server.local_addr().unwrap(), connected.server.peer_addr().unwrap());
        assert_eq!(owner(local, peer), Ok(own()), "{listen}: as the server names them");
    }
}

#[test]
fn a_client_of_ipv6_with_mapped_addresses_is_found() {
    let connected = Connected::new("127.0.0.1", "::ffff:127.0.0.1");
    let (client, server) = connected.ends();
    assert_eq!(owner(client, server), Ok(own()));
    assert_eq!(owner(plain(client), plain(server)), Ok(own()));
}

#[test]
fn what_is_no_connection_is_nobodys() {
    let connected = Connected::new("127.0.0.1", "127.0.0.1");
    let (client, server) = connected.ends();
    let at = |end: SocketAddr, port| SocketAddr::new(end.ip(), port);
    let other: SocketAddr = "127.0.0.2:9".parse().unwrap();
    for (what, local, remote) in [
        ("only who listens there", server, at(client, 1)),
        ("a listener and another host", server, other),
        ("another port", client, at(server, server.port() ^ 1)),
        ("another own port", at(client, 1), server),
        ("another host", client, at(other, server.port())),
        ("two families", client, "[::1]:22".parse().unwrap()),
        ("itself", client, client),
    ] {
        assert_eq!(owner(local, remote), Ok(None), "{what}");
    }
}

#[test]
fn a_connection_that_is_over_is_nobodys() {
    let connected = Connected::new("127.0.0.1", "127.0.0.1");
    let (client, server) = connected.ends();
    let Connected { listener, client: first, server: mut second } = connected;
    // The end that closes first is the one that waits (TIME_WAIT).
    drop(first);
    assert_eq!(second.read(&mut [0; 1]).unwrap(), 0);
    assert_eq!(owner(server, client), Ok(None), "half closed");
    drop(second);
    assert_eq!(owner(client, server), Ok(None), "TIME_WAIT");
    assert_eq!(owner(server, client), Ok(None), "who still listens");
    drop(listener);
    assert_eq!(owner(server, client), Ok(None), "nobody");
}

mod message {
    use super::super::*;

    fn ends() -> (SocketAddr, SocketAddr) {
        ("10.1.0.5:5000".parse().unwrap(), "10.1.0.6:22".parse().unwrap())
    }

    /// An answer as the kernel gives it, before a test spoils it.
    struct Answer {
        kind: u16,
        sequence: u32,
        family: u8,
        state: u8,
        ends: [[u8; 16]; 2],
        inode: u32,
        attributes: Vec<u8>,
    }

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let length = u16::try_from(4 + value.len()).unwrap();
        let mut out = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
        out.extend(value);
        out.resize(out.len().next_multiple_of(4), 0);
        out
    }

    impl Answer {
        fn new() -> Self {
            let ends = [wide(Ipv4Addr::new(10, 1, 0, 5)), wide(Ipv4Addr::new(10, 1, 0, 6))];
            let attributes = [attribute(8, &[0]), attribute(21, &77_u64.to_ne_bytes())].concat();
            Self { kind: 20, sequence: 1, family: 2, state: 1, ends, inode: 9, attributes }
        }

        fn bytes(&self) -> Vec<u8> {
            let mut body = vec![self.family, self.state, 0, 0];
            body.extend([5000_u16.to_be_bytes(), 22_u16.to_be_bytes()].concat());
            body.extend(self.ends.concat());
            body.extend([0; 24]);
            body.extend(1001_u32.to_ne_bytes());
            body.extend(self.inode.to_ne_bytes());
            body.extend(&self.attributes);
            message(self.kind, self.sequence, &body)
        }

        fn read(&self) -> Result<Option<Owner>, DiagError> {
            let (local, remote) = ends();
            read(&self.bytes(), local, remote)
        }
    }

    fn message(kind: u16, sequence: u32, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(16 + body.len()).unwrap();
        let mut out = length.to_ne_bytes().to_vec();
        out.extend([kind.to_ne_bytes(), [0; 2]].concat());
        out.extend([sequence.to_ne_bytes(), [7; 4]].concat());
        out.extend(body);
        out
    }

    #[test]
    fn the_question_is_as_long_as_it_says() {
        let (local, remote) = ends();
        let bytes = question(local, remote).unwrap();
        assert_eq!(bytes.len(), 72);
        assert_eq!(bytes[..4], 72_u32.to_ne_bytes());
        assert_eq!(bytes[6..8], [1, 0], "NLM_F_REQUEST only");
        let six: SocketAddr = "[fe80::1%3]:5000".parse().unwrap();
        let bytes = question(six, "[fe80::2]:22".parse().unwrap()).unwrap();
        assert_eq!(bytes[60..64], 3_u32.to_ne_bytes(), "the interface");
        assert_eq!(question(six, remote), None);
    }

    #[test]
    fn an_answer_is_read() {
        let owner = Owner { uid: 1001, cgroup: 77 };
        assert_eq!(Answer::new().read(), Ok(Some(owner)));
        let mapped = |ip: Ipv4Addr| ip.to_ipv6_mapped().octets();
        let ends = [mapped(Ipv4Addr::new(10, 1, 0, 5)), mapped(Ipv4Addr::new(10, 1, 0, 6))];
        let six = Answer { family: 10, ends, ..Answer::new() };
        assert_eq!(six.read(), Ok(Some(owner)), "a socket of IPv6 with mapped addresses");
        for flag in [0x4000, 0x8000] {
            let attributes = attribute(21 | flag, &77_u64.to_ne_bytes());
            let flagged = Answer { attributes, ..Answer::new() };
            assert_eq!(flagged.read(), Ok(Some(owner)), "a type with the flag {flag:#x}");
        }
    }

    #[test]
    fn an_answer_about_something_else_is_none() {
        let [local, remote] = Answer::new().ends;
        let other = wide(Ipv4Addr::new(10, 1, 0, 7));
        for (what, answer) in [
            ("listener", Answer { state: 10, ..Answer::new() }),
            ("TIME_WAIT", Answer { state: 6, ..Answer::new() }),
            ("nobody's", Answer { inode: 0, ..Answer::new() }),
            ("swapped", Answer { ends: [remote, local], ..Answer::new() }),
            ("another client", Answer { ends: [other, remote], ..Answer::new() }),
            ("another server", Answer { ends: [local, other], ..Answer::new() }),
            ("no attributes", Answer { attributes: Vec::new(), ..Answer::new() }),
            ("no cgroup", Answer { attributes: attribute(8, &[0]), ..Answer::new() }),
            (
                "no padding",
                Answer { attributes: attribute(8, &[0])[..5].to_vec(), ..Answer::new() },
            ),
        ] {
            assert_eq!(answer.read(), Ok(None), "{what}");
        }
        let bytes = Answer::new().bytes();
        let (local, remote) = ends();
        for (own, far) in [(1, 22), (5000, 23)] {
            let at = |end: SocketAddr, port| SocketAddr::new(end.ip(), port);
            assert_eq!(read(&bytes, at(local, own), at(remote, far)), Ok(None), "{own} {far}");
        }
    }

    #[test]
    fn a_malformed_answer_is_refused() {
        let malformed = Err(DiagError::malformed());
        let whole = Answer::new().bytes();
        let (local, remote) = ends();
        for length in 0..whole.len() {
            assert_eq!(read(&whole[..length], local, remote), malformed, "{length} bytes");
        }
        for length in (0..16).chain([u32::try_from(whole.len()).unwrap() + 1, u32::MAX]) {
            let bytes = [&length.to_ne_bytes()[..], &whole[4..]].concat();
            assert_eq!(read(&bytes, local, remote), malformed, "a header of {length} bytes");
        }
        for (what, answer) in [
            ("sequence", Answer { sequence: 2, ..Answer::new() }),
            ("NLMSG_DONE", Answer { kind: 3, ..Answer::new() }),
            ("family", Answer { family: 1, ..Answer::new() }),
        ] {
            assert_eq!(answer.read(), malformed, "{what}");
        }
        for (what, attributes) in [
            ("no room for a header", vec![0]),
            ("a length of nothing", vec![0; 4]),
            ("below its header's", [3_u16.to_ne_bytes(), 21_u16.to_ne_bytes()].concat()),
            ("behind the end", [12_u16.to_ne_bytes(), 21_u16.to_ne_bytes()].concat()),
            ("a short id", attribute(21, &[0; 4])),
            ("a long id", attribute(21, &[0; 12])),
        ] {
            let answer = Answer { attributes, ..Answer::new() };
            assert_eq!(answer.read(), malformed, "{what}");
        }
    }

    #[test]
    fn an_error_is_an_answer() {
        let (local, remote) = ends();
        let error = |code: i32| read(&message(2, 1, &code.to_ne_bytes()), local, remote);
        assert_eq!(error(-libc::ENOENT), Ok(None));
        assert_eq!(
            error(-libc::EPERM),
            Err(DiagError::of("the kernel refused the question", Errno::EPERM))
        );
        for none in [0, 1, libc::ENOENT, i32::MIN] {
            assert_eq!(error(none), Err(DiagError::malformed()), "{none}");
        }
        assert_eq!(read(&message(2, 1, &[1, 2]), local, remote), Err(DiagError::malformed()));
        let foreign = message(2, 7, &(-libc::ENOENT).to_ne_bytes());
        assert_eq!(read(&foreign, local, remote), Err(DiagError::malformed()));
    }
}
