//! Caller identity: finds the job that the ssh client of a login runs in.
//!
//! The node that the client runs on, the *origin*, knows which of its jobs owns a TCP connection. The
//! login's node queries it by the Identification Protocol (RFC 1413), or looks itself if the client
//! runs on the same node. An answer is a job's id and nothing else. A wrong answer can only choose
//! another one of the user's own jobs.
//!
//! ```text
//! login's node                                        origin
//! helper -> Flow -> query_origin  -- port 113 -->  job-adopt callerid -> diag -> job of the cgroup
//! ```

mod connection;
pub mod diag;
mod ident;
mod networks;
mod origin;

use crate::clock::Deadline;
pub use connection::{Connection, ConnectionError, Timeouts};
pub use ident::{Answer, LINE_MAX, Query};
pub use networks::{Network, NetworkError};
use nix::errno::Errno;
use nix::poll::PollFlags;
use nix::sys::socket::{MsgFlags, recv};
pub use origin::{QueryError, query_origin};
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6, TcpStream};
use std::os::fd::AsRawFd;

/// The service's port (RFC 1413 section 1; `auth` in services(5)). Only root may listen there.
pub const IDENT_PORT: u16 = 113;

/// Reads one line, with any bytes that arrive in one piece with it.
///
/// # Errors
///
/// `ETIMEDOUT` at the deadline, `EPIPE` if the peer closes within the line, `EMSGSIZE` for more than
/// [`LINE_MAX`] bytes, and the errors of recv(2).
fn read_line(stream: &TcpStream, deadline: Deadline) -> Result<Vec<u8>, Errno> {
    let mut line = Vec::new();
    let mut buffer = [0; LINE_MAX];
    while !line.contains(&b'\n') {
        // As much of the buffer as the line may still grow.
        let free = buffer.get_mut(line.len()..).filter(|free| !free.is_empty());
        let free = free.ok_or(Errno::EMSGSIZE)?;
        deadline.wait_until_ready(stream, PollFlags::POLLIN)?;
        match recv(stream.as_raw_fd(), free, MsgFlags::MSG_DONTWAIT) {
            Ok(0) => return Err(Errno::EPIPE),
            Ok(length) => line.extend(free.get(..length).unwrap_or_default()),
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(line)
}

/// The kernel's number of an error; `EIO` for one that the kernel did not report.
fn errno_of(error: &io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO))
}

/// A TCP connection, by its two ends. IPv4 addresses that were mapped into IPv6 (RFC 4291 section
/// 2.5.5.2) are IPv4 addresses here, and only link-local addresses have a scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// The ssh client's end.
    pub client: SocketAddr,
    /// sshd's end.
    pub server: SocketAddr,
}

impl Flow {
    /// Parses PAM's `SSH_CONNECTION`: client address and port, server address and port. The interface of a
    /// scope is looked up on this node. `None` for any other text, as sshd gives it for a connection that is not TCP
    /// (`UNKNOWN`), and for two address families.
    pub fn parse_ssh_connection(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let mut end = || parse_end(words.next()?, words.next()?);
        let flow = Self {
            client: end()?,
            server: end()?,
        };
        let has_one_family = flow.client.is_ipv4() == flow.server.is_ipv4();
        (has_one_family && words.next().is_none()).then_some(flow)
    }
}

/// An address as it is without a mapping into IPv6, and without a scope unless it is
/// link-local.
pub fn unmap_address(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V6(v6) => match v6.ip().to_canonical() {
            IpAddr::V4(ip) => SocketAddr::new(ip.into(), v6.port()),
            IpAddr::V6(ip) => {
                let scope = if ip.is_unicast_link_local() {
                    v6.scope_id()
                } else {
                    0
                };
                SocketAddrV6::new(ip, v6.port(), 0, scope).into()
            }
        },
        v4 @ SocketAddr::V4(_) => v4,
    }
}

/// Parses one end of a connection: an address, with `%` and an interface if it has a scope, and a port that is not 0.
/// `None` for any other text.
fn parse_end(address: &str, port: &str) -> Option<SocketAddr> {
    let port = u16::try_from(protocol::parse_decimal(port)?)
        .ok()
        .filter(|&port| port > 0)?;
    let address = match address.split_once('%') {
        None => SocketAddr::new(address.parse().ok()?, port),
        Some((address, scope)) => {
            let ip: Ipv6Addr = address.parse().ok()?;
            SocketAddrV6::new(ip, port, 0, parse_scope_id(scope)?).into()
        }
    };
    Some(unmap_address(address))
}

