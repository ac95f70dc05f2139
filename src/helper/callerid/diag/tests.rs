//! Tests against sockets of this process.

use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;

use super::*;
use kernel::cgroup::{Membership, Mount};

/// A listener, and both ends of one connection to it.
struct TcpPair {
    listener: TcpListener,
    client: TcpStream,
    server: TcpStream,
}

impl TcpPair {
    fn new(listen: &str, call: &str) -> Self {
        let listener = TcpListener::bind((listen, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let client = TcpStream::connect((call, port)).unwrap();
        let (server, _) = listener.accept().unwrap();
        Self {
            listener,
            client,
            server,
        }
    }

    fn ends(&self) -> (SocketAddr, SocketAddr) {
        (
            self.client.local_addr().unwrap(),
            self.client.peer_addr().unwrap(),
        )
    }
}

/// The owner that the kernel must report for sockets of this process.
fn own_owner() -> Option<SocketOwner> {
    let membership = Membership::read_own().unwrap();
    let path = membership
        .unified()
        .unwrap()
        .trim_start_matches('/')
        .to_owned();
    let mount = Mount::open().unwrap().path();
    let cgroup = std::fs::metadata(std::path::Path::new(mount).join(path))
        .unwrap()
        .ino();
    Some(SocketOwner {
        uid: nix::unistd::geteuid().as_raw(),
        cgroup,
    })
}

#[test]
fn both_ends_are_found_in_each_family() {
    for (listen, call) in [
        ("127.0.0.1", "127.0.0.1"),
        ("::1", "::1"),
        ("::", "127.0.0.1"),
    ] {
        let connected = TcpPair::new(listen, call);
        let (client, server) = connected.ends();
        assert_eq!(find_owner(client, server), Ok(own_owner()), "{listen}");
        assert_eq!(
            find_owner(server, client),
            Ok(own_owner()),
            "{listen}: the accepted end"
        );
        let local = connected.server.local_addr().unwrap();
        let peer = connected.server.peer_addr().unwrap();
        assert_eq!(
            find_owner(local, peer),
            Ok(own_owner()),
            "{listen}: as the server names them"
        );
    }
}

#[test]
fn ipv6_client_with_mapped_addresses_is_found() {
    let connected = TcpPair::new("127.0.0.1", "::ffff:127.0.0.1");
    let (client, server) = connected.ends();
    assert_eq!(find_owner(client, server), Ok(own_owner()));
    assert_eq!(
        find_owner(unmap_address(client), unmap_address(server)),
        Ok(own_owner())
    );
}

#[test]
fn nonexistent_connection_has_no_owner() {
    let connected = TcpPair::new("127.0.0.1", "127.0.0.1");
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
        assert_eq!(find_owner(local, remote), Ok(None), "{what}");
    }
}

#[test]
fn closed_connection_has_no_owner() {
    let connected = TcpPair::new("127.0.0.1", "127.0.0.1");
    let (client, server) = connected.ends();
    let TcpPair {
        listener,
        client: first,
        server: mut second,
    } = connected;
    // The end that closes first enters TIME_WAIT.
    drop(first);
    assert_eq!(second.read(&mut [0; 1]).unwrap(), 0);
    assert_eq!(find_owner(server, client), Ok(None), "half closed");
    drop(second);
    assert_eq!(find_owner(client, server), Ok(None), "TIME_WAIT");
    assert_eq!(find_owner(server, client), Ok(None), "who still listens");
    drop(listener);
    assert_eq!(find_owner(server, client), Ok(None), "nobody");
}

mod message {
    use super::super::*;

    fn ends() -> (SocketAddr, SocketAddr) {
        (
            "10.1.0.5:5000".parse().unwrap(),
            "10.1.0.6:22".parse().unwrap(),
        )
    }

    /// A valid answer of the kernel, which tests modify.
    struct KernelAnswer {
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

