//! The two messages (`linux/netlink.h`, `linux/sock_diag.h`, `linux/inet_diag.h`). Numbers are in
//! the machine's order, but for ports and addresses, which are in the network's.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use nix::errno::Errno;

use super::{DiagError, Owner, plain};

const ERROR: u16 = 2;
/// `SOCK_DIAG_BY_FAMILY`
const BY_FAMILY: u16 = 20;
/// `NLM_F_REQUEST`, and no `NLM_F_DUMP`: one socket, not a list.
const REQUEST: u16 = 1;
/// Number of the question; a socket of ours asks no other.
const SEQUENCE: u32 = 1;

/// `AF_INET` and `AF_INET6` in one byte.
const INET: u8 = libc::AF_INET as u8;
const INET6: u8 = libc::AF_INET6 as u8;
/// `IPPROTO_TCP`
const TCP: u8 = libc::IPPROTO_TCP as u8;
/// `TCP_ESTABLISHED`
const ESTABLISHED: u8 = 1;
/// `INET_DIAG_NOCOOKIE`, twice: whichever socket it is.
const ANY: [u8; 8] = [0xff; 8];
/// `INET_DIAG_CGROUP_ID`
const CGROUP_ID: u16 = 21;
/// The bits of an attribute's type that are its number (`NLA_TYPE_MASK`).
const TYPE: u16 = 0x3fff;

/// Bytes of the question: a header of 16, the request of 56.
const QUESTION_LEN: u32 = 16 + 56;

/// The question for the socket whose own end is `local`; `None` where the ends are of two families.
/// A question about IPv4 finds sockets of IPv6 with mapped addresses as well.
pub(super) fn question(local: SocketAddr, remote: SocketAddr) -> Option<Vec<u8>> {
    let (family, source, destination, scope) = match (local, remote) {
        (SocketAddr::V4(local), SocketAddr::V4(remote)) => {
            (INET, wide(*local.ip()), wide(*remote.ip()), 0)
        }
        (SocketAddr::V6(local), SocketAddr::V6(remote)) => {
            let scope = local.scope_id().max(remote.scope_id());
            (INET6, local.ip().octets(), remote.ip().octets(), scope)
        }
        _ => return None,
    };
    let mut out = Vec::new();
    out.extend(QUESTION_LEN.to_ne_bytes());
    out.extend(BY_FAMILY.to_ne_bytes());
    out.extend(REQUEST.to_ne_bytes());
    out.extend(SEQUENCE.to_ne_bytes());
    out.extend([0; 4]);
    // No attributes are asked for: the cgroup comes unasked. The states do not count for one.
    out.extend([family, TCP, 0, 0]);
    out.extend(u32::MAX.to_ne_bytes());
    out.extend(local.port().to_be_bytes());
    out.extend(remote.port().to_be_bytes());
    out.extend(source);
    out.extend(destination);
    out.extend(scope.to_ne_bytes());
    out.extend(ANY);
    Some(out)
}

