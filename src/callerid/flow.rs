//! The two ends of an ssh connection.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};

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
    #[must_use]
    pub fn of_ssh(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let mut end = || end(words.next()?, words.next()?);
        let flow = Self { client: end()?, server: end()? };
        let same = flow.client.is_ipv4() == flow.server.is_ipv4();
        (same && words.next().is_none()).then_some(flow)
    }
}

/// An address without its mapping.
#[must_use]
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
    let port = u16::try_from(crate::plan::decimal(port)?).ok().filter(|&port| port > 0)?;
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
    crate::plan::decimal(name).or_else(|| nix::net::if_::if_nametoindex(name).ok())
}