    impl KernelAnswer {
        fn new() -> Self {
            let ends = [
                widen(Ipv4Addr::new(10, 1, 0, 5)),
                widen(Ipv4Addr::new(10, 1, 0, 6)),
            ];
            let attributes = [attribute(8, &[0]), attribute(21, &77_u64.to_ne_bytes())].concat();
            Self {
                kind: 20,
                sequence: 1,
                family: 2,
                state: 1,
                ends,
                inode: 9,
                attributes,
            }
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

        fn parse(&self) -> Result<Option<SocketOwner>, DiagError> {
            let (local, remote) = ends();
            parse_answer(&self.bytes(), local, remote)
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
    fn question_has_the_length_in_its_header() {
        let (local, remote) = ends();
        let bytes = encode_question(local, remote).unwrap();
        assert_eq!(bytes.len(), 72);
        assert_eq!(bytes[..4], 72_u32.to_ne_bytes());
        assert_eq!(bytes[6..8], [1, 0], "NLM_F_REQUEST only");
        let six: SocketAddr = "[fe80::1%3]:5000".parse().unwrap();
        let other_bytes = encode_question(six, "[fe80::2]:22".parse().unwrap()).unwrap();
        assert_eq!(other_bytes[60..64], 3_u32.to_ne_bytes(), "the interface");
        assert_eq!(encode_question(six, remote), None);
    }

    #[test]
    fn answer_gives_uid_and_cgroup() {
        let owner = SocketOwner {
            uid: 1001,
            cgroup: 77,
        };
        assert_eq!(KernelAnswer::new().parse(), Ok(Some(owner)));
        let mapped = |ip: Ipv4Addr| ip.to_ipv6_mapped().octets();
        let ends = [
            mapped(Ipv4Addr::new(10, 1, 0, 5)),
            mapped(Ipv4Addr::new(10, 1, 0, 6)),
        ];
        let six = KernelAnswer {
            family: 10,
            ends,
            ..KernelAnswer::new()
        };
        assert_eq!(
            six.parse(),
            Ok(Some(owner)),
            "a socket of IPv6 with mapped addresses"
        );
        for flag in [0x4000, 0x8000] {
            let attributes = attribute(21 | flag, &77_u64.to_ne_bytes());
            let flagged = KernelAnswer {
                attributes,
                ..KernelAnswer::new()
            };
            assert_eq!(
                flagged.parse(),
                Ok(Some(owner)),
                "a type with the flag {flag:#x}"
            );
        }
    }

    #[test]
    fn answer_about_another_socket_gives_no_owner() {
        let [local, remote] = KernelAnswer::new().ends;
        let other = widen(Ipv4Addr::new(10, 1, 0, 7));
        for (what, answer) in [
            (
                "listener",
                KernelAnswer {
                    state: 10,
                    ..KernelAnswer::new()
                },
            ),
            (
                "TIME_WAIT",
                KernelAnswer {
                    state: 6,
                    ..KernelAnswer::new()
                },
            ),
            (
                "nobody's",
                KernelAnswer {
                    inode: 0,
                    ..KernelAnswer::new()
                },
            ),
            (
                "swapped",
                KernelAnswer {
                    ends: [remote, local],
                    ..KernelAnswer::new()
                },
            ),
            (
                "another client",
                KernelAnswer {
                    ends: [other, remote],
                    ..KernelAnswer::new()
                },
            ),
            (
                "another server",
                KernelAnswer {
                    ends: [local, other],
                    ..KernelAnswer::new()
                },
            ),
            (
                "no attributes",
                KernelAnswer {
                    attributes: Vec::new(),
                    ..KernelAnswer::new()
                },
            ),
            (
                "no cgroup",
                KernelAnswer {
                    attributes: attribute(8, &[0]),
                    ..KernelAnswer::new()
                },
            ),
            (
                "no padding",
                KernelAnswer {
                    attributes: attribute(8, &[0])[..5].to_vec(),
                    ..KernelAnswer::new()
                },
            ),
        ] {
            assert_eq!(answer.parse(), Ok(None), "{what}");
        }
        let bytes = KernelAnswer::new().bytes();
        let (other_local, other_remote) = ends();
        for (own, far) in [(1, 22), (5000, 23)] {
            let at = |end: SocketAddr, port| SocketAddr::new(end.ip(), port);
            assert_eq!(
                parse_answer(&bytes, at(other_local, own), at(other_remote, far)),
                Ok(None),
                "{own} {far}"
            );
        }
    }

    #[test]
    fn malformed_answer_is_an_error() {
        let malformed = Err(DiagError::malformed());
        let whole = KernelAnswer::new().bytes();
        let (local, remote) = ends();
        for length in 0..whole.len() {
            assert_eq!(
                parse_answer(&whole[..length], local, remote),
                malformed,
                "{length} bytes"
            );
        }
        for length in (0..16).chain([u32::try_from(whole.len()).unwrap() + 1, u32::MAX]) {
            let bytes = [&length.to_ne_bytes()[..], &whole[4..]].concat();
            assert_eq!(
                parse_answer(&bytes, local, remote),
                malformed,
                "a header of {length} bytes"
            );
        }
        for (what, answer) in [
            (
                "sequence",
                KernelAnswer {
                    sequence: 2,
                    ..KernelAnswer::new()
                },
            ),
            (
                "NLMSG_DONE",
                KernelAnswer {
                    kind: 3,
                    ..KernelAnswer::new()
                },
            ),
            (
                "family",
                KernelAnswer {
                    family: 1,
                    ..KernelAnswer::new()
                },
            ),
        ] {
            assert_eq!(answer.parse(), malformed, "{what}");
        }
        for (what, attributes) in [
            ("no room for a header", vec![0]),
            ("a length of nothing", vec![0; 4]),
            (
                "below its header's",
                [3_u16.to_ne_bytes(), 21_u16.to_ne_bytes()].concat(),
            ),
            (
                "behind the end",
                [12_u16.to_ne_bytes(), 21_u16.to_ne_bytes()].concat(),
            ),
            ("a short id", attribute(21, &[0; 4])),
            ("a long id", attribute(21, &[0; 12])),
        ] {
            let answer = KernelAnswer {
                attributes,
                ..KernelAnswer::new()
            };
            assert_eq!(answer.parse(), malformed, "{what}");
        }
    }

    #[test]
    fn enoent_gives_no_owner_and_other_errors_fail() {
        let (local, remote) = ends();
        let error = |code: i32| parse_answer(&message(2, 1, &code.to_ne_bytes()), local, remote);
        assert_eq!(error(-libc::ENOENT), Ok(None));
        assert_eq!(
            error(-libc::EPERM),
            Err(DiagError::system(
                "the kernel refused the question",
                Errno::EPERM
            ))
        );
        for none in [0, 1, libc::ENOENT, i32::MIN] {
            assert_eq!(error(none), Err(DiagError::malformed()), "{none}");
        }
        assert_eq!(
            parse_answer(&message(2, 1, &[1, 2]), local, remote),
            Err(DiagError::malformed())
        );
        let foreign = message(2, 7, &(-libc::ENOENT).to_ne_bytes());
        assert_eq!(
            parse_answer(&foreign, local, remote),
            Err(DiagError::malformed())
        );
    }
}
