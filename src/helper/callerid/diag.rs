//! Finds uid and cgroup of the socket at one end of a TCP connection of this network namespace, by
//! the kernel's socket diagnostics (sock_diag(7)).
//!
//! It asks one question about one socket and needs neither root nor `/proc`. The cgroup is the one in
//! which the socket was made; a later move of the process does not change it.
//!
//! The two messages are in `linux/netlink.h`, `linux/sock_diag.h` and `linux/inet_diag.h`. Numbers
//! are in the byte order of the machine; ports and addresses are in network order.

#[cfg(test)]
mod tests;

use super::unmap_address;
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, connect, recv, send,
    socket,
};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsRawFd, OwnedFd};
use thiserror::Error;

const ANSWER_BYTES_MAX: usize = 8192;

/// The owner of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketOwner {
    /// The uid that made the socket.
    pub uid: u32,
    /// Id of the v2 cgroup in which the socket was made: the inode number of its directory.
    pub cgroup: u64,
}

/// Why the kernel gave no usable answer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("socket diagnostics: {0}")]
pub struct DiagError(String);

impl DiagError {
    /// Describes the failure of a system call.
    fn system(what: &str, errno: Errno) -> Self {
        Self(format!("{what}: {}", errno.desc()))
    }

    /// The error of an answer that does not have the form of `linux/inet_diag.h`.
    pub(crate) fn malformed() -> Self {
        Self("an answer that has no meaning".to_owned())
    }
}

/// Finds the owner of the end `local` of an established connection to `remote`. `None` if there is
/// no such connection here (as for two address families), no process holds it any more, or the kernel does not report
/// its cgroup, as before Linux 5.8 or without cgroup v2.
///
/// # Errors
///
/// A system call fails, the kernel reports an error, or its answer is malformed.
pub fn find_owner(local: SocketAddr, remote: SocketAddr) -> Result<Option<SocketOwner>, DiagError> {
    let local = unmap_address(local);
    let remote = unmap_address(remote);
    let Some(question) = encode_question(local, remote) else {
        return Ok(None);
    };
    let socket = send_question(&question)?;
    let mut bytes = [0; ANSWER_BYTES_MAX];
    // The kernel answers during send(2), so there is nothing to wait for.
    let length = recv(socket.as_raw_fd(), &mut bytes, MsgFlags::MSG_DONTWAIT)
        .map_err(|errno| DiagError::system("recv", errno))?;
    // A truncated answer is shorter than its header says, and is refused as malformed.
    parse_answer(
        bytes.get(..length).ok_or_else(DiagError::malformed)?,
        local,
        remote,
    )
}

/// Sends the question on a new socket that only the kernel can write to, and returns the socket.
fn send_question(question: &[u8]) -> Result<OwnedFd, DiagError> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let protocol = SockProtocol::NetlinkSockDiag;
    let socket = socket(AddressFamily::Netlink, SockType::Datagram, flags, protocol)
        .map_err(|errno| DiagError::system("socket NETLINK_SOCK_DIAG", errno))?;
    connect(socket.as_raw_fd(), &NetlinkAddr::new(0, 0))
        .map_err(|errno| DiagError::system("connect", errno))?;
    send(socket.as_raw_fd(), question, MsgFlags::MSG_DONTWAIT)
        .map_err(|errno| DiagError::system("send", errno))?;
    Ok(socket)
}

const NLMSG_ERROR: u16 = 2;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
/// `NLM_F_REQUEST`, and no `NLM_F_DUMP`: one socket, not a list.
const NLM_F_REQUEST: u16 = 1;
/// Number of the question. Each socket asks only one.
const SEQUENCE: u32 = 1;

/// Address families in one byte.
const AF_INET: u8 = libc::AF_INET as u8;
const AF_INET6: u8 = libc::AF_INET6 as u8;
const IPPROTO_TCP: u8 = libc::IPPROTO_TCP as u8;
const TCP_ESTABLISHED: u8 = 1;
/// `INET_DIAG_NOCOOKIE`, twice: any socket.
const ANY_COOKIE: [u8; 8] = [0xff; 8];
const INET_DIAG_CGROUP_ID: u16 = 21;
/// The bits of an attribute's type that are its number.
const NLA_TYPE_MASK: u16 = 0x3fff;