fn wide(ip: Ipv4Addr) -> [u8; 16] {
    let [a, b, c, d] = ip.octets();
    [a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
}

/// Reads the answer about the connection from `local` to `remote`; `None` where the kernel tells of
/// another one, or of none.
/// Errors: [`DiagError`] for an error of the kernel's, and for bytes that are no answer.
pub fn read(
    bytes: &[u8],
    local: SocketAddr,
    remote: SocketAddr,
) -> Result<Option<Owner>, DiagError> {
    let mut input = Input(bytes);
    let message = Message::read(&mut input).ok_or_else(DiagError::malformed)?;
    match message.kind {
        ERROR => refused(message.body),
        BY_FAMILY => {
            let (socket, attributes) =
                Socket::read(message.body).ok_or_else(DiagError::malformed)?;
            let cgroup = cgroup_id(attributes).ok_or_else(DiagError::malformed)?;
            // Where there is no such connection, the kernel tells of who listens at that port. One
            // that is over is nobody's, which reads as root's.
            let is_it = (socket.local, socket.remote) == (local, remote);
            let lives = socket.state == ESTABLISHED && socket.inode != 0;
            let owner = cgroup.map(|cgroup| Owner { uid: socket.uid, cgroup });
            Ok(owner.filter(|_| is_it && lives))
        }
        _ => Err(DiagError::malformed()),
    }
}

/// `struct nlmsgerr`, as far as it matters.
fn refused(body: &[u8]) -> Result<Option<Owner>, DiagError> {
    let code = Input(body).bytes().map(i32::from_ne_bytes).and_then(i32::checked_neg);
    match code.filter(|&code| code > 0).map(Errno::from_raw) {
        Some(Errno::ENOENT) => Ok(None),
        Some(errno) => Err(DiagError::of("the kernel refused the question", errno)),
        None => Err(DiagError::malformed()),
    }
}

/// `struct nlmsghdr` and what it is the header of.
struct Message<'a> {
    kind: u16,
    body: &'a [u8],
}

impl<'a> Message<'a> {
    fn read(input: &mut Input<'a>) -> Option<Self> {
        let length = usize::try_from(input.u32()?).ok()?;
        let (kind, _flags) = (input.u16()?, input.u16()?);
        let (sequence, _port) = (input.u32()?, input.u32()?);
        let body = input.0.get(..length.checked_sub(16)?)?;
        (sequence == SEQUENCE).then_some(Self { kind, body })
    }
}

/// `struct inet_diag_msg`, as far as it matters.
struct Socket {
    state: u8,
    local: SocketAddr,
    remote: SocketAddr,
    uid: u32,
    inode: u32,
}

impl Socket {
    fn read(body: &[u8]) -> Option<(Self, Input<'_>)> {
        let mut input = Input(body);
        let [family, state, _timer, _retransmits] = input.bytes()?;
        let ports =
            [input.bytes().map(u16::from_be_bytes)?, input.bytes().map(u16::from_be_bytes)?];
        let ends = [input.bytes::<16>()?, input.bytes::<16>()?];
        let scope = input.u32()?;
        let (_cookie, _expires, _queues) = (input.bytes::<8>()?, input.u32()?, input.bytes::<8>()?);
        let (uid, inode) = (input.u32()?, input.u32()?);
        let [local, remote] = ends.map(|end| address(family, end));
        let [source, destination] = ports;
        let end = |ip, port| match ip {
            IpAddr::V4(_) => SocketAddr::new(ip, port),
            IpAddr::V6(ip) => plain(SocketAddrV6::new(ip, port, 0, scope).into()),
        };
        let (local, remote) = (end(local?, source), end(remote?, destination));
        Some((Self { state, local, remote, uid, inode }, input))
    }
}

fn address(family: u8, bytes: [u8; 16]) -> Option<IpAddr> {
    let [a, b, c, d, ..] = bytes;
    match family {
        INET => Some(Ipv4Addr::new(a, b, c, d).into()),
        INET6 => Some(Ipv6Addr::from(bytes).into()),
        _ => None,
    }
}

/// The cgroup among the attributes (`struct nlattr`); `Some(None)` where there is none.
fn cgroup_id(mut input: Input<'_>) -> Option<Option<u64>> {
    while !input.0.is_empty() {
        let (length, kind) = (usize::from(input.u16()?), input.u16()?);
        let value = input.take(length.checked_sub(4)?)?;
        if kind & TYPE == CGROUP_ID {
            return Some(Some(u64::from_ne_bytes(value.try_into().ok()?)));
        }
        // To the next one, but for the last, which may end without.
        let padding = length.next_multiple_of(4) - length;
        input.take(padding.min(input.0.len()))?;
    }
    Some(None)
}

struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn u16(&mut self) -> Option<u16> {
        self.bytes().map(u16::from_ne_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.bytes().map(u32::from_ne_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
