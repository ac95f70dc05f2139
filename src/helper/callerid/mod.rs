//! Which job the ssh client of a login runs in (caller identity).
//!
//! The node that the client runs on, the *origin*, says which of its jobs owns a TCP connection; the
//! node that is logged in to asks it, by the Identification Protocol (RFC 1413), or itself where the
//! client runs on the same node. An answer is a job's id and nothing else, and whoever gave it: it
//! can only choose among the user's own jobs.
//!
//! ```text
//! asking node                                  origin
//! resolve -> Flow -> ask  -- port 113 -->  job-adopt callerid -> diag -> holder -> job
//! ```

mod ask;
pub mod diag;
mod holder;
mod ident;
mod networks;
mod serve;

pub use ask::{AskError, ask};
pub use ident::{Answer, LINE_MAX, Query};
pub use networks::{Network, NetworkError};
use nix::errno::Errno;
pub use serve::{Connection, NoConnection, Patience};
use std::io::{self, Read};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6, TcpStream};
use std::time::{Duration, Instant};

/// The service's port (RFC 1413 section 1; `auth` in services(5)). Only root may listen there.
pub const PORT: u16 = 113;

/// One line, with whatever came in one piece with it.
/// Fails: `ETIMEDOUT` at the deadline, `EPIPE` where the line is not ended any more, `EMSGSIZE` for
/// more than [`LINE_MAX`] bytes, else as recv(2).
fn line(mut stream: &TcpStream, deadline: Instant) -> Result<Vec<u8>, Errno> {
    let (mut line, mut buffer) = (Vec::new(), [0; LINE_MAX]);
    while !line.contains(&b'\n') {
        let room = buffer.get_mut(line.len()..).filter(|room| !room.is_empty());
        let room = room.ok_or(Errno::EMSGSIZE)?;
        stream.set_read_timeout(Some(left(deadline)?)).map_err(|error| errno(&error))?;
        match stream.read(room).map_err(|error| errno(&error)) {
            Ok(0) => return Err(Errno::EPIPE),
            Ok(length) => line.extend(room.get(..length).unwrap_or_default()),
            // Its time is over, which is looked at above.
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(line)
}

/// The time that is left, which is not zero: to a socket that means for ever.
fn left(deadline: Instant) -> Result<Duration, Errno> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(Errno::ETIMEDOUT) } else { Ok(left) }
}

fn errno(error: &io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO))
}

/// A TCP connection, by its ends. Addresses of IPv4 that were mapped into IPv6 (RFC 4291 section
/// 2.5.5.2) are plain ones here, and only those of a link have a scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// The ssh client's end.
    pub client: SocketAddr,
    /// sshd's end.
    pub server: SocketAddr,
}

impl Flow {
    /// Reads PAM's `SSH_CONNECTION`: client address and port, server address and port. `None` for
    /// anything else, and for a connection that is not of TCP.
    pub fn of_ssh(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let mut end = || end(words.next()?, words.next()?);
        let flow = Self { client: end()?, server: end()? };
        let same = flow.client.is_ipv4() == flow.server.is_ipv4();
        (same && words.next().is_none()).then_some(flow)
    }
}

/// An address without its mapping.
pub fn plain(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V6(v6) => match v6.ip().to_canonical() {
            IpAddr::V4(ip) => SocketAddr::new(ip.into(), v6.port()),
            IpAddr::V6(ip) => {
                let scope = if ip.is_unicast_link_local() { v6.scope_id() } else { 0 };
                SocketAddrV6::new(ip, v6.port(), 0, scope).into()
            }
        },
        v4 @ SocketAddr::V4(_) => v4,
    }
}

fn end(address: &str, port: &str) -> Option<SocketAddr> {
    let port = u16::try_from(protocol::decimal(port)?).ok().filter(|&port| port > 0)?;
    let address = match address.split_once('%') {
        None => SocketAddr::new(address.parse().ok()?, port),
        Some((address, scope)) => {
            let ip: Ipv6Addr = address.parse().ok()?;
            SocketAddrV6::new(ip, port, 0, scope_id(scope)?).into()
        }
    };
    Some(plain(address))
}

/// An interface by its name, as getnameinfo(3) writes it, or by its number where it has none.
fn scope_id(name: &str) -> Option<u32> {
    protocol::decimal(name).or_else(|| nix::net::if_::if_nametoindex(name).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<(String, String)> {
        let flow = Flow::of_ssh(text)?;
        Some((flow.client.to_string(), flow.server.to_string()))
    }

    fn reads(text: &str, client: &str, server: &str) {
        assert_eq!(read(text), Some((client.into(), server.into())), "{text}");
    }

    #[test]
    fn both_ends_are_read() {
        reads("10.1.0.5 41000 10.1.0.6 22", "10.1.0.5:41000", "10.1.0.6:22");
        reads("fd77::5 41000 fd77::6 22", "[fd77::5]:41000", "[fd77::6]:22");
        reads("127.0.0.1 1 127.0.0.1 65535", "127.0.0.1:1", "127.0.0.1:65535");
        reads("::1 1 ::1 2", "[::1]:1", "[::1]:2");
    }

    #[test]
    fn what_was_mapped_is_plain() {
        reads("::ffff:10.1.0.5 41000 10.1.0.6 22", "10.1.0.5:41000", "10.1.0.6:22");
        reads("::ffff:a01:5 41000 ::ffff:10.1.0.6 22", "10.1.0.5:41000", "10.1.0.6:22");
        // Compatible addresses (RFC 4291 section 2.5.5.1) are others, and out of use.
        reads("::10.1.0.5 1 ::10.1.0.6 2", "[::a01:5]:1", "[::a01:6]:2");
    }

    #[test]
    fn a_scope_belongs_to_a_link() {
        reads("fe80::5%7 1 fe80::6%7 2", "[fe80::5%7]:1", "[fe80::6%7]:2");
        let lo = nix::net::if_::if_nametoindex("lo").unwrap();
        let [client, server] = [format!("[fe80::5%{lo}]:1"), format!("[fe80::6%{lo}]:2")];
        reads("fe80::5%lo 1 fe80::6%lo 2", &client, &server);
        reads("fd77::5%7 1 fd77::6 2", "[fd77::5]:1", "[fd77::6]:2");
        reads("fe80::5 1 fe80::6 2", "[fe80::5]:1", "[fe80::6]:2");
    }

    #[test]
    fn nothing_else_is_a_connection() {
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
    fn an_address_is_plain_once() {
        for text in ["10.1.0.5:1", "[::ffff:10.1.0.5]:1", "[fd77::5]:1", "[fe80::5%7]:1"] {
            let once = plain(text.parse().unwrap());
            assert_eq!(plain(once), once, "{text}");
        }
        let flow_label = SocketAddrV6::new("fd77::5".parse().unwrap(), 1, 9, 9);
        assert_eq!(plain(flow_label.into()), "[fd77::5]:1".parse().unwrap());
    }
}
