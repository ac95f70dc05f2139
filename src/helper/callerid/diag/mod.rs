//! The process at one end of a TCP connection of this network namespace, by the kernel's socket
//! diagnostics (sock_diag(7)).
//!
//! One question about one socket, for which neither root nor `/proc` is needed. The cgroup is the
//! one that the socket was made in: to move the process afterwards does not change it.
//!
//! The two messages are in `linux/netlink.h`, `linux/sock_diag.h` and `linux/inet_diag.h`. Numbers are
//! in the machine's order, but for ports and addresses, which are in the network's.

#[cfg(test)]
mod tests;

use super::plain;
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, connect, recv, send,
    socket,
};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsRawFd, OwnedFd};
use thiserror::Error;

const ANSWER_MAX: usize = 8192;

/// Whose socket it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The uid that made it.
    pub uid: u32,
    /// Id of the cgroup v2 that it was made in: the inode number of its directory.
    pub cgroup: u64,
}

/// Why the kernel did not say.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("socket diagnostics: {0}")]
pub struct DiagError(String);

impl DiagError {
    fn of(what: &str, errno: Errno) -> Self {
        Self(format!("{what}: {}", errno.desc()))
    }

    /// The answer is not as `linux/inet_diag.h` has it.
    pub(crate) fn malformed() -> Self {
        Self("an answer that has no meaning".to_owned())
    }
}

/// The owner of the end `local` of an established connection to `remote`. `None` where there is no
/// such connection here, nobody has it any more, or the kernel, before Linux 5.8 or without cgroup
/// v2, knows no cgroup of it.
pub fn owner(local: SocketAddr, remote: SocketAddr) -> Result<Option<Owner>, DiagError> {
    let (local, remote) = (plain(local), plain(remote));
    let Some(question) = question(local, remote) else { return Ok(None) };
    let socket = asked(&question)?;
    let mut bytes = [0; ANSWER_MAX];
    // The kernel answers while it is asked, so that nothing is waited for.
    let length = recv(socket.as_raw_fd(), &mut bytes, MsgFlags::MSG_DONTWAIT)
        .map_err(|errno| DiagError::of("recv", errno))?;
    // One that was longer than the room for it is shorter than it says.
    read(bytes.get(..length).ok_or_else(DiagError::malformed)?, local, remote)
}

/// A socket that only the kernel can write to, with the question put.
fn asked(question: &[u8]) -> Result<OwnedFd, DiagError> {
    let system = |call| move |errno| DiagError::of(call, errno);
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let protocol = SockProtocol::NetlinkSockDiag;
    let socket = socket(AddressFamily::Netlink, SockType::Datagram, flags, protocol)
        .map_err(system("socket NETLINK_SOCK_DIAG"))?;
    connect(socket.as_raw_fd(), &NetlinkAddr::new(0, 0)).map_err(system("connect"))?;
    send(socket.as_raw_fd(), question, MsgFlags::MSG_DONTWAIT).map_err(system("send"))?;
    Ok(socket)
}

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
fn question(local: SocketAddr, remote: SocketAddr) -> Option<Vec<u8>> {
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