/// Bytes of the question: a header of 16 and the request of 56.
const QUESTION_BYTES: u32 = 16 + 56;

/// Encodes the question about the socket whose own end is `local`; `None` if the ends have different
/// families. A question about IPv4 also finds IPv6 sockets with mapped addresses.
fn encode_question(local: SocketAddr, remote: SocketAddr) -> Option<Vec<u8>> {
    let (family, source, destination, scope) = match (local, remote) {
        (SocketAddr::V4(local), SocketAddr::V4(remote)) => {
            (AF_INET, widen(*local.ip()), widen(*remote.ip()), 0)
        }
        (SocketAddr::V6(local), SocketAddr::V6(remote)) => {
            let scope = local.scope_id().max(remote.scope_id());
            (AF_INET6, local.ip().octets(), remote.ip().octets(), scope)
        }
        _ => return None,
    };
    let mut out = Vec::new();
    out.extend(QUESTION_BYTES.to_ne_bytes());
    out.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    out.extend(NLM_F_REQUEST.to_ne_bytes());
    out.extend(SEQUENCE.to_ne_bytes());
    out.extend([0; 4]);
    // Request no attributes: the cgroup is always included. A question about one socket ignores the
    // states.
    out.extend([family, IPPROTO_TCP, 0, 0]);
    out.extend(u32::MAX.to_ne_bytes());
    out.extend(local.port().to_be_bytes());
    out.extend(remote.port().to_be_bytes());
    out.extend(source);
    out.extend(destination);
    out.extend(scope.to_ne_bytes());
    out.extend(ANY_COOKIE);
    Some(out)
}

/// The address in the 16 bytes of the kernel's structures, in which zeros follow it.
fn widen(ip: Ipv4Addr) -> [u8; 16] {
    let [a, b, c, d] = ip.octets();
    [a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
}

/// Parses the answer about the connection from `local` to `remote`; `None` if the kernel describes
/// another socket, or none.
///
/// # Errors
///
/// The kernel reports an error, or the bytes are malformed.
pub fn parse_answer(
    bytes: &[u8],
    local: SocketAddr,
    remote: SocketAddr,
) -> Result<Option<SocketOwner>, DiagError> {
    let mut input = ByteReader(bytes);
    let message = NetlinkMessage::parse(&mut input).ok_or_else(DiagError::malformed)?;
    match message.kind {
        NLMSG_ERROR => parse_error(message.body),
        SOCK_DIAG_BY_FAMILY => {
            let (socket, attributes) =
                InetSocket::parse(message.body).ok_or_else(DiagError::malformed)?;
            let cgroup = find_cgroup_id(attributes).ok_or_else(DiagError::malformed)?;
            // Without such a connection, the kernel describes the listener at the port. A closed
            // connection has no owner and appears as root's.
            let is_requested = (socket.local, socket.remote) == (local, remote);
            let is_open = socket.state == TCP_ESTABLISHED && socket.inode != 0;
            if !is_requested || !is_open {
                return Ok(None);
            }
            Ok(cgroup.map(|cgroup| SocketOwner {
                uid: socket.uid,
                cgroup,
            }))
        }
        _ => Err(DiagError::malformed()),
    }
}

/// Parses `struct nlmsgerr`, as far as it matters; `None` if the kernel knows no such socket.
///
/// # Errors
///
/// Any other error of the kernel, or malformed bytes.
fn parse_error(body: &[u8]) -> Result<Option<SocketOwner>, DiagError> {
    // The kernel sends the number of the error as a negative one.
    let code = ByteReader(body)
        .bytes()
        .map(i32::from_ne_bytes)
        .and_then(i32::checked_neg);
    match code.filter(|&code| code > 0).map(Errno::from_raw) {
        Some(Errno::ENOENT) => Ok(None),
        Some(errno) => Err(DiagError::system("the kernel refused the question", errno)),
        None => Err(DiagError::malformed()),
    }
}

/// `struct nlmsghdr` and its payload.
struct NetlinkMessage<'a> {
    kind: u16,
    body: &'a [u8],
}