/// Parses an interface: its name, as getnameinfo(3) writes it, or its number if it has none. `None` for an interface
/// that this node does not have.
fn parse_scope_id(name: &str) -> Option<u32> {
    protocol::parse_decimal(name).or_else(|| nix::net::if_::if_nametoindex(name).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<(String, String)> {
        let flow = Flow::parse_ssh_connection(text)?;
        Some((flow.client.to_string(), flow.server.to_string()))
    }

    fn assert_ends(text: &str, client: &str, server: &str) {
        assert_eq!(read(text), Some((client.into(), server.into())), "{text}");
    }

    #[test]
    fn both_ends_are_parsed() {
        assert_ends(
            "10.1.0.5 41000 10.1.0.6 22",
            "10.1.0.5:41000",
            "10.1.0.6:22",
        );
        assert_ends(
            "fd77::5 41000 fd77::6 22",
            "[fd77::5]:41000",
            "[fd77::6]:22",
        );
        assert_ends(
            "127.0.0.1 1 127.0.0.1 65535",
            "127.0.0.1:1",
            "127.0.0.1:65535",
        );
        assert_ends("::1 1 ::1 2", "[::1]:1", "[::1]:2");
    }

    #[test]
    fn mapped_address_becomes_ipv4() {
        assert_ends(
            "::ffff:10.1.0.5 41000 10.1.0.6 22",
            "10.1.0.5:41000",
            "10.1.0.6:22",
        );
        assert_ends(
            "::ffff:a01:5 41000 ::ffff:10.1.0.6 22",
            "10.1.0.5:41000",
            "10.1.0.6:22",
        );
        // IPv4-compatible addresses (RFC 4291 section 2.5.5.1) are not mapped ones, and out of use.
        assert_ends("::10.1.0.5 1 ::10.1.0.6 2", "[::a01:5]:1", "[::a01:6]:2");
    }

    #[test]
    fn only_link_local_address_keeps_its_scope() {
        assert_ends("fe80::5%7 1 fe80::6%7 2", "[fe80::5%7]:1", "[fe80::6%7]:2");
        let lo = nix::net::if_::if_nametoindex("lo").unwrap();
        let [client, server] = [format!("[fe80::5%{lo}]:1"), format!("[fe80::6%{lo}]:2")];
        assert_ends("fe80::5%lo 1 fe80::6%lo 2", &client, &server);
        assert_ends("fd77::5%7 1 fd77::6 2", "[fd77::5]:1", "[fd77::6]:2");
        assert_ends("fe80::5 1 fe80::6 2", "[fe80::5]:1", "[fe80::6]:2");
    }

    #[test]
    fn other_texts_are_no_connection() {
        for text in [
            "",
            "UNKNOWN 65535 UNKNOWN 65535",
            "10.1.0.5 41000",
            "10.1.0.5 41000 10.1.0.6",
            "10.1.0.5 41000 10.1.0.6 22 ",
            "10.1.0.5 41000 10.1.0.6 22 1",
            " 10.1.0.5 41000 10.1.0.6 22",
            "10.1.0.5  41000 10.1.0.6 22",
            "10.1.0.5\t41000 10.1.0.6 22",
            "10.1.0.5 0 10.1.0.6 22",
            "10.1.0.5 65536 10.1.0.6 22",
            "10.1.0.5 041000 10.1.0.6 22",
            "10.1.0.5 -1 10.1.0.6 22",
            "10.1.0.5 ssh 10.1.0.6 22",
            "10.1.0 41000 10.1.0.6 22",
            "10.1.0.005 41000 10.1.0.6 22",
            "10.1.0.5%7 41000 10.1.0.6 22",
            "fe80::5% 1 fe80::6% 2",
            "fe80::5%no-such-link 1 fe80::6 2",
            "[fd77::5] 1 fd77::6 2",
            "node-5 1 node-6 2",
            "10.1.0.5 1 fd77::6 2",
            "fd77::5 1 10.1.0.6 2",
        ] {
            assert_eq!(read(text), None, "{text:?}");
        }
    }

    #[test]
    fn unmapping_twice_changes_nothing() {
        for text in [
            "10.1.0.5:1",
            "[::ffff:10.1.0.5]:1",
            "[fd77::5]:1",
            "[fe80::5%7]:1",
        ] {
            let once = unmap_address(text.parse().unwrap());
            assert_eq!(unmap_address(once), once, "{text}");
        }
        let flow_label = SocketAddrV6::new("fd77::5".parse().unwrap(), 1, 9, 9);
        assert_eq!(
            unmap_address(flow_label.into()),
            "[fd77::5]:1".parse().unwrap()
        );
    }
}