impl<'a> NetlinkMessage<'a> {
    /// Takes the header and its payload; `None` for a payload that is cut off, or another message than the answer.
    fn parse(input: &mut ByteReader<'a>) -> Option<Self> {
        let length = usize::try_from(input.u32()?).ok()?;
        let kind = input.u16()?;
        let _flags = input.u16()?;
        let sequence = input.u32()?;
        let _port = input.u32()?;
        let body = input.0.get(..length.checked_sub(16)?)?;
        (sequence == SEQUENCE).then_some(Self { kind, body })
    }
}

/// `struct inet_diag_msg`, as far as it matters.
struct InetSocket {
    state: u8,
    local: SocketAddr,
    remote: SocketAddr,
    uid: u32,
    inode: u32,
}

impl InetSocket {
    /// Parses the structure, and returns the bytes behind it, which are attributes; `None` for a structure that is
    /// cut off or of another family.
    fn parse(body: &[u8]) -> Option<(Self, ByteReader<'_>)> {
        let mut input = ByteReader(body);
        let [family, state, _timer, _retransmits] = input.bytes()?;
        let local_port = input.bytes().map(u16::from_be_bytes)?;
        let remote_port = input.bytes().map(u16::from_be_bytes)?;
        let local_ip = input.bytes::<16>()?;
        let remote_ip = input.bytes::<16>()?;
        let scope = input.u32()?;
        let _cookie = input.bytes::<8>()?;
        let _expires = input.u32()?;
        let _queues = input.bytes::<8>()?;
        let socket = Self {
            state,
            uid: input.u32()?,
            inode: input.u32()?,
            local: parse_address(family, local_ip, local_port, scope)?,
            remote: parse_address(family, remote_ip, remote_port, scope)?,
        };
        Some((socket, input))
    }
}

/// Makes an address of the kernel's 16 bytes; `None` for another family than IPv4 and IPv6.
fn parse_address(family: u8, ip: [u8; 16], port: u16, scope: u32) -> Option<SocketAddr> {
    match family {
        AF_INET => {
            let [a, b, c, d, ..] = ip;
            Some(SocketAddr::new(Ipv4Addr::new(a, b, c, d).into(), port))
        }
        AF_INET6 => Some(unmap_address(
            SocketAddrV6::new(ip.into(), port, 0, scope).into(),
        )),
        _ => None,
    }
}

/// Finds the cgroup id among the attributes (`struct nlattr`); `Some(None)` if it is missing, `None`
/// if they are malformed.
fn find_cgroup_id(mut input: ByteReader<'_>) -> Option<Option<u64>> {
    while !input.0.is_empty() {
        let length = usize::from(input.u16()?);
        let kind = input.u16()?;
        let value = input.take(length.checked_sub(4)?)?;
        if kind & NLA_TYPE_MASK == INET_DIAG_CGROUP_ID {
            return Some(Some(u64::from_ne_bytes(value.try_into().ok()?)));
        }
        // Skip to the next attribute. The last one may lack its padding.
        let padding = length.next_multiple_of(4) - length;
        input.take(padding.min(input.0.len()))?;
    }
    Some(None)
}

/// The bytes of a message that have not been read yet.
struct ByteReader<'a>(&'a [u8]);

impl<'a> ByteReader<'a> {
    /// Takes the next bytes; `None` if there are fewer.
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    /// Takes the next `N` bytes.
    fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    /// Takes a number of two bytes, in the machine's byte order.
    fn u16(&mut self) -> Option<u16> {
        self.bytes().map(u16::from_ne_bytes)
    }

    /// Takes a number of four bytes, in the machine's byte order.
    fn u32(&mut self) -> Option<u32> {
        self.bytes().map(u32::from_ne_bytes)
    }
}
